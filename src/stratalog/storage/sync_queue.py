"""Acknowledgments for callers that do not wait: each is called when its append is on the disk.

A server has one thread for many connections; none of them may wait for a disk. It appends, leaves a callback,
and goes on; a thread of the log's own syncs, and answers all that a sync has served at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from stratalog.errors import StratalogError

__all__ = ["Done", "SyncQueue"]

#: Is called with the error where the sync failed, and with None where all is well; by the queue's thread.
Done = Callable[[StratalogError | None], None]

_NAME: Final = "stratalog-sync"


class SyncQueue:
    """Callbacks that wait for offsets to be on the disk."""

    def __init__(self, reach: Callable[[int], None]) -> None:
        """``reach`` returns when everything below an offset is on the disk."""
        self._reach = reach
        self._lock = threading.Lock()
        self._work = threading.Semaphore(0)
        self._pending: list[tuple[int, Done]] = []
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def put(self, offset: int, done: Done) -> None:
        """Call ``done`` when everything below ``offset`` is on the disk."""
        with self._lock:
            self._pending.append((offset, done))
            is_first = len(self._pending) == 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name=_NAME, daemon=True)
                self._thread.start()
        if is_first:
            self._work.release()

    def _serve(self) -> None:
        while True:
            self._work.acquire()
            with self._lock:
                taken, self._pending = self._pending, []
                if not taken and self._is_closed:
                    return
            if taken:
                self._answer(taken)

    def _answer(self, taken: list[tuple[int, Done]]) -> None:
        failure: StratalogError | None = None
        try:
            self._reach(max(offset for offset, _ in taken))
        except StratalogError as error:
            failure = error
        for _, done in taken:
            done(failure)

    def close(self) -> None:
        """Serve what waits, and end."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        self._work.release()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
