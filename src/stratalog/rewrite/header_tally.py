"""Count the batches of a segment by format and codec, from their headers alone: what plans need to know."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Final, NamedTuple

from stratalog.records import kernel
from stratalog.records.columns import WalkEnd
from stratalog.records.layout import (
    CODEC_MASK,
    CONTROL_MASK,
    INT32_MAX,
    ROW_WIDTH,
    Check,
    Codec,
    Ending,
    Reason,
    Row,
)
from stratalog.storage.names import FileKind
from stratalog.storage.segment.log_file import LogFile, Window
from stratalog.storage.segment.segment import Segment
from stratalog.storage.segment.walk import walk_windows

__all__ = ["BatchKind", "HeaderTally", "tally_file", "tally_headers"]

_HEADERS_AT_ONCE: Final = 1024


class BatchKind(NamedTuple):
    """What a rewrite tells batches apart by."""

    magic: int
    codec: Codec
    is_control: bool
    is_empty: bool


class HeaderTally(NamedTuple):
    """The batches of a segment by kind, its records (None if wrappers, which do not say how many they hold,
    are among them), and the offsets of its first and last batch (-1 if there is none; the first also if it is
    a wrapper)."""

    batches: Counter[BatchKind]
    records: int | None
    first_offset: int
    last_offset: int


def tally_headers(segment: Segment, size_bytes: int) -> HeaderTally:
    """Count the batches of a segment, of ``size_bytes``. CorruptionError if it is damaged."""
    path = segment.path(FileKind.LOG)
    return tally_file(LogFile(path, segment.log, size_bytes, segment.base_offset, is_v07=False))


def tally_file(log_file: LogFile) -> HeaderTally:
    """Count the batches of a data file. CorruptionError if it is damaged."""
    counting = _Counting(-1 if log_file.base_offset is None else log_file.base_offset)
    *_, end = walk_windows(log_file, counting.step, max_batch_bytes=INT32_MAX)
    if end.ending != Ending.END:
        raise end.error().located(path=log_file.path)
    return counting.tally()


class _Counting:
    def __init__(self, expected: int) -> None:
        self._rows = memoryview(array("q", bytes(8 * ROW_WIDTH * _HEADERS_AT_ONCE)))
        self._expected = expected
        self._found: Counter[tuple[int, int, bool]] = Counter()
        self._records: int | None = 0
        self._first: int | None = None
        self._last = -1

    def step(self, window: Window, at: int) -> WalkEnd:
        while True:
            try:
                held, reached, ending, reason, self._expected = kernel.walk(
                    window.data, at, window.length, self._rows,
                    Check.ORDER, self._expected, INT32_MAX, guarded=window.guarded,
                )  # fmt: skip
            except BufferError:
                return WalkEnd(at, Ending.LOST)
            if held:
                self._note(held)
            if ending != Ending.FULL:
                return WalkEnd(reached, Ending(ending), Reason(reason))
            at = reached

    def _note(self, held: int) -> None:
        end, rows = held * ROW_WIDTH, self._rows
        counts = rows[Row.RECORD_COUNT : end : ROW_WIDTH].tolist()
        magics = rows[Row.MAGIC : end : ROW_WIDTH].tolist()
        attributes = rows[Row.ATTRIBUTES : end : ROW_WIDTH].tolist()
        self._found.update(zip(magics, attributes, [not count for count in counts], strict=True))
        if self._records is not None:
            self._records = None if min(counts) < 0 else self._records + sum(counts)
        if self._first is None:
            self._first = rows[Row.BASE_OFFSET]
        self._last = rows[end - ROW_WIDTH + Row.LAST_OFFSET]

    def tally(self) -> HeaderTally:
        batches: Counter[BatchKind] = Counter()
        for (magic, attributes, is_empty), count in self._found.items():
            is_control = magic == 2 and bool(attributes & CONTROL_MASK)
            batches[BatchKind(magic, Codec(attributes & CODEC_MASK), is_control, is_empty)] += count
        first = -1 if self._first is None else self._first
        return HeaderTally(batches, self._records, first, self._last)
