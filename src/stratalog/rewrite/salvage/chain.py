"""Choose the heaviest chain of intervals that follow each other."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["Link", "heaviest_chain"]


class Link(NamedTuple):
    """An interval from ``first`` up to but not including ``next``, and what it weighs."""

    first: int
    next: int
    weight: int


def heaviest_chain(links: Sequence[Link]) -> list[int]:
    """Return the numbers of those links, in their order, each of which begins at or after the end of the one
    before, and which together weigh the most."""
    ends = sorted({link.next for link in links})
    best = _PrefixMaximum(len(ends))
    before: list[int] = []
    for number, link in enumerate(links):
        found = best.of(bisect_right(ends, link.first))
        before.append(-found.number)
        place = bisect_left(ends, link.next)
        best.put(place, _Best(found.weight + link.weight, -place, -number))
    chain = []
    number = -best.of(len(ends)).number
    while number >= 0:
        chain.append(number)
        number = before[number]
    return chain[::-1]


class _Best(NamedTuple):
    """The weight of a chain, and its last link. Of equal chains the one with the lowest end is better: a
    flipped bit makes most numbers larger. Both numbers are negative, so that a lower one is better."""

    weight: int
    place: int
    number: int


_NOTHING: Final = _Best(0, 1, 1)


class _PrefixMaximum:
    """The best of the first so many places: a Fenwick tree."""

    def __init__(self, size: int) -> None:
        self._tree = [_NOTHING] * (size + 1)

    def of(self, count: int) -> _Best:
        found = _NOTHING
        while count > 0:
            found = max(found, self._tree[count])
            count &= count - 1
        return found

    def put(self, place: int, best: _Best) -> None:
        place += 1
        while place < len(self._tree):
            self._tree[place] = max(self._tree[place], best)
            place += place & -place
