"""Pieces read again: whole batches, a window at a time, whatever a piece's size."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from stratalog.errors import CorruptionError, StorageError
from stratalog.records import kernel
from stratalog.records.layout import (
    INT32_MAX,
    LOG_OVERHEAD,
    ROW_WIDTH,
    SIZE_AT,
    Check,
    Ending,
    Reason,
    Row,
)
from stratalog.records.reasons import corruption
from stratalog.storage.commits.piece import NO_DIGEST, Piece, add_to_digest
from stratalog.storage.files.filesystem import FileSystem, ReadableFile

__all__ = [
    "WINDOW_BYTES",
    "BatchWindow",
    "BatchWindows",
    "check_piece",
    "checked_windows",
    "open_piece",
]

#: What is in memory of a piece at a time, unless one of its batches is larger: what is read stays in the
#: core's cache until it is written again.
WINDOW_BYTES: Final = 512 << 10
_ROWS_MAX: Final = 512


class BatchWindow(NamedTuple):
    """Whole batches of a file from ``position`` on, to be changed at will: good until the next window."""

    position: int
    data: memoryview
    rows: memoryview
    batches: int

    @property
    def end(self) -> int:
        return self.position + len(self.data)


class BatchWindows:
    """Reads the batches of a file between two positions."""

    def __init__(
        self, file: ReadableFile, end: int, *, position: int = 0, check: Check = Check.NONE
    ) -> None:
        self._file = file
        self._end = end
        self._check = check
        self._buffer = bytearray()
        self._rows = memoryview(array("q", bytes(8 * ROW_WIDTH * _ROWS_MAX)))
        self.position = position

    @property
    def is_over(self) -> bool:
        return self.position >= self._end

    def __iter__(self) -> Iterator[BatchWindow]:
        while not self.is_over:
            window = self.take(WINDOW_BYTES)
            assert window is not None
            yield window

    def take(self, size: int, *, at_least_one: bool = True) -> BatchWindow | None:
        """As many batches as fit into ``size`` bytes; where not even one does, that one, or None.
        CorruptionError where the next bytes are no batch."""
        length = self._load(min(max(size, LOG_OVERHEAD), self._end - self.position))
        held, reached, ending, reason = self._walk(length)
        if held == 0 and ending == Ending.INCOMPLETE:
            wanted = self._next_size(length)
            if wanted is None or wanted > self._end - self.position:
                raise self._wrong(reason)
            if not at_least_one:
                return None
            length = self._load(wanted)
            held, reached, ending, reason = self._walk(length)
        if held == 0:
            raise self._wrong(reason)
        window = BatchWindow(self.position, memoryview(self._buffer)[:reached], self._rows, held)
        self.position += reached
        return window

    def _load(self, size: int) -> int:
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        with memoryview(self._buffer) as whole, whole[:size] as part:
            return self._file.read_into(self.position, part)

    def _walk(self, length: int) -> tuple[int, int, int, int]:
        held, reached, ending, reason, _ = kernel.walk(
            self._buffer, 0, length, self._rows, self._check, -1, INT32_MAX
        )
        return held, reached, ending, reason

    def _next_size(self, length: int) -> int | None:
        if length < LOG_OVERHEAD:
            return None
        field = self._buffer[SIZE_AT:LOG_OVERHEAD]
        return int.from_bytes(field, "big", signed=True) + LOG_OVERHEAD

    def _wrong(self, reason: int) -> CorruptionError:
        error = corruption(reason or Reason.SHORT_TAIL, self.position)
        return error.located(path=self._file.path)


def open_piece(file_system: FileSystem, root: str, piece: Piece) -> ReadableFile:
    """CorruptionError where the piece is not there, or shorter than it was."""
    path = os.path.join(root, piece.name)
    if file_system.stat(path) is None:
        raise CorruptionError(
            "piece_missing", f"a piece of {piece.topic_partition} is gone", path=path
        )
    file = file_system.open_readable(path)
    try:
        size = file.size()
    except StorageError:
        file.close()
        raise
    if size < piece.size_bytes:  # one that became a segment grows
        file.close()
        raise CorruptionError(
            "piece_damaged", f"{size} bytes, and it had {piece.size_bytes}", path=path
        )
    return file


def checked_windows(file: ReadableFile, piece: Piece) -> Iterator[BatchWindow]:
    """The batches of a piece, their CRCs right. CorruptionError, after the last one at the latest, where they
    are not those that the piece is said to hold."""
    batches = records = 0
    digest = NO_DIGEST
    for window in BatchWindows(file, piece.size_bytes, check=Check.CRC):
        batches += window.batches
        records += sum(window.rows[Row.RECORD_COUNT : window.batches * ROW_WIDTH : ROW_WIDTH])
        digest = add_to_digest(digest, window.rows, window.batches)
        yield window
    if (batches, records, digest) != (piece.batches, piece.records, piece.digest):
        raise CorruptionError(
            "piece_damaged",
            f"{batches} batches of {records} records with digest {digest:08x}, and it had "
            f"{piece.batches} of {piece.records} with {piece.digest:08x}",
            path=file.path,
        )


def check_piece(file: ReadableFile, piece: Piece) -> None:
    """CorruptionError where the file does not hold the batches that the piece is said to hold."""
    for _ in checked_windows(file, piece):
        pass
