"""The metadata of a log directory, to be changed by the process that holds the directory's lock.

A change is one batch at the end of the log, fsynced. When the log above the newest snapshot has become long,
a new snapshot replaces it: written aside, fsynced, read back, renamed. The log then starts again at its end.

If a write or an fsync fails, what is on the disk is not known: nothing more is written until the directory is
opened again.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from stratalog.errors import CorruptionError, LogFailedError, StorageError
from stratalog.metadata.batches import metadata_batches
from stratalog.metadata.image import MetadataImage
from stratalog.metadata.reader import MetadataState, metadata_stamp, read_metadata
from stratalog.metadata.records import MetadataRecord, UnsupportedMetadataError
from stratalog.metadata.snapshot import (
    SnapshotId,
    decode_snapshot,
    encode_snapshot,
    parse_snapshot_name,
    snapshot_file_name,
)
from stratalog.storage.files.failed_sync import note_failed_sync, rewrite
from stratalog.storage.files.filesystem import FileSystem, WritableFile
from stratalog.storage.names import (
    FAILED_SYNC,
    METADATA_DIR,
    log_file_name,
    parse_partition_file,
)

__all__ = ["MetadataStore"]

#: Kafka writes a snapshot after 20 MiB of records.
_LOG_BYTES_MAX: Final = 16 << 20
_PART_SUFFIX: Final = ".part"  # what Kafka ignores, and deletes
_log: Final = logging.getLogger("stratalog.metadata")


class MetadataStore:
    """The metadata of one log directory. Not for several threads at once."""

    def __init__(
        self, file_system: FileSystem, root: str, *, log_bytes_max: int = _LOG_BYTES_MAX
    ) -> None:
        self._file_system = file_system
        self._root = root
        self._folder = os.path.join(root, METADATA_DIR)
        self._log_bytes_max = log_bytes_max
        self._failure: StorageError | None = None
        self._is_prepared = False
        self.state: MetadataState | None = None

    @property
    def image(self) -> MetadataImage | None:
        """What the metadata says; None if there is none."""
        return None if self.state is None else self.state.image

    def read(self) -> None:
        """Read the metadata, as it is now."""
        self.state = read_metadata(self._file_system, self._root)

    def has_changed(self) -> bool:
        """Return whether another process has changed the metadata since it was read."""
        known = () if self.state is None else self.state.stamp
        return metadata_stamp(self._file_system, self._root) != known

    def prepare(self) -> None:
        """Make sure that what was read is on the disk, before anything is built on it: the process that wrote
        it may have been killed before it was fsynced. A torn tail is truncated."""
        state = self.state
        if self._is_prepared or state is None or not state.segments or state.is_log_stale:
            return
        note = os.path.join(self._folder, FAILED_SYNC)
        is_noted = self._file_system.stat(note) is not None
        with self._writing():
            file = self._file_system.open_writable(state.segments[-1][1])
            try:
                if state.torn_bytes:
                    _log.warning(
                        "%s: truncated %d bytes after offset %d: a batch that a crash left incomplete",
                        state.segments[-1][1], state.torn_bytes, state.next_offset - 1,
                    )  # fmt: skip
                    file.truncate(state.end_position)
                    state.torn_bytes = 0
                if is_noted:
                    rewrite(file, state.end_position)
                file.sync()
            finally:
                file.close()
            self._file_system.sync_dir(self._folder)
            if is_noted:
                self._file_system.unlink(note)
        self._is_prepared = True

    def create(self, image: MetadataImage, timestamp: int) -> None:
        """Write the first metadata of a directory: a snapshot. What ``kafka-storage format`` left is replaced
        by it."""
        count = sum(1 for _ in image.records())
        with self._writing():
            self._make_folder()
        self.state = MetadataState(image=image)
        self._put_snapshot(SnapshotId(0, count + 1), timestamp)

    def _make_folder(self) -> None:
        try:
            self._file_system.make_dir(self._folder)
        except StorageError as error:
            if error.errno != errno.EEXIST:  # as after ``kafka-storage format``
                raise
        self._file_system.sync_dir(self._root)

    def append(self, records: Sequence[MetadataRecord], timestamp: int) -> None:
        """Append a change: all of the records, or none. They are on the disk when this returns."""
        self._check()
        state = self.state
        assert state is not None
        self.prepare()
        if state.is_log_stale:
            self._remove_below(state)
        batch = metadata_batches(
            records, base_offset=state.next_offset, epoch=state.epoch, timestamp=timestamp, one=True
        )
        with self._writing():
            is_new = not state.segments
            if is_new:
                path = os.path.join(self._folder, log_file_name(state.next_offset))
                state.segments = [(state.next_offset, path)]
                state.end_position = 0
            file = self._file_system.open_writable(state.segments[-1][1], create=is_new)
            try:
                self._write(file, state.end_position, batch)
            finally:
                file.close()
            if is_new:
                self._file_system.sync_dir(self._folder)
        state.end_position += len(batch)
        state.log_bytes += len(batch)
        state.next_offset += len(records)
        for record in records:
            state.image.apply(record)
        state.stamp = metadata_stamp(self._file_system, self._root)

    def _write(self, file: WritableFile, position: int, batch: bytes) -> None:
        try:
            file.write_at(position, batch)
            file.sync()
        except BaseException:
            # Whether the batch is on the disk is not known. Without it the change did not happen.
            with suppress(StorageError):
                file.truncate(position)
            note_failed_sync(self._file_system, os.path.join(self._folder, FAILED_SYNC))
            raise

    def snapshot_if_due(self, timestamp: int) -> bool:
        """Replace a log that has become long by a snapshot; return whether that was done. An image with
        records that are not known here is not written."""
        state = self.state
        if state is None or self._failure is not None or state.image.unknown:
            return False
        if state.log_bytes < max(self._log_bytes_max, 2 * state.snapshot_bytes):
            return False
        if state.has_open_transaction:
            return False
        self._put_snapshot(SnapshotId(state.epoch, state.next_offset), timestamp)
        return True

    def _put_snapshot(self, snapshot: SnapshotId, timestamp: int) -> None:
        self._check()
        state = self.state
        assert state is not None
        data = encode_snapshot(state.image, snapshot.epoch, timestamp)
        path = os.path.join(self._folder, snapshot_file_name(snapshot))
        with self._writing():
            file = self._file_system.open_writable(path + _PART_SUFFIX, create=True)
            try:
                file.truncate(0)
                file.write_at(0, data)
                file.sync()
                stored = file.read(0, len(data) + 1)
            finally:
                file.close()
            if stored != data or not decode_snapshot(stored):
                raise CorruptionError(
                    "metadata_snapshot", "what was read back is not what was written", path=path
                )
            self._file_system.rename(path + _PART_SUFFIX, path)
            self._file_system.sync_dir(self._folder)
        state.snapshot, state.snapshot_bytes = snapshot, len(data)
        state.epoch, state.next_offset = snapshot
        state.image.removed_topic_ids.clear()
        self._remove_below(state)
        state.stamp = metadata_stamp(self._file_system, self._root)

    def _remove_below(self, state: MetadataState) -> None:
        """Remove segments and snapshots that the newest snapshot replaces. If that fails, they do no harm."""
        assert state.snapshot is not None
        with self._writing():
            for entry in self._file_system.list_dir(self._folder):
                older = parse_snapshot_name(entry.name)
                file = parse_partition_file(entry.name)
                if (older is not None and older < state.snapshot) or (
                    file is not None and file.offset <= state.snapshot.end_offset
                ):
                    self._file_system.unlink(os.path.join(self._folder, entry.name))
            self._file_system.sync_dir(self._folder)
        state.segments, state.end_position, state.log_bytes = [], 0, 0
        state.torn_bytes, state.is_log_stale = 0, False

    # Failing.

    def check_writable(self) -> None:
        """Raise an error if the metadata cannot be changed."""
        self._check()
        if self.state is not None and self.state.image.unknown:
            kinds = ", ".join(sorted({str(each.type_id) for each in self.state.image.unknown}))
            raise UnsupportedMetadataError(
                f"{self._folder}: the metadata has records of types that are not known here ({kinds}): it "
                "can be read, and changed by a version of Stratalog that knows them"
            )

    def _check(self) -> None:
        if self._failure is not None:
            raise LogFailedError(
                f"an earlier change of the metadata failed ({self._failure.detail}): open the log directory "
                "again before changing topics",
                path=self._folder,
            )

    def _writing(self) -> _Writing:
        return _Writing(self)

    def fail(self, error: StorageError) -> None:
        self._failure = error


class _Writing:
    """While the disk is changed: an error makes the store fail."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StorageError):
            self._store.fail(error)
