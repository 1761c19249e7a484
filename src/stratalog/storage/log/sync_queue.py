"""Acknowledgments for callers that do not wait: each callback is called when its append is on the disk.

A server has one thread for many connections, which must not wait for a disk. It appends, leaves a callback
and continues. A thread of the pool (``sync_pool``) syncs, and then calls all callbacks that this sync serves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from stratalog.errors import OffsetOutOfRangeError, StratalogError, UsageError
from stratalog.storage.files.forks import fork_count
from stratalog.storage.log.sync_pool import report_error, sync_pool

__all__ = ["OnSynced", "SyncQueue"]

#: Called with None when everything is on the disk, or with the error that prevents it: by a thread of the
#: pool, or by the thread that closes the log.
OnSynced = Callable[[StratalogError | None], None]


class _Waiting(NamedTuple):
    """A callback, and how often the log had been truncated when it came."""

    offset: int
    done: OnSynced
    cuts: int


class SyncQueue:
    """Callbacks of one log that wait for offsets to be on the disk. One thread at a time serves them."""

    def __init__(self, reach: Callable[[int], None]) -> None:
        """``reach`` returns when everything below an offset is on the disk."""
        self._reach = reach
        self._lock = threading.Lock()
        self._free = threading.Condition(self._lock)
        self._pending: list[_Waiting] = []
        self._cuts: list[int] = []  # where the log was truncated
        self._server: threading.Thread | None = None
        self._is_calling = False  # the server is done with its sync, and calls callbacks
        self._is_added = False  # to the pool, and not yet served
        self._is_closed = False
        self._forks = fork_count()

    def put(self, offset: int, done: OnSynced) -> None:
        """Call ``done`` when everything below ``offset`` is on the disk. Raise UsageError if the queue is
        closed: nothing would call it."""
        with self._lock:
            if self._is_closed:
                raise UsageError("the log is closed: nothing more is synced")
            if not self._is_added:
                sync_pool().add(self)
                self._is_added = True
            self._pending.append(_Waiting(offset, done, len(self._cuts)))

    def lower(self, offset: int) -> None:
        """Note that the log was truncated at ``offset``: callbacks that wait for more get an error, even if
        other records have taken the offsets by then."""
        with self._lock:
            self._cuts.append(offset)

    def serve(self) -> bool:
        """Sync once and call the callbacks that this serves; return whether others came meanwhile."""
        with self._lock:
            taken, self._pending = self._pending, []
            is_taken = self._server is None and bool(taken)
            if is_taken:
                self._server = threading.current_thread()
            else:
                # close() serves what is here, or has done so.
                self._pending = taken
                self._is_added = False
        if not is_taken:
            return False
        try:
            self._answer(taken)
        finally:
            with self._lock:
                self._leave()
                self._is_added = bool(self._pending)
                has_more = self._is_added
        return has_more

    def _answer(self, taken: list[_Waiting]) -> None:
        furthest = max(each.offset for each in taken)
        failure = self._failure(furthest)
        with self._lock:
            if self._server is threading.current_thread():
                self._is_calling = True
                self._free.notify_all()
        _here.depth = _depth() + 1
        try:
            for each in taken:
                own = failure
                if failure is not None and each.offset != furthest:
                    # What failed for one may be on the disk for another, below where the log was truncated.
                    own = self._failure(each.offset)
                if own is None and each.cuts < len(self._cuts):
                    own = self._truncated(each)
                try:
                    each.done(own)
                except BaseException as error:  # noqa: BLE001  # of one caller: the others wait, too
                    report_error(error)
        finally:
            _here.depth -= 1

    def _leave(self) -> None:
        """End this thread's turn. Call it with the lock."""
        self._server = None
        self._is_calling = False
        self._free.notify_all()

    def _truncated(self, waiting: _Waiting) -> OffsetOutOfRangeError | None:
        end = min(self._cuts[waiting.cuts :])
        return OffsetOutOfRangeError(waiting.offset - 1, 0, end) if end < waiting.offset else None

    def _failure(self, offset: int) -> StratalogError | None:
        try:
            self._reach(offset)
        except StratalogError as error:
            return error
        except BaseException as error:  # noqa: BLE001  # every callback must be called
            return StratalogError(f"the sync was interrupted: {error!r}")
        return None

    def close(self) -> None:
        """Serve what waits, in this thread, and refuse what comes later. The pool may be busy with other
        logs, or with callbacks that close logs themselves: waiting for it could last forever.

        For the same reason a callback that closes another log does not wait for the callbacks of that log
        that are called just now: one of them may close the log of this callback. Their sync is done.
        """
        if self._forks != fork_count():
            return  # the callbacks are the parent's, and so is the thread
        this = threading.current_thread()
        with self._lock:
            self._is_closed = True
            if self._server is this:
                return  # a callback closes its own log: what waits is served after it
            while self._server is not None and not (self._is_calling and _depth()):
                self._free.wait()
            taken, self._pending = self._pending, []
            is_server = self._server is None
            if is_server:
                self._server = this
        try:
            if taken:
                self._answer(taken)
        finally:
            if is_server:
                with self._lock:
                    self._leave()


#: How many callbacks, one within the other, this thread is calling.
_here = threading.local()


def _depth() -> int:
    return getattr(_here, "depth", 0)
