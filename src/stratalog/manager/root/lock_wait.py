"""Wait for the lock of a log directory that another writer holds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

from stratalog.errors import LockedError
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.names import LOCK

__all__ = ["wait_for_lock", "when_unlocked"]

T = TypeVar("T")

_POLL_S: Final = 0.02


def when_unlocked(opened: Callable[[], T], timeout_s: float) -> T:
    """Open something that is locked while it is open. A process that only commits releases the lock soon;
    Kafka, or a process that keeps the directory open, does not."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            return opened()
        except LockedError as error:
            if time.monotonic() >= until:
                raise LockedError(
                    f"another writer has held the lock of this directory for {timeout_s:g} s: "
                    "stop it, or write through it",
                    path=error.path,
                    errno=error.errno,
                ) from None
        time.sleep(_POLL_S)


def wait_for_lock(
    root: str | os.PathLike[str],
    *,
    timeout_s: float,
    file_system: FileSystem | None = None,
) -> None:
    """Wait until no process writes to the directory; LockedError if one stays. Called before long work for a
    commit; the commit itself waits again."""
    files = file_system or OsFileSystem()
    path = os.path.join(os.fspath(root), LOCK)
    if files.stat(path) is not None:
        when_unlocked(lambda: files.lock(path), timeout_s).close()
