"""The two sparse indexes of a segment, as entries in memory: offset to position, and time to offset.

One entry for every ``index.interval.bytes`` of log. The rule that makes them is the kernel's
(``note_batches``), and the same for an append, a recovery and a rebuild. What is looked up here only says
where to begin reading: a missing entry costs time, never an answer.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final, NamedTuple

from stratalog.records import kernel
from stratalog.records.layout import INT32_MAX, IndexState
from stratalog.types import NO_TIMESTAMP

__all__ = [
    "OFFSET_ENTRY_SIZE",
    "TIME_ENTRY_SIZE",
    "IndexLimits",
    "OffsetEntry",
    "SparseIndex",
    "TimeEntry",
]

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
OFFSET_ENTRY_SIZE: Final = _OFFSET_ENTRY.size
TIME_ENTRY_SIZE: Final = _TIME_ENTRY.size

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


class OffsetEntry(NamedTuple):
    """The last offset of a batch, and where the batch starts."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """The largest timestamp up to here, and the last offset of the first batch that carries it."""

    timestamp: int
    offset: int


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

    def note(self, rows: memoryview, count: int, position_base: int) -> tuple[int, int]:
        """Take in ``count`` batches by their header rows. Answers the rows taken, and a Reason where
        a batch does not fit the segment."""
        self.state[_POSITION_BASE] = position_base
        assert isinstance(self.offsets, bytearray), "the index of a sealed segment"
        assert isinstance(self.times, bytearray), "the index of a sealed segment"
        return kernel.note_batches(rows, count, self.state, self.offsets, self.times)

    def note_times(self, max_timestamp: int, offset: int) -> None:
        """Remember a largest timestamp that was learnt elsewhere than from batches."""
        if max_timestamp > self.state[_MAX_TIMESTAMP]:
            self.state[_MAX_TIMESTAMP] = max_timestamp
            self.state[_MAX_TIMESTAMP_OFFSET] = offset

    def close_times(self) -> None:
        """The entry that closes a segment: its largest timestamp, if no entry says it yet."""
        state = self.state
        if state[_MAX_TIMESTAMP] > state[_LAST_TIME]:
            relative = state[_MAX_TIMESTAMP_OFFSET] - self.base_offset
            assert isinstance(self.times, bytearray), "the index of a sealed segment"
            self.times += _TIME_ENTRY.pack(state[_MAX_TIMESTAMP], relative)
            state[_TIME_SLOTS] -= 1
            self._take_last()

    def truncate(self, offset: int) -> None:
        """Drop the entries of batches that end at ``offset`` or later."""
        for entries, size, key_at, slots in (
            (self.offsets, OFFSET_ENTRY_SIZE, 0, _OFFSET_SLOTS),
            (self.times, TIME_ENTRY_SIZE, 8, _TIME_SLOTS),
        ):
            assert isinstance(entries, bytearray), "the index of a sealed segment"
            kept = 1 + self._search(entries, size, key_at, 4, self._relative(offset - 1))
            self.state[slots] += len(entries) // size - kept
            del entries[kept * size :]
        self.state[_BYTES_SINCE] = 0
        self._take_last()

    def relearn_times(self, max_timestamp: int, offset: int) -> None:
        """The largest timestamp anew, after a cut: the last entry's, or what lies behind it."""
        self.state[_MAX_TIMESTAMP] = self.state[_LAST_TIME]
        self.state[_MAX_TIMESTAMP_OFFSET] = self.state[_LAST_TIME_OFFSET]
        self.note_times(max_timestamp, offset)

    # Looking up.

    @property
    def last_offset_entry(self) -> OffsetEntry | None:
        count = len(self.offsets) // OFFSET_ENTRY_SIZE
        return None if count == 0 else self._offset_entry(count - 1)

    @property
    def last_time_entry(self) -> TimeEntry | None:
        count = len(self.times) // TIME_ENTRY_SIZE
        return None if count == 0 else self._time_entry(count - 1)

    def position_before(self, offset: int) -> int:
        """Where to begin reading for the batch that holds ``offset``."""
        slot = self._search(self.offsets, OFFSET_ENTRY_SIZE, 0, 4, self._relative(offset))
        return 0 if slot < 0 else self._offset_entry(slot).position

    def offset_behind(self, position: int) -> int | None:
        """The offset of the first entry at or behind ``position``: a bound for what lies before it."""
        target = min(position - 1, INT32_MAX)
        slot = 1 + self._search(self.offsets, OFFSET_ENTRY_SIZE, 4, 4, target)
        if slot >= len(self.offsets) // OFFSET_ENTRY_SIZE:
            return None
        return self._offset_entry(slot).offset

    def offset_before_time(self, timestamp: int) -> int:
        """An offset that every record of this timestamp or a later one lies at or behind."""
        slot = self._search(self.times, TIME_ENTRY_SIZE, 0, 8, timestamp)
        return self.base_offset if slot < 0 else self._time_entry(slot).offset

    def _search(
        self, entries: bytearray | memoryview, size: int, key_at: int, key_size: int, target: int
    ) -> int:
        count = len(entries) // size
        return kernel.search_entries(
            entries, count, size, key_at, key_size, target, guarded=self._guarded
        )

    def _offset_entry(self, slot: int) -> OffsetEntry:
        at = slot * OFFSET_ENTRY_SIZE
        entry = kernel.copy(self.offsets, at, at + OFFSET_ENTRY_SIZE, guarded=self._guarded)
        relative, position = _OFFSET_ENTRY.unpack(entry)
        return OffsetEntry(self.base_offset + relative, position)

    def _time_entry(self, slot: int) -> TimeEntry:
        at = slot * TIME_ENTRY_SIZE
        entry = kernel.copy(self.times, at, at + TIME_ENTRY_SIZE, guarded=self._guarded)
        timestamp, relative = _TIME_ENTRY.unpack(entry)
        return TimeEntry(timestamp, self.base_offset + relative)

    def _relative(self, offset: int) -> int:
        return max(-1, min(offset - self.base_offset, INT32_MAX))
