"""The entries of a segment's two sparse indexes: how they are laid out, decoded and searched.

    offset index    int32 offset above the segment's first    int32 position in the data file
    time index      int64 timestamp                           int32 offset above the segment's first

The kernel searches the same layouts in one call where a lookup needs no more than a position
(``find_places``, ``find_time_entry``).
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, NamedTuple

from stratalog.records import kernel
from stratalog.records.layout import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from stratalog.types import Bytes

__all__ = [
    "OFFSET_KEY",
    "POSITION_KEY",
    "TIMESTAMP_KEY",
    "TIME_OFFSET_KEY",
    "EntryKey",
    "OffsetEntry",
    "TimeEntry",
    "encode_time_entry",
    "offset_entry_at",
    "slot_up_to",
    "time_entry_at",
]

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")

assert _OFFSET_ENTRY.size == OFFSET_ENTRY_SIZE
assert _TIME_ENTRY.size == TIME_ENTRY_SIZE


class OffsetEntry(NamedTuple):
    """The last offset of a batch, and where the batch starts.

    Brokers before 4.0 write the last offset of an append with the position of its first batch, those before
    0.11 its first offset."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """The largest timestamp up to here, and the last offset of the first batch that carries it."""

    timestamp: int
    offset: int


class EntryKey(NamedTuple):
    """A field that the entries of an index are sorted by."""

    entry_size: int
    at: int
    size: int

    @property
    def largest(self) -> int:
        return int((1 << (8 * self.size - 1)) - 1)


OFFSET_KEY: Final = EntryKey(OFFSET_ENTRY_SIZE, 0, 4)
POSITION_KEY: Final = EntryKey(OFFSET_ENTRY_SIZE, 4, 4)
TIMESTAMP_KEY: Final = EntryKey(TIME_ENTRY_SIZE, 0, 8)
TIME_OFFSET_KEY: Final = EntryKey(TIME_ENTRY_SIZE, 8, 4)


def offset_entry_at(
    entries: Bytes, slot: int, base_offset: int, *, guarded: bool = False
) -> OffsetEntry:
    """Decode an entry of an offset index. ``guarded``: the entries are a mapped file, and BufferError is
    raised if it was cut."""
    relative, position = _fields(_OFFSET_ENTRY, entries, slot, guarded)
    return OffsetEntry(base_offset + relative, position)


def time_entry_at(
    entries: Bytes, slot: int, base_offset: int, *, guarded: bool = False
) -> TimeEntry:
    """Decode an entry of a time index, in the same way."""
    timestamp, relative = _fields(_TIME_ENTRY, entries, slot, guarded)
    return TimeEntry(timestamp, base_offset + relative)


def encode_time_entry(entry: TimeEntry, base_offset: int) -> bytes:
    """Encode an entry of a time index."""
    return _TIME_ENTRY.pack(entry.timestamp, entry.offset - base_offset)


def slot_up_to(entries: Bytes, key: EntryKey, target: int, *, guarded: bool = False) -> int:
    """Return the number of the last entry whose key is not above ``target``, -1 if there is none."""
    target = min(max(target, -1), key.largest)
    count = len(entries) // key.entry_size
    return kernel.search_entries(entries, count, *key, target, guarded=guarded)


def _fields(layout: Struct, entries: Bytes, slot: int, guarded: bool) -> tuple[Any, ...]:
    at = slot * layout.size
    if guarded:
        entries, at = kernel.copy(entries, at, at + layout.size, guarded=True), 0
    return layout.unpack_from(entries, at)
