"""Leaves a sealed segment out by its time index, where the log itself agrees with what the index says.

A segment that was sealed in order ends its time index with its largest timestamp. But an index has no CRC:
it may be left from a crash, belong to another log, be cut or flipped. So the entry is believed only where the
batch that it names carries that very timestamp, and no batch behind that a later one. Since times rise, that
batch mostly lies near the end, and little is read. Whatever is in doubt is read whole.
"""

from __future__ import annotations

from typing import Final

from stratalog.errors import CorruptionError, StorageError
from stratalog.inspect.file.span import SegmentSpan
from stratalog.records.layout import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.names import FileKind, sidecar_path
from stratalog.storage.segment.find import places_from
from stratalog.storage.segment.index_entries import (
    OFFSET_KEY,
    TimeEntry,
    offset_entry_at,
    slot_up_to,
    time_entry_at,
)

__all__ = ["ends_before"]

#: How much of a segment's end is read for the proof.
_SEARCH_BYTES_MAX: Final = 1 << 20
#: How many entries of the offset index are looked at: at Kafka's interval they reach back twice as far.
_LAST_ENTRIES: Final = 512


def ends_before(span: SegmentSpan, time_ms: int, file_system: FileSystem | None = None) -> bool:
    """Whether every timestamp of a segment that is followed by another is proved to lie before a time."""
    base_offset, next_offset = span.base_offset, span.next_offset
    times = sidecar_path(span.path, FileKind.TIME_INDEX)
    offsets = sidecar_path(span.path, FileKind.OFFSET_INDEX)
    if base_offset is None or next_offset is None or times is None or offsets is None:
        return False
    files = file_system or OsFileSystem()
    try:
        largest = _largest(files, times, base_offset)
        if largest is None or largest.timestamp >= time_ms:
            return False
        if not base_offset <= largest.offset < next_offset:
            return False
        position = _position_before(files, offsets, largest.offset - base_offset)
        return _is_largest(files, span.path, position, largest)
    except (StorageError, CorruptionError):
        return False


def _largest(files: FileSystem, path: str, base_offset: int) -> TimeEntry | None:
    """Return the last entry of a time index; None if it does not rise above the entry before it, as in the
    zeros that an index is preallocated with."""
    file = files.open_readable(path)
    try:
        count, rest = divmod(file.size(), TIME_ENTRY_SIZE)
        if count == 0 or rest:
            return None
        first = max(count - 2, 0)
        data = file.read(first * TIME_ENTRY_SIZE, (count - first) * TIME_ENTRY_SIZE)
    finally:
        file.close()
    if len(data) < (count - first) * TIME_ENTRY_SIZE:
        return None  # trimmed meanwhile
    last = time_entry_at(data, count - first - 1, base_offset)
    if count > 1:
        before = time_entry_at(data, 0, base_offset)
        if last.timestamp <= before.timestamp or last.offset < before.offset:
            return None
    return last


def _is_largest(files: FileSystem, path: str, position: int, entry: TimeEntry) -> bool:
    """Whether the batch that holds the entry's offset has its timestamp as its largest, and no batch after
    it a later one: then even an index that was cut short is right."""
    timestamp, offset = entry
    file = files.open_readable(path)
    try:
        size = file.size()
        if size - position > _SEARCH_BYTES_MAX:
            return False
        batches = [b for b in places_from(file, position, size) if b.last_offset >= offset]
    finally:
        file.close()
    if not batches or batches[0].base_offset > offset or batches[0].max_timestamp != timestamp:
        return False
    return max(batch.max_timestamp for batch in batches) == timestamp


def _position_before(files: FileSystem, path: str, relative: int) -> int:
    """Return the position of the last entry of an offset index that is not above ``relative``, among its
    last entries; 0 if there is none, for what lies before those is too far from the end."""
    file = files.open_readable(path)
    try:
        count = file.size() // OFFSET_ENTRY_SIZE
        first = max(count - _LAST_ENTRIES, 0)
        data = file.read(first * OFFSET_ENTRY_SIZE, (count - first) * OFFSET_ENTRY_SIZE)
    finally:
        file.close()
    slot = slot_up_to(data, OFFSET_KEY, relative)
    return 0 if slot < 0 else max(offset_entry_at(data, slot, 0).position, 0)
