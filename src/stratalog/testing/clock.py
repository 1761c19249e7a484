"""A clock that stands still until it is told to move."""

from __future__ import annotations

from typing import Final

__all__ = ["START_MS", "ManualClock"]

#: Where a manual clock stands when nobody says otherwise: a day in 2023, with a round number.
START_MS: Final = 1_700_000_000_000


class ManualClock:
    """A :class:`stratalog.clock.Clock` in the hands of a test."""

    def __init__(self, now_ms: int = START_MS, monotonic_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, by_ms: int) -> None:
        """Let time go by, for both kinds of it."""
        if by_ms < 0:
            raise ValueError("time does not go back; a wall clock that jumps is set()")
        self._now_ms += by_ms
        self._monotonic_ms += by_ms

    def set(self, now_ms: int) -> None:
        """Let the wall's time jump, also back. The time that only goes forward stays where it is."""
        self._now_ms = now_ms

    def fork(self) -> ManualClock:
        """Another clock that stands where this one does now."""
        return ManualClock(self._now_ms, self._monotonic_ms)
