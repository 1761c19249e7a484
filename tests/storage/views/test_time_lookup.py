"""Offsets by time: the first record of a time or later, and the first with the largest time (part 3.7)."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.records.builder import BatchOptions, build_batch, empty_batch
from stratalog.records.control import ControlType
from stratalog.records.layout import Codec
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.storage.partition_log import PartitionLog, Watermark
from stratalog.storage.views.time_lookup import TimedOffset
from tests.scale import SCALE, fresh
from tests.storage.logs import (
    ALL_CODECS,
    T,
    batch,
    end_txn,
    headers,
    in_txn,
    name,
    open_log,
    records,
    reopen,
    small,
)


def at(log: PartitionLog, timestamp: int) -> tuple[int, int] | None:
    found = log.offset_for_time(timestamp)
    return None if found is None else (found.offset, found.timestamp)


def test_the_first_record_of_a_time_or_later(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(batch(b"a", b"b", b"c", timestamp=[T, T + 10, T + 5]), leader_epoch=2)
    log.append(batch(b"d", b"e", timestamp=[T + 7, T + 20]), leader_epoch=4)
    assert at(log, 0) == (0, T)
    assert at(log, T) == (0, T)
    assert at(log, T + 1) == (1, T + 10)
    assert at(log, T + 11) == (4, T + 20)
    assert at(log, T + 21) is None
    assert log.offset_for_time(T + 20) == TimedOffset(4, T + 20, 4)
    assert log.offset_of_largest_time() == TimedOffset(4, T + 20, 4)
    log.close()


def test_an_empty_log_and_one_without_times(tmp_path: Path) -> None:
    log = open_log(tmp_path / "empty")
    assert (at(log, 0), log.offset_of_largest_time()) == (None, None)
    log.close()
    log = open_log(tmp_path / "none")
    log.append_as_follower(build_messages([Record(b"a")], MessageOptions(magic=0)))
    assert (at(log, 0), log.offset_of_largest_time()) == (None, None)
    log.close()


@pytest.mark.parametrize(
    ("times", "largest"),
    [([[-1, -1], [-1]], (0, -1)), ([[-7, -3], [-1]], None), ([[-7, -3], [-9]], None)],
)
def test_the_largest_time_where_none_is_above_zero(
    tmp_path: Path, times: list[list[int]], largest: tuple[int, int] | None
) -> None:
    """As a running 4.3.1 answers: the batch's largest is -1, and so must a record's be."""
    log = open_log(tmp_path)
    for each in times:
        log.append(batch(*[b"v"] * len(each), timestamp=each))
    found = log.offset_of_largest_time()
    assert (None if found is None else found[:2]) == largest
    assert at(log, 0) is None
    log.close()


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_records_below_the_start_do_not_count(tmp_path: Path, codec: Codec) -> None:
    log = open_log(tmp_path, watermark=Watermark.WRITTEN)
    times = [T + 9, T + 1, T + 5, T + 3]
    log.append(batch(*b"abcd".hex().encode().split(b"6")[1:], timestamp=times, codec=codec))
    log.append(batch(b"e", timestamp=T + 4, codec=codec))
    assert at(log, T + 4) == (0, T + 9)
    log.advance_start(1)
    assert at(log, T + 4) == (2, T + 5)
    log.advance_start(3)
    # The batch has no such record any more; the next one has.
    assert at(log, T + 4) == (4, T + 4)
    assert at(log, T + 5) is None
    log.close()


def test_only_the_first_segment_that_reaches_the_time_is_looked_at(tmp_path: Path) -> None:
    log = open_log(tmp_path, watermark=Watermark.WRITTEN)
    log.append(batch(b"a", b"b", timestamp=[T + 100, T + 1]))
    log.roll()
    log.append(batch(b"c", timestamp=T + 100))
    log.advance_start(1)
    # Segment 0 says that it reaches T + 100, and has no such record to show: as in Kafka, that is all.
    assert at(log, T + 50) is None
    log.retain()
    assert at(log, T + 1) == (1, T + 1)
    log.close()


def test_control_records_count(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(in_txn(1, 0, b"a", timestamp=T))
    end_txn(log, ControlType.COMMIT, 1, timestamp=T + 50)
    log.append(batch(b"b", timestamp=T + 20))
    assert at(log, T + 10) == (1, T + 50)
    largest = log.offset_of_largest_time()
    assert largest is not None
    assert (largest.offset, largest.timestamp) == (1, T + 50)
    log.close()


def test_an_emptied_batch_does_not_end_the_search(tmp_path: Path) -> None:
    """Compaction keeps its largest time, and none of its records."""
    log = open_log(tmp_path)
    (header,) = headers(batch(b"a", b"b", timestamp=[T + 5, T + 9]))
    log.append_as_follower(empty_batch(replace(header, leader_epoch=0)))
    log.append_as_follower(small(2, timestamp=T + 6))
    assert at(log, T + 1) == (2, T + 6)
    log.close()


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_append_time_stands_for_every_record(tmp_path: Path, codec: Codec) -> None:
    log = open_log(tmp_path, {"message.timestamp.type": "LogAppendTime"})
    log.append(batch(b"a", b"b", timestamp=[5, 10**15], codec=codec))
    assert at(log, 6) == (0, T)
    assert at(log, T) == (0, T)
    assert at(log, T + 1) is None
    largest = log.offset_of_largest_time()
    assert largest is not None
    assert largest[:2] == (0, T)
    log.close()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_messages_of_magic_1(tmp_path: Path, codec: Codec) -> None:
    log = open_log(tmp_path)
    times = [T, T + 4, T + 2, T + 9, T + 9]
    data = build_messages(
        [Record(b"v", timestamp=time) for time in times], MessageOptions(magic=1, codec=codec)
    )
    log.append_as_follower(data)
    assert [at(log, T + more) for more in (0, 1, 5, 9, 10)] == [
        (0, T), (1, T + 4), (3, T + 9), (3, T + 9), None,
    ]  # fmt: skip
    assert log.offset_of_largest_time() == TimedOffset(3, T + 9, -1)
    log.close()


def test_segments_without_times_go_by_their_file(tmp_path: Path) -> None:
    """As in Kafka: the file's own time makes the segment the one that is looked at, in vain."""
    log = open_log(tmp_path)
    log.append(batch(b"a", timestamp=-1))
    log.roll()
    log.append(batch(b"b", timestamp=T))
    os.utime(tmp_path / name(0, ".log"), (T / 1000 - 10, T / 1000 - 10))
    assert at(log, T) == (1, T)
    os.utime(tmp_path / name(0, ".log"), (T / 1000 + 10, T / 1000 + 10))
    assert at(log, T) is None
    log.close()


def test_the_largest_time_is_the_first_of_its_kind(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"index.interval.bytes": 0})
    for times in ([T, T + 9], [T + 9, T + 9], [T + 3, T + 2]):
        log.append(batch(b"a", b"b", timestamp=times))
        log.roll()
    largest = log.offset_of_largest_time()
    assert largest is not None
    assert largest[:2] == (1, T + 9)
    log.close()


def test_the_ends_of_64_bits(tmp_path: Path) -> None:
    top = 2**63 - 1
    log = open_log(tmp_path, {"message.timestamp.after.max.ms": top})
    for timestamp in (T, -5, top - 1, top, -(2**63), T):
        log.append(batch(b"v", timestamp=timestamp))
    assert at(log, top) == (3, top)
    assert at(log, top - 1) == (2, top - 1)
    assert log.offset_of_largest_time() == TimedOffset(3, top, 0)
    for again in range(2):
        log = reopen(log)
        assert at(log, top) == (3, top), again
    log.close()


@pytest.mark.scaled
def test_random_logs_are_searched_as_if_record_by_record(tmp_path: Path) -> None:
    rng = random.Random(fresh(11))
    for number in range(12 * SCALE):
        configs = {
            "internal.segment.bytes": 4000,
            "index.interval.bytes": rng.choice((0, 200, 4096)),
        }
        log = open_log(tmp_path / str(number), configs, watermark=Watermark.WRITTEN)
        now = T
        for _ in range(rng.randint(1, 60)):
            count = rng.randint(1, 6)
            times = [now + rng.randint(-50, 50) for _ in range(count)]
            now += rng.randint(-5, 25)
            rows = [Record(rng.randbytes(rng.randint(0, 60)), timestamp=time) for time in times]
            log.append(build_batch(rows, BatchOptions(codec=rng.choice(ALL_CODECS))))
        if rng.random() < 0.5:
            log = reopen(log, watermark=Watermark.WRITTEN)
        log.advance_start(rng.randint(0, log.log_end))
        held = [
            [record for record in records(log) if base <= record.offset < behind]
            for base, behind in zip(
                [segment.base_offset for segment in log.segments],
                [segment.base_offset for segment in log.segments[1:]] + [log.log_end],
                strict=True,
            )
        ]
        largest = [segment.max_timestamp for segment in log.segments]
        for time in range(T - 60, now + 60, 7):
            want = None
            for segment, most in zip(held, largest, strict=True):
                if most >= time:
                    want = next((each for each in segment if each.timestamp >= time), None)
                    break
            assert at(log, time) == (None if want is None else (want.offset, want.timestamp))
        log.close()
