"""Search log directories for keys that must not be there, for ``verify --absent``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from stratalog.cli.options import Chosen
from stratalog.cli.reporter import Reporter
from stratalog.errors import StorageError
from stratalog.inspect.partition.partition_filter import EVERYTHING, partition_filter
from stratalog.inspect.result import Chunk, Field, Kind, Result, chunk_of_rows
from stratalog.rewrite.erase.absent import (
    SearchedFile,
    SearchStatus,
    search_folder,
    search_pieces,
)
from stratalog.rewrite.erase.keys import KeySet
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.names import parse_partition_dir

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
        if self._wrong:
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

    def _note(self, size_bytes: int) -> None:
        self._done += size_bytes
        self._reporter.progress(self._done)

    def _searched(self, chosen: Chosen, keys: KeySet) -> Iterator[SearchedFile]:
        files = OsFileSystem()
        wanted = partition_filter(chosen.topics, chosen.partitions)
        folders = [each for path in chosen.paths for each in _folders(files, path)]
        named = {
            folder: parse_partition_dir(os.path.basename(os.path.abspath(folder)))
            for folder in folders
        }
        wanted.check([each for each in named.values() if each is not None])
        for folder, topic_partition in named.items():
            if wanted.takes(topic_partition):
                yield from search_folder(keys, files, folder, self._note)
        if wanted == EVERYTHING:
            for path in chosen.paths:
                yield from search_pieces(keys, files, path, self._note)


def _folders(files: FileSystem, path: str) -> list[str]:
    """Return the partitions' folders in a log directory; the path itself if it is one."""
    whole = os.path.abspath(path)
    if not os.path.isdir(whole):
        raise StorageError("no such log directory", path=path)
    if parse_partition_dir(os.path.basename(whole)) is not None and any(
        entry.is_file and entry.name.endswith((".log", ".kafka")) for entry in files.list_dir(whole)
    ):
        return [path]
    return [
        os.path.join(path, entry.name)
        for entry in sorted(files.list_dir(path))
        if entry.is_dir and parse_partition_dir(entry.name) is not None
    ]
