"""Spark Connect: a client that knows nothing of us reads, writes and streams by the name of the format."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

ROOT = Path(__file__).parents[2]


def test_package_is_where_spark_looks_for_it():
    """Spark lists the modules on the path: an installation that only hooks into imports is not seen."""
    assert "pyspark_stratalog" in {module.name for module in pkgutil.iter_modules()}


@pytest.mark.proof  # it starts a server of its own
def test_everything_works_without_a_word_of_registration(tmp_path):
    pytest.importorskip(
        "grpc", reason="Spark Connect needs grpcio: pip install 'stratalog[pipelines]'"
    )
    pytest.importorskip("grpc_status")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark_programs.connect_client", str(tmp_path)],
        cwd=tmp_path,  # the server's warehouse and log come to lie here
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["session"].startswith("pyspark.sql.connect")
    assert found["columns"] == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType"
    ]  # fmt: skip
    assert found["values"] == sorted(f"value {number}" for number in range(500))
    assert (found["counted"], found["streamed"]) == (501, 501)
    assert found["scanned"] == 200
    check_conditions(found["conditions"])
    again = found["jobs"].pop("export again")
    assert not again
    assert found["jobs"].pop("verify")
    assert set(found["jobs"].values()) == {501}, found["jobs"]
    assert "no topic 'nope'; found t" in found["error"]
    assert "\tat " not in found["error"], "a Java stack trace"


def check_conditions(found):
    """What a condition says of offsets, topics and times is known also where Spark is not to be asked."""
    assert [each["rows"] for each in found] == [each["expected"] for each in found]
    for each in found[:5]:
        assert each["offsets"] == [10, 19]
        assert each["rows"] == 20
    assert [each["topics"] for each in found[:5]] == [["t"], ["t"], ["t"], ["nothing", "t"], []]
    assert found[4]["columns"] == ["offset", "value"]
    assert found[5]["offsets"] == [None, None], "a call of its own bounds nothing"
    assert found[6]["columns"] is None, "not wholly understood, it says nothing"
    assert found[7]["times"] is not None
    assert found[7]["times"] == found[8]["times"]
