"""What is to be done to open logs as time passes, also when nobody calls: ``flush.ms`` and the removal of
files that were set aside (``file.delete.delay.ms``).

One thread does it for all of them, and is only there once a log needs it. Retention is not among it: what is
deleted for good, and when, is for the caller to say.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final
from weakref import WeakSet

from stratalog.errors import StratalogError
from stratalog.storage.partition_log import PartitionLog

__all__ = ["Upkeep"]

_PAUSE_MAX_S: Final = 1.0
_PAUSE_MIN_S: Final = 0.005
#: How late a flush may come, as a part of ``flush.ms``.
_LATENESS: Final = 0.2


class Upkeep:
    """Looks after logs from time to time, until it is stopped."""

    def __init__(self) -> None:
        # Whoever forgets to close his logs shall not have them kept open by this.
        self._logs: WeakSet[PartitionLog] = WeakSet()
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def watch(self, log: PartitionLog) -> None:
        """Look after this log from now on."""
        with self._changed:
            if self._is_stopped or log in self._logs:
                return
            self._logs.add(log)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="stratalog-upkeep", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def stop(self) -> None:
        """Stop; when this returns, no log is touched any more."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._is_stopped:
                    self._changed.wait(min(map(_pause_s, self._logs), default=0))
                logs = list(self._logs)
                if self._is_stopped or not logs:
                    self._thread = None
                    return
            while logs:
                log = logs.pop()
                # A log that failed says so to whoever appends to it next.
                with suppress(StratalogError):
                    log.flush_if_due()
                    log.remove_due()
                del log


def _pause_s(log: PartitionLog) -> float:
    flush_ms = log.config.flush_ms
    return min(max(flush_ms / 1000 * _LATENESS, _PAUSE_MIN_S), _PAUSE_MAX_S)
