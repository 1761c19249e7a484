"""Find the records that are to be erased: by their keys in the kernel, or by a condition over columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stratalog.errors import CorruptionError, UsageError
from stratalog.records import kernel
from stratalog.records.columns import RegionDecoder, Selection, WalkEnd, column_mask
from stratalog.records.layout import INT32_MAX, Check, Ending, FilterCount, Reason
from stratalog.rewrite.batch import BatchReader
from stratalog.rewrite.batchwise import reason_of
from stratalog.rewrite.erase.condition import Condition
from stratalog.rewrite.erase.keys import KeySet
from stratalog.storage.names import FileKind
from stratalog.storage.segment.log_file import LogFile, Window
from stratalog.storage.segment.segment import Segment
from stratalog.storage.segment.walk import Step, walk_windows
from stratalog.types import Progress

__all__ = ["KeyFinder", "Targets", "count_matches", "matching_offsets"]

_CHECK: Final = Check.CRC | Check.ORDER


@dataclass(frozen=True, slots=True)
class Targets:
    """What is to be erased: the records with these keys, and those that meet the condition."""

    keys: KeySet
    condition: Condition | None = None

    def check(self) -> None:
        """Raise UsageError if nothing is named."""
        if not self.keys and self.condition is None:
            raise UsageError("nothing is named to be erased: give keys, a key file or a condition")


class KeyFinder:
    """Counts records with given keys in batches, one region after the other. Nothing is rewritten."""

    def __init__(self, keys: KeySet, *, check: Check = _CHECK) -> None:
        self._map = keys.map()
        self._check = check
        self._batches = BatchReader()
        self._filter = self._new_filter()

    def _new_filter(self, drop: array[int] | None = None) -> kernel.BatchFilter:
        return kernel.BatchFilter(self._map, drop=drop, erases=True, flags=self._check)

    def begin(
        self, expected: int = -1, below: int | None = None, drop: array[int] | None = None
    ) -> None:
        """Prepare for another file, whose batches lie at or above ``expected``; -1: anywhere. Records at the
        offsets ``drop`` count, too."""
        self._filter = self._new_filter(drop)
        self._filter.begin_segment(expected, below)

    @property
    def found(self) -> int:
        """How many records were found in this file."""
        return int(self._filter.counts[FilterCount.ERASED])

    @property
    def records(self) -> int:
        """How many records were looked at in this file."""
        return int(self._filter.counts[FilterCount.RECORDS])

    @property
    def next_offset(self) -> int:
        return int(self._filter.expected)

    def step(self, window: Window, at: int) -> WalkEnd:
        """Look at the batches of a window; see ``walk_windows``. FULL: go on."""
        while True:
            try:
                at, ending, reason = self._filter.filter(
                    window.data, at, window.length, guarded=window.guarded
                )
                if ending == Ending.COMPRESSED:
                    at, ending, reason = self._look_into(window, at)
            except BufferError:
                return WalkEnd(at, Ending.LOST)
            except CorruptionError as error:
                return WalkEnd(at, Ending.CORRUPT, reason_of(error), error.detail)
            if ending != Ending.COMPRESSED:
                self._filter.take()
                return WalkEnd(at, Ending(ending), Reason(reason))

    def _look_into(self, window: Window, at: int) -> tuple[int, int, int]:
        batch = self._batches.read(window, at)
        size, ending, reason, _, _ = self._filter.filter_batch(
            batch.data, 0, len(batch.data), batch.payload
        )
        if ending != Ending.END:
            return at, ending, reason
        return at + size, Ending.COMPRESSED, Reason.NONE


def count_matches(
    targets: Targets, segment: Segment, next_base: int, progress: Progress, *, stops: bool = False
) -> int:
    """Return how many records of a segment match; with ``stops``, whether one does, as 0 or more.
    CorruptionError if the segment is damaged."""
    drop: array[int] | None = None
    if targets.condition is not None:
        drop = matching_offsets(targets.condition, segment, next_base, progress)
        if not targets.keys or (stops and drop):
            return len(drop)
    finder = KeyFinder(targets.keys)
    finder.begin(segment.base_offset, next_base, drop)
    done = 0
    for pause in _walk(segment, finder.step):
        progress(pause.position - done)
        done = pause.position
        if stops and finder.found:
            break
    return finder.found


def matching_offsets(
    condition: Condition, segment: Segment, next_base: int, progress: Progress
) -> array[int]:
    """Return the offsets of the records of a segment that meet a condition, in order. CorruptionError if the
    segment is damaged."""
    matching = _Matching(condition)
    matching.decoder.expect(segment.base_offset, next_base)
    done = 0
    for pause in _walk(segment, matching.step):
        matching.take()
        progress(pause.position - done)
        done = pause.position
    return matching.offsets


class _Matching:
    def __init__(self, condition: Condition) -> None:
        from stratalog.records.arrow import ArrowBatches, arrow_schema

        names = ("offset", *condition.fields)
        self._condition = condition
        self._arrow = ArrowBatches(arrow_schema(names), rows_max=INT32_MAX)
        self.decoder = RegionDecoder(
            Selection(columns=column_mask(names), check=_CHECK, max_batch_bytes=INT32_MAX)
        )
        self.offsets = array("q")

    def step(self, window: Window, at: int) -> WalkEnd:
        return self.decoder.decode(window.data, at, window.length, guarded=window.guarded)

    def take(self) -> None:
        if self.decoder.rows:
            for batch in self._arrow.of(self.decoder.take()):
                self.offsets.extend(self._condition.matching(batch).to_pylist())


def _walk(segment: Segment, step: Step) -> Iterator[WalkEnd]:
    path = segment.path(FileKind.LOG)
    log_file = LogFile(path, segment.log, segment.size_bytes, segment.base_offset, is_v07=False)
    for pause in walk_windows(log_file, step, max_batch_bytes=INT32_MAX, reads_all=True):
        if pause.ending not in (Ending.END, Ending.FULL):
            raise pause.error().located(path=path)
        yield pause
