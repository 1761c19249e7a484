"""The topics of a log directory: their ids, their partitions and their configs.

A file of our own in the root, beside Kafka's; Kafka keeps the same in its metadata log, and takes no notice
of ours. Folders that it does not know are partitions all the same, with Kafka's defaults.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from stratalog.errors import CorruptionError
from stratalog.storage.files.filesystem import FileSystem, replace_file
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.formats.topic_entries import Topic, TopicEntry, decode_topics, encode_topics
from stratalog.storage.names import STRATALOG_TOPICS, TEMPORARY_SUFFIX

__all__ = ["Topic", "TopicEntry", "TopicFile"]


class TopicFile:
    """The file in one root."""

    def __init__(self, file_system: FileSystem, root: str) -> None:
        self._file_system = file_system
        self._path = os.path.join(root, STRATALOG_TOPICS)
        self.entries: Mapping[str, TopicEntry] = {}

    def read(self) -> None:
        """Take what the file says; CorruptionError where it is damaged."""
        data = read_small_file(self._file_system, self._path)
        if data is None:
            return
        try:
            self.entries = decode_topics(data)
        except CorruptionError as error:
            raise error.located(path=self._path) from None

    def put(self, entry: TopicEntry) -> None:
        self._write({**self.entries, entry.topic.name: entry})

    def remove(self, name: str) -> None:
        if name in self.entries:
            self._write({key: entry for key, entry in self.entries.items() if key != name})

    def restore(self, name: str, entry: TopicEntry | None) -> None:
        """Write what was there before, also where it is not known whether it is there still."""
        entries = {key: each for key, each in self.entries.items() if key != name}
        self._write(entries if entry is None else {**entries, name: entry})

    def _write(self, entries: dict[str, TopicEntry]) -> None:
        data = encode_topics(entries)
        replace_file(self._file_system, self._path, self._path + TEMPORARY_SUFFIX, data)
        self.entries = MappingProxyType(entries)
