"""A session of one's own in a virtual environment that is not activated: its workers run another Python."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import UsageError
from stratalog.spark.worker.python import has_package, use_this_python

pytest.importorskip("pyspark")

PROGRAM = """
import sys
from pyspark.sql import SparkSession
import stratalog.spark
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
stratalog.spark.register(spark)
frame = spark.read.format("stratalog").load(sys.argv[1])
writer = frame.select("key", "value").write.format("stratalog").mode("append")
writer.option("topic", "copy").save(sys.argv[1])
print("read", frame.count())
"""


@pytest.fixture(scope="module")
def other_python(tmp_path_factory) -> Path:
    """A real interpreter without this package, called python3."""
    folder = Path(tmp_path_factory.mktemp("venv"))
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python3"


def test_python_without_the_package_is_told_from_one_that_has_it(other_python, tmp_path):
    assert has_package(sys.executable)
    assert not has_package(str(other_python))
    assert not has_package(str(tmp_path / "nothing"))


class Context:
    """What a session of Spark's knows of its workers' Python."""

    def __init__(self, master: str, python: str) -> None:
        self.master, self.pythonExec = master, python

    def getConf(self) -> Context:  # Spark's name
        return self

    def contains(self, name: str) -> bool:
        return name == "not set"


class Session:
    def __init__(self, master: str, python: str) -> None:
        self._sc = Context(master, python)


def test_local_session_gets_this_python_and_a_cluster_one_line(other_python, monkeypatch):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    local = Session("local[2]", str(other_python))
    use_this_python(local)  # type: ignore[arg-type]
    assert local._sc.pythonExec == sys.executable
    cluster = Session("spark://host:7077", str(other_python))
    with pytest.raises(
        UsageError, match=f"{other_python}, does not have stratalog: set PYSPARK_PYTHON"
    ):
        use_this_python(cluster)  # type: ignore[arg-type]
    monkeypatch.setenv("PYSPARK_PYTHON", str(other_python))
    with pytest.raises(UsageError, match="set PYSPARK_PYTHON"):
        use_this_python(Session("local[2]", str(other_python)))  # type: ignore[arg-type]


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_registered_source_works_where_python3_is_another(other_python, tmp_path):
    root = tmp_path / "logs"
    with stratalog.open(root) as logs:
        logs.create("orders", 2)
        logs.append("orders", [("a", "1"), ("b", "2")])
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYSPARK_")}
    environment["PATH"] = f"{other_python.parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, root],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "read 2"
    with stratalog.open(root, read_only=True) as logs:
        assert len(list(logs.read("copy").records())) == 2
