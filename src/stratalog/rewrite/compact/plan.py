"""Plan a cleaning as values: what other processes need to do the same as ``clean`` does in this one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stratalog.rewrite.compact.clean import rules_of, segments_of
from stratalog.rewrite.compact.compaction import CompactionRules
from stratalog.rewrite.compact.sections import CleanableLog
from stratalog.rewrite.plan import PlannedGroup
from stratalog.rewrite.remote import RemoteSegment, remote_segments
from stratalog.storage.log_config import LogConfig
from stratalog.storage.producers.entry import ProducerEntry
from stratalog.storage.segment.txn_index import AbortedTxn
from stratalog.storage.views.log_view import LogView

__all__ = ["CleaningPlan", "SegmentToClean", "plan_remote_cleaning"]


@dataclass(frozen=True, slots=True)
class SegmentToClean:
    """A segment, and the aborted transactions with records in it."""

    segment: RemoteSegment
    aborted: tuple[AbortedTxn, ...]


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """One cleaning of a log, with all of its keys at once: from ``start`` up to ``end`` it is dirty."""

    start: int
    end: int
    groups: tuple[tuple[SegmentToClean, ...], ...]
    rules: CompactionRules


def plan_remote_cleaning(
    view: LogView,
    config: LogConfig,
    cleanable: CleanableLog,
    groups: Iterable[PlannedGroup],
    producers: Iterable[ProducerEntry],
    now_ms: int,
) -> CleaningPlan:
    """Plan to clean all of the dirty section of a log at once, as a ``Cleaning`` does if all keys fit its
    map."""
    known = {each.producer_id: each for each in producers}
    return CleaningPlan(
        cleanable.first_dirty,
        cleanable.first_uncleanable,
        tuple(_with_aborted(view, group) for group in groups),
        rules_of(view, config, cleanable, known, now_ms),
    )


def _with_aborted(view: LogView, group: PlannedGroup) -> tuple[SegmentToClean, ...]:
    return tuple(
        SegmentToClean(each, view.aborted_between(each.base_offset, each.next_base))
        for each in remote_segments(view, segments_of(view, group))
    )
