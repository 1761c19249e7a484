"""Decide what of a log may be compacted, how dirty it is, and which segments become one.

A log has three sections::

    [ log start … first dirty )            clean: compacted before
    [ first dirty … first uncleanable )    dirty: the keys that a cleaning looks at
    [ first uncleanable … log end )        not to be touched yet; the active segment always is

All rules are Kafka's (``LogCleanerManager``), so that both would choose the same logs and segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from stratalog.records.layout import INT32_MAX
from stratalog.storage.log_config import LogConfig

__all__ = ["CleanableLog", "CleanableSegment", "plan_cleaning", "plan_groups"]


class CleanableSegment(NamedTuple):
    """What the rules look at in a segment. ``first_timestamp`` is the largest of its first batch, -1 if it
    has none."""

    base_offset: int
    next_base: int
    size_bytes: int
    largest_timestamp: int
    first_timestamp: int
    offset_index_bytes: int
    time_index_bytes: int
    is_active: bool


@dataclass(frozen=True, slots=True)
class CleanableLog:
    """How dirty a log is. ``blocked_by`` says what keeps the section after ``first_uncleanable`` from being
    cleaned; ``needs_cleaning`` says why a cleaning is due, and is None if none is."""

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    blocked_by: str
    needs_cleaning: str | None = None
    #: Why the checkpoint was not used; None if it was, or if there is none.
    checkpoint_problem: str | None = None

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


class _Bound(NamedTuple):
    offset: int
    reason: str


def plan_cleaning(
    segments: Sequence[CleanableSegment],
    *,
    log_start: int,
    log_end: int,
    last_stable_offset: int,
    checkpoint: int | None,
    config: LogConfig,
    now_ms: int,
) -> CleanableLog:
    """Return the sections of a log and whether it needs cleaning. ``segments`` are all of it, the active one
    last; ``checkpoint`` is where the last cleaning ended."""
    first_dirty, problem = _first_dirty(checkpoint, log_start, log_end)
    dirty = _from(segments[:-1], first_dirty)
    bound = _first_uncleanable(segments, dirty, last_stable_offset, config, now_ms)
    limit = max(first_dirty, bound.offset)
    after = _from(segments[:-1], limit)
    first_uncleanable = (after or segments[-1:])[0].base_offset
    cleanable = _between(segments, min(first_dirty, first_uncleanable), first_uncleanable)
    log = CleanableLog(
        first_dirty=first_dirty,
        first_uncleanable=first_uncleanable,
        clean_bytes=sum(each.size_bytes for each in segments if each.base_offset < first_dirty),
        cleanable_bytes=sum(each.size_bytes for each in cleanable),
        blocked_by=bound.reason,
        checkpoint_problem=problem,
    )
    return _with_need(log, dirty, config, now_ms)


def _first_dirty(checkpoint: int | None, log_start: int, log_end: int) -> tuple[int, str | None]:
    if checkpoint is None:
        return log_start, None
    if log_start <= checkpoint <= log_end:
        return checkpoint, None
    return log_start, (
        f"the cleaner checkpoint {checkpoint} lies outside the log ({log_start} to {log_end}): "
        "cleaning starts at the log start"
    )


def _first_uncleanable(
    segments: Sequence[CleanableSegment],
    dirty: Sequence[CleanableSegment],
    last_stable_offset: int,
    config: LogConfig,
    now_ms: int,
) -> _Bound:
    bounds = [
        _Bound(segments[-1].base_offset, "the active segment is not compacted"),
        _Bound(last_stable_offset, "an open transaction, or records that readers do not see yet"),
    ]
    lag_ms = config.min_compaction_lag_ms
    if lag_ms > 0:
        bounds += [
            _Bound(each.base_offset, f"records younger than min.compaction.lag.ms={lag_ms}")
            for each in dirty
            if each.largest_timestamp > now_ms - lag_ms
        ][:1]
    return min(bounds, key=lambda bound: bound.offset)


def _with_need(
    log: CleanableLog, dirty: Sequence[CleanableSegment], config: LogConfig, now_ms: int
) -> CleanableLog:
    if not log.cleanable_bytes:
        return log
    ratio, least = log.dirty_ratio, config.min_cleanable_dirty_ratio
    if ratio > least:
        reason = f"dirty ratio {ratio:.3f} is above min.cleanable.dirty.ratio={least}"
        return replace(log, needs_cleaning=reason)
    times = [each.first_timestamp for each in dirty if each.first_timestamp > 0]
    lag_ms = config.max_compaction_lag_ms
    if times and min(times) < now_ms - lag_ms:
        reason = f"a record is older than max.compaction.lag.ms={lag_ms}"
        return replace(log, needs_cleaning=reason)
    return log


def _from(segments: Sequence[CleanableSegment], offset: int) -> Sequence[CleanableSegment]:
    """Return the segments from the one that may hold ``offset`` on."""
    return [each for each in segments if each.next_base > offset]


def _between(
    segments: Sequence[CleanableSegment], start: int, end: int
) -> Sequence[CleanableSegment]:
    return [each for each in _from(segments, start) if each.base_offset < end]


def plan_groups(
    segments: Sequence[CleanableSegment],
    end: int,
    *,
    segment_bytes: int,
    index_bytes: int,
    first_uncleanable: int,
) -> list[list[CleanableSegment]]:
    """Put the segments below ``end`` into groups, each of which becomes one segment: as large as they are
    now, no group is above ``segment_bytes``, its indexes above ``index_bytes``, or wider than an index can
    say."""
    groups: list[list[CleanableSegment]] = []
    for segment in segments:
        if segment.base_offset >= end or segment.is_active:
            break
        if groups and _joins(groups[-1], segment, segment_bytes, index_bytes, first_uncleanable):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _joins(
    group: Sequence[CleanableSegment],
    segment: CleanableSegment,
    segment_bytes: int,
    index_bytes: int,
    first_uncleanable: int,
) -> bool:
    together = [*group, segment]
    last_offset = min(segment.next_base, first_uncleanable) - 1
    return (
        sum(each.size_bytes for each in together) <= segment_bytes
        and sum(each.offset_index_bytes for each in together) <= index_bytes
        and sum(each.time_index_bytes for each in together) <= index_bytes
        and (segment.size_bytes == 0 or last_offset - group[0].base_offset <= INT32_MAX)
    )
