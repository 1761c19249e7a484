"""Topics that are deleted although their folders are still there: a process died in the middle of it.

``stratalog-topics.json`` says so; ``manager.root.deletion`` has the steps, and finishes them. Here
directories are only read, and most of them have no such file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from stratalog.errors import CorruptionError, StorageError
from stratalog.storage.files.filesystem import DirEntry, FileSystem
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.names import (
    META_PROPERTIES,
    STRATALOG_TOPICS,
    is_marked_partition_dir,
    parse_partition_dir,
)

if TYPE_CHECKING:
    from stratalog.storage.formats.topic_entries import TopicEntry

__all__ = ["DeletedTopics"]

_MARK: Final = b'"being_deleted"'


class _Root(NamedTuple):
    """A log directory that has been listed."""

    topics: bytes | None
    entries: Sequence[DirEntry]

    def holds(self, topic: str) -> bool:
        """Return whether there is a folder of a partition of a topic."""
        for each in self.entries:
            topic_partition = parse_partition_dir(each.name) if each.is_dir else None
            if (
                topic_partition is not None
                and topic_partition.topic == topic
                and not is_marked_partition_dir(each.name)
            ):
                return True
        return False


class DeletedTopics:
    """The deletions that log directories tell of. The files are decoded only if one tells of any."""

    def __init__(self, file_system: FileSystem) -> None:
        self._file_system = file_system
        self._roots: dict[str, _Root] = {}

    def add(self, root: str, entries: Sequence[DirEntry]) -> None:
        """Take a log directory, after it was listed: a topic is marked before its folders are renamed."""
        has_file = any(each.name == STRATALOG_TOPICS and each.is_file for each in entries)
        data = self._read(os.path.join(root, STRATALOG_TOPICS)) if has_file else None
        self._roots[root] = _Root(data, entries)

    def found(self) -> dict[str, set[str]]:
        """Return the topics that are deleted, by directory. A deletion that is not decided, because one of
        the directories does not tell of it, will be taken back: that topic is not deleted."""
        if not any(_MARK in (each.topics or b"") for each in self._roots.values()):
            return {}
        entries = {root: _decoded(each.topics) for root, each in self._roots.items()}
        roots = {self._directory_id(root): root for root in self._roots}
        gone: dict[str, set[str]] = {}
        kept: set[str] = set()
        for root, known in entries.items():
            for name, entry in known.items():
                if entry.deletion is None:
                    continue
                gone.setdefault(root, set()).add(name)
                others = [roots[each] for each in entry.deletion.directories if each in roots]
                if any(self._keeps(other, entry, entries[other]) for other in others):
                    kept.add(name)
        left = {root: names - kept for root, names in gone.items()}
        return {root: names for root, names in left.items() if names}

    def _keeps(self, root: str, marked: TopicEntry, known: Mapping[str, TopicEntry]) -> bool:
        """Return whether a directory holds the topic of a marked entry, and does not tell of its deletion."""
        own = known.get(marked.topic.name)
        if own is None:
            return self._roots[root].holds(marked.topic.name)
        return own.deletion is None and own.topic.topic_id == marked.topic.topic_id

    def _directory_id(self, root: str) -> str:
        from stratalog.storage.formats.kafka_uuid import format_uuid
        from stratalog.storage.formats.meta_properties import decode_meta_properties

        data = self._read(os.path.join(root, META_PROPERTIES))
        try:
            directory_id = decode_meta_properties(data).directory_id if data is not None else None
        except CorruptionError:
            directory_id = None
        return root if directory_id is None else format_uuid(directory_id)

    def _read(self, path: str) -> bytes | None:
        try:
            return read_small_file(self._file_system, path)
        except StorageError:
            return None  # it is only of use here; ``verify`` reports it


def _decoded(data: bytes | None) -> Mapping[str, TopicEntry]:
    # Imported here, because most directories tell of no deletion.
    from stratalog.storage.formats.topic_entries import decode_topics

    try:
        return {} if data is None else decode_topics(data)
    except CorruptionError:
        return {}
