"""A clock that a test moves."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import ClassVar, Final

__all__ = ["START_MS", "ManualClock"]

#: Where a manual clock starts by default: a day in 2023, with a round number.
START_MS: Final = 1_700_000_000_000


class ManualClock:
    """A :class:`stratalog.clock.Clock` that stands still until ``advance`` or ``set`` is called."""

    is_manual: ClassVar = True

    def __init__(self, now_ms: int = START_MS, monotonic_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[int, SimpleQueue[None]]] = {}

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def wait(self, wake_ups: SimpleQueue[None], until_ms: int | None) -> None:
        """Wait for an item of ``wake_ups``; ``advance`` puts one when it reaches ``until_ms``."""
        with self._lock:
            if until_ms is not None and until_ms <= self._monotonic_ms:
                return
            if until_ms is not None:
                self._waiting[id(wake_ups)] = until_ms, wake_ups
        try:
            wake_ups.get()
        finally:
            with self._lock:
                self._waiting.pop(id(wake_ups), None)

    def advance(self, by_ms: int) -> None:
        """Move both kinds of time forward, and wake the threads that wait for a time that has come."""
        if by_ms < 0:
            raise ValueError("time does not go back; a wall clock that jumps is set()")
        with self._lock:
            self._now_ms += by_ms
            self._monotonic_ms += by_ms
            due = [queue for until, queue in self._waiting.values() if until <= self._monotonic_ms]
        for queue in due:
            queue.put(None)

    def set(self, now_ms: int) -> None:
        """Let the wall clock jump, also backwards. Monotonic time stays where it is."""
        self._now_ms = now_ms

    def fork(self) -> ManualClock:
        """Return another clock that starts where this one is now."""
        return ManualClock(self._now_ms, self._monotonic_ms)
