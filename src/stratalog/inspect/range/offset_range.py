"""``--offsets``: which part of every partition is wanted, in the grammar of ``rpk topic consume``.

    range  = bound | [bound] ":" [bound] | "@" [time] [":" [time]]
    bound  = "start" | "end" | N | "+" N | "-" N
    time   = 13 digits (ms) | 10 digits (s) | YYYY-MM-DD | RFC 3339 | [-] duration | "end"

Partitions start and end at different offsets, so a range is resolved for each. Offsets are numbers, not
records: after compaction ``-10`` may show fewer than ten.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Final, NamedTuple

from stratalog.errors import UsageError

__all__ = ["WHOLE", "Anchor", "Bound", "OffsetRange", "milliseconds_of", "parse_offsets"]


class Anchor(Enum):
    """What a bound is counted from."""

    ZERO = auto()
    START = auto()  # the log start
    END = auto()  # the log end: the offset that the next record would get
    FIRST = auto()  # where the range begins


class Bound(NamedTuple):
    """An offset, counted from something that each partition knows."""

    anchor: Anchor
    distance: int = 0


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """From ``first`` up to but not including ``last``; None is no bound. Times are milliseconds, and bound
    the records by their own timestamps."""

    first: Bound | None = None
    last: Bound | None = None
    start_time: int | None = None
    end_time: int | None = None

    @property
    def needs_start(self) -> bool:
        """Whether the log start must be known to resolve it."""
        return bool({Anchor.START, Anchor.FIRST} & self._anchors)

    @property
    def needs_end(self) -> bool:
        """Whether the log end must be known to resolve it."""
        return Anchor.END in self._anchors

    @property
    def is_absolute(self) -> bool:
        """Whether it begins at an offset that was given as such."""
        return self.first is not None and self.first.anchor is Anchor.ZERO

    @property
    def _anchors(self) -> set[Anchor]:
        return {bound.anchor for bound in (self.first, self.last) if bound is not None}

    def resolve(self, log_start: int, log_end: int) -> tuple[int | None, int | None]:
        """The offsets of a partition that holds ``log_start`` up to but not including ``log_end``."""
        anchors = {Anchor.ZERO: 0, Anchor.START: log_start, Anchor.END: log_end}
        start = None if self.first is None else anchors[self.first.anchor] + self.first.distance
        anchors[Anchor.FIRST] = log_start if start is None else max(start, log_start)
        end = None if self.last is None else anchors[self.last.anchor] + self.last.distance
        return start, end


WHOLE: Final = OffsetRange()

_OFFSET: Final = re.compile(r"(?P<word>start|end)|(?P<sign>[+-]?)(?P<number>[0-9]{1,19})")
_TIME: Final = re.compile(
    r"(?P<ms>[0-9]{13})(?=:|$)"
    r"|(?P<s>[0-9]{10})(?=:|$)"
    r"|(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{0,9})?"
    r"(?:Z|[+-][0-9]{2}:[0-9]{2})?)?)(?=:|$)"
    r"|(?P<word>end)(?=:|$)"
    r"|(?P<duration>-?(?:[0-9]{1,12}(?:\.[0-9]{1,9})?(?:ms|s|m|h|d))+)(?=:|$)"
)
_PART: Final = re.compile(r"([0-9.]+)(ms|s|m|h|d)")
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_WHAT_WORKS: Final = "write 100, 100:200, :end, +10, -10, @2024-03-13, @-1h or @-2h:-1h"


def parse_offsets(text: str, now_ms: int) -> OffsetRange:
    """What the text asks for; UsageError where it is none of the grammar's."""
    if text.startswith("@"):
        return _time_range(text, now_ms)
    before, _, behind = text.partition(":")
    if not before and not behind:
        raise _not_a_range(text)
    first = _bound(before, text) if before else None
    last = _end_bound(behind, text) if behind not in ("", "end") else None
    if first and last and first.anchor is last.anchor and last.distance <= first.distance:
        raise UsageError(f"offsets {text!r} end before they start")
    return OffsetRange(first, last)


def _end_bound(half: str, text: str) -> Bound:
    if half == "start":
        raise _not_a_range(text)
    bound = _bound(half, text)
    # As in "@time:1h", the second is counted from the first.
    return Bound(Anchor.FIRST, bound.distance) if bound.anchor is Anchor.START else bound


def _bound(half: str, text: str) -> Bound:
    match = _OFFSET.fullmatch(half)
    if match is None:
        raise _not_a_range(text)
    if match["word"]:
        return Bound(Anchor.START if match["word"] == "start" else Anchor.END)
    number = int(match["number"])
    if not match["sign"]:
        return Bound(Anchor.ZERO, number)
    return Bound(Anchor.START, number) if match["sign"] == "+" else Bound(Anchor.END, -number)


def _time_range(text: str, now_ms: int) -> OffsetRange:
    """A time may have colons of its own, so that each half says itself where it ends."""
    rest = text[1:]
    start = end = None
    base = now_ms
    if not rest.startswith(":"):
        match = _TIME.match(rest)
        if match is None or match["word"]:
            raise _not_a_range(text)
        start = _time(match, now_ms, text)
        if not match["duration"]:
            base = start  # a duration is counted from a time that was named, else from now
        rest = rest[match.end() :]
    elif rest == ":":
        raise _not_a_range(text)
    if len(rest) > 1:
        match = _TIME.fullmatch(rest[1:])
        if match is None:
            raise _not_a_range(text)
        end = None if match["word"] else _time(match, base, text)
    if start is not None and end is not None and end <= start:
        raise UsageError(f"offsets {text!r} end before they start")
    return OffsetRange(start_time=start, end_time=end)


def _time(match: re.Match[str], base_ms: int, text: str) -> int:
    if match["ms"]:
        return int(match["ms"])
    if match["s"]:
        return int(match["s"]) * 1000
    if match["duration"]:
        parts = _PART.findall(match["duration"])
        duration = round(sum(float(number) * _UNIT_MS[unit] for number, unit in parts))
        return base_ms + (-duration if match["duration"].startswith("-") else duration)
    try:
        time = datetime.fromisoformat(match["date"].replace(".Z", "Z"))
    except ValueError:
        raise _not_a_range(text) from None
    return milliseconds_of(time if time.tzinfo is not None else time.replace(tzinfo=UTC))


def milliseconds_of(time: datetime) -> int:
    """Milliseconds since 1970 of a time with a zone, without a detour over floats."""
    since = time - _EPOCH
    return (since.days * 86400 + since.seconds) * 1000 + since.microseconds // 1000


def _not_a_range(text: str) -> UsageError:
    return UsageError(f"{text!r} is not a range of offsets: {_WHAT_WORKS}")
