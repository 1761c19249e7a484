"""What a condition leaves out before anything is read: a small algebra of bounds.

A bound never leaves out what the condition lets through; it may let through more. So a condition that is not
understood bounds nothing, AND takes what both leave, OR takes the hull of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["EVERYTHING", "MIRRORED", "NOTHING", "Interval", "Pruning", "bounded"]

#: The comparisons that bound something, and what each is with its two sides exchanged.
MIRRORED: Final = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Interval:
    """Whole numbers from ``low`` to ``high``, both included; None is no bound."""

    low: int | None = None
    high: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.low is not None and self.high is not None and self.low > self.high

    def holds(self, value: int) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def both(self, other: Interval) -> Interval:
        lows = [each for each in (self.low, other.low) if each is not None]
        highs = [each for each in (self.high, other.high) if each is not None]
        return Interval(max(lows, default=None), min(highs, default=None))

    def hull(self, other: Interval) -> Interval:
        low = None if self.low is None or other.low is None else min(self.low, other.low)
        high = None if self.high is None or other.high is None else max(self.high, other.high)
        return Interval(low, high)


_ALL: Final = Interval()


@dataclass(frozen=True, slots=True)
class Pruning:
    """What rows can pass: of these topics (None: any), of partitions, offsets and times (microseconds)
    within these bounds. ``is_nothing``: none can."""

    topics: frozenset[str] | None = None
    partitions: Interval = _ALL
    offsets: Interval = _ALL
    times_us: Interval = _ALL
    is_nothing: bool = False

    def both(self, other: Pruning) -> Pruning:
        """What passes the one and the other."""
        if self.topics is None or other.topics is None:
            topics = self.topics if other.topics is None else other.topics
        else:
            topics = self.topics & other.topics
        partitions = self.partitions.both(other.partitions)
        offsets = self.offsets.both(other.offsets)
        times = self.times_us.both(other.times_us)
        is_nothing = (
            self.is_nothing
            or other.is_nothing
            or topics == frozenset()
            or any(each.is_empty for each in (partitions, offsets, times))
        )
        return Pruning(topics, partitions, offsets, times, is_nothing)

    def either(self, other: Pruning) -> Pruning:
        """What passes the one or the other, and perhaps a little more."""
        if self.is_nothing or other.is_nothing:
            return other if self.is_nothing else self
        topics = None
        if self.topics is not None and other.topics is not None:
            topics = self.topics | other.topics
        return Pruning(
            topics,
            self.partitions.hull(other.partitions),
            self.offsets.hull(other.offsets),
            self.times_us.hull(other.times_us),
        )


EVERYTHING: Final = Pruning()
NOTHING: Final = Pruning(is_nothing=True)


def bounded(column: str, comparison: str, value: object) -> Pruning:
    """What passes the comparison of a column with a value; of times, microseconds."""
    if column == "topic":
        if isinstance(value, str) and comparison in ("=", "<=>"):
            return Pruning(topics=frozenset({value}))
        return EVERYTHING
    if type(value) is not int:
        return EVERYTHING
    interval = {
        "=": Interval(value, value),
        "<=>": Interval(value, value),
        "<": Interval(None, value - 1),
        "<=": Interval(None, value),
        ">": Interval(value + 1, None),
        ">=": Interval(value, None),
    }[comparison]
    match column:
        case "partition":
            return Pruning(partitions=interval)
        case "offset":
            return Pruning(offsets=interval)
        case "timestamp":
            return Pruning(times_us=interval)
    return EVERYTHING
