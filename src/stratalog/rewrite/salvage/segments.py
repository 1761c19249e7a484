"""Divide what is kept into the segments of the new folder: pure functions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from stratalog.records.layout import INT32_MAX
from stratalog.rewrite.salvage.plan import SalvagePlan
from stratalog.rewrite.salvage.runs import Run

__all__ = ["NewSegment", "segments_of"]


class NewSegment(NamedTuple):
    """A segment to be written, with the time that its files get: that of the one its offsets were in."""

    base_offset: int
    modified_ms: int
    runs: tuple[Run, ...]
    is_v07: bool = False

    @property
    def size_bytes(self) -> int:
        return sum(run.size_bytes for run in self.runs)


def segments_of(plan: SalvagePlan) -> list[NewSegment]:
    """Return the segments that what is kept of a partition becomes, in the order of their offsets."""
    return _plan_v07(plan) if plan.is_v07 else _plan_segments(plan)


def _plan_segments(plan: SalvagePlan) -> list[NewSegment]:
    """Begin a new segment where an old one began. If offsets before it are lost, the segment is named by the
    first of them: so no offset of the log is outside of its segments."""
    live = [source for source in plan.sources if not source.is_leftover]
    bases = [source.base_offset for source in live]
    groups: list[tuple[int, list[Run]]] = []
    for run in plan.kept:
        owner = max(bisect_right(bases, run.first) - 1, 0)
        if not groups or groups[-1][0] != owner:
            groups.append((owner, []))
        groups[-1][1].append(run)
    if not groups:
        times = [source.modified_ms for source in live]
        return [NewSegment(plan.log_start, max(times, default=0), ())]
    lost = {each.first for each in plan.lost}
    segments: list[NewSegment] = []
    for owner, runs in groups:
        end = segments[-1].runs[-1].next if segments else plan.log_start
        base = bases[owner] if segments and end <= bases[owner] and end not in lost else end
        base = _in_reach(base, bases[owner], runs)
        segments.append(NewSegment(base, live[owner].modified_ms, tuple(runs)))
    return segments


def _in_reach(base: int, own_base: int, runs: Sequence[Run]) -> int:
    """Return a base offset from which an index reaches the first batches."""
    if runs[0].next - 1 - base <= INT32_MAX:
        return base
    return own_base if base < own_base <= runs[0].first else runs[0].first


def _plan_v07(plan: SalvagePlan) -> list[NewSegment]:
    """Begin a new file after every gap: the offsets of 0.7 are positions, and stay what they are."""
    segments: list[NewSegment] = []
    for run in plan.kept:
        last = segments[-1] if segments else None
        source = plan.sources[run.source]
        is_next = last is not None and last.runs[-1].next == run.first
        if last is not None and is_next and last.runs[-1].source == run.source:
            segments[-1] = last._replace(runs=(*last.runs, run))
        else:
            segments.append(NewSegment(run.first, source.modified_ms, (run,), is_v07=True))
    if not segments:
        times = [source.modified_ms for source in plan.sources]
        return [NewSegment(plan.log_start, max(times, default=0), (), is_v07=True)]
    return segments
