"""Windows over a file: where they end must not matter."""

from __future__ import annotations

import pytest

import stratalog
from stratalog.errors import CorruptionError, LimitExceededError
from stratalog.inspect.file.count import count_file
from stratalog.inspect.file.decode import decode_file
from stratalog.records.columns import RegionDecoder, Selection, WalkEnd
from stratalog.records.layout import Column, Ending, Reason
from stratalog.storage.segment import log_file
from stratalog.storage.segment.log_file import open_log_file
from stratalog.storage.segment.torn_tail import OversizedBatchEnd
from tests.inspect.logs import batch, flipped, segment


@pytest.fixture
def window_of(monkeypatch):
    """Makes windows of another size than the real one."""

    def small(size: int) -> None:
        monkeypatch.setattr(log_file.Window.__init__, "__defaults__", (size,))

    return small


def test_window_may_end_at_any_byte_of_a_batch(tmp_path, window_of):
    """The first bytes of a batch are zeros for as long as offsets are small: no tail of zeros."""
    data = b"".join(batch(3 * n) for n in range(12))
    path = segment(tmp_path, 0, data)
    for size in range(17, 2 * len(batch(0)) + 20):
        window_of(size)
        count = count_file(path)
        assert (count.records, count.end.is_clean) == (36, True), size
        assert sum(b.num_rows for b in stratalog.scan(path, batch_rows=5)) == 36


def test_zeros_over_several_windows_are_a_tail_only_to_the_end(tmp_path, window_of):
    window_of(64)
    first = batch(0)
    tail = count_file(segment(tmp_path, 0, first + bytes(1000)))
    assert tail.end.pause.reason.name == "ZERO_TAIL"
    assert (tail.end.pause.position, tail.end.unread_bytes) == (len(first), 1000)
    hole = count_file(segment(tmp_path, 0, first + bytes(1000) + batch(3)))
    assert hole.end.pause.reason.name == "SIZE_TOO_SMALL"
    assert hole.end.pause.position == len(first)


def test_batch_above_the_limit_is_named_with_its_position(tmp_path):
    first = batch(0)
    path = segment(tmp_path, 0, first + batch(3, size=5000))
    count = count_file(path, max_batch_bytes=4096)
    assert count.end.pause.position == len(first)
    error = count.end.error()
    assert isinstance(error, LimitExceededError)
    assert isinstance(error, CorruptionError)
    assert error.advice


def ends_of(path: str, limit: int | None = None, *, classifies: bool = True) -> WalkEnd:
    """Where a walk over headers ends, of a file that is read up to ``limit``."""
    with open_log_file(path) as whole:
        part = whole if limit is None else whole.up_to(limit)
        decoder = RegionDecoder(Selection(columns=Column.OFFSET))
        *_, end = decode_file(part, decoder, classifies=classifies)
    return end


def test_walk_ends_with_damage_where_a_size_hides_intact_batches(tmp_path):
    batches = [batch(3 * n) for n in range(6)]
    batches[2] = flipped(batches[2], 9, 4)  # one mebibyte longer
    position = len(batches[0]) + len(batches[1])
    path = segment(tmp_path, 0, b"".join(batches))
    end = ends_of(path)
    assert isinstance(end, OversizedBatchEnd)
    assert (end.position, end.ending) == (position, Ending.CORRUPT)
    # Not only the part that is read is searched for intact batches.
    assert ends_of(path, position + len(batches[2])) == end
    raw = ends_of(path, classifies=False)
    assert (raw.position, raw.ending, raw.reason) == (
        position,
        Ending.INCOMPLETE,
        Reason.SHORT_TAIL,
    )


def test_walk_ends_incomplete_at_a_torn_tail(tmp_path):
    last = batch(3)
    for size in (1, 12, len(last) - 1):
        end = ends_of(segment(tmp_path, 0, batch(0) + last[:size]))
        assert (end.position, end.ending) == (len(batch(0)), Ending.INCOMPLETE)


def test_limit_at_or_beyond_the_end_is_the_whole_file(tmp_path):
    path = segment(tmp_path, 0, batch(0) + batch(3))
    with open_log_file(path) as whole:
        assert whole.up_to(whole.size) is whole
        assert whole.up_to(1 << 40) is whole
        part = whole.up_to(len(batch(0)))
        assert (part.size, part.whole, whole.whole) == (len(batch(0)), whole, whole)
