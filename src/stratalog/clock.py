"""Time as something that is handed in, so that a test can hold it still or let it jump."""

from __future__ import annotations

import time
from typing import Final, Protocol

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock"]


class Clock(Protocol):
    """The two kinds of time: the wall's, which may jump, and one that only goes forward."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, as record timestamps count."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment, for waiting and ages."""
        ...


class SystemClock:
    """The machine's own."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


SYSTEM_CLOCK: Final = SystemClock()
