"""Prove that no file of a log directory holds a record with one of some keys.

Searched are all files that may hold records: segments in every stage (also ``.deleted``, ``.cleaned`` and
``.swap``), what recovery truncated and kept (``.cut``), originals that are kept to undo a rewrite, folders of
topics that are being deleted, and staged pieces. A file that cannot be read to its end, whose name is not
known, or that is a link, proves nothing, and is reported.

Another process may move records from file to file meanwhile, out of the sight of a search. Therefore the
files are listed before and after: if names, identities, sizes or times differ, those that are new or changed
are searched, until two listings are the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from errno import ENOENT
from typing import Final

from stratalog.errors import CorruptionError, StorageError
from stratalog.records.layout import INT32_MAX, Check, Ending, Reason
from stratalog.rewrite.erase.keys import KeySet
from stratalog.rewrite.erase.search import KeyFinder
from stratalog.storage.files.filesystem import DirEntry, FileStat, FileSystem
from stratalog.storage.names import (
    DAMAGED_DIR,
    FAILED_SYNC,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    REMOTE_INDEXES,
    ROOT_FILES,
    TEMPORARY_SUFFIX,
    UNDO_MANIFEST,
    FileKind,
    PieceStage,
    parse_partition_dir,
    parse_partition_file,
    parse_piece_name,
    parse_undo_dir,
)
from stratalog.storage.segment.log_file import LogFile
from stratalog.storage.segment.walk import walk_windows
from stratalog.types import Progress, TopicPartition

__all__ = ["SearchPaths", "SearchStatus", "SearchedFile", "search_files"]

_CUT: Final = ".cut"
#: Files of a partition's folder, and of a folder with originals, that hold no records.
_WITHOUT_RECORDS: Final = frozenset(
    {LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, FAILED_SYNC, UNDO_MANIFEST}
)
#: The stages of a piece that hold records.
_PIECES: Final = (PieceStage.STAGED, PieceStage.PREPARED, PieceStage.LINKED)
#: How often changed files are searched again.
_ROUNDS_MAX: Final = 6

_UNKNOWN_NAME: Final = "its name is not known: it was not searched"
_LINK: Final = "a symbolic link or special file: it was not searched"
_CHANGED: Final = (
    "changed during every search: stop the processes that write to the log, and repeat the command"
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


@dataclass(frozen=True, slots=True)
class SearchPaths:
    """What is searched: log directories, in them the partitions that ``takes`` accepts, and folders of
    single partitions."""

    roots: Sequence[str]
    folders: Sequence[str] = ()
    takes: Callable[[TopicPartition], bool] = lambda _: True


def search_files(
    keys: KeySet, file_system: FileSystem, paths: SearchPaths, progress: Progress
) -> Iterator[SearchedFile]:
    """Search every file that may hold records, and yield each as it was when nothing changed any more. A file
    that changes each time is yielded as unreadable."""
    search = _Search(keys, file_system, progress)
    listed: dict[str, _Listed] | None = None
    done: dict[str, tuple[_Listed, SearchedFile]] = {}
    for _ in range(_ROUNDS_MAX):
        before, listed = listed, _listed(file_system, paths)
        if listed == before:
            break
        for path, each in listed.items():
            if path not in done or done[path][0] != each:
                done[path] = each, search.searched(each)
    else:
        before, listed = listed, _listed(file_system, paths)
    for path, each in {**(before or {}), **listed}.items():
        if path in listed and path in done and done[path][0] == each:
            yield done[path][1]
        else:
            yield SearchedFile(path, each.topic_partition, SearchStatus.UNREADABLE, detail=_CHANGED)


@dataclass(frozen=True, slots=True)
class _Listed:
    """An entry of a folder. ``stat`` is None unless it is a file of batches, which is searched; ``status``
    and ``detail`` say what is known of it without."""

    path: str
    topic_partition: TopicPartition | None
    stat: FileStat | None = None
    status: SearchStatus = SearchStatus.UNKNOWN
    detail: str | None = None


def _listed(file_system: FileSystem, paths: SearchPaths) -> dict[str, _Listed]:
    listing = _Listing(file_system, paths.takes)
    found = [each for root in paths.roots for each in listing.root(root)]
    for folder in paths.folders:
        name = os.path.basename(os.path.abspath(folder))
        found += listing.folder(folder, parse_partition_dir(name))
    return {each.path: each for each in found}


class _Listing:
    """Lists what may hold records. What is gone before it can be looked at is not listed: then the listing
    differs from the one before, or from the one after."""

    def __init__(self, file_system: FileSystem, takes: Callable[[TopicPartition], bool]) -> None:
        self._file_system = file_system
        self._takes = takes

    def root(self, root: str) -> Iterator[_Listed]:
        """List the partitions of a log directory, staged pieces, and what is not known in it."""
        try:
            entries = sorted(self._file_system.list_dir(root))
        except StorageError as error:
            yield from _refused(root, None, error)
            return
        for entry in entries:
            path = os.path.join(root, entry.name)
            topic_partition = parse_partition_dir(entry.name)
            if topic_partition is not None and not self._takes(topic_partition):
                continue
            if topic_partition is not None and entry.is_dir:
                yield from self.folder(path, topic_partition)
            else:
                yield from self._root_entry(path, entry)

    def _root_entry(self, path: str, entry: DirEntry) -> Iterator[_Listed]:
        piece = parse_piece_name(entry.name) if entry.is_file else None
        if piece is not None:
            yield from self._file(path, None) if piece.stage in _PIECES else ()
        elif entry.is_dir and entry.name == REMOTE_INDEXES:
            detail = "records in remote storage were not searched"
            yield _Listed(path, None, detail=detail)
        elif not (entry.is_file and entry.name.removesuffix(TEMPORARY_SUFFIX) in ROOT_FILES):
            yield _unknown(path, entry, parse_partition_dir(entry.name))

    def folder(self, folder: str, topic_partition: TopicPartition | None) -> Iterator[_Listed]:
        """List a partition's folder, and the originals that are kept in it."""
        try:
            entries = sorted(self._file_system.list_dir(folder))
        except StorageError as error:
            yield from _refused(folder, topic_partition, error)
            return
        for entry in entries:
            path = os.path.join(folder, entry.name)
            file = parse_partition_file(entry.name)
            if entry.is_dir and parse_undo_dir(entry.name) is not None:
                yield from self.folder(path, topic_partition)
            elif entry.is_dir and entry.name == DAMAGED_DIR:
                detail = "damaged bytes that salvage has stored: they were not searched"
                yield _Listed(path, topic_partition, detail=detail)
            elif not entry.is_file:
                yield _unknown(path, entry, topic_partition)
            elif file is not None and file.kind is FileKind.V07:
                detail = "messages of 0.7 have no keys"
                yield _Listed(path, topic_partition, None, SearchStatus.OK, detail)
            elif entry.name.endswith(_CUT) or (file is not None and file.kind is FileKind.LOG):
                yield from self._file(path, topic_partition)
            elif file is None and entry.name.removesuffix(TEMPORARY_SUFFIX) not in _WITHOUT_RECORDS:
                yield _unknown(path, entry, topic_partition)

    def _file(self, path: str, topic_partition: TopicPartition | None) -> Iterator[_Listed]:
        try:
            stat = self._file_system.stat(path)
        except StorageError as error:
            yield from _refused(path, topic_partition, error)
            return
        if stat is not None:
            yield _Listed(path, topic_partition, stat)


def _unknown(path: str, entry: DirEntry, topic_partition: TopicPartition | None) -> _Listed:
    is_plain = entry.is_file or entry.is_dir
    return _Listed(path, topic_partition, detail=_UNKNOWN_NAME if is_plain else _LINK)


def _refused(
    path: str, topic_partition: TopicPartition | None, error: StorageError
) -> Iterator[_Listed]:
    if error.errno != ENOENT:
        yield _Listed(path, topic_partition, None, SearchStatus.UNREADABLE, error.detail)


def _found(count: int) -> str:
    return "1 record has one of the keys" if count == 1 else f"{count} records have one of the keys"


class _Search:
    def __init__(self, keys: KeySet, file_system: FileSystem, progress: Progress) -> None:
        self._file_system = file_system
        self._finder = KeyFinder(keys, check=Check.CRC)
        self._progress = progress

    def searched(self, listed: _Listed) -> SearchedFile:
        """Search a file of batches. One that is gone by now is not in the next listing."""
        path, topic_partition = listed.path, listed.topic_partition
        if listed.stat is None:
            return SearchedFile(path, topic_partition, listed.status, detail=listed.detail)
        try:
            return self._searched(path, topic_partition)
        except StorageError as error:
            detail = error.detail
            return SearchedFile(path, topic_partition, SearchStatus.UNREADABLE, detail=detail)

    def _searched(self, path: str, topic_partition: TopicPartition | None) -> SearchedFile:
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
        records = self._finder.records
        return SearchedFile(path, topic_partition, status, records, found, size, problem)

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
