"""A FileSystem whose n-th call fails: for every n, does whoever calls stay sane?

The errors are those that OsFileSystem raises. EINTR is not among them: Python repeats an interrupted call by
itself (PEP 475), so that no caller of OsFileSystem ever sees one. What a signal does instead is to raise what
its handler raises, after a call that was done: ``Fault.INTERRUPT``.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Collection
from enum import StrEnum
from threading import Lock
from typing import Final, NamedTuple, TypeVar

from stratalog.storage.files.filesystem import (
    DirEntry,
    FileLock,
    FileStat,
    FileSystem,
    ReadableFile,
    WritableFile,
)
from stratalog.testing.open_files import MemoryWritableFile
from stratalog.testing.refusal import refusal
from stratalog.types import Bytes

__all__ = ["Call", "FailedCall", "Fault", "FaultyFileSystem"]

T = TypeVar("T")


class Call(StrEnum):
    """The calls that are counted. What cannot fail is not: ``size``, ``read_ahead``, ``close``."""

    OPEN_READABLE = "open_readable"
    OPEN_WRITABLE = "open_writable"
    CREATE = "create"
    READ = "read_into"
    MAP = "map"
    WRITE = "write_at"
    EXTEND = "extend"  # a truncate that makes the file longer
    TRUNCATE = "truncate"
    SYNC = "sync"
    STAT = "stat"
    LIST_DIR = "list_dir"
    MAKE_DIR = "make_dir"
    REMOVE_DIR = "remove_dir"
    RENAME = "rename"
    LINK = "link"
    UNLINK = "unlink"
    SYNC_DIR = "sync_dir"
    SET_MODIFIED = "set_modified"
    LOCK = "lock"


class Fault(StrEnum):
    """How a call fails.

    Where ``sync`` fails, the data that it was to bring to the disk is lost for good, though reads show it and
    a second sync succeeds (over a MemoryFileSystem). A failed ``sync_dir`` does nothing: the file systems
    that we know refuse everything after it.
    """

    EIO = "EIO"
    ENOSPC = "ENOSPC"
    EMFILE = "EMFILE"
    SHORT_WRITE = "SHORT_WRITE"  # half of it is written, then there is no room
    MEMORY = "MEMORY"  # MemoryError, before anything is done
    INTERRUPT = "INTERRUPT"  # KeyboardInterrupt, when the call is done


_GROWING: Final = frozenset({Call.WRITE, Call.EXTEND, Call.CREATE, Call.MAKE_DIR, Call.LINK})
_OPENING: Final = frozenset({Call.OPEN_READABLE, Call.OPEN_WRITABLE, Call.CREATE, Call.LOCK})
_EVERY: Final = frozenset(Call)
#: The calls that can fail in this way.
_CALLS: Final[dict[Fault, frozenset[Call]]] = {
    Fault.EIO: _EVERY,
    Fault.ENOSPC: _GROWING | {Call.RENAME, Call.SYNC, Call.SYNC_DIR, Call.LOCK},
    Fault.EMFILE: _OPENING | {Call.LIST_DIR, Call.SYNC_DIR},
    Fault.SHORT_WRITE: frozenset({Call.WRITE}),
    Fault.MEMORY: _EVERY,
    Fault.INTERRUPT: _EVERY,
}
_ERRNO: Final = {
    Fault.EIO: errno.EIO,
    Fault.ENOSPC: errno.ENOSPC,
    Fault.EMFILE: errno.EMFILE,
    Fault.SHORT_WRITE: errno.ENOSPC,
}


class FailedCall(NamedTuple):
    """A call that was made to fail: the how-many-th of those that could, which, and where."""

    number: int
    call: Call
    path: str


class FaultyFileSystem:
    """Another FileSystem, of which the ``fail_at``-th call that can fail so does.

    ``calls`` says which calls are meant, where not all that can fail so. With ``sticky`` every later one
    fails too, until ``heal``; a disk that is full lets files be renamed and synced nevertheless.
    Without ``fail_at`` it only counts.
    """

    def __init__(
        self,
        inner: FileSystem,
        *,
        fail_at: int | None = None,
        fault: Fault = Fault.EIO,
        sticky: bool = False,
        calls: Collection[Call] | None = None,
    ) -> None:
        self.inner = inner
        #: How often each call was made, failed ones too.
        self.counts: Counter[Call] = Counter()
        #: The calls that failed, in order.
        self.failed: list[FailedCall] = []
        self._lock = Lock()
        self.arm(fail_at, fault=fault, sticky=sticky, calls=calls)

    def arm(
        self,
        fail_at: int | None,
        *,
        fault: Fault = Fault.EIO,
        sticky: bool = False,
        calls: Collection[Call] | None = None,
    ) -> None:
        """Begin anew: the ``fail_at``-th call from now on that can fail so does."""
        with self._lock:
            self._fail_at = fail_at
            self._fault = fault
            self._sticky = sticky
            self._calls = _CALLS[fault] if calls is None else _CALLS[fault] & frozenset(calls)
            self._eligible = 0

    def heal(self) -> None:
        """Nothing fails from now on."""
        self.arm(None)

    def open_readable(self, path: str) -> ReadableFile:
        file = self.call(Call.OPEN_READABLE, path, lambda: self.inner.open_readable(path))
        return _FaultyReadableFile(self, file)

    def open_writable(self, path: str, *, create: bool = False) -> WritableFile:
        call = Call.CREATE if create else Call.OPEN_WRITABLE
        file = self.call(call, path, lambda: self.inner.open_writable(path, create=create))
        return _FaultyWritableFile(self, file)

    def stat(self, path: str) -> FileStat | None:
        return self.call(Call.STAT, path, lambda: self.inner.stat(path))

    def list_dir(self, path: str) -> list[DirEntry]:
        return self.call(Call.LIST_DIR, path, lambda: self.inner.list_dir(path))

    def make_dir(self, path: str) -> None:
        self.call(Call.MAKE_DIR, path, lambda: self.inner.make_dir(path))

    def remove_dir(self, path: str) -> None:
        self.call(Call.REMOVE_DIR, path, lambda: self.inner.remove_dir(path))

    def rename(self, old: str, new: str) -> None:
        self.call(Call.RENAME, old, lambda: self.inner.rename(old, new))

    def link(self, old: str, new: str) -> None:
        self.call(Call.LINK, new, lambda: self.inner.link(old, new))

    def unlink(self, path: str) -> None:
        self.call(Call.UNLINK, path, lambda: self.inner.unlink(path))

    def sync_dir(self, path: str) -> None:
        self.call(Call.SYNC_DIR, path, lambda: self.inner.sync_dir(path))

    def set_modified(self, path: str, modified_ms: int) -> None:
        self.call(Call.SET_MODIFIED, path, lambda: self.inner.set_modified(path, modified_ms))

    def free_bytes(self, path: str) -> int | None:
        return self.inner.free_bytes(path)

    def lock(self, path: str) -> FileLock:
        return self.call(Call.LOCK, path, lambda: self.inner.lock(path))

    def call(
        self,
        call: Call,
        path: str,
        perform: Callable[[], T],
        *,
        fail: Callable[[Fault], None] | None = None,
    ) -> T:
        """Do it, unless it is its turn to fail; ``fail`` does what a failed call leaves behind."""
        fault = self._next_fault(call, path)
        if fault is None:
            return perform()
        if fault is Fault.INTERRUPT:
            result = perform()
            if call in _OPENING:
                result.close()  # type: ignore[attr-defined] # nobody holds it: it is closed
            raise KeyboardInterrupt
        if fault is Fault.MEMORY:
            raise MemoryError
        if fail is not None:
            fail(fault)
        raise refusal(_ERRNO[fault], path)

    def _next_fault(self, call: Call, path: str) -> Fault | None:
        with self._lock:
            self.counts[call] += 1
            if self._fail_at is None or call not in self._calls:
                return None
            self._eligible += 1
            is_due = self._eligible == self._fail_at
            if not is_due and not (self._sticky and self._eligible > self._fail_at):
                return None
            if not is_due and self._fault is Fault.ENOSPC and call not in _GROWING:
                return None
            self.failed.append(FailedCall(self._eligible, call, path))
            return self._fault


class _FaultyReadableFile:
    def __init__(self, file_system: FaultyFileSystem, inner: ReadableFile) -> None:
        self.path = inner.path
        self.identity = inner.identity
        self._file_system = file_system
        self._inner = inner

    def fileno(self) -> int:
        return self._inner.fileno()

    def size(self) -> int:
        return self._inner.size()

    def read_into(self, position: int, buffer: memoryview) -> int:
        return self._file_system.call(
            Call.READ, self.path, lambda: self._inner.read_into(position, buffer)
        )

    def read(self, position: int, size: int) -> bytes:
        return self._file_system.call(
            Call.READ, self.path, lambda: self._inner.read(position, size)
        )

    def map(self, position: int, size: int, *, reads_all: bool = False) -> memoryview:
        return self._file_system.call(
            Call.MAP, self.path, lambda: self._inner.map(position, size, reads_all=reads_all)
        )

    def read_ahead(self, position: int, size: int) -> None:
        self._inner.read_ahead(position, size)

    def forget(self, position: int, size: int) -> None:
        self._inner.forget(position, size)

    def close(self) -> None:
        self._inner.close()


class _FaultyWritableFile(_FaultyReadableFile):
    _inner: WritableFile

    def __init__(self, file_system: FaultyFileSystem, inner: WritableFile) -> None:
        super().__init__(file_system, inner)

    def write_at(self, position: int, data: Bytes) -> None:
        def fail(fault: Fault) -> None:
            if fault is Fault.SHORT_WRITE:
                self._inner.write_at(position, data[: len(data) // 2])

        self._file_system.call(
            Call.WRITE, self.path, lambda: self._inner.write_at(position, data), fail=fail
        )

    def truncate(self, size: int) -> None:
        call = Call.EXTEND if size > self._inner.size() else Call.TRUNCATE
        self._file_system.call(call, self.path, lambda: self._inner.truncate(size))

    def reserve(self, position: int, size: int) -> None:
        self._inner.reserve(position, size)

    def release(self) -> None:
        self._inner.release()

    def begin_sync(self, position: int, size: int) -> None:
        self._inner.begin_sync(position, size)

    def sync(self) -> None:
        def fail(_: Fault) -> None:
            if isinstance(self._inner, MemoryWritableFile):
                self._inner.lose_unsynced()

        self._file_system.call(Call.SYNC, self.path, self._inner.sync, fail=fail)
