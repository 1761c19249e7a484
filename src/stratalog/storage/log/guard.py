"""Decide whether a log may be changed: its lock, the failure after which it refuses writes, and its end.

After a failed write or sync it is not known what the disk holds. The log then refuses writes until it is
opened again, through recovery; what it has acknowledged as synced is there.

A log also belongs to the process that opened it. A process that is forked from it has the same files but an
outdated state: it may read, and change nothing.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakSet

from stratalog.errors import LogFailedError, StorageError, UsageError
from stratalog.storage.files.forks import check_forks, fork_count

__all__ = ["NO_ROOM", "LogGuard"]

_NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})
#: A full disk, or a process with too many files: conditions that may pass.
NO_ROOM: Final = _NO_FILES | {errno.ENOSPC, errno.EDQUOT}

_guards: WeakSet[LogGuard] = WeakSet()


class LogGuard:
    """One lock for everything that changes a log, and the reason if it may not be changed any more."""

    def __init__(self, folder: str, note_failed: Callable[[], None]) -> None:
        """``note_failed`` leaves a note for the next process that opens the log: a sync has failed."""
        self._folder = folder
        self._note_failed = note_failed
        self.lock = threading.RLock()
        self.failure: StorageError | None = None
        self.is_closed = False
        self._forks = fork_count()
        _guards.add(self)

    @property
    def is_inherited(self) -> bool:
        """Whether the process that opened the log is not this one, but one that it was forked from."""
        return self._forks != fork_count()

    def check_process(self) -> None:
        """Raise UsageError if the log is inherited."""
        if self.is_inherited:
            check_forks(self._forks, os.path.basename(self._folder))

    def check(self) -> None:
        """Raise an error if the log may not be written."""
        self.check_process()
        if self.failure is not None:
            raise LogFailedError(
                f"an earlier write failed ({self.failure.detail}): "
                "close and reopen the log directory to recover it",
                path=self._folder,
                errno=self.failure.errno,
            )
        self.check_open()

    def check_open(self) -> None:
        if self.is_closed:
            raise UsageError(f"{os.path.basename(self._folder)} is closed")

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock for a change that either happens or does not."""
        self.check_process()
        with self.lock:
            self.check()
            try:
                yield
            except StorageError as error:
                self.fail_unless_full(error)
                raise

    @contextmanager
    def unbroken(self) -> Iterator[None]:
        """Run steps that only mean something together: if one fails, the log fails."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, StorageError):
                error = StorageError(f"interrupted: {error!r}", path=self._folder)
            self.fail(error)
            raise

    def synced(self, call: Callable[[], object]) -> None:
        """Run something that syncs. A sync that failed is never tried again: the kernel may have dropped
        what it could not write, and would report the rest as clean. If nothing was synced because no file
        could be opened for it, nothing is lost either."""
        try:
            call()
        except StorageError as error:
            if error.errno not in _NO_FILES:
                self.fail(error)
                self._leave_note()
            raise

    def _leave_note(self) -> None:
        """Leave the note of a failed sync, unless the log was released meanwhile: its folder may be that of
        another log by now."""
        with self.lock:
            if not self.is_closed:
                self._note_failed()

    def fail_unless_full(self, error: StorageError) -> None:
        """Fail the log if the system refused a call for another reason than lack of room: something is wrong
        with the disk."""
        if error.errno is not None and error.errno not in NO_ROOM:
            self.fail(error)

    def fail(self, error: StorageError) -> None:
        if self.failure is None:
            self.failure = error

    def leave_to_parent(self) -> None:
        """In a forked process: write nothing any more, and wait for nothing."""
        # A thread of the parent may have held it, which is not here to release it.
        self.lock = threading.RLock()
        # Code that only looks at ``failure`` before it writes finds one; check() has the better message.
        self.fail(StorageError("opened by the process before the fork", path=self._folder))


def _after_fork() -> None:
    for guard in list(_guards):
        guard.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)
