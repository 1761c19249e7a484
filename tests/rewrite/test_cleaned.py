"""New segments, written as ``.cleaned``: where one ends and the next begins, and what their indexes say."""

from __future__ import annotations

import struct

import pytest

from stratalog.errors import CorruptionError, StorageError
from stratalog.records.layout import INT32_MAX, Codec
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.rewrite.cleaned import CleanedSegments, cleaned_paths
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.storage.segment.txn_index import AbortedTxn, decode_entries
from stratalog.testing import Call, Fault, FaultyFileSystem, MemoryFileSystem
from tests.storage.logs import T, batch, name, small

FOLDER = "/t-0"
SIZE = len(small(0))
OLD_MS = 1_234_000


def new_disk() -> MemoryFileSystem:
    return MemoryFileSystem(folders=[FOLDER])


def cleaned(disk: MemoryFileSystem, *, base: int = 0, size_max: int = INT32_MAX) -> CleanedSegments:
    new = CleanedSegments(
        disk, cleaned_paths(FOLDER), base, IndexLimits(100, 1000), size_max=size_max
    )
    new.begin()
    return new


def path(base: int, kind: str) -> str:
    return f"{FOLDER}/{name(base, f'{kind}.cleaned')}"


def offsets_of(disk: MemoryFileSystem, base: int) -> list[int]:
    data = disk.read_bytes(path(base, ".log"))
    return [struct.unpack_from(">q", data, at)[0] for at in range(0, len(data), SIZE)]


def test_all_batches_go_into_one_segment_with_its_indexes() -> None:
    disk = new_disk()
    new = cleaned(disk, base=10)
    new.append(b"".join(map(small, range(10, 14))))
    new.append(small(17))
    assert list(new.finish(OLD_MS)) == [10]
    assert offsets_of(disk, 10) == [10, 11, 12, 13, 17]
    assert new.records == 5
    assert [tuple(each) for each in new.sizes()] == [(10, 5 * SIZE)]
    # An entry after more than 100 bytes: the last offset of the batch, and where it begins.
    offsets = struct.iter_unpack(">ii", disk.read_bytes(path(10, ".index")))
    assert list(offsets) == [(2, 2 * SIZE), (7, 4 * SIZE)]
    *_, last = struct.iter_unpack(">qi", disk.read_bytes(path(10, ".timeindex")))
    assert last == (T + 17, 7)
    assert disk.stat(path(10, ".txnindex")) is None


def test_all_files_are_as_old_as_they_are_said_to_be() -> None:
    disk = new_disk()
    new = cleaned(disk)
    new.put(small(0), [AbortedTxn(7, 0, 0, 1)])
    new.finish(OLD_MS)
    for kind in (".log", ".index", ".timeindex", ".txnindex"):
        found = disk.stat(path(0, kind))
        assert found is not None
        assert found.modified_ms == OLD_MS


@pytest.mark.parametrize("at_once", [False, True])
def test_a_segment_ends_before_it_would_be_above_its_size(at_once: bool) -> None:
    disk = new_disk()
    new = cleaned(disk, size_max=2 * SIZE)
    batches = [small(offset) for offset in (0, 1, 5, 6, 9)]
    for data in [b"".join(batches)] if at_once else batches:
        new.append(data)
    assert list(new.finish(OLD_MS)) == [0, 5, 9]
    assert [offsets_of(disk, base) for base in (0, 5, 9)] == [[0, 1], [5, 6], [9]]
    assert new.records == 5


def test_a_batch_that_is_larger_than_a_segment_is_alone_in_one() -> None:
    disk = new_disk()
    new = cleaned(disk, size_max=SIZE - 1)
    new.append(small(0) + small(3))
    new.append(small(4))
    assert list(new.finish(OLD_MS)) == [0, 3, 4]
    assert [offsets_of(disk, base) for base in (0, 3, 4)] == [[0], [3], [4]]


def test_a_segment_ends_where_an_index_could_not_say_more() -> None:
    disk = new_disk()
    new = cleaned(disk, base=100)
    far = 100 + INT32_MAX
    new.append(b"".join(map(small, (100, far, far + 1, far + 2))))
    assert list(new.finish(OLD_MS)) == [100, far + 1]
    assert offsets_of(disk, 100) == [100, far]
    assert offsets_of(disk, far + 1) == [far + 1, far + 2]


def test_a_first_batch_beyond_the_reach_of_the_base_offset_leaves_an_empty_segment() -> None:
    """The first segment must have the base offset of the old one: a load finds by it what was replaced."""
    disk = new_disk()
    new = cleaned(disk, base=0)
    far = INT32_MAX + 7
    new.append(small(far))
    assert list(new.finish(OLD_MS)) == [0, far]
    assert (offsets_of(disk, 0), offsets_of(disk, far)) == ([], [far])


def test_a_wrapper_beyond_the_reach_of_what_is_before_it_gets_a_base_offset_in_reach() -> None:
    disk = new_disk()
    far = 2 * INT32_MAX
    records = [Record(b"v", b"k", T), Record(b"w", b"k", T)]
    wrapper = build_messages(records, MessageOptions(magic=1, codec=Codec.GZIP), base_offset=far)
    new = cleaned(disk)
    new.append(wrapper)
    assert list(new.finish(OLD_MS)) == [0, far + 1 - INT32_MAX]


def test_more_batches_than_one_walk_takes_are_all_written() -> None:
    disk = new_disk()
    new = cleaned(disk, size_max=1500 * SIZE)
    new.append(b"".join(map(small, range(3000))))
    assert list(new.finish(OLD_MS)) == [0, 1500]
    assert offsets_of(disk, 0) + offsets_of(disk, 1500) == list(range(3000))
    assert new.records == 3000


def test_how_many_records_wrappers_hold_is_not_known() -> None:
    disk = new_disk()
    new = cleaned(disk)
    records = [Record(b"v", b"k", T), Record(b"w", b"k", T)]
    data = build_messages(records, MessageOptions(magic=1, codec=Codec.GZIP))
    new.append(data)
    assert new.records is None
    new.append(batch(b"v", base_offset=2))
    assert new.records is None
    new.finish(OLD_MS)
    assert disk.read_bytes(path(0, ".log")) == data + batch(b"v", base_offset=2)


def test_a_segment_that_begins_with_a_wrapper_follows_the_one_before() -> None:
    """Of a wrapper only the last offset is known: a base offset above its first one would lose records."""
    disk = new_disk()
    records = [Record(b"v", b"k", T), Record(b"w", b"k", T)]
    wrapper = build_messages(records, MessageOptions(magic=1, codec=Codec.GZIP), base_offset=4)
    new = cleaned(disk, size_max=SIZE)
    new.append(small(0) + wrapper)
    assert list(new.finish(OLD_MS)) == [0, 1]


def test_an_aborted_transaction_is_listed_by_the_segment_of_its_marker() -> None:
    disk = new_disk()
    new = cleaned(disk, size_max=2 * SIZE)
    first, second = AbortedTxn(7, 0, 1, 2), AbortedTxn(8, 1, 5, 6)
    new.put(b"".join(map(small, (0, 1, 5, 6))), [first, second])
    third = AbortedTxn(7, 6, 9, 10)
    new.put(small(9), [third])
    assert list(new.finish(OLD_MS)) == [0, 5, 9]
    listed = {
        base: decode_entries(disk.read_bytes(path(base, ".txnindex")), base) for base in (0, 5, 9)
    }
    assert listed == {0: [first], 5: [second], 9: [third]}


def test_an_aborted_transaction_that_ended_before_the_first_segment_is_refused() -> None:
    new = cleaned(new_disk(), base=10)
    with pytest.raises(CorruptionError, match="marker at offset 4"):
        new.put(small(10), [AbortedTxn(7, 0, 4, 5)])


def test_bytes_that_are_no_batches_are_refused() -> None:
    new = cleaned(new_disk())
    with pytest.raises(CorruptionError):
        new.append(small(0)[:-1])


def test_files_that_an_earlier_rewrite_left_are_not_mixed_with_the_new() -> None:
    disk = new_disk()
    for kind in (".log", ".txnindex"):
        file = disk.open_writable(path(0, kind), create=True)
        file.write_at(0, b"left" * 100)
        file.close()
    new = cleaned(disk)
    new.append(small(0))
    new.finish(OLD_MS)
    assert offsets_of(disk, 0) == [0]
    assert disk.stat(path(0, ".txnindex")) is None


@pytest.mark.parametrize("is_finished", [False, True])
def test_discard_removes_all_that_was_written(is_finished: bool) -> None:
    disk = new_disk()
    new = cleaned(disk, size_max=SIZE)
    new.put(small(0) + small(1), [AbortedTxn(7, 0, 1, 2)])
    if is_finished:
        new.finish(OLD_MS)
    new.discard()
    assert disk.list_dir(FOLDER) == []


def test_a_full_disk_is_reported_and_leaves_nothing_after_discard() -> None:
    disk = new_disk()
    faulty = FaultyFileSystem(disk)
    new = CleanedSegments(faulty, cleaned_paths(FOLDER), 0, IndexLimits())
    new.begin()
    faulty.arm(1, fault=Fault.SHORT_WRITE, calls=[Call.WRITE])
    with pytest.raises(StorageError):
        new.append(small(0))
    faulty.heal()
    new.discard()
    assert disk.list_dir(FOLDER) == []
