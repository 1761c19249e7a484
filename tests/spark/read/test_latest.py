"""``latestPerKey``: the newest record of each key, a topic's partition to a task."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from stratalog.errors import CorruptionError, SpillError
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.layout import Codec
from stratalog.records.model import Record
from stratalog.spark.options.read_options import ReadOptions
from stratalog.spark.pushdown.pruning import Interval, Pruning
from stratalog.spark.pushdown.scan import plan_scan, scan
from stratalog.spark.read.batch_reader import BatchReader
from tests.inspect.logs import flipped, segment

KEYS = 200


def batch(base: int, count: int = 100, **options: Any) -> bytes:
    """Records whose keys come again after ``KEYS``; every tenth has none, and key 3 has no value."""
    records = [
        Record(
            None if n % KEYS == 3 else b"value-%d" % n,
            key=None if n % 10 == 0 else b"key-%d" % (n % KEYS),
            timestamp=1000 + n,
        )
        for n in range(base, base + count)
    ]
    return build_batch(records, BatchOptions(**options), base_offset=base)


@pytest.fixture
def logs(tmp_path: Path) -> str:
    """Two partitions of a thousand records in two segments, the second one without the last hundred."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for number in range(2):
        for base in (0, 500):
            end = base + (400 if number and base else 500)
            data = b"".join(batch(at, codec=Codec.LZ4) for at in range(base, end, 100))
            segment(folder, base, data, partition=f"orders-{number}")
    return str(folder)


def options_of(path: str, **more: object) -> ReadOptions:
    given = {"path": path, "latestPerKey": "true", **{k: str(v) for k, v in more.items()}}
    return ReadOptions.of(given, is_stream=False)


def read(options: ReadOptions, columns: tuple[str, ...] = ("partition", "offset")) -> Any:
    reader = BatchReader(options, columns)
    rows = [batch for each in reader.partitions() for batch in reader.read(each)]
    return sorted(tuple(row.values()) for batch in rows for row in batch.to_pylist())


def wanted(ends: tuple[int, ...] = (1000, 900), *, tombstones: bool = False) -> Any:
    return sorted(
        (number, n)
        for number, end in enumerate(ends)
        for n in range(end - KEYS, end)
        if n % 10 and (tombstones or n % KEYS != 3)
    )


def test_newest_record_of_each_key_is_read(logs):
    assert read(options_of(logs)) == wanted()
    assert read(options_of(logs, tombstones="true")) == wanted(tombstones=True)
    ends = '{"orders": {"0": 700, "1": 650}}'
    assert read(options_of(logs, endingOffsets=ends)) == wanted((700, 650))


def test_a_partition_is_read_by_one_task_and_small_ones_share_one(logs):
    def tasks(**more: object) -> list[int]:
        reader = BatchReader(options_of(logs, **more), ("offset",))
        return [len(each.ranges) for each in reader.partitions()]

    assert tasks(splitBytes="1k") == [1, 1]
    assert tasks() == [2]
    assert read(options_of(logs, splitBytes="1k")) == wanted()


def test_keys_are_spilled_into_the_local_directory_of_the_executor(tmp_path, monkeypatch):
    data = b"".join(
        build_batch([Record(b"v", key=b"%d" % n) for n in range(at, at + 500)], base_offset=at)
        for at in range(0, 5000, 500)
    )
    segment(tmp_path, 0, data)
    options = options_of(str(tmp_path), latestPerKeyMemory="64k")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    assert read(options, ("offset",)) == [(n,) for n in range(5000)]
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/no/such")
    assert len(read(options)) == 5000


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="only Linux has /proc")
def test_a_local_directory_that_takes_no_files_is_one_error(tmp_path, monkeypatch):
    records = [Record(b"v", key=b"%d" % n) for n in range(5000)]
    segment(tmp_path, 0, build_batch(records))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/proc/self")
    with pytest.raises(SpillError, match=r"raise latestPerKeyMemory, or set spark\.local\.dir"):
        read(options_of(str(tmp_path), latestPerKeyMemory="64k"))


def test_what_is_left_out_is_logged(logs, caplog):
    caplog.set_level(logging.WARNING, "stratalog.spark")
    read(options_of(logs))
    assert [each.getMessage() for each in caplog.records] == [
        "orders-0: left out: 100 records without a key",
        "orders-1: left out: 90 records without a key",
    ]


def test_damage_is_an_error_or_skipped_and_logged_once(tmp_path, caplog):
    damaged = flipped(batch(100), -3)
    segment(tmp_path, 0, batch(0) + damaged + batch(200))
    with pytest.raises(CorruptionError, match="orders-0 cannot be read from offset 100 on"):
        read(options_of(str(tmp_path)))
    caplog.set_level(logging.WARNING, "stratalog.spark")
    offsets = {offset for _, offset in read(options_of(str(tmp_path), onDamage="skip"))}
    assert offsets == {n for n in range(200, 300) if n % 10 and n != 203}
    assert ["at byte" in each.getMessage() for each in caplog.records] == [True, False]


def test_a_condition_prunes_partitions_and_neither_offsets_nor_times(logs):
    """A newer record that does not pass hides an older one that does."""
    pruning = Pruning(
        partitions=Interval(1, 1), offsets=Interval(0, 10), times_us=Interval(0, 5_000_000)
    )
    (ranges,) = plan_scan(options_of(logs), pruning)
    assert [(each.partition, each.start, each.end, each.end_time) for each in ranges] == [
        (1, 0, 900, None)
    ]


@pytest.mark.slow
def test_spark_reads_the_newest_records(spark, logs):
    frame = spark.read.format("stratalog").option("latestPerKey", "true").load(logs)
    rows = frame.select("partition", "offset").collect()
    assert sorted((row.partition, row.offset) for row in rows) == wanted()
    scanned = scan(
        spark, logs, where="offset < 820", columns=["partition", "offset"],
        options={"latestPerKey": "true", "tombstones": "true"},
    )  # fmt: skip
    kept = [each for each in wanted(tombstones=True) if each[1] < 820]
    assert sorted(map(tuple, scanned.collect())) == kept
    with pytest.raises(Exception, match="latestPerKey is for batch reads"):
        spark.readStream.format("stratalog").option("subscribe", "orders").option(
            "latestPerKey", "true"
        ).load(logs).writeStream.format("noop").start().awaitTermination(60)
