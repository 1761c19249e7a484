"""Fixtures for Spark: one session for all tests of a process, and small logs to read with it.

Starting Spark costs eight CPU seconds, and its first queries as much again. So all tests that ask for the
fixture ``spark`` run in one worker (``tests/conftest.py``), and share what one start has paid for.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stratalog
from tests.judges.peers.golden import golden_set


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark")
    from stratalog.spark.session import session

    folder = tempfile.mkdtemp(prefix="stratalog-spark-")
    started = session(
        "stratalog-tests",
        master="local[2,3]",  # two cores, and a task may fail twice
        configs={
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.local.dir": f"{folder}/local",
            "spark.driver.memory": "1g",
            # Tests are short: what Java would spend on making long runs fast, they wait for.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.pollingDelay": "20ms",
        },
    )
    yield started
    started.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def make_log(tmp_path: Path) -> Callable[..., str]:
    """Makes a log directory with a topic of so many records, keyed, a millisecond apart."""

    def make(
        records: int = 1000,
        *,
        topic: str = "orders",
        partitions: int = 3,
        name: str = "logs",
        first: int = 0,
        **configs: object,
    ) -> str:
        path = str(tmp_path / name)
        with stratalog.open(path) as logs:
            if topic not in logs.topics():
                logs.create(topic, partitions, configs)
            logs.append(
                topic,
                [
                    {
                        "key": f"key-{number}",
                        "value": f"value-{number}",
                        "timestamp": 1_700_000_000_000 + number,
                        "headers": {"number": str(number)} if number % 3 == 0 else None,
                    }
                    for number in range(first, first + records)
                ],
            )
        return path

    return make


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An S3 on loopback with a backup in it: ``s3://backup/logs``."""
    pytest.importorskip("moto")
    from moto.server import ThreadedMotoServer
    from pyarrow import fs

    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        store = fs.S3FileSystem(
            endpoint_override=f"{host}:{port}",
            scheme="http",
            region="us-east-1",
            access_key="nobody",
            secret_key="nothing",
            allow_bucket_creation=True,
        )
        store.create_dir("backup")
        folder = golden_set("v2-plain").path
        for path in folder.rglob("*"):
            if path.is_file() and path.parent != folder:
                with store.open_output_stream(f"backup/logs/{path.relative_to(folder)}") as out:
                    out.write(path.read_bytes())
        yield f"{host}:{port}"
    finally:
        server.stop()
