"""A look-up takes a short way where it can: the header of the batch that the next index entry names, or the
first bytes of a batch. Whatever the indexes say, the answer is that of a walk from the first batch on."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.records.columns import decode_records
from stratalog.records.layout import Codec
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.segment.active import ActiveSegment
from stratalog.storage.segment.find import READ_SIZE, BatchPlace, batch_at, places_from
from stratalog.storage.views.time_lookup import TimedOffset, find_time
from stratalog.testing.memory_files import MemoryFileSystem
from tests.scale import SCALE
from tests.storage.logs import T, batch, open_log, reopen

pytestmark = pytest.mark.scaled


def append(log: PartitionLog, size: int, time: int, **options: Any) -> None:
    log.append(batch(b"v" * size, b"", timestamp=[time, time + 3], **options))


def mixed(path: Path, seed: int, codec: Codec = Codec.NONE, **options: Any) -> PartitionLog:
    """Small batches, large ones and runs of either, their times mostly rising."""
    log = open_log(path, {"max.message.bytes": 1 << 20}, **options)
    chosen = random.Random(seed)
    time = T
    for _ in range(60):
        size = chosen.choice([10, 200, 3000, READ_SIZE, 5000, 40_000])
        time += chosen.choice([-7, 0, 1, 10, 10, 10])
        append(log, size, time, codec=codec)
    return log


def walked(log: PartitionLog) -> list[BatchPlace]:
    segment = log.view.segments.last
    return list(places_from(segment.log, 0, log.view.end_position))


def check_offsets(log: PartitionLog, places: list[BatchPlace]) -> None:
    view = log.view
    for offset in range(view.log_end + 2):
        wanted = next((each for each in places if each.last_offset >= offset), None)
        assert view.find(offset) == (None if wanted is None else (0, wanted)), offset


def check_times(log: PartitionLog) -> None:
    records = [r for b in _batches(log) for r in b]
    for time in range(T - 8, max(r.timestamp for r in records) + 2):
        wanted = next((r for r in records if r.timestamp >= time), None)
        found = find_time(log.view, time)
        assert found == (
            None if wanted is None else TimedOffset(wanted.offset, wanted.timestamp, 0)
        )


def _batches(log: PartitionLog) -> Iterator[list[Any]]:
    for place in walked(log):
        yield list(decode_records(log.view.segments.last.read_batch(place)))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("seed", range(3))
def test_every_offset_and_every_time(tmp_path: Path, seed: int, codec: Codec) -> None:
    log = mixed(tmp_path, seed, codec)
    check_offsets(log, walked(log))
    check_times(log)
    log = reopen(log)
    check_offsets(log, walked(log))
    check_times(log)
    log.close()


def test_a_file_system_without_descriptors(tmp_path: Path) -> None:
    log = mixed(tmp_path, 9, file_system=MemoryFileSystem(folders=[str(tmp_path)]))
    check_offsets(log, walked(log))
    check_times(log)
    log.close()


def test_large_batches_are_found_by_one_header(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"max.message.bytes": 1 << 20})
    for number in range(9):
        append(log, 20_000, T + 10 * number)
    reads: list[int] = []
    segment = log.view.segments.last
    whole = segment.log

    class Counted:
        path = whole.path

        def read(self, position: int, size: int) -> bytes:
            reads.append(size)
            return whole.read(position, size)

    assert isinstance(segment, ActiveSegment)
    segment._log = Counted()  # type: ignore[assignment]
    places = [log.view.find(offset) for offset in range(4, 17)]
    segment._log = whole  # type: ignore[assignment]
    assert len(reads) == len(places) == 13
    assert max(reads) < 100
    log.close()


@given(st.binary(max_size=200), st.binary(max_size=200), st.integers(0, 2))
@settings(max_examples=30 * SCALE, deadline=None)
def test_indexes_of_any_bytes_change_no_answer(
    tmp_path_factory: pytest.TempPathFactory, offsets: bytes, times: bytes, seed: int
) -> None:
    log = mixed(tmp_path_factory.mktemp("any"), seed)
    places = walked(log)
    index = log.view.segments.last.index
    index.offsets, index.times = bytearray(offsets), bytearray(times)
    check_offsets(log, places)
    check_times(log)
    log.abandon()


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30 * SCALE, deadline=None)
def test_entries_that_are_in_order_and_wrong_change_no_answer(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Sound places and sound times, and none of them where it belongs."""
    log = mixed(tmp_path_factory.mktemp("wrong"), seed % 3)
    places = walked(log)
    chosen = random.Random(seed)
    some = sorted(chosen.sample(range(1, len(places)), 12))
    keys = sorted(chosen.sample(range(log.log_end), 12))
    offsets = b"".join(
        struct.pack(">ii", key, places[at].position) for key, at in zip(keys, some, strict=True)
    )
    others = sorted(chosen.sample(range(len(places)), 12))
    entries = [
        (places[at].max_timestamp + chosen.choice([-1, 0, 1]), key)
        for key, at in zip(keys, others, strict=True)
    ]
    # What the log confirms is believed: that it is the first batch of its time is the index's word.
    true = {(each.max_timestamp, each.last_offset) for each in places}
    times = b"".join(struct.pack(">qi", *each) for each in entries if each not in true)
    index = log.view.segments.last.index
    index.offsets, index.times = bytearray(offsets), bytearray(times)
    check_offsets(log, places)
    check_times(log)
    log.abandon()


def test_an_entry_that_points_to_the_end_or_behind_it_hides_no_batch(tmp_path: Path) -> None:
    log = mixed(tmp_path, 0)
    places = walked(log)
    end = log.view.end_position
    for position in (end, end + 1, 2**31 - 1):
        log.view.segments.last.index.offsets = bytearray(struct.pack(">ii", 0, position))
        check_offsets(log, places)
    log.abandon()


def test_an_append_of_several_batches_has_one_entry_in_old_brokers(tmp_path: Path) -> None:
    """Before 4.0 an entry names the last offset of an append, and the place of its first batch."""
    log = open_log(tmp_path, {"max.message.bytes": 1 << 20})
    for number in range(12):
        append(log, 6000, T + 10 * number)
    places = walked(log)
    old = b"".join(
        struct.pack(">ii", places[at + 2].last_offset, places[at].position)
        for at in range(3, 12, 3)
    )
    log.view.segments.last.index.offsets = bytearray(old)
    check_offsets(log, places)
    check_times(log)
    log.close()


def test_batch_at_answers_only_for_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    log = mixed(tmp_path, 1)
    file = log.view.segments.last.log
    first, second, third = walked(log)[:3]
    end = log.view.end_position
    assert batch_at(file, second.position, end, second.base_offset) == second
    assert batch_at(file, second.position, end, second.last_offset) == second
    assert batch_at(file, second.position, end, first.last_offset) is None
    assert batch_at(file, second.position, end, third.base_offset) is None
    assert batch_at(file, second.position + 1, end, second.base_offset) is None
    assert batch_at(file, second.position, second.end_position - 1, second.base_offset) is None
    for position in (-1, end, end + 1):
        assert batch_at(file, position, end, second.base_offset) is None
    log.close()


def test_of_a_wrapper_only_its_contents_tell_where_it_begins(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    made = [Record(b"v", timestamp=T), Record(b"w", timestamp=T)]
    log.append_as_follower(build_messages(made, MessageOptions(magic=1, codec=Codec.GZIP)))
    file = log.view.segments.last.log
    assert batch_at(file, 0, log.view.end_position, 1) is None
    check_offsets(log, walked(log))
    log.close()
