"""Collects what the batches of a segment say about its other files, during the walk that checks them.

The walk over a data file hands over every stretch of batches that it found sound. Their headers are read
once more while they are in memory, and held against the entries of the indexes by the kernel. Python sees a
row only where the leader epoch changes or a control batch stands.

Index entries are not a pure function of the log: brokers up to 0.10.2 store the first offset of an append,
2.8 the last offset of the append with the position of its first batch, 4.3 the last offset of each batch,
and the distance between entries depends on restarts. So an offset entry is right if it points to the start
of a batch, no batch before that reaches its offset, and the entry before it does not reach that batch. A
time entry is right if no batch up to its offset is later.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from typing import Final

from stratalog.inspect.check.index_files import NO_INDEXES, SegmentIndexes
from stratalog.records import kernel
from stratalog.records.control import ControlType
from stratalog.records.layout import (
    MATCH_STATE_WIDTH,
    ROW_WIDTH,
    MatchState,
    MatchStop,
    Row,
)
from stratalog.storage.producers.rebuild import marker_in
from stratalog.storage.segment.index_entries import POSITION_KEY, slot_up_to
from stratalog.storage.segment.log_file import Window
from stratalog.types import NO_LEADER_EPOCH, NO_TIMESTAMP

__all__ = ["BatchObserver", "SegmentFacts"]

_ROWS_AT_ONCE: Final = 1024
#: So many changes of the leader epoch, and so many ABORT markers, are kept of one segment.
_KEPT_MAX: Final = 10_000
_ABORTS_MAX: Final = 1_000_000
#: How the only record of a marker begins where its timestamp is that of the batch: attributes, both deltas,
#: and the length of the key; then version and type.
_MARKER_HEAD: Final = b"\0\0\0\x08"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """What the batches of a segment, or of a part of it, say about its other files.

    ``is_complete`` is false where batches were damaged: then nothing follows from what is not there.
    """

    is_complete: bool = True
    #: Offset entries from the first up to the second slot were met; ``wrong_`` is the first that is not true.
    offset_slots: tuple[int, int] = (0, 0)
    wrong_offset_entry: int | None = None
    #: The largest offset that a true entry names; -1 where there is none.
    entry_offset: int = -1
    time_slot: int = 0
    wrong_time_entry: int | None = None
    max_timestamp: int = NO_TIMESTAMP
    has_untimed: bool = False
    has_horizon: bool = False
    #: How many offsets the widest batch spans.
    widest: int = 0
    #: Each run of batches with one leader epoch: the epoch, its first and its last offset.
    epochs: tuple[tuple[int, int, int], ...] = ()
    #: Offset and producer id of every ABORT marker, as pairs of native 64-bit integers; None where there are
    #: more than are kept.
    aborts: bytes | None = b""
    #: Types of the first and the last control record; None where there is none.
    first_control: int | None = None
    last_control: int | None = None

    def followed_by(self, later: SegmentFacts) -> SegmentFacts | None:
        """Join the facts of two parts of one segment; None where they do not meet."""
        if self.offset_slots[1] != later.offset_slots[0]:
            return None
        if not (self.is_proof and later.is_proof):
            return None  # which entry is the first that is wrong, only one walk can say
        epochs = (*self.epochs, *later.epochs)
        seam = len(self.epochs)
        if 0 < seam < len(epochs) and epochs[seam - 1][0] == epochs[seam][0]:
            joined = (*epochs[seam - 1][:2], epochs[seam][2])
            epochs = (*epochs[: seam - 1], joined, *epochs[seam + 1 :])
        return replace(
            later,
            offset_slots=(self.offset_slots[0], later.offset_slots[1]),
            entry_offset=max(self.entry_offset, later.entry_offset),
            time_slot=max(self.time_slot, later.time_slot),
            max_timestamp=max(self.max_timestamp, later.max_timestamp),
            has_untimed=self.has_untimed or later.has_untimed,
            has_horizon=self.has_horizon or later.has_horizon,
            widest=max(self.widest, later.widest),
            epochs=epochs,
            aborts=None
            if self.aborts is None or later.aborts is None
            else self.aborts + later.aborts,
            first_control=self.first_control
            if self.first_control is not None
            else later.first_control,
            last_control=later.last_control
            if later.last_control is not None
            else self.last_control,
        )

    @property
    def is_proof(self) -> bool:
        """Whether all entries that were looked at are true."""
        return (
            self.is_complete and self.wrong_offset_entry is None and self.wrong_time_entry is None
        )

    def aborted_producers(self) -> dict[int, int] | None:
        """The producer id of every ABORT marker by its offset; None where not all are known."""
        if self.aborts is None:
            return None
        numbers = memoryview(self.aborts).cast("q").tolist()
        return dict(zip(numbers[::2], numbers[1::2], strict=True))


class BatchObserver:
    """Is shown the sound batches of one data file in order, each at least once."""

    def __init__(
        self, base_offset: int | None, indexes: SegmentIndexes = NO_INDEXES, start: int = 0
    ) -> None:
        self._rows = array("q", bytes(8 * ROW_WIDTH * _ROWS_AT_ONCE))
        self._noted_to = start
        self._offsets = b"" if indexes.offsets is None else indexes.offsets.entries
        self._times = b"" if indexes.times is None else indexes.times.entries
        state = self._state = array("q", bytes(8 * MATCH_STATE_WIDTH))
        state[MatchState.BASE_OFFSET] = base_offset or 0
        state[MatchState.ENTRY_OFFSET] = -1
        state[MatchState.LAST_OFFSET] = -2 if start else (base_offset or 0) - 1
        state[MatchState.LEADER_EPOCH] = NO_LEADER_EPOCH
        state[MatchState.MAX_TIMESTAMP] = NO_TIMESTAMP
        self._first_slot = self._slot_at(start)
        state[MatchState.OFFSET_SLOT] = self._first_slot
        self._epochs: list[tuple[int, int, int]] = []
        self._aborts = array("q")
        self._wrong_offset_entry: int | None = None
        self._wrong_time_entry: int | None = None
        self._controls: list[int] = []
        self._is_complete = True

    def _slot_at(self, position: int) -> int:
        """The first offset entry that points to ``position`` or beyond."""
        return 1 + slot_up_to(self._offsets, POSITION_KEY, position - 1) if position else 0

    def miss(self) -> None:
        """Note that a batch was damaged, or that the walk ended before the end of the file."""
        self._is_complete = False

    def note(self, window: Window, at: int, limit: int) -> None:
        """Take in the sound batches of a window from ``at`` up to ``limit``; BufferError where a mapping
        is lost. Batches that were taken in already are left out."""
        at = max(at, self._noted_to - window.position)
        self._state[MatchState.POSITION_BASE] = window.position
        rows = memoryview(self._rows)
        while at < limit:
            held, at, *_ = kernel.walk(window.data, at, limit, rows, guarded=window.guarded)
            if not held:
                return
            self._match(rows, held, window)
            self._noted_to = window.position + at

    def _match(self, rows: memoryview, held: int, window: Window) -> None:
        state, row = self._state, 0
        while True:
            row, stop = kernel.match_entries(rows, row, held, state, self._offsets, self._times)
            if stop == MatchStop.DONE:
                return
            fields = rows[(row - (stop == MatchStop.CONTROL)) * ROW_WIDTH :]
            if stop == MatchStop.CONTROL:
                self._note_control(fields, window)
            elif stop == MatchStop.LEADER_EPOCH:
                self._end_epoch()
                state[MatchState.LEADER_EPOCH] = fields[Row.LEADER_EPOCH]
                if len(self._epochs) < _KEPT_MAX:
                    base = fields[Row.BASE_OFFSET]
                    self._epochs.append((fields[Row.LEADER_EPOCH], base, base))
            elif stop == MatchStop.OFFSET_ENTRY:
                self._wrong_offset_entry = state[MatchState.OFFSET_SLOT]
                self._offsets = b""
            else:
                self._wrong_time_entry = state[MatchState.TIME_SLOT]
                self._times = b""

    def _end_epoch(self) -> None:
        """Note where the latest run of one leader epoch ends: with the last batch."""
        if self._epochs and self._epochs[-1][0] == self._state[MatchState.LEADER_EPOCH]:
            last = self._state[MatchState.LAST_OFFSET]
            self._epochs[-1] = (*self._epochs[-1][:2], last)

    def _note_control(self, fields: memoryview, window: Window) -> None:
        start = fields[Row.POSITION]
        data = window.copy(start, start + fields[Row.SIZE])
        payload = fields[Row.PAYLOAD_POSITION] - start
        if data[payload + 1 : payload + 5] == _MARKER_HEAD:
            kind = int.from_bytes(data[payload + 7 : payload + 9], "big", signed=True)
        else:
            marker = marker_in(data) if fields[Row.RECORD_COUNT] else None
            if marker is None:
                return  # emptied by compaction, or of a form that only --deep looks into
            kind = marker.type_id
        self._controls = [*self._controls[:1], kind]
        if kind == ControlType.ABORT and len(self._aborts) <= 2 * _ABORTS_MAX:
            self._aborts.extend((fields[Row.LAST_OFFSET], fields[Row.PRODUCER_ID]))

    def facts(self) -> SegmentFacts:
        """What was learnt from all batches that were noted."""
        state = self._state
        self._end_epoch()
        return SegmentFacts(
            is_complete=self._is_complete,
            offset_slots=(self._first_slot, state[MatchState.OFFSET_SLOT]),
            wrong_offset_entry=self._wrong_offset_entry,
            entry_offset=state[MatchState.ENTRY_OFFSET],
            time_slot=state[MatchState.TIME_SLOT],
            wrong_time_entry=self._wrong_time_entry,
            max_timestamp=state[MatchState.MAX_TIMESTAMP],
            has_untimed=bool(state[MatchState.HAS_UNTIMED]),
            has_horizon=bool(state[MatchState.HAS_HORIZON]),
            widest=state[MatchState.WIDEST],
            epochs=tuple(self._epochs),
            aborts=self._aborts.tobytes() if len(self._aborts) <= 2 * _ABORTS_MAX else None,
            first_control=self._controls[0] if self._controls else None,
            last_control=self._controls[-1] if self._controls else None,
        )
