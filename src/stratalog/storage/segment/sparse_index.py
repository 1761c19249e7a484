"""The two sparse indexes of a segment, as entries in memory: offset to position, and time to offset.

One entry for every ``index.interval.bytes`` of log. The rule that makes them is the kernel's
(``note_batches``), and the same for an append, a recovery and a rebuild. What is looked up here only says
where to begin reading: a missing entry costs time, never an answer.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

from stratalog.records import kernel
from stratalog.records.layout import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, IndexState
from stratalog.storage.segment.index_entries import (
    OFFSET_KEY,
    POSITION_KEY,
    TIME_OFFSET_KEY,
    EntryKey,
    OffsetEntry,
    TimeEntry,
    encode_time_entry,
    offset_entry_at,
    slot_up_to,
    time_entry_at,
)
from stratalog.types import NO_TIMESTAMP

__all__ = ["IndexLimits", "SparseIndex"]

# Slots of the kernel's state, as plain integers: they are used on every append.
_BASE_OFFSET: Final = int(IndexState.BASE_OFFSET)
_INTERVAL: Final = int(IndexState.INTERVAL)
_BYTES_SINCE: Final = int(IndexState.BYTES_SINCE)
_MAX_TIMESTAMP: Final = int(IndexState.MAX_TIMESTAMP)
_MAX_TIMESTAMP_OFFSET: Final = int(IndexState.MAX_TIMESTAMP_OFFSET)
_LAST_TIME: Final = int(IndexState.LAST_TIME)
_LAST_TIME_OFFSET: Final = int(IndexState.LAST_TIME_OFFSET)
_LAST_OFFSET: Final = int(IndexState.LAST_OFFSET)
_OFFSET_SLOTS: Final = int(IndexState.OFFSET_SLOTS)
_TIME_SLOTS: Final = int(IndexState.TIME_SLOTS)
_POSITION_BASE: Final = int(IndexState.POSITION_BASE)


class IndexLimits(NamedTuple):
    """How large the files of one segment's indexes may be, and how dense the entries are."""

    interval_bytes: int = 4096
    size_bytes: int = 10485760

    @property
    def offset_entries(self) -> int:
        return self.size_bytes // OFFSET_ENTRY_SIZE

    @property
    def time_entries(self) -> int:
        return self.size_bytes // TIME_ENTRY_SIZE


class SparseIndex:
    """Both indexes of one segment. One writer appends; any number of readers look up meanwhile."""

    __slots__ = ("_guarded", "base_offset", "offsets", "state", "times")

    def __init__(
        self,
        base_offset: int,
        limits: IndexLimits,
        offsets: bytearray | memoryview | None = None,
        times: bytearray | memoryview | None = None,
        *,
        guarded: bool = False,
    ) -> None:
        """Entries that are there already; ``guarded`` where they are mapped from files (then nothing can
        be added). BufferError where such a mapping is lost."""
        self._guarded = guarded
        self.base_offset = base_offset
        self.offsets = bytearray() if offsets is None else offsets
        self.times = bytearray() if times is None else times
        self.state = array("q", bytes(8 * len(IndexState)))
        self.state[_BASE_OFFSET] = base_offset
        self.state[_INTERVAL] = limits.interval_bytes
        self.state[_OFFSET_SLOTS] = limits.offset_entries - len(self.offsets) // OFFSET_ENTRY_SIZE
        # One slot is kept back for the entry that closes the segment.
        self.state[_TIME_SLOTS] = limits.time_entries - 1 - len(self.times) // TIME_ENTRY_SIZE
        self._take_last()
        self.state[_MAX_TIMESTAMP] = self.state[_LAST_TIME]
        self.state[_MAX_TIMESTAMP_OFFSET] = (
            self.state[_LAST_TIME_OFFSET] if self.state[_LAST_TIME] != NO_TIMESTAMP else -1
        )

    def _take_last(self) -> None:
        last, time = self.last_offset_entry, self.last_time_entry
        self.state[_LAST_OFFSET] = self.base_offset - 1 if last is None else last.offset
        self.state[_LAST_TIME] = NO_TIMESTAMP if time is None else time.timestamp
        self.state[_LAST_TIME_OFFSET] = self.base_offset if time is None else time.offset

    # What the segment's batches taught.

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the segment so far; -1 where none has one."""
        return self.state[_MAX_TIMESTAMP]

    @property
    def max_timestamp_offset(self) -> int:
        return self.state[_MAX_TIMESTAMP_OFFSET]

    @property
    def is_offset_full(self) -> bool:
        return self.state[_OFFSET_SLOTS] <= 0

    @property
    def is_time_full(self) -> bool:
        return self.state[_TIME_SLOTS] <= 0

    @property
    def entries_left(self) -> int:
        """For how many batches there is room, should each have an entry in both."""
        return max(min(self.state[_OFFSET_SLOTS], self.state[_TIME_SLOTS]), 0)

    def note(
        self, headers: memoryview | array[int], count: int, position_base: int
    ) -> tuple[int, int]:
        """Take in ``count`` batches by their headers. Answers the headers taken, and a Reason where
        a batch does not fit the segment."""
        state = self.state
        state[_POSITION_BASE] = position_base
        # The index of a sealed segment is a memoryview, and the kernel refuses it.
        return kernel.note_batches(headers, count, state, self.offsets, self.times)  # type: ignore[arg-type]

    def note_times(self, max_timestamp: int, offset: int) -> None:
        """Remember a largest timestamp that was learnt elsewhere than from batches."""
        if max_timestamp > self.state[_MAX_TIMESTAMP]:
            self.state[_MAX_TIMESTAMP] = max_timestamp
            self.state[_MAX_TIMESTAMP_OFFSET] = offset

    def close_times(self) -> None:
        """The entry that closes a segment: its largest timestamp, if no entry says it yet."""
        state = self.state
        if state[_MAX_TIMESTAMP] > state[_LAST_TIME]:
            entry = TimeEntry(state[_MAX_TIMESTAMP], state[_MAX_TIMESTAMP_OFFSET])
            assert isinstance(self.times, bytearray), "the index of a sealed segment"
            self.times += encode_time_entry(entry, self.base_offset)
            state[_TIME_SLOTS] -= 1
            self._take_last()

    def truncate(self, offset: int) -> None:
        """Drop the entries of batches that end at ``offset`` or later."""
        # New entries in the place of the old: a reader may be searching those.
        self.offsets = self._before(self.offsets, OFFSET_KEY, _OFFSET_SLOTS, offset)
        self.times = self._before(self.times, TIME_OFFSET_KEY, _TIME_SLOTS, offset)
        self.state[_BYTES_SINCE] = 0
        self._take_last()

    def _before(
        self, entries: bytearray | memoryview, key: EntryKey, slots: int, offset: int
    ) -> bytearray:
        last = offset - 1 - self.base_offset
        kept = 1 + slot_up_to(entries, key, last, guarded=self._guarded)
        self.state[slots] += len(entries) // key.entry_size - kept
        return bytearray(entries[: kept * key.entry_size])

    def relearn_times(self, max_timestamp: int, offset: int) -> None:
        """The largest timestamp anew, after a cut: the last entry's, or what lies behind it."""
        self.state[_MAX_TIMESTAMP] = self.state[_LAST_TIME]
        self.state[_MAX_TIMESTAMP_OFFSET] = self.state[_LAST_TIME_OFFSET]
        self.note_times(max_timestamp, offset)

    # Looking up.

    @property
    def last_offset_entry(self) -> OffsetEntry | None:
        entries = self.offsets
        count = len(entries) // OFFSET_ENTRY_SIZE
        return None if count == 0 else self._offset_entry(entries, count - 1)

    @property
    def last_time_entry(self) -> TimeEntry | None:
        entries = self.times
        count = len(entries) // TIME_ENTRY_SIZE
        if count == 0:
            return None
        return time_entry_at(entries, count - 1, self.base_offset, guarded=self._guarded)

    def position_before(self, offset: int) -> int:
        """Where to begin reading for the batch that holds ``offset``."""
        return self.places_of(offset)[0]

    def places_of(self, offset: int) -> tuple[int, int]:
        """The same, and where the batch lies that the first entry names which reaches ``offset``; -1
        where there is no such entry."""
        return kernel.find_places(self.offsets, self.base_offset, offset, guarded=self._guarded)

    def position_behind(self, position: int) -> int | None:
        """Where the first batch at or behind ``position`` starts that has an entry."""
        entries = self.offsets
        slot = 1 + slot_up_to(entries, POSITION_KEY, position - 1, guarded=self._guarded)
        if slot >= len(entries) // OFFSET_ENTRY_SIZE:
            return None
        return self._offset_entry(entries, slot).position

    def second_position_before(self, position: int) -> int:
        """Where the last batch but one starts that has an entry before ``position``; 0: there is none."""
        entries = self.offsets
        slot = slot_up_to(entries, POSITION_KEY, position - 1, guarded=self._guarded) - 1
        return 0 if slot < 0 else self._offset_entry(entries, slot).position

    def time_before(self, timestamp: int) -> TimeEntry | None:
        """The last entry up to ``timestamp``: what is of this time or later lies at or behind it."""
        found = self.place_before(timestamp)
        return None if found is None else TimeEntry(found[0], found[1])

    def place_before(self, timestamp: int) -> tuple[int, int, int, int] | None:
        """The timestamp and the offset of that entry, where to begin reading for its batch, and where the
        next batch lies that has an entry, if this one has; else -1."""
        return kernel.find_time_entry(
            self.times, self.offsets, self.base_offset, timestamp, guarded=self._guarded
        )

    def _offset_entry(self, entries: bytearray | memoryview, slot: int) -> OffsetEntry:
        return offset_entry_at(entries, slot, self.base_offset, guarded=self._guarded)
