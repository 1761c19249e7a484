"""A Python worker of Spark's whose socket is closed while it waits, or works, ends without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

#: What Spark's daemon does in a worker it has forked, with a socket that Java has closed.
PROGRAM = """
import importlib, socket, sys
module, ours = sys.argv[1:]
importlib.import_module(module)
if ours == "ours":
    import stratalog.spark
sys.argv[1:] = [module] if module != "pyspark.worker" else []
from pyspark.daemon import worker
here, there = socket.socketpair()
there.close()
worker(here, True)
"""


@pytest.mark.parametrize("module", ["pyspark.sql.worker.plan_data_source_read", "pyspark.worker"])
def test_closed_worker_prints_nothing(module):
    said = {}
    for whose in ("theirs", "ours"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PROGRAM, module, whose],
            env={**os.environ, "SPARK_REUSE_WORKER": "1",
                 "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1"},
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        said[whose] = (done.returncode, done.stdout + done.stderr)
    assert "BrokenPipeError" in said["theirs"][1], "without us, it is as it was"
    assert said["ours"] == (0, "")


#: A worker that fails after Java has closed its socket: a task that is cancelled, a stream that is stopped.
FAILING = """
import importlib, socket, sys
module, ours = sys.argv[1:3]
worker_module = importlib.import_module(module)
from pyspark.sql.worker import utils
if ours == "ours":
    import stratalog.spark
here, there = socket.socketpair()

def main(infile, outfile):
    home = utils if module.endswith("plan_data_source_read") else worker_module
    if sys.argv[-1] == "closed":
        there.close()
    try:
        raise EOFError
    except EOFError as error:
        home.handle_worker_exception(error, outfile)
        outfile.flush()
        sys.exit(-1)

worker_module.main = main
sys.argv[1:] = [module, ours, *sys.argv[3:]]
from pyspark.daemon import worker
code = worker(here, True)
print(code, there.recv(1000)[:4].hex())
"""

MODULES = [
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
]


def failing(module, whose, socket_is):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FAILING, module, whose, socket_is],
        env={**os.environ, "SPARK_REUSE_WORKER": "1"},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("module", MODULES)
def test_worker_that_fails_into_a_closed_socket_prints_nothing(module):
    assert "BrokenPipeError" in failing(module, "theirs", "closed")[1], (
        "without us, it is as it was"
    )
    assert failing(module, "ours", "closed") == (1, "")


@pytest.mark.parametrize("module", MODULES)
def test_worker_that_fails_reports_it_as_before(module):
    """While Spark listens, the error reaches it: -2 is the word for it, and then the traceback."""
    code, said = failing(module, "ours", "open")
    assert (code, said.split()[-1]) == (0, "fffffffe")
    assert failing(module, "theirs", "open") == (code, said)


def test_nothing_is_changed_outside_of_workers(monkeypatch):
    from pyspark.sql.worker import utils

    from stratalog.spark.worker.idle import exit_quietly_when_closed

    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    before = vars(utils)["check_python_version"]
    exit_quietly_when_closed()
    assert vars(utils)["check_python_version"] is before
