"""One log directory: its lock, its identity, its checkpoints, and whether it was left in order.

The process that writes, ours or Kafka, holds the lock. The clean-shutdown marker is removed before any log is
opened and written after all were closed in order: a crash in between is never taken for a clean shutdown.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from stratalog.errors import CorruptionError, StorageError, UsageError
from stratalog.records.layout import INT32_MAX
from stratalog.storage.files.filesystem import FileLock, FileSystem, replace_file
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.formats.checkpoints import decode_offsets, encode_offsets
from stratalog.storage.formats.clean_shutdown import encode_clean_shutdown
from stratalog.storage.formats.kafka_uuid import format_uuid, random_uuid
from stratalog.storage.formats.meta_properties import (
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)
from stratalog.storage.names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    FOREIGN_ROOT_DIRS,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_CHECKPOINT,
    TEMPORARY_SUFFIX,
    parse_partition_dir,
    parse_piece_name,
    partition_dir_name,
)
from stratalog.types import TopicPartition

__all__ = ["Checkpoint", "LogDirectory", "identity_of", "new_cluster_id"]

#: What a crash in the first moments leaves: this is still a folder that was empty.
_LEFTOVERS: Final = frozenset({LOCK, META_PROPERTIES + TEMPORARY_SUFFIX})


class Checkpoint:
    """One of the offset files in a root: read once, replaced as a whole."""

    def __init__(self, file_system: FileSystem, root: str, name: str) -> None:
        self._file_system = file_system
        self._path = os.path.join(root, name)
        self._written: dict[TopicPartition, int] | None = None
        #: Why it could not be read. Kafka, too, continues without it.
        self.damage: CorruptionError | None = None
        self.offsets: dict[TopicPartition, int] = {}
        self.read()

    def read(self) -> None:
        """Read the file."""
        data = read_small_file(self._file_system, self._path)
        self.offsets, self._written, self.damage = {}, None, None
        if data is not None:
            try:
                self.offsets = decode_offsets(data)
                self._written = dict(self.offsets)
            except CorruptionError as error:
                self.damage = error.located(path=self._path)

    def of(self, topic_partition: TopicPartition) -> int:
        """Return the offset of one partition; 0 if the file has none, or a negative one."""
        return max(self.offsets.get(topic_partition, 0), 0)

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file, unless it has these offsets already."""
        self.offsets = dict(offsets)
        if self.offsets != self._written:
            data = encode_offsets(self.offsets)
            self._written = None  # unknown, if the write fails
            replace_file(self._file_system, self._path, self._path + TEMPORARY_SUFFIX, data)
            self._written = dict(self.offsets)

    def forget(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Drop the lines of some partitions."""
        gone = set(topic_partitions)
        if not gone.isdisjoint(self.offsets):
            self.write(
                {
                    topic_partition: at
                    for topic_partition, at in self.offsets.items()
                    if topic_partition not in gone
                }
            )


class LogDirectory:
    """An open root. A writer locks it at once, and changes it only from ``begin`` on."""

    def __init__(self, root: str, file_system: FileSystem, *, read_only: bool = False) -> None:
        self.root = root
        self._file_system = file_system
        self._lock: FileLock | None = None
        self._look(may_make=not read_only)
        if not read_only:
            self._lock = file_system.lock(os.path.join(root, LOCK))
        try:
            # Read under the lock: before, another process may have been writing.
            names = {entry.name for entry in file_system.list_dir(root)}
            self.meta = self._read_meta()
            self.recovery_points = Checkpoint(file_system, root, RECOVERY_CHECKPOINT)
            self.log_starts = Checkpoint(file_system, root, LOG_START_CHECKPOINT)
            self.high_watermarks = Checkpoint(file_system, root, HIGH_WATERMARK_CHECKPOINT)
            #: Where the cleaning of each compacted partition has come to.
            self.cleaned_offsets = Checkpoint(file_system, root, CLEANER_CHECKPOINT)
            self._has_marker = CLEAN_SHUTDOWN in names
            self._had_marker = self._has_marker
            #: Whether all its logs were closed in order; also if there are none yet.
            self.was_clean = self._has_marker or not self.partitions()
        except BaseException:
            self.release()
            raise

    def _look(self, *, may_make: bool) -> None:
        """Raise UsageError unless the root is a log directory or an empty folder; create it if missing."""
        try:
            entries = self._file_system.list_dir(self.root)
        except StorageError as error:
            if not may_make or error.errno != errno.ENOENT:
                raise
            self._file_system.make_dir(self.root)
            parent = os.path.dirname(os.path.normpath(self.root))
            self._file_system.sync_dir(parent or os.curdir)
            return
        names = {entry.name for entry in entries}
        is_log_directory = META_PROPERTIES in names or any(
            entry.is_dir and parse_partition_dir(entry.name) is not None for entry in entries
        )
        # Pieces are staged before there is a commit, and it is the commit that makes the directory.
        others = {name for name in names - _LEFTOVERS if parse_piece_name(name) is None}
        if others and not is_log_directory:
            raise UsageError(
                f"{self.root} is not a log directory, and not empty: it holds {min(others)!r}, and "
                "neither meta.properties nor a partition's folder"
            )

    def _read_meta(self) -> MetaProperties | None:
        path = os.path.join(self.root, META_PROPERTIES)
        data = read_small_file(self._file_system, path)
        if data is None:
            return None
        try:
            return decode_meta_properties(data)
        except CorruptionError as error:
            raise CorruptionError(
                error.reason, error.detail, path=path,
                advice="restore it from a backup: it identifies the cluster and node of this directory",
            ) from None  # fmt: skip

    def clean_end(self, topic_partition: TopicPartition) -> int | None:
        """Return the log end offset that the last clean shutdown left; None if there was none, or if the
        checkpoint does not name the partition."""
        return self.recovery_points.offsets.get(topic_partition) if self._had_marker else None

    @property
    def directory_id(self) -> bytes | None:
        return None if self.meta is None else self.meta.directory_id

    @property
    def damage(self) -> tuple[CorruptionError, ...]:
        """The checkpoints that could not be read and count as empty."""
        return tuple(each.damage for each in self._checkpoints if each.damage is not None)

    @property
    def _checkpoints(self) -> tuple[Checkpoint, ...]:
        return self.recovery_points, self.log_starts, self.high_watermarks, self.cleaned_offsets

    def begin(self, cluster_id: str, node_id: int, now_ms: int) -> None:
        """Prepare the root for writing: give it an identity, and remove the clean-shutdown marker."""
        if self.meta is None:
            self._write_meta(MetaProperties(cluster_id, node_id, random_uuid()), now_ms)
        if self._has_marker:
            self._file_system.unlink(os.path.join(self.root, CLEAN_SHUTDOWN))
            self._has_marker = False
        # What a killed process wrote is visible, but may not be on the disk: sync before building on it.
        self._file_system.sync_dir(self.root)

    def _write_meta(self, meta: MetaProperties, now_ms: int) -> None:
        path = os.path.join(self.root, META_PROPERTIES)
        when = datetime.fromtimestamp(now_ms / 1000, UTC)
        text = encode_meta_properties(meta, written=when.strftime("%a %b %d %H:%M:%S UTC %Y"))
        replace_file(self._file_system, path, path + TEMPORARY_SUFFIX, text)
        self.meta = meta

    def partitions(self) -> list[TopicPartition]:
        """Return every partition that has its folder here, without those that are marked as deleted."""
        found = []
        for entry in self._file_system.list_dir(self.root):
            topic_partition = parse_partition_dir(entry.name)
            if not entry.is_dir or entry.name in FOREIGN_ROOT_DIRS or topic_partition is None:
                continue
            # A number with zeros before it, or too large for one, names no partition; nor does a
            # folder that is marked as deleted, moved or stray.
            if (
                topic_partition.partition <= INT32_MAX
                and partition_dir_name(topic_partition) == entry.name
            ):
                found.append(topic_partition)
        return sorted(found)

    def occupied(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic in whose place there is anything: a folder, a file or a link."""
        found = []
        for entry in self._file_system.list_dir(self.root):
            topic_partition = parse_partition_dir(entry.name)
            if (
                topic_partition is not None
                and topic_partition.topic == topic
                and partition_dir_name(topic_partition) == entry.name
            ):
                found.append(topic_partition)
        return sorted(found)

    def folder(self, topic_partition: TopicPartition) -> str:
        return os.path.join(self.root, partition_dir_name(topic_partition))

    def forget(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions from the checkpoints: they are gone, or begin at offset 0 again."""
        gone = set(topic_partitions)
        for checkpoint in self._checkpoints:
            checkpoint.forget(gone)

    def mark_clean(self) -> None:
        """Write the clean-shutdown marker: every log was closed in order."""
        path = os.path.join(self.root, CLEAN_SHUTDOWN)
        replace_file(self._file_system, path, path + TEMPORARY_SUFFIX, encode_clean_shutdown())

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def new_cluster_id() -> str:
    """Return a cluster id for directories that belong to no cluster yet."""
    return format_uuid(random_uuid())


def identity_of(directories: Sequence[LogDirectory]) -> tuple[str, int]:
    """Return the cluster and the node of all directories. As in Kafka, UsageError if they differ."""
    clusters: dict[str, str] = {}
    nodes: dict[int, str] = {}
    for directory in directories:
        meta = directory.meta
        if meta is not None and meta.cluster_id is not None:
            clusters.setdefault(meta.cluster_id, directory.root)
        if meta is not None and meta.node_id is not None:
            nodes.setdefault(meta.node_id, directory.root)
    for name, known in (("cluster.id", clusters), ("node.id", nodes)):
        if len(known) > 1:
            (one, here), (other, there) = list(known.items())[:2]
            raise UsageError(
                f"{here} and {there} do not belong together: {name} is {one} and {other}"
            )
    return next(iter(clusters), None) or new_cluster_id(), next(iter(nodes), 1)
