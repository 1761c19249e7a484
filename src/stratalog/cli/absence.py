"""Search log directories for keys that must not be there, for ``verify --absent``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

from stratalog.cli.options import Chosen
from stratalog.cli.reporter import Reporter
from stratalog.errors import StorageError
from stratalog.inspect.partition.partition_filter import partition_filter
from stratalog.inspect.partition.sources import (
    foreign_folder_error,
    is_log_directory,
    is_partition_folder,
)
from stratalog.inspect.result import Chunk, Field, Kind, Result, chunk_of_rows
from stratalog.rewrite.erase.absent import SearchedFile, SearchPaths, SearchStatus, search_files
from stratalog.rewrite.erase.keys import KeySet
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.names import parse_partition_dir
from stratalog.types import TopicPartition

__all__ = ["FIELDS", "search_absent"]

FIELDS: Final = (
    Field("path", Kind.TEXT),
    Field("topic", Kind.TEXT, in_table=False),
    Field("partition", Kind.INTEGER, in_table=False),
    Field("status", Kind.TEXT),
    Field("records", Kind.INTEGER),
    Field("found", Kind.INTEGER),
    Field("size_bytes", Kind.INTEGER),
    Field("detail", Kind.TEXT),
)


def search_absent(reporter: Reporter, chosen: Chosen, keys: KeySet) -> Result:
    """Search every file that may hold records. Each that is not proved free of the keys is a finding."""
    rows = _Rows(reporter)
    return Result(
        fields=FIELDS,
        chunks=rows.chunks(chosen, keys),
        notes=rows.notes,
        runs_to_its_end=True,
    )


class _Rows:
    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._files = self._wrong = self._done = 0

    def notes(self) -> Iterator[str]:
        if not self._files:
            yield "not proved: there was no file to search"
        elif self._wrong:
            yield f"not proved: {self._wrong} of {self._files} files hold such keys, or cannot be searched"
        else:
            yield f"proved: none of {self._files} files holds such a key"

    def chunks(self, chosen: Chosen, keys: KeySet) -> Iterator[Chunk]:
        self._reporter.start_work()
        for each in self._searched(chosen, keys):
            self._files += 1
            if each.status is not SearchStatus.OK:
                self._wrong += 1
                self._reporter.found()
            topic, partition = each.topic_partition or (None, None)
            fields = each.records, each.found, each.size_bytes, each.detail
            yield chunk_of_rows([(each.path, topic, partition, each.status.value, *fields)])
        if not self._files:
            self._reporter.found()
            self._reporter.warn(f"{', '.join(chosen.paths)}: there was no file to search")

    def _note(self, size_bytes: int) -> None:
        self._done += size_bytes
        self._reporter.progress(self._done)

    def _searched(self, chosen: Chosen, keys: KeySet) -> Iterator[SearchedFile]:
        files = OsFileSystem()
        wanted = partition_filter(chosen.topics, chosen.partitions)
        roots, folders = _kinds(files, chosen.paths)
        named = {each: _partition_of(each) for each in folders}
        inside = [
            parse_partition_dir(entry.name) for root in roots for entry in files.list_dir(root)
        ]
        wanted.check(each for each in (*named.values(), *inside) if each is not None)
        folders = [folder for folder, each in named.items() if wanted.takes(each)]
        yield from search_files(keys, files, SearchPaths(roots, folders, wanted.takes), self._note)


def _kinds(files: FileSystem, paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return which paths are log directories, and which are partitions' folders; StorageError if one is
    neither."""
    roots, folders = [], []
    for path in paths:
        if not os.path.isdir(path):
            raise StorageError("no such log directory", path=path)
        entries = files.list_dir(path)
        if is_partition_folder(path, entries):
            folders.append(path)
        elif is_log_directory(entries):
            roots.append(path)
        else:
            raise foreign_folder_error(path)
    return roots, folders


def _partition_of(folder: str) -> TopicPartition | None:
    return parse_partition_dir(os.path.basename(os.path.abspath(folder)))
