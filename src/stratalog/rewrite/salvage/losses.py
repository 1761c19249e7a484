"""Tell which offsets are lost: those that nothing kept has, and that no compaction removed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from stratalog.rewrite.salvage.runs import ZERO_TAIL, Damage, Run
from stratalog.rewrite.salvage.selection import LeftOut

__all__ = ["DamagedRange", "LostOffsets", "SourceExtent", "damaged_ranges", "find_lost"]


class LostOffsets(NamedTuple):
    """Offsets from ``first`` up to but not including ``next`` that may have been lost; None: up to an end
    that is not known."""

    first: int
    next: int | None

    @property
    def span(self) -> int | None:
        """How many offsets that are."""
        return None if self.next is None else self.next - self.first


class DamagedRange(NamedTuple):
    """Bytes of a file that are not kept. ``before`` is the offset after the last batch that is kept before
    them, ``after`` that of the first one after them; None if there is none."""

    source: int
    start: int
    end: int
    reason: str
    detail: str
    before: int | None
    after: int | None

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    @property
    def is_blank(self) -> bool:
        """Whether these are zeros at the end of a file: space that was set aside and never used."""
        return self.reason == ZERO_TAIL


class SourceExtent(NamedTuple):
    """Where a data file begins by its name, and how large it is."""

    base_offset: int
    size_bytes: int


def damaged_ranges(
    damage: Iterable[Damage], left_out: Iterable[LeftOut], in_place: Sequence[Run]
) -> tuple[DamagedRange, ...]:
    """Return everything that is not kept, in the order of files and positions, with the offsets around it."""
    places = [(run.source, run.start) for run in in_place]
    found = []
    for part in _without_insides(damage, left_out):
        at = bisect_right(places, (part.source, part.start))
        before = in_place[at - 1].next if at else None
        after = in_place[at].first if at < len(in_place) else None
        found.append(DamagedRange(*part, before, after))
    return tuple(found)


def _without_insides(damage: Iterable[Damage], left_out: Iterable[LeftOut]) -> list[Damage]:
    """Return both in their order. Batches that lie inside damage and are left out are part of it."""
    parts = [(Damage(*each), False) for each in damage]
    parts += [
        (Damage(run.source, run.start, run.end, reason, detail), run.is_inside)
        for run, reason, detail in left_out
    ]
    joined: list[tuple[Damage, bool]] = []
    for part, is_inside in sorted(parts):
        last, was_inside = joined[-1] if joined else (None, False)
        is_next = last is not None and (last.source, last.end) == (part.source, part.start)
        if last is not None and is_next and (is_inside or was_inside):
            joined[-1] = (last._replace(end=part.end), is_inside)
        else:
            joined.append((part, is_inside))
    return [part for part, _ in joined]


def find_lost(
    kept: Sequence[Run],
    ranges: Sequence[DamagedRange],
    sources: Sequence[SourceExtent],
    *,
    is_dense: bool,
    log_end: int | None = None,
) -> tuple[LostOffsets, ...]:
    """Return the offsets that are lost, in their order. ``kept`` are in the order of their offsets. If the
    log is not dense, gaps between batches that follow each other are what compaction leaves."""
    start = min((source.base_offset for source in sources), default=0)
    if not kept:
        has_damage = any(not each.is_blank for each in ranges)
        return (LostOffsets(start, log_end),) if has_damage or (log_end or 0) > start else ()
    lost = []
    first = kept[0]
    if first.first > start and not (
        first.start == 0 and sources[first.source].base_offset == start
    ):
        lost.append(LostOffsets(start, first.first))
    for one, other in pairwise(kept):
        if other.first > one.next and not _is_natural(one, other, sources, is_dense):
            lost.append(LostOffsets(one.next, other.first))
    last = max(kept, key=lambda run: (run.source, run.end))
    is_cut = any(
        (each.source, each.start) >= (last.source, last.end) and not each.is_blank
        for each in ranges
    )
    end = kept[-1].next
    if log_end is not None and log_end > end:
        lost.append(LostOffsets(end, log_end))
    elif is_cut:
        lost.append(LostOffsets(end, None))
    return tuple(lost)


def _is_natural(one: Run, other: Run, sources: Sequence[SourceExtent], is_dense: bool) -> bool:
    """Whether compaction may have left the gap between two runs: nothing lies between them."""
    if is_dense:
        return False
    if one.is_followed_by(other):
        return True
    is_whole = one.end == sources[one.source].size_bytes
    return other.source == one.source + 1 and is_whole and other.start == 0
