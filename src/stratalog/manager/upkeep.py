"""The jobs that open logs need: flushing by ``flush.ms``, and removing deleted files after
``file.delete.delay.ms``.

Logs are held weakly: a log that is dropped without being closed is not kept open by a job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final
from weakref import WeakMethod, WeakSet

from stratalog.clock import Clock
from stratalog.errors import StratalogError
from stratalog.manager.attempt import attempt_each
from stratalog.records.layout import INT64_MAX
from stratalog.storage.partition_log import PartitionLog

__all__ = ["DueFlushes", "DueRemovals"]

_PAUSE_MAX_MS: Final = 1000
_PAUSE_MIN_MS: Final = 5
#: How late a flush may come, as a part of ``flush.ms``.
_LATENESS: Final = 0.2
#: When a removal that failed is tried again.
_RETRY_MS: Final = 10_000


class DueFlushes:
    """Flushes logs whose ``flush.ms`` has passed, also when nothing is appended any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: WeakSet[PartitionLog] = WeakSet()

    def watch(self, log: PartitionLog) -> bool:
        """Flush a log from now on, if it has a ``flush.ms``; return whether it does."""
        has_interval = log.config.flush_ms < INT64_MAX
        with self._lock:
            if has_interval:
                self._logs.add(log)
            else:
                self._logs.discard(log)
        return has_interval

    def run(self) -> None:
        """Flush what is due. A log that fails is not flushed again: its next append says why."""
        attempt_each(partial(_flush_if_due, log) for log in self._writable())

    def _writable(self) -> list[PartitionLog]:
        with self._lock:
            logs = [log for log in self._logs if not log.is_closed and log.failure is None]
            self._logs = WeakSet(logs)
        return logs

    def interval_ms(self) -> int | None:
        """Return how often to look: so often that no flush is late by much."""
        pauses = (int(log.config.flush_ms * _LATENESS) for log in self._writable())
        shortest = min(pauses, default=None)
        return None if shortest is None else min(max(shortest, _PAUSE_MIN_MS), _PAUSE_MAX_MS)


def _flush_if_due(log: PartitionLog) -> None:
    try:
        log.flush_if_due()
    except StratalogError:
        if not log.is_closed:  # else its topic was deleted meanwhile
            raise


class DueRemovals:
    """Removes the files of deleted segments and topics after ``file.delete.delay.ms``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: When it is due, and a function that returns the removal; None if its log is gone.
        self._due: list[tuple[int, Callable[[], Callable[[], object] | None]]] = []

    def watch(self, log: PartitionLog) -> None:
        """Remove the files that a log has just set aside, when their time has come."""
        self._add(log.config.file_delete_delay_ms, WeakMethod(log.remove_due))

    def add(self, delay_ms: int, remove: Callable[[], object]) -> None:
        """Call ``remove`` after ``delay_ms``."""
        self._add(delay_ms, lambda: remove)

    def _add(self, delay_ms: int, held: Callable[[], Callable[[], object] | None]) -> None:
        with self._lock:
            self._due.append((self._clock.monotonic_ms() + delay_ms, held))

    def run(self) -> None:
        """Remove what is due. What fails is tried again after a while."""
        now = self._clock.monotonic_ms()
        with self._lock:
            due = [held for due_ms, held in self._due if due_ms <= now]
            self._due = [each for each in self._due if each[0] > now and each[1]() is not None]
        attempt_each(partial(self._remove, held) for held in due)

    def _remove(self, held: Callable[[], Callable[[], object] | None]) -> None:
        remove = held()
        if remove is None:
            return
        try:
            remove()
        except StratalogError:
            self._add(_RETRY_MS, held)
            raise

    def interval_ms(self) -> int | None:
        """Return the time until the first file may be removed; None if none was set aside."""
        now = self._clock.monotonic_ms()
        with self._lock:
            first = min((due for due, held in self._due if held() is not None), default=None)
        return None if first is None else max(first - now, 0)
