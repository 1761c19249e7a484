"""Readers that wait for a log to move, and are woken when it does."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Waiters"]


class Waiters:
    """Those who wait. Nobody pays for them while there are none: ``count`` says so."""

    def __init__(self) -> None:
        self._moved = threading.Condition(threading.Lock())
        self.count = 0

    def wait_for(self, is_there: Callable[[], bool], timeout_s: float | None) -> None:
        """Return when ``is_there`` says so, which is asked after every move, or the time is over."""
        with self._moved:
            self.count += 1
            try:
                self._moved.wait_for(is_there, timeout_s)
            finally:
                self.count -= 1

    def wake(self) -> None:
        """Something moved: let them look."""
        with self._moved:
            self._moved.notify_all()
