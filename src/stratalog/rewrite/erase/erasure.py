"""Erase records from segments: the transform, and the rewrite that it belongs to.

Tombstones, records of aborted transactions and messages inside wrappers go like any other. Markers stay, and
so do entries of the transaction index. A batch that loses every record goes, unless it is the last one of a
producer that is known, or the last one of the log: then its header is kept.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.records.columns import WalkEnd
from stratalog.records.layout import INT32_MAX, Check, Ending, FilterCount, Reason
from stratalog.records.rebuild import rebuild_batch
from stratalog.rewrite.batch import BatchReader
from stratalog.rewrite.batchwise import OUTPUT_BYTES, AbortedEntries, reason_of
from stratalog.rewrite.compact.compaction import last_batches
from stratalog.rewrite.erase.search import Targets, count_matches, matching_offsets
from stratalog.rewrite.plan import (
    PlannedGroup,
    RewritePlan,
    find_rewritable,
    plan_each,
    segment_at,
)
from stratalog.rewrite.run import TransformRewrite
from stratalog.rewrite.source import SourceSegment
from stratalog.storage.log_config import LogConfig
from stratalog.storage.producers.entry import ProducerEntry
from stratalog.storage.segment.log_file import Window
from stratalog.storage.segment.txn_index import AbortedTxn
from stratalog.storage.views.log_view import LogView
from stratalog.types import Progress

__all__ = ["Erase", "Erasure"]

_CHECK: Final = Check.CRC | Check.ORDER


class Erase(TransformRewrite):
    """The rewrite ``erase``. The plan reads every segment, and only those in which a record matches are
    rewritten."""

    verb: Final = "erase"

    def __init__(self, targets: Targets) -> None:
        targets.check()
        self._targets = targets

    def options(self) -> Mapping[str, object]:
        """Return how much is erased, and not what: a manifest that named it would be found in its stead."""
        condition = self._targets.condition
        columns = [] if condition is None else sorted(map(str, condition.columns))
        return {"keys": len(self._targets.keys), "condition_on": columns}

    def plan(
        self,
        view: LogView,
        config: LogConfig,  # noqa: ARG002
        end: int,
        progress: Progress,
        *,
        counts: bool = True,
    ) -> RewritePlan:
        """Find the segments in which a record matches. Without ``counts``, the search in a segment ends at
        the first one."""
        segments, left = find_rewritable(view, end)
        judged: list[tuple[Any, PlannedGroup | str]] = []
        for facts in segments:
            found = count_matches(
                self._targets,
                segment_at(view, facts),
                facts.next_base,
                progress,
                stops=not counts,
            )
            if not found:
                judged.append((facts, "no record matches"))
                continue
            reason = _matches(found) if counts else "records match"
            number = found if counts else None
            judged.append((facts, PlannedGroup((facts,), reason, facts.size_bytes, number)))
        return plan_each(self.verb, end, judged, left)

    def size_max(self, config: LogConfig) -> int:  # noqa: ARG002
        return INT32_MAX  # a segment only becomes smaller

    def transform(self, producers: Iterable[ProducerEntry], end: int) -> Erasure:
        return Erasure(self._targets, end, producers)


def _matches(found: int) -> str:
    return "1 record matches" if found == 1 else f"{found} records match"


class Erasure:
    """Removes records from batches."""

    def __init__(
        self, targets: Targets, round_end: int, producers: Iterable[ProducerEntry]
    ) -> None:
        """The batch that ends at ``round_end`` keeps its header."""
        self._targets = targets
        self._map = targets.keys.map() if targets.keys else None
        self._round_end = round_end
        self._last_batches = last_batches(producers)
        self._batches = BatchReader()
        self._aborted = AbortedEntries()
        self._before = dict.fromkeys(FilterCount, 0)
        self._filter = self._new_filter(None)

    def _new_filter(self, drop: array[int] | None) -> kernel.BatchFilter:
        return kernel.BatchFilter(
            self._map,
            drop=drop,
            erases=True,
            flags=_CHECK,
            round_end=self._round_end,
            last_batches=self._last_batches,
            bytes_max=OUTPUT_BYTES,
        )

    def counted(self) -> Mapping[str, int]:
        return {
            "batches": self._count(FilterCount.BATCHES),
            "records": self._count(FilterCount.RECORDS),
            "erased": self._count(FilterCount.ERASED),
            "copied": self._count(FilterCount.COPIED),
            "rebuilt": self._count(FilterCount.REBUILT),
            "emptied": self._count(FilterCount.EMPTIED),
            "removed": self._count(FilterCount.REMOVED),
        }

    def _count(self, what: FilterCount) -> int:
        return self._before[what] + int(self._filter.counts[what])

    def begin(self, source: SourceSegment) -> None:
        condition = self._targets.condition
        if condition is not None:
            drop = matching_offsets(condition, source.segment, source.next_base, lambda _: None)
            self._before = {each: self._count(each) for each in FilterCount}
            self._filter = self._new_filter(drop)
        self._filter.begin_segment(source.base_offset, source.next_base)
        self._aborted.begin(source)

    def step(self, window: Window, at: int) -> WalkEnd:
        while True:
            try:
                at, ending, reason = self._filter.filter(
                    window.data, at, window.length, guarded=window.guarded
                )
                if ending == Ending.COMPRESSED:
                    at, ending, reason = self._take_batch(window, at)
            except BufferError:
                return WalkEnd(at, Ending.LOST)
            except CorruptionError as error:
                return WalkEnd(at, Ending.CORRUPT, reason_of(error), error.detail)
            if ending != Ending.COMPRESSED:
                return WalkEnd(at, Ending(ending), Reason(reason))

    def _take_batch(self, window: Window, at: int) -> tuple[int, int, int]:
        """Filter a batch that the kernel does not take by itself. COMPRESSED: it was taken; go on."""
        batch = self._batches.read(window, at)
        size, ending, reason, records, facts = self._filter.filter_batch(
            batch.data, 0, len(batch.data), batch.payload
        )
        if ending != Ending.END:
            return at, ending, reason
        if records is not None and facts is not None:
            self._filter.put(rebuild_batch(batch.header, records, facts))
        return at + size, Ending.COMPRESSED, Reason.NONE

    def take(self) -> Any:
        return self._filter.take()

    def take_aborted(self) -> Sequence[AbortedTxn]:
        return self._aborted.take(self._filter.expected)
