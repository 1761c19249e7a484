"""The seam to the operating system: every file call of the project is behind these few methods.

Reading only, so far. Errors of the system become StorageError, with the path.
"""

from __future__ import annotations

import mmap
import os
import stat
from types import TracebackType
from typing import Final, Protocol, Self

from stratalog.errors import StorageError

__all__ = ["FileSystem", "OsFileSystem", "OsReadableFile", "ReadableFile"]


_MAP_POPULATE: Final[int] = getattr(mmap, "MAP_POPULATE", 0)  # Linux: one call, not a fault a page


class ReadableFile(Protocol):
    """An open file that is only ever read."""

    path: str

    def size(self) -> int: ...
    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill ``buffer`` from ``position`` on; fewer bytes only at the end of the file."""
        ...

    def map(self, position: int, size: int, *, reads_all: bool = False) -> memoryview:
        """``size`` bytes from ``position`` on as a read-only buffer over the page cache.

        ``reads_all`` says that every byte will be looked at: the pages are then brought in at once.
        """
        ...

    def read_ahead(self, position: int, size: int) -> None:
        """Say that these bytes will be wanted soon, so that the disk may start; never an error."""
        ...

    def close(self) -> None: ...


class FileSystem(Protocol):
    """Where files come from; the real one is :class:`OsFileSystem`."""

    def open_readable(self, path: str) -> ReadableFile: ...


class OsFileSystem:
    """The machine's own files."""

    def open_readable(self, path: str) -> ReadableFile:
        return OsReadableFile(path)


class OsReadableFile:
    def __init__(self, path: str) -> None:
        self.path = path
        try:
            # O_NONBLOCK: opening a FIFO must not hang before it can be refused.
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise _refused(error, path) from None
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            os.close(self._fd)
            raise StorageError("not a regular file", path=path)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read_into(self, position: int, buffer: memoryview) -> int:
        try:
            done = os.preadv(self._fd, (buffer,), position)
            # One call is the rule; the system may give less than was asked for.
            while 0 < done < len(buffer):
                count = os.preadv(self._fd, (buffer[done:],), position + done)
                if count == 0:
                    break
                done += count
        except OSError as error:
            raise _refused(error, self.path) from None
        return done

    def map(self, position: int, size: int, *, reads_all: bool = False) -> memoryview:
        if size == 0:
            return memoryview(b"")
        ahead = position % mmap.ALLOCATIONGRANULARITY
        try:
            whole = mmap.mmap(
                self._fd,
                ahead + size,
                flags=mmap.MAP_SHARED | (_MAP_POPULATE if reads_all else 0),
                prot=mmap.PROT_READ,
                offset=position - ahead,
            )
        except (OSError, ValueError) as error:
            raise _refused(error, self.path) from None
        return memoryview(whole)[ahead:]

    def read_ahead(self, position: int, size: int) -> None:
        if not hasattr(os, "posix_fadvise") or self._is_cached(position):
            return
        os.posix_fadvise(self._fd, position, size, os.POSIX_FADV_WILLNEED)

    def _is_cached(self, position: int) -> bool:
        # Asking for what is there already costs a look-up of every page: one byte tells for all.
        if not hasattr(os, "RWF_NOWAIT"):
            return False
        try:
            return os.preadv(self._fd, (bytearray(1),), position, os.RWF_NOWAIT) == 1
        except OSError:
            return False

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _refused(error: Exception, path: str) -> StorageError:
    number = error.errno if isinstance(error, OSError) else None
    detail = (os.strerror(number) if number is not None else str(error)).lower()
    return StorageError(detail, path=path, errno=number)
