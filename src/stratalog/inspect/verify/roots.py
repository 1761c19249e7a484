"""Reads what the root of a log directory says about its partitions: checkpoints, topics, the clean marker.

The files are read before the logs are: a log that is being written to only grows, so what a checkpoint says
must be there afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stratalog.errors import StorageError
from stratalog.inspect.check.report import FileReport, Finding
from stratalog.inspect.check.small_files import ROOT_FILES, CheckedSmallFile, check_small_file
from stratalog.storage.files.filesystem import DirEntry, FileSystem
from stratalog.storage.formats.meta_properties import MetaProperties
from stratalog.storage.names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_CHECKPOINT,
    STRATALOG_TOPICS,
    parse_partition_dir,
)
from stratalog.types import TopicPartition

__all__ = ["RootState", "Roots", "disagreements"]

_CHECKPOINTS: Final = (
    RECOVERY_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    CLEANER_CHECKPOINT,
)


@dataclass(frozen=True, slots=True)
class RootState:
    """The small files of one root, by name."""

    root: str
    files: Mapping[str, CheckedSmallFile] = field(default_factory=dict)

    def value(self, name: str) -> Any:
        """What a file says; None where it is missing or damaged."""
        file = self.files.get(name)
        return None if file is None else file.value

    @property
    def is_clean(self) -> bool:
        """Whether the last process to write here stopped in order. Only the marker's existence counts."""
        return CLEAN_SHUTDOWN in self.files

    @property
    def reports(self) -> list[FileReport]:
        return [file.report for file in self.files.values()]

    def offsets_of(self, topic_partition: TopicPartition) -> dict[str, int]:
        """The offset that each checkpoint has for a partition, by the checkpoint's name."""
        found = {}
        for name in _CHECKPOINTS:
            offset = (self.value(name) or {}).get(topic_partition)
            if offset is not None:
                found[name] = offset
        return found

    def named_partitions(self) -> dict[TopicPartition, list[str]]:
        """Every partition that a file of the root names, with these files."""
        named: dict[TopicPartition, list[str]] = {}
        for name in _CHECKPOINTS:
            for topic_partition in self.value(name) or ():
                named.setdefault(topic_partition, []).append(name)
        for entry in (self.value(STRATALOG_TOPICS) or {}).values():
            if entry.plan is None:  # else its folders are still being made
                for number in entry.topic.partitions:
                    topic_partition = TopicPartition(entry.topic.name, number)
                    named.setdefault(topic_partition, []).append(STRATALOG_TOPICS)
        return named


class Roots:
    """The roots that are asked about, each read once."""

    def __init__(self, file_system: FileSystem) -> None:
        self._file_system = file_system
        self._known: dict[str, RootState] = {}

    def of(self, root: str) -> RootState:
        whole = os.path.abspath(root)
        if whole not in self._known:
            self._known[whole] = self.read(root)
        return self._known[whole]

    def read(self, root: str) -> RootState:
        """The files of a root as they are now."""
        found = {}
        for name in ROOT_FILES:
            checked = check_small_file(self._file_system, os.path.join(root, name), None)
            if checked is not None:
                found[name] = checked
        return RootState(root, found)

    def without_folder(self, state: RootState) -> dict[TopicPartition, list[str]]:
        """The partitions that a root names and that have no folder there, also not on their way out."""
        named = state.named_partitions()
        there = set(_topic_partitions(self._list(state.root)))
        if not set(named) - there:
            return {}
        # A partition may have been deleted since the files were read.
        named, there = (
            self.read(state.root).named_partitions(),
            set(_topic_partitions(self._list(state.root))),
        )
        return {
            topic_partition: files
            for topic_partition, files in named.items()
            if topic_partition not in there
        }

    def _list(self, root: str) -> list[DirEntry]:
        try:
            return self._file_system.list_dir(root)
        except StorageError:
            return []


def _topic_partitions(entries: list[DirEntry]) -> Iterator[TopicPartition]:
    """The partitions that have a folder, or a link in its place."""
    for entry in entries:
        topic_partition = parse_partition_dir(entry.name)
        if topic_partition is not None:
            yield topic_partition


def disagreements(states: list[RootState]) -> dict[str, Finding]:
    """Findings on roots that do not belong with the first one, by the path of their ``meta.properties``."""
    metas: list[tuple[str, MetaProperties]] = []
    for state in states:
        meta = state.value(META_PROPERTIES)
        if meta is not None:
            metas.append((os.path.join(state.root, META_PROPERTIES), meta))
    found: dict[str, Finding] = {}
    for number, (path, meta) in enumerate(metas):
        for other_path, other in metas[:number]:
            detail = _disagreement(meta, other)
            if detail is not None and path not in found:
                found[path] = Finding.about(
                    path, "damage", "meta_properties", f"{detail} {other_path}",
                    "a broker does not start with both directories: name those of one broker, or restore "
                    "the file that was changed",
                )  # fmt: skip
    return found


def _disagreement(one: MetaProperties, other: MetaProperties) -> str | None:
    if None not in (one.cluster_id, other.cluster_id) and one.cluster_id != other.cluster_id:
        return f"cluster.id is {one.cluster_id}, and {other.cluster_id} in"
    if None not in (one.node_id, other.node_id) and one.node_id != other.node_id:
        return f"node.id is {one.node_id}, and {other.node_id} in"
    if one.directory_id is not None and one.directory_id == other.directory_id:
        return "directory.id is the same as in"
    return None
