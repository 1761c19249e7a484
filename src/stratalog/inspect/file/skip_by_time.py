"""Leaves a sealed segment out by its time index, where the log itself agrees with what the index says.

A segment that was sealed in order ends its time index with its largest timestamp. But an index has no CRC:
it may be left from a crash, belong to another log, be cut or flipped. So the entry is believed only where the
batch that it names carries that very timestamp, and no batch behind that a later one. Since times rise, that
batch mostly lies near the end, and little is read. Whatever is in doubt is read whole.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from stratalog.errors import CorruptionError, StorageError
from stratalog.inspect.file.span import SegmentSpan
from stratalog.records import kernel
from stratalog.records.layout import OFFSET_ENTRY_SIZE
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem, ReadableFile
from stratalog.storage.names import FileKind, sidecar_path
from stratalog.storage.segment.find import places_from

__all__ = ["ends_before"]

_TIME_ENTRY: Final = Struct(">qi")
_OFFSET_ENTRY: Final = Struct(">ii")
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
        largest = _largest(files, times)
        if largest is None or largest.timestamp >= time_ms:
            return False
        offset = base_offset + largest.relative_offset
        if not base_offset <= offset < next_offset:
            return False
        position = _position_before(files, offsets, largest.relative_offset)
        return _is_largest(files, span.path, position, offset, largest.timestamp)
    except (StorageError, CorruptionError):
        return False


class _TimeEntry(NamedTuple):
    timestamp: int
    relative_offset: int


def _largest(files: FileSystem, path: str) -> _TimeEntry | None:
    """The last entry of a time index; None where it does not rise above the one before, as in the
    zeros that are set aside for more."""
    file = files.open_readable(path)
    try:
        count, rest = divmod(file.size(), _TIME_ENTRY.size)
        if count == 0 or rest:
            return None
        last = _TimeEntry(*_entry(file, _TIME_ENTRY, count - 1))
        if count > 1:
            before = _TimeEntry(*_entry(file, _TIME_ENTRY, count - 2))
            if last.timestamp <= before.timestamp or last.relative_offset < before.relative_offset:
                return None
    finally:
        file.close()
    return last


def _is_largest(files: FileSystem, path: str, position: int, offset: int, timestamp: int) -> bool:
    """Whether the batch of a log that holds the offset has the timestamp as its largest, and none behind
    it has a later one: then an index that was cut short told the truth, too."""
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
    """The position of the last entry of an offset index that is not behind ``relative``, among its last
    entries: what lies before those is too far from the end; 0 then."""
    file = files.open_readable(path)
    try:
        count = file.size() // OFFSET_ENTRY_SIZE
        first = max(count - _LAST_ENTRIES, 0)
        data = file.read(first * OFFSET_ENTRY_SIZE, (count - first) * OFFSET_ENTRY_SIZE)
    finally:
        file.close()
    held = len(data) // OFFSET_ENTRY_SIZE
    slot = kernel.search_entries(data, held, OFFSET_ENTRY_SIZE, 0, 4, relative)
    if slot < 0:
        return 0
    position: int = _OFFSET_ENTRY.unpack_from(data, slot * OFFSET_ENTRY_SIZE)[1]
    return max(position, 0)


def _entry(file: ReadableFile, layout: Struct, number: int) -> tuple[int, int]:
    data = bytearray(layout.size)
    with memoryview(data) as whole:
        file.read_into(number * layout.size, whole)
    first, second = layout.unpack(data)
    return first, second
