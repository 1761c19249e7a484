"""Acknowledgments for callers that do not wait: each is called when its append is on the disk.

A server has one thread for many connections; none of them may wait for a disk. It appends, leaves a callback,
and goes on; a thread of the log's own syncs, and answers all that a sync has served at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from stratalog.errors import StratalogError, UsageError
from stratalog.storage.files.forks import fork_count

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
        self._forks = fork_count()

    def put(self, offset: int, done: Done) -> None:
        """Call ``done`` when everything below ``offset`` is on the disk. UsageError once it is closed:
        nobody would call."""
        with self._lock:
            if self._is_closed:
                raise UsageError("the log is closed: nothing more is synced")
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name=_NAME, daemon=True)
                thread.start()
                self._thread = thread
            self._pending.append((offset, done))
            is_first = len(self._pending) == 1
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
        furthest = max(offset for offset, _ in taken)
        failure = self._failure(furthest)
        for offset, done in taken:
            # What failed for one may be on the disk for another: its log may have been cut between them.
            own = failure if failure is None or offset == furthest else self._failure(offset)
            try:
                done(own)
            except BaseException as error:  # noqa: BLE001  # of one caller: the others wait, too
                _report(error)

    def _failure(self, offset: int) -> StratalogError | None:
        try:
            self._reach(offset)
        except StratalogError as error:
            return error
        except BaseException as error:  # noqa: BLE001  # whoever waits must hear of it
            return StratalogError(f"the sync was interrupted: {error!r}")
        return None

    def close(self) -> None:
        """Serve what waits, and end."""
        if self._forks != fork_count():
            return  # who waits here waits in the parent, and so does the thread
        with self._lock:
            self._is_closed = True
            thread = self._thread
        self._work.release()
        if thread is not None and thread is not threading.current_thread():
            thread.join()


def _report(error: BaseException) -> None:
    """Tell of it as Python does where a thread dies of an error; this one lives on."""
    found = (type(error), error, error.__traceback__, threading.current_thread())
    with suppress(Exception):
        threading.excepthook(threading.ExceptHookArgs(found))
