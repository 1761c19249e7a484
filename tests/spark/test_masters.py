"""A cluster's master that does not answer is one line with its name."""

from __future__ import annotations

import socket
import time

import pytest

from stratalog.errors import StorageError, UsageError
from stratalog.spark.masters import check_master, naming_master, standalone_addresses
from tests.cli.runner import run


@pytest.fixture
def closed_port() -> int:
    """A port that nothing listens at."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def test_command_names_a_master_that_cannot_be_reached_before_java_starts(
    tmp_path, closed_port, monkeypatch
):
    import stratalog

    with stratalog.open(tmp_path) as logs:
        logs.create("t")
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    before = time.monotonic()
    done = run("spark", "count", "--master", f"spark://127.0.0.1:{closed_port}", tmp_path)
    assert (done.code, done.out) == (3, b"")
    assert done.err == (
        f"stratalog: spark://127.0.0.1:{closed_port}: the Spark master does not respond: connection refused\n"
    )
    assert time.monotonic() - before < 30


def test_one_of_several_masters_is_enough(closed_port):
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_master(f"spark://127.0.0.1:{closed_port},127.0.0.1:{server.getsockname()[1]}")
    for local in ("local[2]", "yarn", "k8s://https://host:443"):
        check_master(local)  # not asked here


def test_addresses_are_those_of_a_standalone_master():
    assert standalone_addresses("spark://a:7077,[::1]:1") == [("a", 7077), ("::1", 1)]
    for wrong in ("spark://a", "spark://", "spark://a:7077,b", "spark://a:99999"):
        with pytest.raises(UsageError, match="write spark://host:7077"):
            standalone_addresses(wrong)


def test_context_that_spark_stopped_is_told_by_its_master():
    stopped = RuntimeError(
        "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
    )
    says = "spark://host:1: the Spark master does not accept"
    with pytest.raises(StorageError, match=says), naming_master("spark://host:1"):
        raise stopped
    with pytest.raises(RuntimeError), naming_master(None):
        raise stopped
    with pytest.raises(KeyError), naming_master("spark://host:1"):
        raise KeyError
