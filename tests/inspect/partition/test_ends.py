"""Where partitions begin and end: as Kafka says, also asked again and again beside a writer."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.inspect.partition.ends import EndsCache, PartitionEnds, partition_ends
from stratalog.inspect.partition.sources import PartitionSource, find_sources, relisted
from stratalog.records.control import ControlType
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.views.read_only import open_view
from stratalog.types import TopicPartition
from tests.inspect.ranges import SMALL, Counted, append_some, simple, source_of
from tests.judges.peers.golden import GoldenSet, golden_set, golden_sets
from tests.storage.logs import batch, end_txn, in_txn, open_log

SETS = [golden for golden in golden_sets() if not golden.damaged]


def sources(golden: GoldenSet) -> list[PartitionSource]:
    return [
        source
        for folder in golden.log_dirs
        for source in find_sources(str(folder)).partitions
        if source.topic_partition is not None
    ]


@pytest.mark.parametrize("golden", SETS, ids=[golden.name for golden in SETS])
def test_the_ends_are_those_that_kafka_told(golden):
    for source in sources(golden):
        ends = partition_ends(source)
        assert source.topic_partition is not None
        assert ends.start == golden.log_start_offset(*source.topic_partition)
        assert ends.end == golden.log_end_offset(*source.topic_partition)
        assert ends.stable is None


def test_the_last_stable_offset_is_the_one_that_kafka_told():
    golden = golden_set("v2-transactions")
    told = {
        (line["topic"], line["partition"]): line["offset"]
        for line in map(json.loads, (golden.path / "list-offsets.jsonl").read_text().splitlines())
        if (line["isolation"], line["query"]) == ("read_committed", "latest")
    }
    found = {each.topic_partition: partition_ends(each, stable=True) for each in sources(golden)}
    assert told
    assert {place: found[TopicPartition(*place)].stable for place in told} == told
    assert any(ends.stable != ends.end for ends in found.values())


@pytest.mark.parametrize("golden", SETS, ids=[golden.name for golden in SETS])
def test_the_last_stable_offset_is_the_read_only_view_s(golden):
    for source in sources(golden):
        if source.segments[-1].endswith(".kafka"):
            continue
        view = open_view(source.folder, OsFileSystem(), log_start=source.log_start).view
        ends = partition_ends(source, stable=True)
        assert ends == PartitionEnds(view.log_start, view.log_end, view.last_stable_offset)


def test_a_commit_under_way_is_not_seen(tmp_path):
    source = source_of(simple(tmp_path / "t-0"))
    assert partition_ends(replace(source, visible_end=100), stable=True) == PartitionEnds(
        0, 100, 100
    )
    assert partition_ends(replace(source, visible_end=10**9)).end == 180


def test_an_empty_partition_ends_where_it_begins(tmp_path):
    (tmp_path / "t-0").mkdir()
    assert partition_ends(source_of(tmp_path / "t-0")) == PartitionEnds(0, 0)
    gone = PartitionSource(
        folder=str(tmp_path / "u-0"), topic_partition=None, segments=(), log_start=7
    )
    assert partition_ends(gone, stable=True) == PartitionEnds(7, 7, 7)


def test_only_the_end_of_a_segment_is_read(tmp_path):
    folder = tmp_path / "t-0"
    log = open_log(folder)
    append_some(log, 3000, size=100)
    log.close()
    size = Path(source_of(folder).segments[-1]).stat().st_size
    counted = Counted()
    assert partition_ends(source_of(folder), counted).end == 9000
    assert counted.log_bytes < size / 20


@pytest.mark.parametrize("stable", [False, True])
def test_what_was_known_is_not_read_again(tmp_path, stable):
    folder = tmp_path / "t-0"
    log = open_log(folder)
    append_some(log, 3000, size=100)
    counted = Counted()
    cache = EndsCache(counted)
    source = source_of(folder)
    assert cache.ends_of(source, stable=stable).end == 9000
    first = counted.bytes
    assert cache.ends_of(source, stable=stable).end == 9000
    assert counted.bytes == first
    append_some(log, 2)
    assert cache.ends_of(source, stable=stable).end == 9006
    assert counted.bytes < first + 2000
    log.abandon()


def test_a_cache_follows_a_writer_through_segments_and_transactions(tmp_path):
    folder = tmp_path / "t-0"
    log = open_log(folder, SMALL)
    append_some(log, 1)
    cache = EndsCache()
    sequence = 0
    for step in range(40):
        append_some(log, step % 3)
        if step % 4 == 1:
            log.append(in_txn(7, sequence, b"one", b"two"))
            sequence += 2
        elif step % 4 == 3:
            end_txn(log, ControlType.ABORT if step % 8 == 3 else ControlType.COMMIT, 7)
        log.advance_high_watermark(log.log_end)
        source, view = source_of(folder), log.view
        wanted = PartitionEnds(view.log_start, view.log_end, view.last_stable_offset)
        assert cache.ends_of(source, stable=True) == wanted
        assert cache.ends_of(source) == PartitionEnds(wanted.start, wanted.end)
        assert EndsCache().ends_of(source, stable=True) == wanted
    log.abandon()


def test_a_cache_notices_a_log_that_was_cut_and_written_anew(tmp_path):
    folder = tmp_path / "t-0"
    log = open_log(folder)
    append_some(log, 20)
    cache = EndsCache()
    source = source_of(folder)
    assert cache.ends_of(source, stable=True).end == 60
    log.truncate(30)
    assert cache.ends_of(source, stable=True).end == 30
    assert cache.ends_of(source).end == 30
    # As long as before, with other batches.
    for _ in range(5):
        log.append(batch(*[b"%20d" % 1] * 6))
    log.truncate(54)
    assert cache.ends_of(source, stable=True).end == 54
    assert cache.ends_of(source).end == 54
    log.abandon()


def test_a_cache_notices_another_segment_of_the_same_name(tmp_path):
    one, two = simple(tmp_path / "t-0", 5), simple(tmp_path / "u-0", 7)
    cache = EndsCache()
    source = source_of(one)
    assert cache.ends_of(source).end == 15
    for path in Path(two).iterdir():
        shutil.copy(path, one / path.name)
    assert cache.ends_of(source).end == 21


def test_zeros_that_are_set_aside_are_not_the_end(tmp_path):
    folder = tmp_path / "t-0"
    log = open_log(folder, {"preallocate": "true", "segment.bytes": 1 << 20})
    cache = EndsCache()
    for step in range(5):
        append_some(log, 10)
        # The size stays as it is, and so may the time.
        assert cache.ends_of(source_of(folder), stable=True).end == 30 * (step + 1)
        assert cache.ends_of(source_of(folder)).end == 30 * (step + 1)
    log.abandon()


def test_a_torn_tail_is_not_the_end(tmp_path):
    folder = simple(tmp_path / "t-0", 10)
    last = Path(source_of(folder).segments[-1])
    cache = EndsCache()
    whole = last.read_bytes()
    last.write_bytes(whole + whole[:40])
    assert cache.ends_of(source_of(folder)).end == 30
    last.write_bytes(whole[:-1])
    assert cache.ends_of(source_of(folder)).end == 27


def test_a_last_segment_that_vanished_is_looked_for_again(tmp_path):
    folder = simple(tmp_path / "t-0")
    source = source_of(folder)
    Path(source.segments[-1]).unlink()
    found = partition_ends(source, stable=True)
    assert found == partition_ends(relisted(source), stable=True)
    assert found.end < 180


@pytest.mark.parametrize(
    "damage", [bytes(8), b"\xff" * 8, b"\0\0\0\1\0\0\0\3", b"\0\0\1\0\0\0\2\0"]
)
def test_an_index_that_lies_does_not_move_the_end(tmp_path, damage):
    folder = tmp_path / "t-0"
    log = open_log(folder)
    append_some(log, 300)
    log.close()
    index = folder / "00000000000000000000.index"
    data = index.read_bytes()
    index.write_bytes(data[:-8] + damage)
    assert partition_ends(source_of(folder)).end == 900
    index.write_bytes(damage * 4)
    assert partition_ends(source_of(folder)).end == 900
    index.unlink()
    assert partition_ends(source_of(folder)).end == 900
