"""The topics of a log directory: their ids, their partitions and their configs.

A file of our own in the root, next to Kafka's, which ignores it: Kafka keeps the same in its metadata log.
Folders of partitions that the file does not list are partitions all the same, with Kafka's defaults.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from types import MappingProxyType

from stratalog.errors import CorruptionError
from stratalog.storage.files.filesystem import FileSystem, replace_file
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.formats.topic_entries import (
    Topic,
    TopicEntry,
    decode_deleted_folders,
    decode_topics,
    encode_topics,
)
from stratalog.storage.names import STRATALOG_TOPICS, TEMPORARY_SUFFIX

__all__ = ["Topic", "TopicEntry", "TopicFile"]


class TopicFile:
    """The file in one root."""

    def __init__(self, file_system: FileSystem, root: str) -> None:
        self._file_system = file_system
        self._path = os.path.join(root, STRATALOG_TOPICS)
        self._stamp: object = None
        self.entries: Mapping[str, TopicEntry] = {}
        #: Folders of deleted topics that may still be there, by name.
        self.deleted_folders: tuple[str, ...] = ()

    def has_changed(self) -> bool:
        """Return whether another process has written the file since it was read."""
        return self._file_system.stat(self._path) != self._stamp

    def read(self) -> None:
        """Read the file; CorruptionError if it is damaged."""
        self._stamp = self._file_system.stat(self._path)
        data = read_small_file(self._file_system, self._path)
        if data is None:
            return
        try:
            self.entries = decode_topics(data)
            self.deleted_folders = decode_deleted_folders(data)
        except CorruptionError as error:
            raise error.located(path=self._path) from None

    def is_as_known(self) -> bool:
        """Return whether the file says what is known here. After a write that failed it may say more."""
        data = read_small_file(self._file_system, self._path)
        return (decode_topics(data) if data is not None else {}) == self.entries

    def put(self, entry: TopicEntry) -> None:
        """Add an entry, or replace the one of the same topic."""
        self._write({**self.entries, entry.topic.name: entry}, self.deleted_folders)

    def remove(self, name: str) -> None:
        """Remove the entry of a topic, if there is one."""
        if name in self.entries:
            self._write(self._without(name), self.deleted_folders)

    def restore(self, name: str, entry: TopicEntry | None) -> None:
        """Write what was there before, also if it is not known whether it is there still."""
        entries = self._without(name)
        self._write(entries if entry is None else {**entries, name: entry}, self.deleted_folders)

    def replace_by_folders(self, name: str, folders: Collection[str]) -> None:
        """Replace the entry of a deleted topic by the new names of its folders."""
        self._write(self._without(name), (*self.deleted_folders, *folders))

    def forget_folders(self, folders: Collection[str]) -> None:
        """Drop folders of deleted topics that were removed."""
        left = tuple(each for each in self.deleted_folders if each not in folders)
        if left != self.deleted_folders:
            self._write(dict(self.entries), left)

    def _without(self, name: str) -> dict[str, TopicEntry]:
        return {key: entry for key, entry in self.entries.items() if key != name}

    def _write(self, entries: dict[str, TopicEntry], deleted_folders: tuple[str, ...]) -> None:
        data = encode_topics(entries, deleted_folders)
        replace_file(self._file_system, self._path, self._path + TEMPORARY_SUFFIX, data)
        self.entries = MappingProxyType(entries)
        self.deleted_folders = deleted_folders
