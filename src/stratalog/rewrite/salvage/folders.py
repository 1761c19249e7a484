"""Find the partition folders that are to be salvaged. Nothing in them is read."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from stratalog.errors import StorageError, UsageError
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import (
    FOREIGN_ROOT_DIRS,
    is_marked_partition_dir,
    parse_partition_dir,
    parse_partition_file,
)
from stratalog.types import TopicPartition

__all__ = ["PartitionFolder", "Wanted", "find_folders"]


class PartitionFolder(NamedTuple):
    """A folder and the partition that it holds, by its name."""

    path: str
    topic_partition: TopicPartition


class Wanted(Protocol):
    """A choice of topics and partitions."""

    def check(self, found: Iterable[TopicPartition], /) -> None:
        """Raise UsageError if something that was named is not among those found."""
        ...

    def takes(self, topic_partition: TopicPartition, /) -> bool:
        """Return whether a partition was chosen."""
        ...


def find_folders(
    file_system: FileSystem, paths: Iterable[str], wanted: Wanted | None = None
) -> list[PartitionFolder]:
    """Return the partition folders at these paths, or in the log directories there, by topic and partition:
    all, or those that are wanted. In log directories, folders that Kafka has set aside, and its metadata, are
    left out. Raise UsageError if a path is neither, StorageError if it cannot be listed."""
    found: list[PartitionFolder] = []
    for path in paths:
        found += _folders_at(file_system, path)
    if wanted is not None:
        wanted.check(each.topic_partition for each in found)
        found = [each for each in found if wanted.takes(each.topic_partition)]
    unique = {os.path.abspath(each.path): each for each in found}
    return sorted(unique.values(), key=lambda each: (each.topic_partition, each.path))


def _folders_at(file_system: FileSystem, path: str) -> list[PartitionFolder]:
    try:
        entries = file_system.list_dir(path)
    except StorageError as error:
        if error.errno == errno.ENOTDIR:
            raise UsageError(
                f"{path} is a file: name its partition folder or log directory"
            ) from None
        raise
    own = parse_partition_dir(os.path.basename(os.path.abspath(path)))
    inside = [
        PartitionFolder(os.path.join(path, entry.name), topic_partition)
        for entry in entries
        if entry.is_dir and (topic_partition := _partition_of(entry.name)) is not None
    ]
    has_segments = any(parse_partition_file(entry.name) is not None for entry in entries)
    if own is not None and (has_segments or not inside):
        return [PartitionFolder(path, own)]
    if not inside:
        raise UsageError(
            f"{path} is not a log directory or partition folder: no <topic>-<partition> folders in it"
        )
    return inside


def _partition_of(name: str) -> TopicPartition | None:
    if name in FOREIGN_ROOT_DIRS or is_marked_partition_dir(name):
        return None
    return parse_partition_dir(name)
