"""The seam to the operating system: every file call of the project is behind these few methods.

Whatever changes a file goes through calls (``write_at``, ``truncate``, ``sync``), never through mapped
memory: what passes the seam can be counted, failed and lost by a test (``stratalog.testing``). Errors of the
system become StorageError, with the path and the errno.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from contextlib import suppress
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

from stratalog.errors import StorageError
from stratalog.storage.files.file_lock import OsLock
from stratalog.storage.files.system_calls import FILE_MODE, refused, system_call
from stratalog.types import Bytes

__all__ = [
    "DirEntry",
    "FileIdentity",
    "FileLock",
    "FileStat",
    "FileSystem",
    "OsFileSystem",
    "OsReadableFile",
    "OsWritableFile",
    "ReadableFile",
    "WritableFile",
    "replace_file",
]


_datasync: Final = getattr(os, "fdatasync", os.fsync)  # macOS has only the latter
_MAP_POPULATE: Final[int] = getattr(mmap, "MAP_POPULATE", 0)  # Linux: one call, not a fault a page

_SYNC_FILE_RANGE_WRITE: Final = 2
_FALLOC_FL_KEEP_SIZE: Final = 1
#: So many times what is to be reserved must be free.
_ROOM_FACTOR_MIN: Final = 64

_DIR_MODE: Final = 0o700


class DirEntry(NamedTuple):
    """One name in a folder. A link is neither: what it points to is not looked at."""

    name: str
    is_file: bool
    is_dir: bool


FileIdentity = tuple[int, int]


class FileStat(NamedTuple):
    """Size, time of the last change, and which file it is.

    ``identity`` (device and inode) stays the same when a file is renamed, and differs for another file of
    the same name. It is None in object stores. A file system may give it to a new file when the old one
    was removed.
    """

    size: int
    modified_ms: int
    identity: FileIdentity | None = None

    def is_same_file(self, other: FileStat | None) -> bool:
        """Return whether ``other`` is this file with its bytes unchanged, if it is one that is not
        written any more. Without identities, sizes and times decide."""
        if other is None or other.size != self.size:
            return False
        if self.identity is None or other.identity is None:
            return other.modified_ms == self.modified_ms
        return other.identity == self.identity


class FileLock(Protocol):
    """A lock that is held until it is closed, or its process ends."""

    def close(self) -> None: ...


class ReadableFile(Protocol):
    """An open file that is only ever read."""

    path: str
    #: Which file was opened, whatever its name is now; None where the file system has no identities.
    identity: FileIdentity | None

    def size(self) -> int: ...
    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill ``buffer`` from ``position`` on; fewer bytes only at the end of the file."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """``size`` bytes from ``position`` on; fewer only at the end of the file."""
        ...

    def map(self, position: int, size: int, *, reads_all: bool = False) -> memoryview:
        """``size`` bytes from ``position`` on as a read-only buffer over the page cache.

        ``reads_all`` says that every byte will be looked at: the pages are then brought in at once.
        """
        ...

    def read_ahead(self, position: int, size: int) -> None:
        """Say that these bytes will be wanted soon, so that the disk may start; never an error."""
        ...

    def forget(self, position: int, size: int) -> None:
        """Say that these bytes are not wanted again, so that others may have their memory; never an
        error."""
        ...

    def fileno(self) -> int:
        """The descriptor, for ``sendfile``; -1 where there is none."""
        ...

    def close(self) -> None: ...


class WritableFile(ReadableFile, Protocol):
    """An open file that is written too. Nothing is on the disk before ``sync`` returns."""

    def write_at(self, position: int, data: Bytes) -> None:
        """Write all of ``data``. After an error any part of it may have been written."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file, or make it longer with zeros that take no room yet."""
        ...

    def reserve(self, position: int, size: int) -> None:
        """Have room on the disk for bytes that will be written behind the end, so that this costs less
        and they lie together. The file is not longer for it; never an error: ``write_at`` tells."""
        ...

    def release(self) -> None:
        """Give back what was reserved and not written. Size and time of change stay; never an error."""
        ...

    def begin_sync(self, position: int, size: int) -> None:
        """Have the disk begin with these bytes, so that a ``sync`` later waits for less. Nothing is said
        of when they are there; never an error: ``sync`` tells."""
        ...

    def sync(self) -> None:
        """Wait until bytes and size are on the disk. After an error nobody knows what is: a
        second call would lie, so that it is never retried."""
        ...


class FileSystem(Protocol):
    """Where files come from; the real one is :class:`OsFileSystem`."""

    def open_readable(self, path: str) -> ReadableFile: ...
    def open_writable(self, path: str, *, create: bool = False) -> WritableFile:
        """Open a file that is there; with ``create``, make a new one, that must not be there."""
        ...

    def stat(self, path: str) -> FileStat | None:
        """Size and time of change of a regular file; None where there is nothing."""
        ...

    def list_dir(self, path: str) -> list[DirEntry]: ...
    def make_dir(self, path: str) -> None: ...
    def remove_dir(self, path: str) -> None:
        """Remove an empty folder."""
        ...

    def rename(self, old: str, new: str) -> None:
        """In one step; what was at ``new`` is gone. Durable only after ``sync_dir``."""
        ...

    def link(self, old: str, new: str) -> None:
        """Give a file a second name, that must not be there. Durable only after ``sync_dir``."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file; one that is gone already is no error."""
        ...

    def sync_dir(self, path: str) -> None:
        """Wait until the names in a folder are on the disk."""
        ...

    def set_modified(self, path: str, modified_ms: int) -> None: ...
    def free_bytes(self, path: str) -> int | None:
        """Return how many bytes may still be written to the disk of a folder; None if that is not known."""
        ...

    def lock(self, path: str) -> FileLock:
        """Lock a file as Kafka locks ``.lock``, making it where it is missing; LockedError where
        another process holds it."""
        ...


def replace_file(file_system: FileSystem, path: str, temporary: str, data: Bytes) -> None:
    """Put ``data`` at ``path`` so that after a crash either the old or the new file is there, whole."""
    file_system.unlink(temporary)
    file = file_system.open_writable(temporary, create=True)
    try:
        file.write_at(0, data)
        file.sync()
    finally:
        file.close()
    file_system.rename(temporary, path)
    file_system.sync_dir(os.path.dirname(path) or os.curdir)


class OsFileSystem:
    """The machine's own files."""

    def open_readable(self, path: str) -> ReadableFile:
        return OsReadableFile(path)

    def open_writable(self, path: str, *, create: bool = False) -> WritableFile:
        return OsWritableFile(path, create=create)

    def stat(self, path: str) -> FileStat | None:
        try:
            found = os.stat(path, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise refused(error, path) from None
        if not stat.S_ISREG(found.st_mode):
            raise StorageError("not a regular file", path=path)
        identity = found.st_dev, found.st_ino
        return FileStat(found.st_size, found.st_mtime_ns // 1_000_000, identity)

    def list_dir(self, path: str) -> list[DirEntry]:
        try:
            with os.scandir(path) as entries:
                return [_dir_entry(entry) for entry in entries]
        except OSError as error:
            raise refused(error, path) from None

    def make_dir(self, path: str) -> None:
        try:
            os.mkdir(path, _DIR_MODE)
        except OSError as error:
            raise refused(error, path) from None

    def remove_dir(self, path: str) -> None:
        try:
            os.rmdir(path)
        except OSError as error:
            raise refused(error, path) from None

    def rename(self, old: str, new: str) -> None:
        try:
            os.rename(old, new)
        except OSError as error:
            raise refused(error, old) from None

    def link(self, old: str, new: str) -> None:
        try:
            os.link(old, new, follow_symlinks=False)
        except OSError as error:
            raise refused(error, new) from None

    def unlink(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise refused(error, path) from None

    def sync_dir(self, path: str) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise refused(error, path) from None

    def set_modified(self, path: str, modified_ms: int) -> None:
        try:
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
        except OSError as error:
            raise refused(error, path) from None

    def free_bytes(self, path: str) -> int | None:
        try:
            found = os.statvfs(path)
        except OSError as error:
            raise refused(error, path) from None
        return found.f_bavail * found.f_frsize

    def lock(self, path: str) -> FileLock:
        return OsLock(path)


class OsReadableFile:
    """A descriptor. It is closed with the last reference to it: who still holds a region of a segment
    that was deleted meanwhile may read it to the end."""

    _FLAGS = os.O_RDONLY

    def __init__(self, path: str, flags: int = 0) -> None:
        self.path = path
        self._fd = -1
        try:
            # O_NONBLOCK: opening a FIFO must not hang before it can be refused.
            self._fd = os.open(path, self._FLAGS | flags | os.O_CLOEXEC | os.O_NONBLOCK, FILE_MODE)
        except OSError as error:
            raise refused(error, path) from None
        found = os.fstat(self._fd)
        self.identity: FileIdentity | None = (found.st_dev, found.st_ino)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise StorageError("not a regular file", path=path)

    def fileno(self) -> int:
        return self._fd

    def size(self) -> int:
        try:
            return os.fstat(self._fd).st_size
        except OSError as error:
            raise refused(error, self.path) from None

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
            raise refused(error, self.path) from None
        return done

    def read(self, position: int, size: int) -> bytes:
        try:
            data = os.pread(self._fd, size, position)
            while 0 < len(data) < size:
                more = os.pread(self._fd, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise refused(error, self.path) from None
        return data

    def map(self, position: int, size: int, *, reads_all: bool = False) -> memoryview:
        if size == 0:
            return memoryview(b"")
        if self._fd < 0:  # -1 would map memory of no file
            raise StorageError("closed", path=self.path, errno=errno.EBADF)
        ahead = position % mmap.ALLOCATIONGRANULARITY
        try:
            whole = mmap.mmap(
                self._fd,
                ahead + size,
                flags=mmap.MAP_SHARED | (_MAP_POPULATE if reads_all else 0),
                prot=mmap.PROT_READ,
                offset=position - ahead,
            )
        except (OSError, ValueError, OverflowError) as error:
            raise refused(error, self.path) from None
        return memoryview(whole)[ahead:]

    def read_ahead(self, position: int, size: int) -> None:
        if not hasattr(os, "posix_fadvise") or self._is_cached(position):
            return
        os.posix_fadvise(self._fd, position, size, os.POSIX_FADV_WILLNEED)

    def forget(self, position: int, size: int) -> None:
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError):
                os.posix_fadvise(self._fd, position, size, os.POSIX_FADV_DONTNEED)

    def _is_cached(self, position: int) -> bool:
        # Asking for what is there already costs a look-up of every page: one byte tells for all.
        if not hasattr(os, "RWF_NOWAIT"):
            return False
        try:
            return os.preadv(self._fd, (bytearray(1),), position, os.RWF_NOWAIT) == 1
        except OSError:
            return False

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class OsWritableFile(OsReadableFile):
    """A descriptor that is written too, always at a position that the caller names."""

    _FLAGS = os.O_RDWR

    def __init__(self, path: str, *, create: bool = False) -> None:
        super().__init__(path, (os.O_CREAT | os.O_EXCL if create else 0) | os.O_NOFOLLOW)

    def write_at(self, position: int, data: Bytes) -> None:
        try:
            done = os.pwrite(self._fd, data, position)
            if done == len(data):
                return
            with memoryview(data) as whole:
                while done < len(data):  # a full disk takes part of it first, and then refuses
                    done += os.pwrite(self._fd, whole[done:], position + done)
        except OSError as error:
            raise refused(error, self.path) from None

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise refused(error, self.path) from None

    def reserve(self, position: int, size: int) -> None:
        allocate = system_call("fallocate", "iiqq")
        with suppress(OSError):
            found = os.fstatvfs(self._fd)
            # Where little is left, it is left to those who write.
            if allocate is not None and found.f_bavail * found.f_frsize >= _ROOM_FACTOR_MIN * size:
                allocate(self._fd, _FALLOC_FL_KEEP_SIZE, position, size)

    def release(self) -> None:
        with suppress(OSError):
            found = os.fstat(self._fd)
            os.ftruncate(self._fd, found.st_size)  # what lies behind the end goes
            os.utime(self._fd, ns=(found.st_atime_ns, found.st_mtime_ns))

    def begin_sync(self, position: int, size: int) -> None:
        begin = system_call("sync_file_range", "iqqI")
        if begin is not None:
            begin(self._fd, position, size, _SYNC_FILE_RANGE_WRITE)

    def sync(self) -> None:
        try:
            _datasync(self._fd)
        except (OSError, ValueError) as error:  # ValueError: closed
            raise refused(error, self.path) from None


def _dir_entry(entry: os.DirEntry[str]) -> DirEntry:
    is_file = entry.is_file(follow_symlinks=False)
    return DirEntry(entry.name, is_file, not is_file and entry.is_dir(follow_symlinks=False))
