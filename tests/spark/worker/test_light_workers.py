"""None of the processes in which Spark runs a stream imports pandas for us: it costs each 0.3 s and 50 MB."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import stratalog
from tests.judges.interop.spark_processes import environment

pytest.importorskip("pyspark")

#: A pandas that notes who asks for it, and is not there then.
SPY = """
import os, sys
frame = sys._getframe(1)
while "importlib" in frame.f_code.co_filename:
    frame = frame.f_back
with open(os.environ["STRATALOG_TEST_ASKED"], "a") as asked:
    print(frame.f_code.co_filename, *sys.orig_argv[1:3], file=asked)
raise ImportError("not here")
"""


@pytest.mark.proof  # a second Java starts in it
def test_no_worker_of_a_stream_imports_pandas_for_us(tmp_path: Path) -> None:
    (tmp_path / "spy" / "pandas").mkdir(parents=True)
    (tmp_path / "spy" / "pandas" / "__init__.py").write_text(SPY)
    asked = tmp_path / "asked"
    asked.touch()
    source, target = tmp_path / "source", tmp_path / "target"
    with stratalog.open(str(source)) as logs:
        logs.create("in", 2)
        headers = [("h", b"1")]
        for partition in range(2):
            rows = [{"key": f"{n}", "value": f"{n}", "headers": headers[n % 2 :]} for n in range(9)]
            logs.append("in", rows, partition=partition)
    given = environment(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark_programs.copy_stream",
         str(source), str(target), str(tmp_path / "checkpoint"), "copy", "0"],
        cwd=tmp_path,
        env={
            **os.environ,
            **given,
            "PYTHONPATH": os.pathsep.join((given["PYTHONPATH"], str(tmp_path / "spy"))),
            "STRATALOG_TEST_ASKED": str(asked),
            "STRATALOG_TEST_KILL": str(tmp_path / "nobody.json"),
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    with stratalog.open(str(target), read_only=True) as logs:
        assert len(list(logs.read("out").records())) == 18
    found = asked.read_text().splitlines()
    assert any("pyspark" in line for line in found), "the spy was not found by Spark itself"
    assert [line for line in found if "stratalog" in line.split()[0]] == []
