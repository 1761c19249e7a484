"""The lock by which one writer keeps all others out of a log directory."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import weakref
from contextlib import suppress
from typing import Final

from stratalog.errors import LockedError
from stratalog.storage.files.system_calls import FILE_MODE, refused

__all__ = ["OsLock"]

#: Of Linux: a lock that belongs to the open file. A plain POSIX lock belongs to the process: whoever in it
#: opens and closes the file, a backup of the folder, say, lets go of it. Both keep each other out.
_OPEN_FILE_LOCK: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None)
_STRUCT_FLOCK: Final = "hhqqi0q"  # type, whence, start, length (0: all), process (0)

_NO_INODE: Final = (-1, -1)

#: What this process holds. Where locks belong to the process, a second one on the same file would be granted.
_held_here: set[tuple[int, int]] = set()
_locks: weakref.WeakSet[OsLock] = weakref.WeakSet()
#: One takes a lock or lets go of it at a time: between looking and taking, nobody else may.
_taking = threading.RLock()


def _inode_of(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return _NO_INODE
    return (found.st_dev, found.st_ino)


def _set_lock(fd: int, kind: int) -> None:
    """Lock the whole file, or unlock it, without waiting."""
    if _OPEN_FILE_LOCK is not None:
        wanted = struct.pack(_STRUCT_FLOCK, kind, os.SEEK_SET, 0, 0, 0)
        try:
            fcntl.fcntl(fd, _OPEN_FILE_LOCK, wanted)
        except OSError as error:
            if error.errno != errno.EINVAL:  # of a system that does not know them
                raise
        else:
            return
    fcntl.lockf(fd, fcntl.LOCK_UN if kind == fcntl.F_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB)


class OsLock:
    """The lock that Java's ``FileChannel.tryLock`` takes, or one that it respects: exclusive, on the whole
    file. It stays with the process that took it: one that is forked from it holds nothing."""

    def __init__(self, path: str) -> None:
        self._fd = -1
        self._inode = _NO_INODE
        with _taking:
            # Kafka removes the file when it stops: a lock on one that has no name any more keeps nobody out.
            while self._fd < 0 or self._inode != _inode_of(path):
                self.close()
                self._take(path)
            _locks.add(self)

    def _take(self, path: str) -> None:
        if _inode_of(path) in _held_here:
            # Not even opened: closing it again could let go of the lock that we hold.
            raise LockedError("locked: this process has it open for writing already", path=path)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        except OSError as error:
            raise refused(error, path) from None
        try:
            _set_lock(fd, fcntl.F_WRLCK)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise LockedError(
                    "locked by a broker or another writer: stop it, or open with read_only=True",
                    path=path,
                    errno=error.errno,
                ) from None
            raise refused(error, path) from None
        found = os.fstat(fd)
        self._fd, self._inode = fd, (found.st_dev, found.st_ino)
        _held_here.add(self._inode)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        with _taking:
            if self._fd >= 0:
                _held_here.discard(self._inode)
                # Closing alone would leave it to a child that is just about to run another program.
                with suppress(OSError):
                    _set_lock(self._fd, fcntl.F_UNLCK)
                os.close(self._fd)
                self._fd = -1

    def _leave_to_parent(self) -> None:
        """In a forked process: close without unlocking."""
        os.close(self._fd)
        self._fd = -1


def _after_fork() -> None:
    """A child shares the open files. What it kept of them would outlive the parent, and lock for nobody."""
    # Another thread may have held it, and is not here to let go of it.
    global _taking  # noqa: PLW0603
    _taking = threading.RLock()
    for lock in list(_locks):
        if lock._fd >= 0:  # noqa: SLF001
            lock._leave_to_parent()  # noqa: SLF001
    _held_here.clear()


os.register_at_fork(after_in_child=_after_fork)
