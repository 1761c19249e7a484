"""A segment's data file, opened to be read: in windows, or mapped.

A window is a buffer that is read into, so that a file cut short by its owner while we read gives fewer
bytes, not a signal; it grows to hold one whole batch and no further. Mapping copies nothing, and is for
files that nobody cuts: sealed segments, snapshots, backups.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from stratalog.storage.filesystem import FileSystem, OsFileSystem, ReadableFile
from stratalog.storage.names import V07_SUFFIX, parse_partition_dir, parse_segment_name
from stratalog.types import TopicPartition

__all__ = ["WINDOW_SIZE", "LogFile", "Window", "open_log_file"]

#: Large enough to make reading cheap, small enough to stay in the processor's cache.
WINDOW_SIZE: Final = 512 << 10


@dataclass(frozen=True, slots=True)
class LogFile:
    """One open data file. ``size`` is what it was when opened: what is appended later is not read."""

    path: str
    file: ReadableFile
    size: int
    base_offset: int | None  # None where the name does not tell
    is_v07: bool

    @property
    def folder(self) -> str:
        return os.path.dirname(os.path.abspath(self.path))

    @property
    def topic_partition(self) -> TopicPartition | None:
        """The partition that the file belongs to, from the name of the folder it lies in."""
        return parse_partition_dir(os.path.basename(self.folder))

    def map(self) -> Any:
        """The whole file as a read-only buffer over the page cache. Who cuts the file short while
        the buffer is read kills the process (SIGBUS): never map what another may still truncate."""
        return self.file.map(self.size)


@contextmanager
def open_log_file(path: str, file_system: FileSystem | None = None) -> Iterator[LogFile]:
    """Open a data file by path. A file of any name is read as a log; ``*.kafka`` as 0.7's."""
    file = (file_system or OsFileSystem()).open_readable(path)
    try:
        name = parse_segment_name(os.path.basename(path))
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

    def __init__(self, log_file: LogFile, size: int = WINDOW_SIZE) -> None:
        self._log_file = log_file
        self._buffer = bytearray(min(size, max(log_file.size, 1)))
        self._end = log_file.size
        self.position = 0
        self.length = 0

    @property
    def data(self) -> bytearray:
        return self._buffer

    @property
    def is_last(self) -> bool:
        """Whether nothing of the file lies behind the window."""
        return self.position + self.length >= self._end

    def load(self, position: int, size: int | None = None) -> None:
        """Move to ``position``; with ``size``, hold at least as many bytes where the file has them.

        Where the file turns out shorter than it was, the window is shorter too.
        """
        if size is not None and size > len(self._buffer):
            self._buffer = bytearray(size)
        wanted = min(len(self._buffer), max(self._log_file.size - position, 0))
        with memoryview(self._buffer) as whole, whole[:wanted] as part:
            self.length = self._log_file.file.read_into(position, part)
        self.position = position
        if self.length < wanted:
            self._end = position + self.length
