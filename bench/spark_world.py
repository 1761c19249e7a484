"""What the Spark cases share: one session, one broker, the same records in a log, in Kafka and in Parquet.

Made when the first case asks for it, and kept until the program ends: a session takes seconds to start, and
only a warm one says anything.
"""

from __future__ import annotations

import atexit
import functools
import os
import random
import shutil
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import stratalog
from bench.harness import Setup, Skip, need
from stratalog.records import kernel
from stratalog.records.builder import BatchBuilder, BatchOptions

VALUE_SIZE = 100
PARTITIONS = 2
_ROWS = 8192
_TIMESTAMP = 1_700_000_000_000


class World:
    """The session and the places. Everything is removed when the program ends."""

    def __init__(self, records: int) -> None:
        self.records = records
        need("pyspark")
        from stratalog.spark.session import session
        from tests.judges.kafka import oracle
        from tests.judges.kafka.spark_connector import connector_jars

        try:
            oracle.fetch()
            jars = connector_jars()
        except oracle.OracleUnavailable as reason:
            raise Skip(str(reason)) from reason
        self._ends = ExitStack()
        atexit.register(self._ends.close)
        self.folder = Path(tempfile.mkdtemp(prefix="stratalog-spark-bench-"))
        self._ends.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.spark = session(
            "stratalog-bench",
            master="local[2]",
            configs={
                "spark.jars": ",".join(map(str, jars)),
                "spark.driver.memory": "3g",
                "spark.local.dir": str(self.folder / "local"),
                "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            },
        )
        self._ends.callback(self.spark.stop)

    @functools.cached_property
    def log(self) -> str:
        """4 M records of 100 bytes and short keys, in two partitions."""
        return str(write_topic(self.folder / "log", "events", self.records, PARTITIONS))

    @functools.cached_property
    def parquet(self) -> str:
        """The same rows, as Spark writes them with zstd."""
        path = str(self.folder / "parquet")
        frame = self.read(self.log)
        frame.write.option("compression", "zstd").parquet(path)
        return path

    @functools.cached_property
    def broker(self) -> Any:
        """Apache Kafka with the same records, with its own flags for servers."""
        from tests.judges.kafka import oracle

        broker = oracle.Kafka(self.folder / "kafka", profile="server", heap="1g")
        folders = [Path(self.log, f"events-{number}") for number in range(PARTITIONS)]
        adopted = broker.adopt(*folders, mode="trust")
        assert adopted.intact, adopted.warnings
        if not broker.is_running():
            broker.start()
        self._ends.callback(broker.kill)
        return broker

    @contextmanager
    def cores(self, allowed: set[int]) -> Iterator[None]:
        """Java and all its workers on these cores only."""
        before = os.sched_getaffinity(0)
        gateway: Any = self.spark.sparkContext._gateway  # noqa: SLF001
        java = gateway.proc.pid
        _pin(java, allowed)
        try:
            yield
        finally:
            _pin(java, before)

    def read(self, path: str, **options: str | int) -> Any:
        reader = self.spark.read.format("stratalog")
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load(path)

    def read_kafka(self, topic: str = "events") -> Any:
        reader = self.spark.read.format("kafka")
        return (
            reader.option("kafka.bootstrap.servers", self.broker.bootstrap)
            .option("subscribe", topic)
            .load()
        )


def _pin(process: int, cores: set[int]) -> None:
    """A process, its threads, and the processes that it has started."""
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(OSError):  # it has just ended
            os.sched_setaffinity(int(task.name), cores)
            for child in (task / "children").read_text().split():
                _pin(int(child), cores)


@functools.cache
def _world(records: int) -> World:
    return World(records)


def world(setup: Setup) -> World:
    return _world(setup.scaled(4_000_000) // 2 * 2)


def noop(frame: Any) -> None:
    """Have Spark make every row, and do nothing with it."""
    frame.write.format("noop").mode("overwrite").save()


def write_topic(
    root: Path,
    topic: str,
    records: int,
    partitions: int,
    *,
    value_size: int = VALUE_SIZE,
    batch_bytes: int = 16384,
) -> Path:
    """A log directory with a topic of random values whose times rise by a millisecond from record to
    record, in batches as a producer sends them."""
    rng = random.Random(value_size)
    value_ends = array("i", range(0, (_ROWS + 1) * value_size, value_size))
    keys = b"".join(b"key-%05d" % number for number in range(_ROWS))
    key_ends = array("i", range(0, (_ROWS + 1) * 9, 9))
    with stratalog.open(str(root), sync=False) as logs:
        logs.create(topic, partitions)
        for number in range(partitions):
            log = logs.partition(topic, number)
            builder = BatchBuilder(BatchOptions(batch_bytes=batch_bytes))
            for first in range(0, records // partitions, _ROWS):
                count = min(_ROWS, records // partitions - first)
                times = array("q", range(_TIMESTAMP + first, _TIMESTAMP + first + count))
                # Never the same again: Parquet would keep a value that it knows as a number.
                values = rng.randbytes(count * value_size)
                rows = kernel.Rows(
                    count,
                    timestamps=(None, times, 0),
                    key=(None, key_ends, keys, 0),
                    value=(None, value_ends, values, 0),
                )
                builder.append(rows)
                log.append(builder.out)
                builder.out.clear()
                builder.next_offset = 0
    return root
