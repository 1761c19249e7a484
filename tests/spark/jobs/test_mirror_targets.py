"""What a mirror does with targets that are no plain copies: histories of their own, ends without records,
folders that are gone."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import stratalog
from stratalog.errors import StratalogError, UsageError
from stratalog.inspect.partition.ends import partition_ends
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.layout import Codec
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.spark import jobs
from stratalog.spark.jobs.mirroring.tasks import Copied, Mirroring, PartitionToCopy, copy_partitions
from stratalog.spark.jobs.run.log_paths import LogPaths
from stratalog.types import TopicPartition

PLACE = TopicPartition("orders", 0)
T = 1_700_000_000_000


def some(*offsets: int, tag: str = "s") -> list[Record]:
    return [
        Record(key=b"k%d" % n, value=f"{tag}-{n}".encode(), timestamp=T + n, offset=n)
        for n in offsets
    ]


def v2(*offsets: int, tag: str = "s", **options: Any) -> bytes:
    return build_batch(some(*offsets, tag=tag), BatchOptions(**options))


def v1(*offsets: int, tag: str = "s") -> bytes:
    return build_messages(some(*offsets, tag=tag), MessageOptions(magic=1, codec=Codec.GZIP))


def log_of(path: Path, *batches: bytes) -> str:
    with stratalog.open(str(path)) as logs:
        if "orders" not in logs.topics():
            logs.create("orders", 1, {"retention.ms": -1})
        for data in batches:
            logs.partition("orders").append_as_follower(data)
    return str(path)


def mirrored(source: str, target: str) -> Copied:
    """What a task does: no Spark."""
    (found,) = LogPaths.of(source).sources().partitions
    item = PartitionToCopy(found, PLACE, partition_ends(found).end, 1)
    (copied,) = copy_partitions(Mirroring(LogPaths.of(source), target), [item])
    return copied


def values(path: str) -> list[bytes | None]:
    with stratalog.open(path, read_only=True) as logs:
        return [record.value for record in logs.read("orders").records()]


def ends(path: str) -> tuple[int, int]:
    with stratalog.open(path, read_only=True) as logs:
        return logs.earliest("orders"), logs.latest("orders")


@pytest.mark.parametrize(
    ("source", "foreign"),
    [
        ([v2(0, 1), v2(2, 3, 4)], [v2(0, 1, 2, 3, 4, tag="FOREIGN")]),
        ([v2(0, 1, 2, 3, 4)], [v2(0, 1), v2(2, 3, 4, tag="FOREIGN")]),
        ([v2(0, 1, 2, 3, 4)], [v2(0, 1, 2, 3, 4, tag="FOREIGN")]),
        # The source was compacted: ends and records that it still has are proof, too.
        ([v2(0, 2, 4)], [v2(0, 1, 2, 3, 4, tag="FOREIGN")]),
        ([v1(0, 1, 4)], [v1(0, 1, 2, 3, 4, tag="FOREIGN")]),
        ([v1(0, 1, 2, 3, 4)], [v2(0, 1, 2, 3, 4, tag="FOREIGN")]),
    ],
)
def test_mirror_that_went_on_behind_records_of_another_log(
    tmp_path: Path, source: Sequence[bytes], foreign: Sequence[bytes]
) -> None:
    """Batches of other sizes, which only ended where one of the source's did, were taken for copies."""
    path = log_of(tmp_path / "source", *source, v2(5, 6))
    target = log_of(tmp_path / "target", *foreign)
    before = values(target)
    refused = mirrored(path, target).refused
    assert isinstance(refused, UsageError)
    assert "not a copy" in str(refused)
    assert values(target) == before


@pytest.mark.parametrize(
    ("copied", "compacted"),
    [
        ([v2(0, 1), v2(2, 3, 4)], [v2(0, 1), v2(2, 4)]),
        ([v2(0, 1), v2(2, 3, 4)], [v2(0, 1)]),
        ([v2(0, 1), v2(2, 3, 4)], [v2(0, 1), v2(2, 3, 4, delete_horizon_ms=T + 10**9)]),
        ([v1(0, 1), v1(2, 3, 4)], [v1(0, 1), v1(3, 4)]),
        ([v1(0, 1), v1(2, 3, 4)], [v1(0, 1), v1(2, 3)]),
    ],
)
def test_a_copy_of_what_was_compacted_later_goes_on(
    tmp_path: Path, copied: Sequence[bytes], compacted: Sequence[bytes]
) -> None:
    path = log_of(tmp_path / "source", *compacted, v2(5, 6))
    target = log_of(tmp_path / "target", *copied)
    assert mirrored(path, target).refused is None
    assert values(target)[-2:] == [b"s-5", b"s-6"]
    assert len(values(target)) == 7


@pytest.mark.slow
def test_mirror_of_an_emptied_partition_carries_its_end(spark: Any, tmp_path: Path) -> None:
    """The copy stayed at 0, and what was written to it after a fail-over got offsets that were used."""
    path, target = log_of(tmp_path / "source", v2(*range(10))), str(tmp_path / "copy")
    with stratalog.open(path) as logs:
        logs.delete_records("orders", 0, 10)
    for _ in range(2):
        (row,) = jobs.mirror(spark, path, target).partitions
        assert (row.start_offset, row.end_offset, row.records) == (10, 10, 0)
        assert ends(target) == ends(path) == (10, 10)
    with stratalog.open(target) as logs:
        logs.append("orders", ["fail-over"])
    assert ends(target) == (10, 11)


def test_records_that_a_copy_holds_outlive_the_end_of_an_emptied_source(tmp_path: Path) -> None:
    path, target = log_of(tmp_path / "source", v2(0, 1, 2)), str(tmp_path / "copy")
    log_of(tmp_path / "copy")
    assert mirrored(path, target).records == 3
    log_of(tmp_path / "source", v2(3, 4))
    with stratalog.open(path) as logs:
        logs.delete_records("orders", 0, 5)
    assert "allow_loss=True" in str(mirrored(path, target).refused)
    assert len(values(target)) == 3


@pytest.mark.slow
def test_mirror_says_what_to_do_where_a_folder_of_the_copy_is_gone(
    spark: Any, make_log: Any, tmp_path: Path
) -> None:
    path, target = make_log(90), tmp_path / "copy"
    jobs.mirror(spark, path, target)
    make_log(30, first=90)
    shutil.rmtree(target / "orders-1")
    told: list[StratalogError] = []
    jobs.mirror(spark, path, target, on_error=told.append)
    (error,) = told
    assert "make an empty folder orders-1" in str(error)
    (target / "orders-1").mkdir()
    jobs.mirror(spark, path, target)
    for partition in range(3):
        with stratalog.open(path, read_only=True) as logs, stratalog.open(str(target)) as copy:
            assert copy.latest("orders", partition) == logs.latest("orders", partition)
            assert copy.earliest("orders", partition) == 0
