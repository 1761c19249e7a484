"""Open the last segment of a log for writing, its index files at their full size again."""

from __future__ import annotations

from contextlib import suppress

from stratalog.clock import Clock
from stratalog.errors import StratalogError
from stratalog.storage.files.filesystem import FileSystem, ReadableFile, WritableFile
from stratalog.storage.names import FileKind
from stratalog.storage.segment.active import ActiveSegment
from stratalog.storage.segment.find import places_from
from stratalog.storage.segment.sealed import SealedSegment
from stratalog.storage.segment.segment import learn_times, read_aborted
from stratalog.storage.segment.sparse_index import SparseIndex
from stratalog.types import Bytes

__all__ = ["activate", "overwrite"]


def activate(file_system: FileSystem, clock: Clock, segment: SealedSegment) -> ActiveSegment:
    """Make the active segment of one that was sealed, or was just recovered."""
    limits = segment.limits
    log = file_system.open_writable(segment.path(FileKind.LOG))
    index = SparseIndex(
        segment.base_offset,
        limits,
        bytearray(segment.index.offsets),
        bytearray(segment.index.times),
    )
    if segment.is_walked:
        index.note_times(segment.index.max_timestamp, segment.index.max_timestamp_offset)
    else:
        learn_times(log, index, segment.size_bytes)
    # The segment's own file is not closed: somebody may be reading it.
    aborted = read_aborted(file_system, segment.path(FileKind.TXN_INDEX), segment)
    kinds = (FileKind.OFFSET_INDEX, index.offsets), (FileKind.TIME_INDEX, index.times)
    files = [_holding(file_system, segment.path(kind), entries) for kind, entries in kinds]
    active = ActiveSegment(
        file_system,
        segment.folder,
        segment.base_offset,
        limits,
        log=log,
        offset_file=files[0],
        time_file=files[1],
        index=index,
        size_bytes=segment.size_bytes,
        aborted=aborted,
        created_ms=clock.now_ms(),
        first_timestamp=_first_timestamp(log, segment.size_bytes),
    )
    active.mark_written()
    _grow_indexes(active)
    return active


def _grow_indexes(active: ActiveSegment) -> None:
    """The last step: whoever finds the index files so long and no one at work takes zeros for entries."""
    try:
        active.grow_indexes()
    except BaseException:
        with suppress(StratalogError):
            active.finish()
        raise


def _holding(file_system: FileSystem, path: str, entries: Bytes) -> WritableFile:
    """An index file that holds these entries. After an orderly stop it does already."""
    found = file_system.stat(path)
    if found is None or found.size != len(entries):
        return overwrite(file_system, path, entries)
    file = file_system.open_writable(path)
    held = bytearray(len(entries))
    file.read_into(0, memoryview(held))
    if held != entries:
        file.write_at(0, entries)
    return file


def overwrite(file_system: FileSystem, path: str, data: Bytes) -> WritableFile:
    """A file with these bytes, in the place of what was there. Not synced yet."""
    is_there = file_system.stat(path) is not None
    file = file_system.open_writable(path, create=not is_there)
    if file.size() != len(data):
        file.truncate(len(data))
    if data:
        file.write_at(0, data)
    return file


def _first_timestamp(log: ReadableFile, size_bytes: int) -> int | None:
    first = next(places_from(log, 0, size_bytes), None)
    return None if first is None else first.max_timestamp
