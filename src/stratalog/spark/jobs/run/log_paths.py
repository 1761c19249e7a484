"""Which logs a job is about: paths as the user names them, and the file system that they are in.

Tasks run in folders of their own, so that a path without a beginning means nothing there. It is kept as it
was given, for reports and messages, and the folder of the driver goes along.
"""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stratalog.errors import StorageError, UsageError
from stratalog.inspect.partition.partition_filter import (
    PartitionFilter,
    Partitions,
    Topics,
    partition_filter,
)
from stratalog.inspect.partition.sources import Paths, Sources, find_sources, path_list
from stratalog.spark.options.paths import local_path
from stratalog.storage.files.filesystem import (
    DirEntry,
    FileStat,
    FileSystem,
    OsFileSystem,
    ReadableFile,
)
from stratalog.storage.files.object_store import is_uri

__all__ = ["LogPaths", "absolute"]

_SIGNS = "*?["


@dataclass(frozen=True, slots=True)
class LogPaths:
    """Paths of log directories, partitions' folders or files, on a disk or in one object store. Goes into
    tasks as it is."""

    given: tuple[str, ...]
    store: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""

    @classmethod
    def of(cls, paths: Paths, store: Mapping[str, str] | None = None) -> LogPaths:
        """UsageError where there is none. Patterns are resolved here."""
        found = [each for path in path_list(paths) for each in _resolved(local_path(path))]
        if any(map(is_uri, found)) and not all(map(is_uri, found)):
            raise UsageError("folders and object stores cannot be read as one: name one kind")
        return cls(tuple(dict.fromkeys(found)), dict(store or {}), os.getcwd())

    @property
    def is_remote(self) -> bool:
        return is_uri(self.given[0])

    @property
    def absolute(self) -> tuple[str, ...]:
        """The paths as they mean the same everywhere."""
        return tuple(map(absolute, self.given))

    def opened(self) -> tuple[FileSystem, tuple[str, ...]]:
        """The file system, and the paths in it."""
        if not self.is_remote:
            return _Anchored(self.folder), self.given
        from stratalog.storage.files.object_store import open_store

        return open_store(self.given, self.store)

    @property
    def file_system(self) -> FileSystem:
        return self.opened()[0]

    def sources(
        self, topics: Topics | None = None, partitions: Partitions | None = None
    ) -> Sources:
        """What lies there and is wanted."""
        return self.sources_of(partition_filter(topics, partitions))

    def sources_of(
        self,
        wanted: PartitionFilter,
        on_refused: Callable[[StorageError], None] | None = None,
    ) -> Sources:
        file_system, paths = self.opened()
        found = find_sources(paths, wanted, file_system, on_refused=on_refused)
        for source in found.partitions:
            # What was named and is not there is said now, and not when a session has started.
            for path in () if source.is_listed else source.segments:
                if file_system.stat(path) is None:
                    raise StorageError(
                        os.strerror(errno.ENOENT).lower(), path=path, errno=errno.ENOENT
                    )
        return found


def absolute(path: str) -> str:
    """A path that means the same in every process of this machine; URIs do already."""
    path = local_path(path)
    return path if is_uri(path) else os.path.abspath(path)


def _resolved(path: str) -> list[str]:
    if is_uri(path):
        return [path]
    if any(sign in path for sign in _SIGNS) and not os.path.exists(path):
        found = sorted(glob.glob(path))
        if not found:
            raise UsageError(f"nothing matches {path!r}")
        return found
    # Files are told whose they are by their folder's name: it must be part of the path.
    names = os.path.normpath(path).split(os.sep)
    is_bare = len(names) == 1 and not os.path.isdir(path)
    return [os.path.abspath(path) if is_bare or names[0] in (os.curdir, os.pardir) else path]


class _Anchored(OsFileSystem):
    """The files of this machine, with paths that begin in a certain folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open_readable(self, path: str) -> ReadableFile:
        return super().open_readable(os.path.join(self._folder, path))

    def stat(self, path: str) -> FileStat | None:
        return super().stat(os.path.join(self._folder, path))

    def list_dir(self, path: str) -> list[DirEntry]:
        return super().list_dir(os.path.join(self._folder, path))
