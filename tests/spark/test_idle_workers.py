"""A Python worker of Spark's whose socket is closed while it waits ends without a traceback."""

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


def test_nothing_is_changed_outside_of_workers(monkeypatch):
    from pyspark.sql.worker import utils

    from stratalog.spark.worker.idle import exit_quietly_when_closed

    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    before = vars(utils)["check_python_version"]
    exit_quietly_when_closed()
    assert vars(utils)["check_python_version"] is before
