"""Find a batch in a data file by reading headers forward from a position that an index gave.

An index lands at most one interval before the batch, so a small read and one kernel call find it. A batch
that is larger than the read is passed by its header alone.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from stratalog.records import kernel
from stratalog.records.layout import (
    BATCH_HEADER_SIZE,
    INT32_MAX,
    LAST_OFFSET_DELTA_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    MESSAGE_TIMESTAMP_AT,
    PREFIX_SIZE,
    ROW_WIDTH,
    Check,
    Ending,
    Reason,
    Row,
)
from stratalog.records.reasons import corruption
from stratalog.storage.filesystem import ReadableFile
from stratalog.types import NO_TIMESTAMP

__all__ = ["BatchPlace", "find_last_batch", "find_offset", "find_time", "places_from"]

_READ_SIZE: Final = 4096 + BATCH_HEADER_SIZE
_ROWS_AT_ONCE: Final = 128
_PREFIX: Final = Struct(">qi")
_LAST_DELTA: Final = Struct(">i")
_TIME: Final = Struct(">q")
_LAST_OFFSET: Final = int(Row.LAST_OFFSET)
_MAX_TIMESTAMP: Final = int(Row.MAX_TIMESTAMP)


class BatchPlace(NamedTuple):
    """Where a batch lies, and what one must know to skip or take it. Of a wrapper (magic 0 and 1)
    the first offset stands only inside: it is -1."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int

    @property
    def end_position(self) -> int:
        return self.position + self.size_bytes


class _Headers:
    """Header rows of a file from a position up to a limit, some at a time."""

    __slots__ = ("_buffer", "_file", "_limit", "_next", "_view", "position", "rows")

    def __init__(self, file: ReadableFile, position: int, limit: int) -> None:
        self._file = file
        self._next = position
        self._limit = limit
        self._buffer = bytearray(_READ_SIZE)
        self._view = memoryview(self._buffer)
        self.position = position
        self.rows = memoryview(array("q", bytes(8 * ROW_WIDTH * _ROWS_AT_ONCE)))

    def more(self) -> int:
        """Load the next rows; their number, 0 at the end. CorruptionError where no header stands."""
        at = self._next
        size = min(self._limit - at, _READ_SIZE)
        if size <= 0:
            return 0
        size = self._file.read_into(at, self._view[:size] if size < _READ_SIZE else self._view)
        held, reached, ending, reason, _ = kernel.walk(
            self._buffer, 0, size, self.rows, Check.NONE, -1, INT32_MAX
        )
        self.position = at
        if held:
            self._next = at + reached
            return held
        if ending == Ending.CORRUPT or size < PREFIX_SIZE:
            raise corruption(reason or Reason.SHORT_TAIL, at)
        return self._large(at, size)

    def _large(self, at: int, size: int) -> int:
        """A batch that is larger than a read: its header is enough."""
        offset, length = _PREFIX.unpack_from(self._buffer)
        if at + LOG_OVERHEAD + length > self._limit or size < BATCH_HEADER_SIZE:
            raise corruption(Reason.SHORT_TAIL, at)
        rows = self.rows
        rows[Row.POSITION] = 0
        rows[Row.SIZE] = LOG_OVERHEAD + length
        magic = self._buffer[MAGIC_AT]
        if magic == 2:
            rows[Row.BASE_OFFSET] = offset
            (delta,) = _LAST_DELTA.unpack_from(self._buffer, LAST_OFFSET_DELTA_AT)
            rows[Row.LAST_OFFSET] = offset + delta
            (rows[Row.MAX_TIMESTAMP],) = _TIME.unpack_from(self._buffer, MAX_TIMESTAMP_AT)
        else:
            rows[Row.BASE_OFFSET] = -1
            rows[Row.LAST_OFFSET] = offset
            rows[Row.MAX_TIMESTAMP] = (
                _TIME.unpack_from(self._buffer, MESSAGE_TIMESTAMP_AT)[0] if magic else NO_TIMESTAMP
            )
        self._next = at + LOG_OVERHEAD + length
        return 1

    def place(self, number: int) -> BatchPlace:
        row = self.rows[number * ROW_WIDTH : (number + 1) * ROW_WIDTH]
        return BatchPlace(
            self.position + row[Row.POSITION],
            row[Row.SIZE],
            row[Row.BASE_OFFSET],
            row[_LAST_OFFSET],
            row[_MAX_TIMESTAMP],
        )


def find_offset(file: ReadableFile, position: int, limit: int, offset: int) -> BatchPlace | None:
    """The first batch from ``position`` up to ``limit`` that reaches ``offset``; None: there is none."""
    headers = _Headers(file, position, limit)
    rows = headers.rows
    while held := headers.more():
        if rows[(held - 1) * ROW_WIDTH + _LAST_OFFSET] >= offset:
            number = bisect_left(
                range(held), offset, key=lambda each: rows[each * ROW_WIDTH + _LAST_OFFSET]
            )
            return headers.place(number)
    return None


def find_time(
    file: ReadableFile, position: int, limit: int, timestamp: int
) -> Iterator[BatchPlace]:
    """The batches from ``position`` up to ``limit`` whose largest timestamp reaches ``timestamp``."""
    headers = _Headers(file, position, limit)
    while held := headers.more():
        for number in range(held):
            if headers.rows[number * ROW_WIDTH + _MAX_TIMESTAMP] >= timestamp:
                yield headers.place(number)


def find_last_batch(file: ReadableFile, position: int, limit: int) -> BatchPlace | None:
    """The last batch before ``limit``, reading from ``position`` on; None where there is none."""
    headers = _Headers(file, position, limit)
    last = None
    while held := headers.more():
        last = headers.place(held - 1)
    return last


def places_from(file: ReadableFile, position: int, limit: int) -> Iterator[BatchPlace]:
    """Every batch from ``position`` up to ``limit``."""
    headers = _Headers(file, position, limit)
    while held := headers.more():
        for number in range(held):
            yield headers.place(number)
