"""Write a new log directory from the plans of some partitions.

It is written under another name, ``<target>.incomplete``, and renamed when everything is on the disk: a
target that exists is complete. What an interrupted salvage left is removed by the next one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from stratalog.errors import CorruptionError, StorageError, UsageError
from stratalog.rewrite.limits import RewriteLimits
from stratalog.rewrite.salvage.damaged_files import write_new_file
from stratalog.rewrite.salvage.incomplete import exists, remove_attempts, remove_incomplete
from stratalog.rewrite.salvage.plan import SalvagePlan
from stratalog.rewrite.salvage.write import write_partition
from stratalog.rewrite.space import check_space
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.formats.checkpoints import decode_offsets, encode_offsets
from stratalog.storage.formats.clean_shutdown import encode_clean_shutdown
from stratalog.storage.formats.meta_properties import decode_meta_properties
from stratalog.storage.formats.partition_metadata import decode_partition_metadata
from stratalog.storage.formats.topic_entries import (
    Topic,
    TopicEntry,
    decode_topics,
    encode_topics,
)
from stratalog.storage.names import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_CHECKPOINT,
    STRATALOG_TOPICS,
    partition_dir_name,
)
from stratalog.types import TopicPartition

__all__ = ["INCOMPLETE_SUFFIX", "NewDirectory", "check_target", "write_directory"]

INCOMPLETE_SUFFIX: Final = ".incomplete"
#: An index entry of 8 and one of 12 bytes for every 4 KiB of log, and something for other small files.
_INDEX_SHARE: Final = 128


def check_target(file_system: FileSystem, folders: Sequence[str], target: str) -> None:
    """Raise UsageError unless ``target`` is missing or empty, and neither it lies in the log directory of one
    of the partition folders nor they lie in it."""
    whole = os.path.realpath(target)
    for folder in folders:
        root = os.path.realpath(os.path.dirname(os.path.abspath(folder)))
        if _is_within(whole, root) or _is_within(root, whole):
            raise UsageError(
                f"{target} and {root} lie in each other: salvage into a folder outside of the original"
            )
    try:
        entries = file_system.list_dir(target)
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        return
    if entries:
        raise UsageError(f"{target} is not empty: salvage into a new folder")


def _is_within(inner: str, outer: str) -> bool:
    return os.path.commonpath([inner, outer]) == outer


def write_directory(
    file_system: FileSystem,
    plans: Sequence[SalvagePlan],
    target: str,
    limits: RewriteLimits | None = None,
) -> None:
    """Write the partitions of some plans into a new log directory. Raise UsageError if the target cannot be
    one, StorageError if the disk has no room for it. Whatever is raised, the originals are unchanged, and
    the target is complete or does not exist."""
    limits = limits or RewriteLimits()
    new = NewDirectory(file_system, plans, target)
    new.begin()
    for plan in plans:
        write_partition(file_system, plan, new.folder_of(plan), new.topic_id(plan), limits)
    new.finish()


class NewDirectory:
    """A log directory that partitions are written into. Call ``begin``, write the partition folders, then
    call ``finish``. Until then the target does not exist."""

    def __init__(self, file_system: FileSystem, plans: Sequence[SalvagePlan], target: str) -> None:
        self._file_system = file_system
        self._plans = plans
        self._target = os.path.normpath(target)
        self._roots = _Roots(file_system, plans)

    @property
    def incomplete(self) -> str:
        """Where everything is written."""
        return self._target + INCOMPLETE_SUFFIX

    @property
    def _parent(self) -> str:
        return os.path.dirname(self._target) or os.curdir

    def begin(self) -> None:
        """Create the directory, without what an interrupted salvage has left. Raise UsageError if the target
        cannot be one, StorageError if the disk has no room."""
        check_target(self._file_system, [plan.folder for plan in self._plans], self._target)
        _refuse_twice(self._plans)
        check_space(self._file_system, self._parent, sum(map(_needed_bytes, self._plans)))
        remove_incomplete(self._file_system, self.incomplete)
        self._file_system.make_dir(self.incomplete)

    def folder_of(self, plan: SalvagePlan) -> str:
        """Return the new folder of a partition."""
        return os.path.join(self.incomplete, partition_dir_name(plan.topic_partition))

    def topic_id(self, plan: SalvagePlan) -> bytes | None:
        """Return the id of a partition's topic, if it is known."""
        return self._roots.topic_id(plan.topic_partition)

    def finish(self) -> None:
        """Write the files of the root, and give the directory its name."""
        remove_attempts(self._file_system, self.incomplete)
        for name, data in self._roots.files().items():
            write_new_file(self._file_system, os.path.join(self.incomplete, name), data)
        self._file_system.sync_dir(self.incomplete)
        if exists(self._file_system, self._target):
            self._file_system.remove_dir(self._target)
        self._file_system.rename(self.incomplete, self._target)
        self._file_system.sync_dir(self._parent)


def _refuse_twice(plans: Sequence[SalvagePlan]) -> None:
    seen: dict[TopicPartition, str] = {}
    for plan in plans:
        if plan.topic_partition in seen:
            raise UsageError(
                f"{plan.topic_partition} is in {seen[plan.topic_partition]} and in {plan.folder}: salvage "
                "them one at a time"
            )
        seen[plan.topic_partition] = plan.folder


def _needed_bytes(plan: SalvagePlan) -> int:
    return plan.kept_bytes + plan.kept_bytes // _INDEX_SHARE + plan.lost_bytes


# The files in the root.


class _Original(NamedTuple):
    """What the root of an original says; what cannot be read of it is left out."""

    meta: bytes | None
    topics: Mapping[str, TopicEntry]
    log_starts: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]


class _Roots:
    """The log directories that partitions are salvaged from, and the files that the new one gets."""

    def __init__(self, file_system: FileSystem, plans: Sequence[SalvagePlan]) -> None:
        self._file_system = file_system
        self._plans = [plan for plan in plans if not plan.is_v07]
        self._originals = {
            root: self._read(root) for root in dict.fromkeys(_root_of(plan) for plan in self._plans)
        }

    def _read(self, root: str) -> _Original:
        return _Original(
            self._small(root, META_PROPERTIES),
            self._topics(root),
            self._offsets(root, LOG_START_CHECKPOINT),
            self._offsets(root, HIGH_WATERMARK_CHECKPOINT),
        )

    def _small(self, folder: str, name: str) -> bytes | None:
        try:
            return read_small_file(self._file_system, os.path.join(folder, name))
        except (CorruptionError, StorageError):
            return None  # verify reports it; nothing that is kept depends on it

    def _offsets(self, root: str, name: str) -> Mapping[TopicPartition, int]:
        try:
            return decode_offsets(self._small(root, name) or b"")
        except CorruptionError:
            return {}

    def _topics(self, root: str) -> Mapping[str, TopicEntry]:
        try:
            data = self._small(root, STRATALOG_TOPICS)
            return {} if data is None else decode_topics(data)
        except CorruptionError:
            return {}

    def topic_id(self, topic_partition: TopicPartition) -> bytes | None:
        """Return the id of a topic: from the partition itself, from another one of it, or from the topics."""
        plans = [
            plan for plan in self._plans if plan.topic_partition.topic == topic_partition.topic
        ]
        plans.sort(key=lambda plan: plan.topic_partition != topic_partition)
        for plan in plans:
            try:
                data = self._small(plan.folder, PARTITION_METADATA)
                if data is not None:
                    return decode_partition_metadata(data).topic_id
            except CorruptionError:
                continue
        entry = self._entry(topic_partition.topic)
        return None if entry is None else entry.topic.topic_id

    def _entry(self, topic: str) -> TopicEntry | None:
        found = (original.topics.get(topic) for original in self._originals.values())
        return next((each for each in found if each is not None), None)

    def files(self) -> dict[str, bytes]:
        """Return the files of the new root by their names. Every log is complete and fsynced: so the recovery
        points are their ends, and the marker of a clean shutdown says so."""
        if not self._plans:
            return {}
        ends = {plan.topic_partition: plan.log_end for plan in self._plans}
        files = {
            RECOVERY_CHECKPOINT: encode_offsets(ends),
            HIGH_WATERMARK_CHECKPOINT: encode_offsets(self._high_watermarks()),
            LOG_START_CHECKPOINT: encode_offsets(self._log_starts()),
            CLEAN_SHUTDOWN: encode_clean_shutdown(),
        }
        topics = self._own_topics()
        if topics:
            files[STRATALOG_TOPICS] = encode_topics(topics)
        meta = self._meta()
        return files if meta is None else {META_PROPERTIES: meta, **files}

    def _high_watermarks(self) -> dict[TopicPartition, int]:
        found = {}
        for plan in self._plans:
            known = self._originals[_root_of(plan)].high_watermarks.get(plan.topic_partition)
            end = plan.log_end
            found[plan.topic_partition] = end if known is None else max(min(known, end), 0)
        return found

    def _log_starts(self) -> dict[TopicPartition, int]:
        found = {}
        for plan in self._plans:
            start = self._originals[_root_of(plan)].log_starts.get(plan.topic_partition, 0)
            if start > plan.log_start:
                found[plan.topic_partition] = min(start, plan.log_end)
        return found

    def _own_topics(self) -> dict[str, TopicEntry]:
        partitions: dict[str, list[int]] = {}
        for plan in self._plans:
            partitions.setdefault(plan.topic_partition.topic, []).append(
                plan.topic_partition.partition
            )
        found = {}
        for name, numbers in partitions.items():
            entry = self._entry(name)
            if entry is not None:
                topic = Topic(
                    name, entry.topic.topic_id, tuple(sorted(numbers)), entry.topic.config
                )
                found[name] = TopicEntry(topic, total_partitions=entry.total_partitions)
        return found

    def _meta(self) -> bytes | None:
        """Return the identity of the original, if there is one: the new directory takes its place."""
        if len(self._originals) != 1:
            return None
        (original,) = self._originals.values()
        try:
            if original.meta is not None:
                decode_meta_properties(original.meta)
        except CorruptionError:
            return None
        return original.meta


def _root_of(plan: SalvagePlan) -> str:
    return os.path.dirname(os.path.abspath(plan.folder))
