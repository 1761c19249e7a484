"""A segment's data file, opened to be read through windows.

A window is a part of the file in memory: mapped where that pays, read into a buffer elsewhere. Touching
mapped memory of a file that its owner truncates kills the process. So a window is read through the kernel,
with ``guarded=window.guarded``; if the kernel finds the mapping lost, ``Window.read_from`` reads the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from stratalog.errors import StorageError
from stratalog.records import kernel
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem, ReadableFile
from stratalog.storage.names import V07_SUFFIX, parse_data_name, parse_partition_dir
from stratalog.types import TopicPartition

__all__ = ["MAPPED_SIZE", "WINDOW_SIZE", "LogFile", "Window", "open_log_file"]

#: To read into: large enough to make reading cheap, small enough to stay in the processor's cache.
WINDOW_SIZE: Final = 512 << 10
#: To map: every window costs a few system calls, and counts as memory of ours for as long as it is there.
MAPPED_SIZE: Final = 32 << 20
#: Below this, reading is as cheap.
_MAPPED_SIZE_MIN: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class LogFile:
    """One open data file. ``size`` is its size when it was opened: what is appended later is not read."""

    path: str
    file: ReadableFile
    size: int
    base_offset: int | None  # None where the name does not tell
    is_v07: bool
    part_of: LogFile | None = None  # the whole file, where only its beginning is read

    def up_to(self, limit: int) -> LogFile:
        """Return the file as if it ended at ``limit``, a batch's end."""
        return self if limit >= self.size else replace(self, size=limit, part_of=self)

    @property
    def whole(self) -> LogFile:
        return self if self.part_of is None else self.part_of

    @property
    def folder(self) -> str:
        return os.path.dirname(os.path.abspath(self.path))

    @property
    def topic_partition(self) -> TopicPartition | None:
        """The partition that the file belongs to, from the name of the folder it lies in."""
        return parse_partition_dir(os.path.basename(self.folder))

    @property
    def topic(self) -> str | None:
        topic_partition = self.topic_partition
        return None if topic_partition is None else topic_partition.topic

    @property
    def partition(self) -> int | None:
        topic_partition = self.topic_partition
        return None if topic_partition is None else topic_partition.partition

    def map(self) -> memoryview:
        """Return the whole file as a read-only buffer over the page cache. A process that reads it while the
        file is truncated is killed (SIGBUS): read it through the kernel, with ``guarded``."""
        return self.file.map(0, self.size)


@contextmanager
def open_log_file(path: str, file_system: FileSystem | None = None) -> Iterator[LogFile]:
    """Open a data file by path. A file of any name is read as a log; ``*.kafka`` as 0.7's."""
    file = (file_system or OsFileSystem()).open_readable(path)
    try:
        name = parse_data_name(os.path.basename(path))
        yield LogFile(
            path=path,
            file=file,
            size=file.size(),
            base_offset=None if name is None else name.base_offset,
            is_v07=path.endswith(V07_SUFFIX),
        )
    finally:
        file.close()


class Window:
    """A part of a file in memory: ``data[:length]`` are the bytes from ``position`` on."""

    def __init__(
        self, log_file: LogFile, *, reads_all: bool = False, mapped_size: int | None = None
    ) -> None:
        self._log_file = log_file
        self._mapped_size = MAPPED_SIZE if mapped_size is None else mapped_size
        self._reads_all = reads_all
        self._may_map = log_file.size >= _MAPPED_SIZE_MIN and not log_file.is_v07
        self._buffer = bytearray()
        self._end = log_file.size
        self.data: bytearray | memoryview = self._buffer
        self.guarded = False
        self.position = 0
        self.length = 0

    @property
    def is_last(self) -> bool:
        """Whether nothing of the file lies behind the window."""
        return self.position + self.length >= self._end

    def load(self, position: int, size: int | None = None) -> None:
        """Move to ``position``; with ``size``, hold at least as many bytes where the file has them.

        Where the file turns out shorter than it was, the window is shorter too.
        """
        self.position = position
        rest = max(self._log_file.size - position, 0)
        if self._may_map and self._map(min(max(size or 0, self._mapped_size), rest)):
            return
        self._read(min(max(size or 0, WINDOW_SIZE), rest))

    def read_from(self, position: int) -> None:
        """Move to ``position`` by reading, also from now on: a mapping was lost, or would not pay."""
        self._may_map = False
        self.load(position)

    def copy(self, start: int, end: int) -> bytes:
        """Bytes of the window as bytes of their own."""
        return kernel.copy(self.data, start, min(end, self.length), guarded=self.guarded)

    def _map(self, size: int) -> bool:
        try:
            self.data = self._log_file.file.map(self.position, size, reads_all=self._reads_all)
        except StorageError:
            self._may_map = False  # not every file system can; every one can read
            return False
        self.length = size
        self.guarded = True
        return True

    def _read(self, size: int) -> None:
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        with memoryview(self._buffer) as whole, whole[:size] as part:
            self.length = self._log_file.file.read_into(self.position, part)
        self.data = self._buffer
        self.guarded = False
        if self.length < size:
            self._end = self.position + self.length
