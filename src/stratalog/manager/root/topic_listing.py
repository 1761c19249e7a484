"""List the topics of a log directory without opening or locking it."""

from __future__ import annotations

import errno
from typing import NamedTuple

from stratalog.errors import StorageError
from stratalog.manager.root.topic_file import TopicFile
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import is_marked_partition_dir, parse_partition_dir

__all__ = ["ListedTopics", "list_topics", "topic_configs"]


class ListedTopics(NamedTuple):
    """The partitions of each topic, and the configs of those that the directory's own file knows."""

    partitions: dict[str, set[int]]
    configs: dict[str, LogConfig]


def list_topics(root: str, files: FileSystem) -> ListedTopics:
    """Return the topics that are in a log directory now; none if it does not exist. A topic whose creation
    was interrupted has all the partitions that it was to get: the next process that opens the directory
    creates the rest. A topic that is being deleted is left out, as in a directory that is opened alone."""
    partitions: dict[str, set[int]] = {}
    try:
        entries = files.list_dir(root)
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        entries = []
    for entry in entries:
        topic_partition = parse_partition_dir(entry.name)
        if entry.is_dir and topic_partition is not None and not is_marked_partition_dir(entry.name):
            partitions.setdefault(topic_partition.topic, set()).add(topic_partition.partition)
    file = TopicFile(files, root)
    file.read()
    for name, known in file.entries.items():
        if known.deletion is not None:
            partitions.pop(name, None)
        elif known.plan is not None:
            partitions.setdefault(name, set()).update(known.topic.partitions)
    return ListedTopics(partitions, _configs_of(file))


def topic_configs(root: str, files: FileSystem) -> dict[str, LogConfig]:
    """Return the configs of the topics that the directory's own file knows."""
    file = TopicFile(files, root)
    file.read()
    return _configs_of(file)


def _configs_of(file: TopicFile) -> dict[str, LogConfig]:
    return {
        name: entry.topic.config for name, entry in file.entries.items() if entry.deletion is None
    }
