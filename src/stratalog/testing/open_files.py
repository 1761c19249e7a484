"""Files of a MemoryFileSystem while they are open, and locks while they are held."""

from __future__ import annotations

import errno

from stratalog.storage.files.filesystem import FileIdentity
from stratalog.testing.machine import ChangeKind, Machine, PowerCut
from stratalog.testing.memory_disk import FileNode, Resize, Write
from stratalog.testing.refusal import map_too_long, refusal
from stratalog.types import Bytes

__all__ = ["MemoryLock", "MemoryReadableFile", "MemoryWritableFile"]


class MemoryReadableFile:
    """An open file. It stays readable when its name goes."""

    def __init__(self, machine: Machine, path: str, node: FileNode) -> None:
        self.path = path
        self.identity: FileIdentity | None = node.identity
        self._machine = machine
        self._node: FileNode | None = node

    def fileno(self) -> int:
        return -1

    def size(self) -> int:
        return self._open().content.size

    def read_into(self, position: int, buffer: memoryview) -> int:
        if position < 0:
            raise refusal(errno.EINVAL, self.path)
        return self._open().content.read_into(position, buffer)

    def read(self, position: int, size: int) -> bytes:
        data = bytearray(size)
        return bytes(data[: self.read_into(position, memoryview(data))])

    def map(self, position: int, size: int, *, reads_all: bool = False) -> memoryview:  # noqa: ARG002
        if size == 0:
            return memoryview(b"")
        content = self._open().content
        if position < 0 or size < 0:
            raise refusal(errno.EINVAL, self.path)
        if position + size > content.size:
            raise map_too_long(self.path)
        return content.view(position, size)

    def read_ahead(self, position: int, size: int) -> None:
        pass

    def forget(self, position: int, size: int) -> None:
        pass

    def close(self) -> None:
        self._node = None

    def _open(self) -> FileNode:
        self._machine.check_power()
        if self._node is None:
            raise refusal(errno.EBADF, self.path)
        return self._node


class MemoryWritableFile(MemoryReadableFile):
    """An open file that is written too."""

    def write_at(self, position: int, data: Bytes) -> None:
        with self._machine.guard:
            node = self._changing(position)
            if not len(data):
                return
            op = Write(position, bytes(data))
            try:
                self._machine.begin(ChangeKind.WRITE, self.path)
            except PowerCut as cut:
                if cut.torn_bytes > 0:
                    node.change(Write(position, op.data[: cut.torn_bytes]))
                raise
            node.change(op)
            node.modified_ms = self._machine.clock.now_ms()

    def truncate(self, size: int) -> None:
        with self._machine.guard:
            node = self._changing(size)
            if size != node.content.size:
                self._machine.begin(ChangeKind.TRUNCATE, self.path)
                node.change(Resize(size))
            node.modified_ms = self._machine.clock.now_ms()

    def reserve(self, position: int, size: int) -> None:
        """There is always room here, and nothing but time to be won by it."""

    def release(self) -> None:
        """Nothing is reserved."""

    def begin_sync(self, position: int, size: int) -> None:
        """What is not synced may reach the disk at any time here anyway."""

    def sync(self) -> None:
        with self._machine.guard:
            node = self._open()
            if not node.is_synced:
                self._machine.begin(ChangeKind.SYNC, self.path)
                node.sync()

    def lose_unsynced(self) -> None:
        """What a sync that failed leaves: reads go on to show what was written, and no later sync ever
        brings it to the disk, though it succeeds."""
        with self._machine.guard:
            self._open().lose_unsynced()

    def _changing(self, place: int) -> FileNode:
        if place < 0:
            raise refusal(errno.EINVAL, self.path)
        return self._open()


class MemoryLock:
    """A lock that is held: on the file, whatever its name."""

    def __init__(self, node: FileNode) -> None:
        self._node: FileNode | None = node

    def close(self) -> None:
        if self._node is not None:
            self._node.is_locked = False
            self._node = None
