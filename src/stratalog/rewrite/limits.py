"""How long and how fast a rewrite may run, and how it is stopped from outside.

A rewrite asks between two windows, so that it stops within a fraction of a second. What was not swapped in by
then is discarded; what was, stays: the log is sound at every moment.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Final

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.errors import StratalogError
from stratalog.types import Progress

__all__ = ["RewriteLimits", "RewriteStoppedError", "Throttle"]

#: A pause that is shorter would cost more than it gives others.
_PAUSE_MIN_MS: Final = 2
#: A longer one would keep a rewrite from being stopped.
_PAUSE_MAX_MS: Final = 200
#: How much idle time counts later, as in Kafka's throttler, which looks every 300 ms.
_SAVED_MAX_MS: Final = 300


class RewriteStoppedError(StratalogError):
    """A rewrite was stopped before its end, by a limit or by request. The log is sound."""


class Throttle:
    """Keeps reading and writing below a number of bytes per second. Threads may share it. Idle time counts
    for a fraction of a second only, so that work after a pause is not faster."""

    def __init__(self, bytes_per_second: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._lock = threading.Lock()
        self._due_ms = float(clock.monotonic_ms())

    def note(self, size_bytes: int, check: Callable[[], None]) -> None:
        """Count bytes, and wait if they came too early. ``check`` is called while waiting."""
        if self._rate >= 2**63 or not math.isfinite(self._rate):
            return
        with self._lock:
            earliest_ms = self._clock.monotonic_ms() - _SAVED_MAX_MS
            self._due_ms = max(self._due_ms, earliest_ms) + 1000 * size_bytes / self._rate
            due_ms = int(self._due_ms)
        while (pause_ms := due_ms - self._clock.monotonic_ms()) >= _PAUSE_MIN_MS:
            until_ms = self._clock.monotonic_ms() + min(pause_ms, _PAUSE_MAX_MS)
            self._clock.wait(SimpleQueue(), until_ms)
            check()


@dataclass(slots=True)
class RewriteLimits:
    """The limits of one rewrite. All are optional."""

    #: Monotonic milliseconds after which no further work begins.
    deadline_ms: int | None = None
    #: How many bytes of old segments may be read.
    bytes_max: int | None = None
    #: Asked between two windows; True stops the rewrite.
    is_stopped: Callable[[], bool] = lambda: False
    throttle: Throttle | None = None
    progress: Progress | None = None
    clock: Clock = SYSTEM_CLOCK
    bytes_done: int = field(default=0, init=False)

    def stopping(self, is_stopped: Callable[[], bool]) -> RewriteLimits:
        """Return the same limits, with another reason to stop."""
        return replace(self, is_stopped=lambda: self.is_stopped() or is_stopped())

    def note(self, size_bytes: int) -> None:
        """Count bytes that were read or written; wait, or raise RewriteStoppedError, as the limits say."""
        self.bytes_done += size_bytes
        if self.progress is not None:
            self.progress(size_bytes)
        if self.throttle is not None:
            self.throttle.note(size_bytes, self.check)
        self.check()

    def check(self) -> None:
        """Raise RewriteStoppedError if the rewrite must stop now."""
        if self.is_stopped():
            raise RewriteStoppedError("the rewrite was stopped on request")
        if self.deadline_ms is not None and self.clock.monotonic_ms() >= self.deadline_ms:
            raise RewriteStoppedError("the rewrite reached its time limit")
        if self.bytes_max is not None and self.bytes_done > self.bytes_max:
            raise RewriteStoppedError(f"the rewrite reached its limit of {self.bytes_max} bytes")
