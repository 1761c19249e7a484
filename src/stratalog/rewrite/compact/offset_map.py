"""Find the newest offset of each key in the dirty section of a log."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain

from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.records.columns import WalkEnd
from stratalog.records.layout import Check, Ending, Reason
from stratalog.rewrite.batch import BatchReader
from stratalog.rewrite.source import SourceSegment, check_end, walk_source
from stratalog.storage.segment.log_file import Window
from stratalog.storage.segment.txn_index import AbortedTxn
from stratalog.types import Progress

__all__ = ["aborted_fields", "build_offset_map"]

_CHECK = Check.CRC | Check.ORDER


def aborted_fields(transactions: Iterable[AbortedTxn]) -> array[int]:
    """Return aborted transactions as the kernel takes them: producer id, first offset, offset of the
    marker."""
    fields = sorted(
        (each.producer_id, each.first_offset, each.last_offset) for each in transactions
    )
    return array("q", chain.from_iterable(fields))


def build_offset_map(
    newest: kernel.OffsetMap,
    sources: Sequence[SourceSegment],
    *,
    start: int,
    end: int,
    aborted: Iterable[AbortedTxn],
    note_read: Progress,
) -> int:
    """Note the keys of the dirty segments, from ``start`` up to ``end``, until the map is full. Return the
    offset up to which the log was noted: where the next cleaning begins. That is ``end`` if the segments were
    deleted meanwhile."""
    if not sources:
        return end
    noting = _Noting(newest, start, aborted_fields(aborted))
    for number, source in enumerate(sources):
        noting.begin(source)
        for pause in walk_source(source, noting.step, note_read):
            check_end(source, pause)
            if noting.is_full:
                return newest.latest_offset + 1
        # Offsets that compaction removed before are noted, too.
        following = sources[number + 1].base_offset if number + 1 < len(sources) else end
        newest.latest_offset = following - 1
    return newest.latest_offset + 1


class _Noting:
    def __init__(self, newest: kernel.OffsetMap, start: int, aborted: array[int]) -> None:
        self._newest = newest
        self._start = start
        self._aborted = aborted
        self._batches = BatchReader()
        self._below = -1
        self.expected = -1
        self.is_full = False

    def begin(self, source: SourceSegment) -> None:
        self.expected = source.base_offset
        self._below = source.next_base

    def step(self, window: Window, at: int) -> WalkEnd:
        while True:
            try:
                at, ending, reason, self.expected = self._newest.note(
                    window.data, at, window.length,
                    first_offset=self._start, flags=_CHECK, expected=self.expected,
                    below=self._below, aborted=self._aborted, guarded=window.guarded,
                )  # fmt: skip
                if ending == Ending.COMPRESSED:
                    at, ending, reason = self._note_compressed(window, at)
            except BufferError:
                return WalkEnd(at, Ending.LOST)
            except CorruptionError as error:
                return WalkEnd(at, Ending.CORRUPT, Reason[error.reason.upper()], error.detail)
            if ending != Ending.COMPRESSED:
                self.is_full = ending == Ending.FULL
                return WalkEnd(at, Ending(ending), Reason(reason))

    def _note_compressed(self, window: Window, at: int) -> tuple[int, int, int]:
        batch = self._batches.read(window, at)
        size, ending, reason, expected = self._newest.note_batch(
            batch.data, 0, len(batch.data), batch.payload, first_offset=self._start, flags=_CHECK
        )
        if ending != Ending.END:
            return at, ending, reason
        self.expected = expected
        return at + size, Ending.COMPRESSED, Reason.NONE
