"""Time as a parameter, so that a test can stop it or move it."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

if TYPE_CHECKING:
    from queue import SimpleQueue

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock"]


class Clock(Protocol):
    """Wall-clock time, which may jump, and monotonic time, which only moves forward."""

    @property
    def is_manual(self) -> bool:
        """Whether time moves only when a test moves it. Nothing runs in the background then: the test
        runs what is due, with ``Logs.run_due_jobs``."""
        ...

    def now_ms(self) -> int:
        """Return the milliseconds since 1970, as in record timestamps."""
        ...

    def monotonic_ms(self) -> int:
        """Return monotonic milliseconds since an arbitrary moment, for waiting and ages."""
        ...

    def wait(self, wake_ups: SimpleQueue[None], until_ms: int | None) -> None:
        """Wait for an item of ``wake_ups``, or until ``monotonic_ms`` has reached ``until_ms``. May return
        early."""
        ...


class SystemClock:
    """The machine's clock."""

    is_manual: ClassVar = False

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wait(self, wake_ups: SimpleQueue[None], until_ms: int | None) -> None:
        from queue import Empty  # only here: every command imports this module, and few wait

        timeout_s = None if until_ms is None else max(until_ms - self.monotonic_ms(), 0) / 1000
        with suppress(Empty):
            wake_ups.get(timeout=None if timeout_s is None else min(timeout_s, _WAIT_MAX_S))


#: What every platform accepts as a timeout.
_WAIT_MAX_S: Final = 86_400.0
SYSTEM_CLOCK: Final = SystemClock()
