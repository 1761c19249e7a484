"""Whether a log may be changed: its lock, the failure that ended its writing, and the end.

After a failed write or sync nobody knows what the disk holds. The log then refuses to be written until it is
opened again, through recovery; what it has acknowledged as synced is there.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from stratalog.errors import LogFailedError, StorageError, UsageError

__all__ = ["NO_ROOM", "LogGuard"]

_NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})
#: A disk that is full, or a process with too many files, can be helped.
NO_ROOM: Final = _NO_FILES | {errno.ENOSPC, errno.EDQUOT}


class LogGuard:
    """One lock for everything that changes a log, and why it may not be changed any more."""

    def __init__(self, folder: str, note_failed: Callable[[], None]) -> None:
        """``note_failed`` leaves a note for whoever opens the log next: a sync has failed."""
        self._folder = folder
        self._note_failed = note_failed
        self.lock = threading.RLock()
        self.failure: StorageError | None = None
        self.is_closed = False

    def check(self) -> None:
        """An error where the log may not be written."""
        if self.failure is not None:
            raise LogFailedError(
                f"an earlier write failed ({self.failure.detail}): open the log again to recover it",
                path=self._folder,
                errno=self.failure.errno,
            )
        self.check_open()

    def check_open(self) -> None:
        if self.is_closed:
            raise UsageError(f"{os.path.basename(self._folder)} is closed")

    @contextmanager
    def changing(self) -> Iterator[None]:
        """The lock, for a change that either happens or does not."""
        with self.lock:
            self.check()
            try:
                yield
            except StorageError as error:
                self.fail_unless_full(error)
                raise

    @contextmanager
    def unbroken(self) -> Iterator[None]:
        """Steps that only mean something together: where one fails, so does the log."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, StorageError):
                error = StorageError(f"interrupted: {error!r}", path=self._folder)
            self.fail(error)
            raise

    def synced(self, call: Callable[[], object]) -> None:
        """Run something that syncs. A sync that failed is never tried again: the kernel may have
        dropped what it could not write, and would call the rest clean. Where nothing was synced
        because no file could be opened for it, nothing is lost either."""
        try:
            call()
        except StorageError as error:
            if error.errno not in _NO_FILES:
                self.fail(error)
                self._note_failed()
            raise

    def fail_unless_full(self, error: StorageError) -> None:
        """What the system refuses for another reason than want of room tells that something is wrong
        with the disk."""
        if error.errno is not None and error.errno not in NO_ROOM:
            self.fail(error)

    def fail(self, error: StorageError) -> None:
        if self.failure is None:
            self.failure = error
