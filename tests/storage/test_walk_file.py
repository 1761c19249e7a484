"""Windows over a file: where they end must not matter."""

from __future__ import annotations

import pytest

import stratalog
from stratalog.errors import CorruptionError, LimitExceededError
from stratalog.inspect.file.count import count_file
from stratalog.storage.segment import log_file
from tests.inspect.logs import batch, segment


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
