"""One log directory: its lock, its identity, its checkpoints, and whether it was left in order.

Whoever writes holds the lock, ours or Kafka's. The marker of an orderly stop is removed before any log is
opened and written after all were closed well: a crash in between is never taken for an orderly stop.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime

from stratalog.clock import Clock
from stratalog.errors import CorruptionError, StorageError, UsageError
from stratalog.manager.clean_shutdown import encode_clean_shutdown
from stratalog.manager.meta_properties import (
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)
from stratalog.storage.checkpoints import decode_offsets, encode_offsets
from stratalog.storage.filesystem import FileLock, FileSystem, replace_file
from stratalog.storage.kafka_uuid import format_uuid, random_uuid
from stratalog.storage.names import (
    CLEAN_SHUTDOWN,
    FOREIGN_ROOT_DIRS,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_CHECKPOINT,
    TEMPORARY_SUFFIX,
    is_marked_partition_dir,
    parse_partition_dir,
    partition_dir_name,
)
from stratalog.types import TopicPartition

__all__ = ["Checkpoint", "LogDirectory", "read_small_file"]

_SMALL_FILE_MAX = 64 << 20


class Checkpoint:
    """One of the offset files in a root: read once, replaced as a whole."""

    def __init__(self, file_system: FileSystem, root: str, name: str) -> None:
        self._file_system = file_system
        self._path = os.path.join(root, name)
        self._written: dict[TopicPartition, int] | None = None
        #: Why it could not be read, where it could not: Kafka, too, goes on without.
        self.damage: CorruptionError | None = None
        self.offsets: dict[TopicPartition, int] = self._read()

    def _read(self) -> dict[TopicPartition, int]:
        data = read_small_file(self._file_system, self._path)
        if data is None:
            return {}
        try:
            offsets = decode_offsets(data)
        except CorruptionError as error:
            self.damage = error.located(path=self._path)
            return {}
        self._written = dict(offsets)
        return offsets

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file, unless it says so already."""
        self.offsets = dict(offsets)
        if self.offsets != self._written:
            data = encode_offsets(self.offsets)
            replace_file(self._file_system, self._path, self._path + TEMPORARY_SUFFIX, data)
            self._written = dict(self.offsets)


class LogDirectory:
    """A root that is open, for writing unless ``read_only``."""

    def __init__(
        self, root: str, file_system: FileSystem, clock: Clock, *, read_only: bool = False
    ) -> None:
        self.root = root
        self.read_only = read_only
        self._file_system = file_system
        self._clock = clock
        self._lock: FileLock | None = None
        found = self._look()
        if not read_only:
            self._lock = file_system.lock(os.path.join(root, LOCK))
        try:
            self.meta = self._take_meta()
            self.recovery_points = Checkpoint(file_system, root, RECOVERY_CHECKPOINT)
            self.log_starts = Checkpoint(file_system, root, LOG_START_CHECKPOINT)
            self.high_watermarks = Checkpoint(file_system, root, HIGH_WATERMARK_CHECKPOINT)
            self.was_clean = CLEAN_SHUTDOWN in found
            if self.was_clean and not read_only:
                file_system.unlink(os.path.join(root, CLEAN_SHUTDOWN))
                file_system.sync_dir(root)
        except BaseException:
            self.release()
            raise

    def _look(self) -> set[str]:
        """The names in the root, which must be a log directory's, or an empty folder's."""
        try:
            entries = self._file_system.list_dir(self.root)
        except StorageError:
            if self.read_only or self._file_system.stat(self.root) is not None:
                raise
            self._file_system.make_dir(self.root)
            self._file_system.sync_dir(os.path.dirname(os.path.abspath(self.root)))
            entries = []
        names = {entry.name for entry in entries}
        is_log_directory = META_PROPERTIES in names or any(
            entry.is_dir and parse_partition_dir(entry.name) is not None for entry in entries
        )
        others = names - {LOCK}
        if others and not is_log_directory:
            raise UsageError(
                f"{self.root} is not a log directory, and not empty: it holds {min(others)!r}, and "
                "neither meta.properties nor a partition's folder"
            )
        return names

    def _take_meta(self) -> MetaProperties | None:
        path = os.path.join(self.root, META_PROPERTIES)
        data = read_small_file(self._file_system, path)
        if data is not None:
            try:
                return decode_meta_properties(data)
            except CorruptionError as error:
                raise error.located(path=path) from None
        if self.read_only:
            return None
        meta = MetaProperties(
            cluster_id=format_uuid(random_uuid()), node_id=1, directory_id=random_uuid(), version=1
        )
        when = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        text = encode_meta_properties(meta, written=when.strftime("%a %b %d %H:%M:%S UTC %Y"))
        replace_file(self._file_system, path, path + TEMPORARY_SUFFIX, text)
        return meta

    def partitions(self) -> list[TopicPartition]:
        """Every partition that has its folder here; those set aside by Kafka are left out."""
        found = []
        for entry in self._file_system.list_dir(self.root):
            if not entry.is_dir or entry.name in FOREIGN_ROOT_DIRS:
                continue
            place = parse_partition_dir(entry.name)
            if place is not None and not is_marked_partition_dir(entry.name):
                found.append(place)
        return sorted(found)

    def folder(self, place: TopicPartition) -> str:
        return os.path.join(self.root, partition_dir_name(place))

    def mark_clean(self) -> None:
        """Everything here was closed well."""
        path = os.path.join(self.root, CLEAN_SHUTDOWN)
        replace_file(self._file_system, path, path + TEMPORARY_SUFFIX, encode_clean_shutdown())

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def read_small_file(file_system: FileSystem, path: str) -> bytes | None:
    """A file as a whole; None where there is none."""
    found = file_system.stat(path)
    if found is None:
        return None
    if found.size > _SMALL_FILE_MAX:
        raise CorruptionError("file_size", f"{found.size} bytes are too many for it", path=path)
    file = file_system.open_readable(path)
    try:
        data = bytearray(found.size)
        return bytes(data[: file.read_into(0, memoryview(data))])
    finally:
        file.close()
