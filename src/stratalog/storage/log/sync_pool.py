"""A few threads that sync for all logs of the process.

A log with callbacks that wait for the disk gives its queue to the pool. The queues are served in the order in
which they came, each by one thread at a time and one sync in turn, so a busy log does not keep the others
waiting. Threads are started when there is work for them, are daemons, and stay.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import Final, Protocol

__all__ = ["THREADS_MAX", "THREAD_NAME", "Served", "SyncPool", "report_error", "sync_pool"]

#: A sync waits for the disk, not for the processor. More threads only help if logs lie on several disks.
THREADS_MAX: Final = 4
THREAD_NAME: Final = "stratalog-sync"


class Served(Protocol):
    """What the pool serves."""

    def serve(self) -> bool:
        """Do what is waiting now; return whether there is more."""
        ...


class SyncPool:
    """Up to ``threads_max`` threads, and what waits for one of them."""

    def __init__(self, threads_max: int = THREADS_MAX, name: str = THREAD_NAME) -> None:
        self._threads_max = threads_max
        self._name = name
        self._lock = threading.Lock()
        self._ready: SimpleQueue[Served] = SimpleQueue()
        self._threads = 0
        self._unserved = 0  # waiting, or being served

    def add(self, served: Served) -> None:
        """Serve this soon, by a thread of the pool. The caller adds it once, and again only after ``serve``
        has returned False. Raise RuntimeError if the system refuses the first thread."""
        with self._lock:
            if self._unserved >= self._threads < self._threads_max:
                self._start_thread()
            self._unserved += 1
        self._ready.put(served)

    def _start_thread(self) -> None:
        try:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        except RuntimeError:
            if not self._threads:
                raise
            return  # those that there are do the work
        self._threads += 1

    def _run(self) -> None:
        while True:
            served = self._ready.get()
            has_more = False
            try:
                has_more = served.serve()
            except BaseException as error:  # noqa: BLE001  # a thread that ends is missing for all logs
                report_error(error)
            if has_more:
                self._ready.put(served)
                continue
            with self._lock:
                self._unserved -= 1


def report_error(error: BaseException) -> None:
    """Report an error as Python does when a thread ends with it. This thread continues, even if the hook that
    reports the error ends with ``sys.exit``."""
    found = (type(error), error, error.__traceback__, threading.current_thread())
    with suppress(BaseException):
        threading.excepthook(threading.ExceptHookArgs(found))


_pool = SyncPool()


def sync_pool() -> SyncPool:
    """Return the pool of this process."""
    return _pool


def _after_fork() -> None:
    # The threads stayed with the parent, and one of them may have held the lock.
    global _pool  # noqa: PLW0603
    _pool = SyncPool()


os.register_at_fork(after_in_child=_after_fork)
