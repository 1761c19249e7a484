"""Plan a rewrite: which sealed segments it takes, group by group, and which it leaves, and why.

A plan is computed from a view of the log, so that it can be made without changing a byte, also while another
process writes to the log. It is what a dry run prints and what a rewrite then carries out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from stratalog.storage.names import FileKind
from stratalog.storage.segment.segment import Segment
from stratalog.storage.views.log_view import LogView

__all__ = [
    "LeftSegments",
    "PlannedGroup",
    "RewritePlan",
    "SealedFacts",
    "find_rewritable",
    "join_left",
    "plan_each",
    "rewrite_end",
    "segment_at",
]

_ACTIVE = "the active segment is not rewritten: roll it first to include it"
_UNSTABLE = (
    "an open transaction, or records that readers do not see yet, begins at or before its end"
)


class SealedFacts(NamedTuple):
    """What plans look at in a sealed segment."""

    base_offset: int
    next_base: int
    size_bytes: int
    offset_index_bytes: int
    time_index_bytes: int


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """Neighbouring segments that are rewritten together. ``new_bytes`` is what they need at most.
    ``records`` is how many records the rewrite is about; None if that is not known without rewriting."""

    segments: tuple[SealedFacts, ...]
    reason: str
    new_bytes: int
    records: int | None = None

    @property
    def base_offset(self) -> int:
        return self.segments[0].base_offset

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.segments)


@dataclass(frozen=True, slots=True)
class LeftSegments:
    """Neighbouring segments that are not rewritten, and why."""

    base_offset: int
    count: int
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class RewritePlan:
    """What a rewrite of one log will do. ``end`` is the offset at which it ends: what lies at or above it is
    not touched."""

    verb: str
    end: int
    groups: tuple[PlannedGroup, ...]
    left: tuple[LeftSegments, ...]

    @property
    def size_bytes(self) -> int:
        """How many bytes of old segments are read."""
        return sum(group.size_bytes for group in self.groups)

    @property
    def new_bytes(self) -> int:
        """How many bytes the new segments take at most."""
        return sum(group.new_bytes for group in self.groups)

    def within(self, bytes_max: int | None) -> RewritePlan:
        """Return the plan with as many groups as ``bytes_max`` bytes of old segments allow."""
        if bytes_max is None or self.size_bytes <= bytes_max:
            return self
        total, taken = 0, 0
        for group in self.groups:
            total += group.size_bytes
            if total > bytes_max:
                break
            taken += 1
        reason = f"beyond the limit of {bytes_max} bytes for this run"
        left = [_left(group.segments, reason) for group in self.groups[taken:]]
        return replace(self, groups=self.groups[:taken], left=(*self.left, *left))


def rewrite_end(view: LogView, limit: int | None = None) -> int:
    """Return the offset at which rewrites must end: the last stable offset, or ``limit`` if that is lower."""
    stable = view.last_stable_offset
    return stable if limit is None else min(stable, limit)


def find_rewritable(view: LogView, end: int) -> tuple[list[SealedFacts], list[LeftSegments]]:
    """Return the sealed segments below ``end``, and those that may not be rewritten, with the reason. An
    empty active segment is not among them."""
    facts = [_facts(view, number) for number in range(len(view.segments))]
    sealed = facts[:-1]
    stable = [each for each in sealed if each.next_base <= end]
    left = [_left([each], _UNSTABLE) for each in sealed[len(stable) :]]
    if facts[-1].size_bytes:
        left.append(_left(facts[-1:], _ACTIVE))
    return stable, left


def plan_each(
    verb: str,
    end: int,
    judged: Iterable[tuple[SealedFacts, PlannedGroup | str]],
    left: Sequence[LeftSegments],
) -> RewritePlan:
    """Return the plan of a rewrite that takes segments one by one: each is a group, or is left for the reason
    given."""
    groups: list[PlannedGroup] = []
    passed: list[LeftSegments] = []
    for facts, verdict in judged:
        if isinstance(verdict, PlannedGroup):
            groups.append(verdict)
        else:
            passed.append(_left([facts], verdict))
    return RewritePlan(verb, end, tuple(groups), join_left([*passed, *left]))


def join_left(left: Iterable[LeftSegments]) -> tuple[LeftSegments, ...]:
    """Return segments that are left for the same reason as one entry."""
    joined: dict[str, LeftSegments] = {}
    for each in left:
        before = joined.get(each.reason)
        joined[each.reason] = (
            each
            if before is None
            else replace(
                before,
                count=before.count + each.count,
                size_bytes=before.size_bytes + each.size_bytes,
            )
        )
    return tuple(joined.values())


def segment_at(view: LogView, facts: SealedFacts) -> Segment:
    """Return the segment that facts are of."""
    return view.segments[view.segments.floor(facts.base_offset)]


def _facts(view: LogView, number: int) -> SealedFacts:
    segment = view.segments[number]
    return SealedFacts(
        base_offset=segment.base_offset,
        next_base=view.segments.next_base(number, view.log_end),
        size_bytes=view.limit(number),
        offset_index_bytes=segment.file_size(FileKind.OFFSET_INDEX),
        time_index_bytes=segment.file_size(FileKind.TIME_INDEX),
    )


def _left(segments: Sequence[SealedFacts], reason: str) -> LeftSegments:
    return LeftSegments(
        segments[0].base_offset, len(segments), sum(each.size_bytes for each in segments), reason
    )
