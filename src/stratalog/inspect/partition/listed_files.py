"""Recognize the files of a listing when they are opened later.

A cleaner removes a record because a newer one of its key follows, and puts the new file under the name of the
old one. If the newer record was appended after a reader had listed the folder, it may lie beyond the end that
the reader settled on, and the key would be missing from what is read. So a reader notes which files there are
before it looks for the end. If it then opens another file, it looks again and continues where it was.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from stratalog.errors import StorageError
from stratalog.inspect.partition.sources import (
    PartitionSource,
    relisted,
    vanished,
    with_segments_now,
)
from stratalog.storage.files.filesystem import FileStat, FileSystem, ReadableFile
from stratalog.storage.replace.settle import LISTINGS_MAX
from stratalog.storage.segment.log_file import LogFile

__all__ = ["ListedFiles"]


class ListedFiles:
    """The segments of one partition at one moment, as a context: the last one is held open.

    A cleaner never replaces the last segment. It may after a roll, so a listing counts only if its last
    segment is still the last one after all files were looked at. Being open, the last file keeps its
    identity to itself; a sealed one is recognized by its size and time too. Files that were named one by one,
    and those of object stores, are never replaced.
    """

    def __init__(self, source: PartitionSource, file_system: FileSystem) -> None:
        self.source = source
        #: Whether a file was read that was not there when the folder was listed.
        self.is_replaced = False
        self._file_system = file_system
        self._sealed: dict[str, FileStat | None] = {}
        self._last: ReadableFile | None = None

    def __enter__(self) -> Self:
        if not self.source.is_listed:
            return self
        for _ in range(LISTINGS_MAX):
            if self._look():
                return self
        raise StorageError(
            "the folder changes faster than it can be listed: try again", path=self.source.folder
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    def is_current(self) -> bool:
        """Return whether all files are still those of the listing."""
        if self._last is None:
            return True
        last = self._file_system.stat(self._last.path)
        return (last is not None and last.identity == self._last.identity) and all(
            self._file_system.stat(path) == found for path, found in self._sealed.items()
        )

    def note_opened(self, log_file: LogFile) -> None:
        """Set ``is_replaced`` if the file is not the one that the listing found under its name."""
        if self._last is None:
            return
        if log_file.path == self._last.path:
            is_same = log_file.file.identity == self._last.identity
        else:
            found = self._sealed.get(log_file.path)
            is_same = found is not None and self._file_system.stat(log_file.path) == found
        self.is_replaced |= not is_same

    def relist(self) -> PartitionSource:
        """List the folder again because a file vanished; what is read from now on counts as replaced."""
        self.is_replaced = True
        return relisted(self.source, self._file_system)

    def _look(self) -> bool:
        """Note the files, and return whether the folder has the same segments after that."""
        if not self.source.segments:
            return True
        *sealed, last = self.source.segments
        try:
            self._last = self._file_system.open_readable(last)
        except StorageError as error:
            if not vanished(self.source, error):
                return True  # reading it says what is wrong
        else:
            if self._last.identity is None:
                self._close()
                return True
            self._sealed = {path: self._file_system.stat(path) for path in sealed}
        fresh = with_segments_now(self.source, self._file_system)
        if self._last is not None and fresh.segments == self.source.segments:
            return True
        self._close()
        self.source = relisted(self.source, self._file_system)
        return False

    def _close(self) -> None:
        if self._last is not None:
            self._last.close()
            self._last = None
