"""Read the metadata of a log directory: the newest snapshot, and the log above it.

Nothing is changed, and no lock is needed: a writer adds whole batches at the end of the log, and puts whole
snapshots in place under new names. If it puts one in place meanwhile, and removes what came before, reading
starts again.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from typing import Final

from stratalog.errors import CorruptionError, StorageError
from stratalog.metadata.batches import AnyRecord, DecodedRegion, decode_region
from stratalog.metadata.image import MetadataImage
from stratalog.metadata.records import (
    KRaftRecord,
    MetadataRecord,
    RecordType,
    UnsupportedMetadataError,
)
from stratalog.metadata.snapshot import (
    SnapshotId,
    decode_snapshot,
    parse_snapshot_name,
    snapshot_file_name,
)
from stratalog.records.columns import WalkEnd
from stratalog.records.layout import Ending
from stratalog.records.scan import ScanEnd
from stratalog.storage.files.filesystem import FileStat, FileSystem
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.names import (
    BOOTSTRAP_CHECKPOINT,
    METADATA_DIR,
    parse_segment_name,
)
from stratalog.storage.segment.tail_verdict import judge_tail

__all__ = ["MetadataState", "MetadataVersionStamp", "metadata_stamp", "read_metadata"]

#: As much as ``metadata.log.segment.bytes`` allows by default.
_FILE_SIZE_MAX: Final = 1 << 30
_TRIES: Final = 16
_DAMAGED: Final = (
    "restore the folder from a backup, and do not start Kafka on it: Kafka would truncate the log here, and "
    "rename the partitions of topics that it forgets to stray"
)

#: Changes whenever the metadata does: names, sizes and times of the files.
MetadataVersionStamp = tuple[tuple[str, FileStat | None], ...]


@dataclass(slots=True)
class MetadataState:
    """The metadata of a directory as it was read."""

    image: MetadataImage = field(default_factory=MetadataImage)
    snapshot: SnapshotId | None = None
    snapshot_bytes: int = 0
    #: The offset and the epoch of the next record.
    next_offset: int = 0
    epoch: int = 0
    #: Segments of the log, by base offset, and how far the last one holds whole batches.
    segments: list[tuple[int, str]] = field(default_factory=list)
    end_position: int = 0
    log_bytes: int = 0
    #: Bytes after the last whole batch: what a crash left of one.
    torn_bytes: int = 0
    #: Whether the newest snapshot lies beyond the log, which Kafka then drops.
    is_log_stale: bool = False
    #: Whether a metadata transaction was begun and not ended. Its records do not count.
    has_open_transaction: bool = False
    #: Whether there is only what ``kafka-storage format`` wrote, and Kafka has never started on it.
    is_bootstrap: bool = False
    stamp: MetadataVersionStamp = ()


def metadata_stamp(file_system: FileSystem, root: str) -> MetadataVersionStamp:
    """Return what changes whenever the metadata of a directory does; empty if it has none."""
    folder = os.path.join(root, METADATA_DIR)
    return tuple(
        (name, file_system.stat(os.path.join(folder, name)))
        for name in _names(file_system, folder)
        if parse_segment_name(name) is not None or parse_snapshot_name(name) is not None
    )


def read_metadata(file_system: FileSystem, root: str) -> MetadataState | None:
    """Read the metadata of a log directory; None if it has none.

    CorruptionError if it is damaged, with what to do; UnsupportedMetadataError if it is newer than this
    version of Stratalog.
    """
    for _ in range(_TRIES):
        stamp = metadata_stamp(file_system, root)
        try:
            state = _read(file_system, root)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            continue  # replaced by a newer snapshot meanwhile
        except CorruptionError:
            if stamp == metadata_stamp(file_system, root):
                raise
            continue
        if state is None or _names_of(stamp) == _names_of(metadata_stamp(file_system, root)):
            if state is not None:
                # Taken before: what was appended meanwhile is found at the next look.
                state.stamp = stamp
            return state
    raise StorageError(
        "the metadata changes faster than it can be read: try again",
        path=os.path.join(root, METADATA_DIR),
    )


def _names_of(stamp: MetadataVersionStamp) -> list[str]:
    return [name for name, _ in stamp]


def _names(file_system: FileSystem, folder: str) -> list[str]:
    try:
        return sorted(each.name for each in file_system.list_dir(folder) if each.is_file)
    except StorageError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return []
        raise


def _read(file_system: FileSystem, root: str) -> MetadataState | None:
    folder = os.path.join(root, METADATA_DIR)
    names = _names(file_system, folder)
    state = MetadataState()
    snapshots = [found for name in names if (found := parse_snapshot_name(name)) is not None]
    if snapshots:
        _apply_snapshot(file_system, folder, max(snapshots), state)
    segments = [
        (int(segment.base_offset), os.path.join(folder, name))
        for name in names
        if (segment := parse_segment_name(name)) is not None and not segment.is_v07
    ]
    _apply_log(file_system, segments, state)
    if state.image.metadata_version is None:
        data = _content(file_system, os.path.join(root, BOOTSTRAP_CHECKPOINT))
        if data is not None:
            state.is_bootstrap = True
            _apply_file(data, os.path.join(root, BOOTSTRAP_CHECKPOINT), state.image)
    if state.image.metadata_version is None and (state.image.topics or state.next_offset > 0):
        raise CorruptionError(
            "metadata_version", "the metadata has records, and no metadata.version", path=folder,
            advice="restore the folder from a backup: Kafka does not start on it either",
        )  # fmt: skip
    has_any = snapshots or segments or state.is_bootstrap
    return state if has_any else None


def _content(file_system: FileSystem, path: str) -> bytes | None:
    return read_small_file(file_system, path, size_max=_FILE_SIZE_MAX)


def _apply_snapshot(
    file_system: FileSystem, folder: str, snapshot: SnapshotId, state: MetadataState
) -> None:
    path = os.path.join(folder, snapshot_file_name(snapshot))
    data = _content(file_system, path)
    if data is None:
        raise StorageError("gone while it was read", path=path, errno=errno.ENOENT)
    _apply_file(data, path, state.image)
    state.snapshot, state.snapshot_bytes = snapshot, len(data)
    state.epoch, state.next_offset = snapshot


def _apply_file(data: bytes, path: str, image: MetadataImage) -> None:
    try:
        for record in decode_snapshot(data):
            image.apply(record)
    except CorruptionError as error:
        raise error.located(path=path) from None
    except UnsupportedMetadataError as error:
        raise UnsupportedMetadataError(f"{path}: {error}") from None


def _apply_log(
    file_system: FileSystem, segments: list[tuple[int, str]], state: MetadataState
) -> None:
    """Apply the records of the log that the snapshot does not contain."""
    state.segments = sorted(segments)
    if not state.segments:
        return
    start, expected = state.next_offset, state.segments[0][0]
    epoch, records = -1, []
    for number, (base_offset, path) in enumerate(state.segments):
        if base_offset != expected:
            raise _missing(path, expected, base_offset)
        region = _decode_segment(
            file_system, base_offset, path, state, start, number == len(state.segments) - 1
        )
        records += region.records
        if region.next_offset is not None and region.epoch is not None:
            expected, epoch = region.next_offset, region.epoch
    if state.snapshot is not None and state.snapshot > (epoch, expected):
        state.is_log_stale = True  # Kafka drops such a log as a whole
        return
    if state.segments[0][0] > start:
        raise _missing(state.segments[0][1], start, state.segments[0][0])
    held: list[AnyRecord] | None = None
    for record in records:
        held = _apply_record(state.image, record, held)
    state.has_open_transaction = held is not None
    state.next_offset, state.epoch = expected, max(epoch, state.epoch)


def _decode_segment(
    file_system: FileSystem,
    base_offset: int,
    path: str,
    state: MetadataState,
    start: int,
    is_last: bool,
) -> DecodedRegion:
    data = _content(file_system, path)
    if data is None:
        raise StorageError("gone while it was read", path=path, errno=errno.ENOENT)
    try:
        region = decode_region(data, base_offset=base_offset, start=start)
    except CorruptionError as error:
        raise error.located(path=path) from None
    except UnsupportedMetadataError as error:
        raise UnsupportedMetadataError(f"{path}: {error}") from None
    state.log_bytes += len(data)
    state.end_position = region.end.position
    if region.end.ending != Ending.END:
        last = base_offset if region.next_offset is None else region.next_offset
        if not is_last or not _is_torn_tail(file_system, path, region.end, len(data), last):
            damage = region.end.error
            assert damage is not None
            raise CorruptionError(
                damage.reason,
                damage.detail,
                path=path,
                position=region.end.position,
                advice=_DAMAGED,
            )
        state.torn_bytes = len(data) - region.end.position
    return region


def _is_torn_tail(
    file_system: FileSystem, path: str, end: ScanEnd, size: int, next_offset: int
) -> bool:
    """Return whether the bytes after the last whole batch are what a crash leaves of the next one."""
    file = file_system.open_readable(path)
    try:
        stopped = WalkEnd(end.position, end.ending, end.reason)
        verdict = judge_tail(file, stopped, size, next_offset)
    finally:
        file.close()
    return verdict.may_cut and verdict.sound_position is None


def _apply_record(
    image: MetadataImage, record: AnyRecord, held: list[AnyRecord] | None
) -> list[AnyRecord] | None:
    """Apply a record, or hold it back while a metadata transaction is open; return what is held back, None if
    none is open."""
    kind = record.type if isinstance(record, MetadataRecord) else None
    if kind == RecordType.BEGIN_TRANSACTION:
        return []
    if kind == RecordType.ABORT_TRANSACTION:
        return None
    if kind == RecordType.END_TRANSACTION:
        for each in held or ():
            image.apply(each)
        return None
    if held is None or isinstance(record, KRaftRecord):
        image.apply(record)
    else:
        held.append(record)
    return held


def _missing(path: str, expected: int, found: int) -> CorruptionError:
    return CorruptionError(
        "metadata_gap", f"records {expected} to {found - 1} of the metadata log are missing", path=path,
        advice="restore the folder from a backup",
    )  # fmt: skip
