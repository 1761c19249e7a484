"""Prove that no file of a log directory holds a record with one of some keys.

Searched are all files that may hold records: segments in every stage (also ``.deleted``, ``.cleaned`` and
``.swap``), what recovery truncated and kept (``.cut``), originals that are kept to undo a rewrite, folders of
topics that are being deleted, and staged pieces. A file that cannot be read to its end, or whose name is not
known, proves nothing, and is reported.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from stratalog.errors import CorruptionError, StorageError
from stratalog.records.layout import INT32_MAX, Check, Ending, Reason
from stratalog.rewrite.erase.keys import KeySet
from stratalog.rewrite.erase.search import KeyFinder
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import (
    FAILED_SYNC,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    TEMPORARY_SUFFIX,
    UNDO_MANIFEST,
    FileKind,
    parse_partition_dir,
    parse_partition_file,
    parse_piece_name,
    parse_undo_dir,
)
from stratalog.storage.segment.log_file import LogFile
from stratalog.storage.segment.walk import walk_windows
from stratalog.types import Progress, TopicPartition

__all__ = ["SearchStatus", "SearchedFile", "search_folder", "search_pieces"]

_CUT: Final = ".cut"
#: Files of a partition's folder, and of a folder with originals, that hold no records.
_WITHOUT_RECORDS: Final = frozenset(
    {LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, FAILED_SYNC, UNDO_MANIFEST}
)


class SearchStatus(StrEnum):
    """What a search came to. Only ``ok`` proves that the keys are absent."""

    OK = "ok"
    FOUND = "found"
    UNREADABLE = "unreadable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SearchedFile:
    """One file that was searched: how many records it holds, and how many of them have one of the keys."""

    path: str
    topic_partition: TopicPartition | None
    status: SearchStatus
    records: int = 0
    found: int = 0
    size_bytes: int = 0
    detail: str | None = None


def search_folder(
    keys: KeySet, file_system: FileSystem, folder: str, progress: Progress
) -> Iterator[SearchedFile]:
    """Search the folder of one partition, and the originals that are kept in it."""
    search = _Search(keys, file_system, folder, progress)
    yield from search.folder(folder)


def search_pieces(
    keys: KeySet, file_system: FileSystem, root: str, progress: Progress
) -> Iterator[SearchedFile]:
    """Search the staged pieces in a log directory."""
    search = _Search(keys, file_system, None, progress)
    for entry in sorted(file_system.list_dir(root)):
        if entry.is_file and parse_piece_name(entry.name) is not None:
            yield from search.file(os.path.join(root, entry.name))


def _found(count: int) -> str:
    return "1 record has one of the keys" if count == 1 else f"{count} records have one of the keys"


class _Search:
    def __init__(
        self, keys: KeySet, file_system: FileSystem, folder: str | None, progress: Progress
    ) -> None:
        name = None if folder is None else os.path.basename(os.path.abspath(folder))
        self._topic_partition = None if name is None else parse_partition_dir(name)
        self._file_system = file_system
        self._finder = KeyFinder(keys, check=Check.CRC)
        self._progress = progress

    def folder(self, folder: str) -> Iterator[SearchedFile]:
        for entry in sorted(self._file_system.list_dir(folder)):
            path = os.path.join(folder, entry.name)
            file = parse_partition_file(entry.name)
            if entry.is_dir and parse_undo_dir(entry.name) is not None:
                yield from self.folder(path)
            elif not entry.is_file:
                yield self._result(path, SearchStatus.UNKNOWN, detail="neither a file nor ours")
            elif file is not None and file.kind is FileKind.V07:
                detail = "messages of 0.7 have no keys"
                yield self._result(path, SearchStatus.OK, detail=detail)
            elif entry.name.endswith(_CUT) or (file is not None and file.kind is FileKind.LOG):
                yield from self.file(path)
            elif file is None and entry.name.removesuffix(TEMPORARY_SUFFIX) not in _WITHOUT_RECORDS:
                detail = "its name is not known: it was not searched"
                yield self._result(path, SearchStatus.UNKNOWN, detail=detail)

    def file(self, path: str) -> Iterator[SearchedFile]:
        """Search a file of batches. A file that is gone has nothing to say."""
        try:
            yield self._searched(path)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                yield self._result(path, SearchStatus.UNREADABLE, detail=error.detail)

    def _searched(self, path: str) -> SearchedFile:
        file = self._file_system.open_readable(path)
        try:
            size = file.size()
            self._finder.begin()
            problem = self._walk(LogFile(path, file, size, None, is_v07=False))
        finally:
            file.close()
        found = self._finder.found
        if found:
            status, problem = SearchStatus.FOUND, _found(found)
        else:
            status = SearchStatus.OK if problem is None else SearchStatus.UNREADABLE
        return self._result(path, status, size, problem)

    def _walk(self, log_file: LogFile) -> str | None:
        """Search to the end of a file; return what it ended with if that was not its end."""
        done = 0
        end = None
        for end in walk_windows(
            log_file, self._finder.step, max_batch_bytes=INT32_MAX, reads_all=True
        ):
            self._progress(end.position - done)
            done = end.position
        assert end is not None
        if end.ending == Ending.END or end.reason == Reason.ZERO_TAIL:
            return None
        error: CorruptionError = end.error()
        return f"cannot be read from byte {end.position} on: {error.detail}"

    def _result(
        self, path: str, status: SearchStatus, size_bytes: int = 0, detail: str | None = None
    ) -> SearchedFile:
        is_searched = size_bytes > 0
        return SearchedFile(
            path,
            self._topic_partition,
            status,
            self._finder.records if is_searched else 0,
            self._finder.found if is_searched else 0,
            size_bytes,
            detail,
        )
