"""The lock by which one writer keeps all others out of a log directory."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Final

from stratalog.errors import LockedError
from stratalog.storage.system_calls import FILE_MODE, refused

__all__ = ["OsLock"]

# POSIX locks belong to the process: a second one of ours on the same file would be granted, and closing
# either would release both. So what this process holds is remembered here.
_held_here: set[tuple[int, int]] = set()

_NO_INODE: Final = (-1, -1)


def _inode_of(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return _NO_INODE
    return (found.st_dev, found.st_ino)


class OsLock:
    """The lock that Java's ``FileChannel.tryLock`` takes: POSIX, exclusive, on the whole file."""

    def __init__(self, path: str) -> None:
        self._fd = -1
        self._inode = _NO_INODE
        # Kafka removes the file when it stops: a lock on one that has no name any more keeps nobody out.
        while self._fd < 0 or self._inode != _inode_of(path):
            self.close()
            self._take(path)

    def _take(self, path: str) -> None:
        if _inode_of(path) in _held_here:
            # Not even opened: closing it again would let go of the lock that we hold.
            raise LockedError("locked: this process has it open for writing already", path=path)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        except OSError as error:
            raise refused(error, path) from None
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise LockedError(
                    "locked: a broker or another writer runs on this directory; stop it, or read only",
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
        if self._fd >= 0:
            _held_here.discard(self._inode)
            os.close(self._fd)
            self._fd = -1
