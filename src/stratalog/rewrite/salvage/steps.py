"""Take intact batches out of a window, and search a window for the next one, in each format."""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple, Protocol

from stratalog.records import kernel
from stratalog.records.columns import RegionDecoder, Selection, WalkEnd
from stratalog.records.compression import DECOMPRESSED_SIZE_MAX_DEFAULT
from stratalog.records.layout import (
    BATCH_SIZE_MAX_DEFAULT,
    INT64_MAX,
    ROW_WIDTH,
    Check,
    Column,
    Ending,
    Magic,
    Reason,
    Row,
)
from stratalog.rewrite.salvage.kept_batches import BatchesSeen, KeptBatches
from stratalog.rewrite.salvage.runs import FileSurvey, Run
from stratalog.storage.segment.log_file import LogFile, Window

__all__ = ["DEFAULT_LIMITS", "BatchSteps", "EntrySteps", "Found", "Steps", "SurveyLimits"]

_FLAGS: Final = Check.CRC | Check.RECORDS | Check.ORDER
_ORDER_BREAKS: Final = (Reason.OFFSET_ORDER, Reason.OFFSET_GAP)
#: How far above its first the offsets of a segment may lie; twice that, for one that is too wide.
_WIDEST: Final = 1 << 32
_ROWS_AT_ONCE: Final = 1024


class SurveyLimits(NamedTuple):
    """What is believed of a batch."""

    batch_bytes: int = BATCH_SIZE_MAX_DEFAULT
    decompressed_bytes: int = DECOMPRESSED_SIZE_MAX_DEFAULT


DEFAULT_LIMITS: Final = SurveyLimits()


class Found(NamedTuple):
    """The answer of a search: see ``kernel.find_intact``. Positions are the window's."""

    outcome: int
    position: int
    size_bytes: int
    checked_bytes: int


class Steps(Protocol):
    """What a survey needs to know of a format. ``has_shown_all``: every header of a batch that was taken was
    shown to the caller that wanted to see them."""

    has_shown_all: bool

    def take(self, window: Window, at: int, survey: FileSurvey) -> WalkEnd:
        """Add the intact batches of a window from ``at`` on to the survey; how it ended."""
        ...

    def is_possible(self, offset: int) -> bool:
        """Return whether a batch of this file may have an offset."""
        ...

    def find(self, window: Window, at: int, rest: int, checked_max: int) -> Found:
        """Search a window for an intact batch. ``rest`` bytes of the file follow the window."""
        ...


class BatchSteps:
    """Batches of magic 2, messages and wrappers of magic 0 and 1."""

    def __init__(
        self, log_file: LogFile, limits: SurveyLimits, seen: BatchesSeen | None = None
    ) -> None:
        """``seen`` is called with the headers of intact batches, while they are in memory."""
        self._limits = limits
        self._seen = seen
        self._base_offset = log_file.base_offset or 0
        self._row = memoryview(array("q", bytes(8 * ROW_WIDTH)))
        self._rows = memoryview(array("q", bytes(8 * ROW_WIDTH * _ROWS_AT_ONCE)))
        self.has_shown_all = seen is not None
        self._decoder = RegionDecoder(
            Selection(
                columns=Column.OFFSET,
                check=Check.CRC | Check.ORDER | Check.INCLUDE_CONTROL,
                max_batch_bytes=limits.batch_bytes,
                max_decompressed_bytes=limits.decompressed_bytes,
            )
        )

    def take(self, window: Window, at: int, survey: FileSurvey) -> WalkEnd:
        expected = survey.next_offset_at(window.position + at)
        try:
            while True:
                end, expected = self._count(window, at, expected, survey)
                at = end.position
                if end.ending == Ending.COMPRESSED:
                    end = self._open(window, at, survey)
                    if end.ending != Ending.END:
                        return end
                    at = end.position
                    expected = survey.next_offset_at(window.position + at)
                elif end.ending == Ending.CORRUPT and end.reason in _ORDER_BREAKS:
                    expected = -1  # intact as such: another run begins
                else:
                    return end
        except BufferError:
            return WalkEnd(at, Ending.LOST)

    def _count(
        self, window: Window, at: int, expected: int, survey: FileSurvey
    ) -> tuple[WalkEnd, int]:
        """Take what is not compressed, as far as offsets follow each other."""
        flags = _FLAGS | (Check.CONTIGUOUS if survey.splits_at_gaps else Check.NONE)
        records, control, batches, reached, ending, reason, following = kernel.count(
            window.data, at, window.length, flags, expected, self._limits.batch_bytes,
            guarded=window.guarded,
        )  # fmt: skip
        if batches:
            first = expected
            is_guess = False
            if expected < 0 or not survey.splits_at_gaps:
                first = self._header(window, at)[Row.BASE_OFFSET]
                is_guess = self._row[Row.MAGIC] == Magic.V1 and not self._follows(
                    survey, window, at
                )
            survey.add(
                Run(survey.source, window.position + at, window.position + reached, first,
                    following, batches, records, control, is_guess)
            )  # fmt: skip
            self._show(window, at, reached, survey.source)
        return WalkEnd(reached, Ending(ending), Reason(reason)), following if batches else expected

    def _follows(self, survey: FileSurvey, window: Window, at: int) -> bool:
        position = window.position + at
        return position == 0 or survey.next_offset_at(position) >= 0

    def _header(self, window: Window, at: int) -> memoryview:
        kernel.walk(window.data, at, window.length, self._row, guarded=window.guarded)
        return self._row

    def _open(self, window: Window, at: int, survey: FileSurvey) -> WalkEnd:
        """Decompress and decode one batch or wrapper; END, and the position after it, if all is well."""
        header = self._header(window, at).tolist()
        size = header[Row.SIZE]
        self._decoder.expect(-1)
        pause = self._decoder.decode(window.data, at, at + size, guarded=window.guarded)
        taken = self._decoder.take()
        if pause.ending not in (Ending.END, Ending.FULL):
            return pause
        first, last = header[Row.BASE_OFFSET], header[Row.LAST_OFFSET]
        if first < 0:
            offsets = memoryview(taken.buffers[Column.OFFSET][0]).cast("B").cast("q")
            first, last = offsets[0], offsets[taken.rows - 1]
            if header[Row.MAGIC] == Magic.V0 and last != header[Row.LAST_OFFSET]:
                return WalkEnd(at, Ending.CORRUPT, Reason.WRAPPER_OFFSET)
            if header[Row.MAGIC] == Magic.V1:
                survey.wrapper_records = max(survey.wrapper_records, taken.rows)
        if last == INT64_MAX:
            return WalkEnd(at, Ending.CORRUPT, Reason.OFFSET_RANGE)
        start = window.position + at
        survey.add(Run(survey.source, start, start + size, first, last + 1, 1, taken.rows))
        survey.confirm()
        self._show(window, at, at + size, survey.source)
        return WalkEnd(at + size, Ending.END)

    def _show(self, window: Window, at: int, limit: int, source: int) -> None:
        while self._seen is not None and at < limit:
            try:
                held, reached, *_ = kernel.walk(
                    window.data, at, limit, self._rows, guarded=window.guarded
                )
                self._seen(KeptBatches(source, self._rows, held, window, at, reached))
            except BufferError:
                self._seen = None  # what was not seen is missing from now on
                self.has_shown_all = False
                return
            at = reached

    def is_possible(self, offset: int) -> bool:
        return self._base_offset <= offset <= self._base_offset + _WIDEST

    def find(self, window: Window, at: int, rest: int, checked_max: int) -> Found:
        last = min(self._base_offset + _WIDEST, INT64_MAX)
        return Found(
            *kernel.find_intact(
                window.data, at, window.length, rest, self._base_offset, last,
                self._limits.batch_bytes, checked_max, guarded=window.guarded,
            )
        )  # fmt: skip


class EntrySteps:
    """Entries of 0.7, whose offsets are their positions."""

    def __init__(self, log_file: LogFile, limits: SurveyLimits) -> None:
        self._limits = limits
        self._base_offset = log_file.base_offset or 0
        self._rows = memoryview(array("q", bytes(8 * ROW_WIDTH * _ROWS_AT_ONCE)))
        self.has_shown_all = False
        self._decoder = RegionDecoder(
            Selection(
                columns=Column.OFFSET,
                check=Check.CRC,
                max_batch_bytes=limits.batch_bytes,
                max_decompressed_bytes=limits.decompressed_bytes,
            )
        )

    def take(self, window: Window, at: int, survey: FileSurvey) -> WalkEnd:
        base_offset = self._base_offset + window.position
        while True:
            pause = self._decoder.decode_v07(
                window.data, at, window.length, base_offset=base_offset
            )
            records = self._decoder.take().rows
            if pause.position > at:
                survey.add(
                    Run(survey.source, window.position + at, window.position + pause.position,
                        base_offset + at, base_offset + pause.position,
                        self._entries(window, at, pause.position), records)
                )  # fmt: skip
            if pause.ending != Ending.FULL:
                return pause
            at = pause.position

    def is_possible(self, offset: int) -> bool:  # noqa: ARG002
        return True

    def _entries(self, window: Window, at: int, limit: int) -> int:
        entries = 0
        while at < limit:
            held, at, *_ = kernel.walk_v07(window.data, at, limit, self._rows)
            entries += held
        return entries

    def find(self, window: Window, at: int, rest: int, checked_max: int) -> Found:
        return Found(
            *kernel.find_intact_v07(
                window.data, at, window.length, rest, self._limits.batch_bytes, checked_max
            )
        )
