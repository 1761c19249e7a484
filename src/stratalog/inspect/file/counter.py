"""Steps over a log file and counts what it meets: the part that count and verify share.

Counting is one kernel call for each window, and where batches are large not even that much is read: a
*hop* takes the header of a batch and goes to the next. Only wrappers (magic 0 and 1) and compressed 0.7
entries must be opened to be counted; ``deep`` opens and decodes everything.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final, NamedTuple

from stratalog.inspect.file.times import LatestTime
from stratalog.records import kernel
from stratalog.records.columns import RegionDecoder, Selection, WalkEnd
from stratalog.records.layout import (
    BATCH_HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    ROW_WIDTH,
    SIZE_AT,
    Check,
    Column,
    Ending,
    Magic,
    Reason,
    Row,
)
from stratalog.storage.segment.log_file import LogFile, Window
from stratalog.storage.segment.walk import entry_size
from stratalog.types import Progress

__all__ = ["Counter", "HopPlan", "plan_hops"]

_ROWS_AT_ONCE: Final = 256
_MAGIC: Final = int(Magic.V2)
_SIZE: Final = Struct(f">{SIZE_AT}xi")

#: Below this, reading everything costs less than a call for every batch.
HOP_BATCH_BYTES_MIN: Final = 8 << 10
#: Up to this, a disk that reads on in front of us is faster than one that is asked for every header,
#: and a mapped window faster than a call for every batch: its pages come sixteen at a time.
READ_AHEAD_BATCH_BYTES_MAX: Final = 256 << 10
READ_AHEAD_BYTES: Final = 8 << 20


class HopPlan(NamedTuple):
    """How the next headers are read: which batches are hopped over, how far the disk reads ahead."""

    batch_bytes_min: int
    read_ahead_bytes: int


def plan_hops(size_bytes: int, batches: int, *, mapped: bool) -> HopPlan | None:
    """What to do behind a window in which so many batches took so many bytes; None: the next window.

    Measured on a file of 16 KiB batches: from the page cache hops take half the time of windows that
    are read, mapped windows half of that; from the disk hops take five times as long, unless it is
    told to read ahead.
    """
    average = size_bytes // max(batches, 1)
    wanted = average <= READ_AHEAD_BATCH_BYTES_MAX
    if average < HOP_BATCH_BYTES_MIN or (mapped and wanted):
        return None
    return HopPlan(HOP_BATCH_BYTES_MIN // 2, READ_AHEAD_BYTES if wanted else 0)


class Counter:
    """Counts the records and batches of one file, and checks them as it is told."""

    def __init__(
        self,
        log_file: LogFile,
        *,
        check: Check,
        expected_offset: int = -1,
        deep: bool = False,
        max_batch_bytes: int,
        max_decompressed_bytes: int,
        progress: Progress | None = None,
        latest: LatestTime | None = None,
    ) -> None:
        self._log_file = log_file
        self._latest = latest
        self._check = check
        self._deep = deep
        self._max_batch_bytes = max_batch_bytes
        self._progress = progress
        self._decoder = RegionDecoder(
            Selection(
                columns=Column.OFFSET,
                check=check | Check.INCLUDE_CONTROL,
                max_batch_bytes=max_batch_bytes,
                max_decompressed_bytes=max_decompressed_bytes,
            )
        )
        self._rows = array("q", bytes(8 * ROW_WIDTH * _ROWS_AT_ONCE))
        self._head = bytearray(HOP_BATCH_BYTES_MIN)
        self._hop_plan: HopPlan | None = None
        self.records = 0
        self.control_records = 0
        self.batches = 0
        #: The base offset of the first batch; None while there was none.
        self.first_offset: int | None = None
        self.last_offset: int | None = None
        #: Where the next batch may start; -1: anywhere.
        self.expected_offset = expected_offset

    def step(self, window: Window, at: int) -> WalkEnd:
        """Count from ``at`` to the end of the window, or to what is wrong in it."""
        if at == 0:
            self._log_file.file.read_ahead(window.position + window.length, READ_AHEAD_BYTES)
        if self._log_file.is_v07:
            return self._step_v07(window, at)
        return self._step_deep(window, at) if self._deep else self._step_headers(window, at)

    def _step_headers(self, window: Window, at: int) -> WalkEnd:
        start, batches_before = at, self.batches
        pause = self._count_headers(window, at)
        while pause.ending == Ending.COMPRESSED:
            pause = self._open_wrapper(window, pause.position)
            if pause.ending in (Ending.CORRUPT, Ending.LOST):
                return pause
            pause = self._count_headers(window, pause.position)
        self._hop_plan = plan_hops(
            pause.position - start, self.batches - batches_before, mapped=window.guarded
        )
        return pause

    def _count_headers(self, window: Window, at: int) -> WalkEnd:
        """As far as headers tell: to the end of the window, to what is wrong, or to a wrapper."""
        try:
            records, control, batches, position, ending, reason, expected = kernel.count(
                window.data, at, window.length,
                self._check, self.expected_offset, self._max_batch_bytes,
                guarded=window.guarded,
            )  # fmt: skip
            if batches:
                self._note_first(window, at)
                if self._latest is not None:
                    self._latest.note_window(window, at, position)
        except BufferError:  # nothing was counted yet
            return WalkEnd(at, Ending.LOST)
        if batches:
            self._add(records, control, batches, expected)
        return WalkEnd(position, Ending(ending), Reason(reason))

    def _add(self, records: int, control: int, batches: int, expected: int) -> None:
        self.records += records
        self.control_records += control
        self.batches += batches
        self.expected_offset = expected
        self.last_offset = expected - 1

    def _note_first(self, window: Window, at: int) -> None:
        if self.first_offset is None:
            rows = memoryview(self._rows)
            kernel.walk(window.data, at, window.length, rows, guarded=window.guarded)
            self.first_offset = self._rows[Row.BASE_OFFSET]

    def _open_wrapper(self, window: Window, at: int) -> WalkEnd:
        try:
            size = entry_size(window, at, is_v07=False)
        except BufferError:
            return WalkEnd(at, Ending.LOST)
        assert size is not None, "the kernel saw the whole wrapper"
        pause, records = self._decode(window, at, at + size)
        if pause.ending in (Ending.CORRUPT, Ending.LOST):
            return pause
        try:
            if self._latest is not None:
                self._latest.note_window(window, at, at + size)
        except BufferError:
            return WalkEnd(at, Ending.LOST)
        self._add(records, 0, 1, self._decoder.expected_offset)
        return pause

    def _step_deep(self, window: Window, at: int) -> WalkEnd:
        while True:
            pause, records = self._decode(window, at, window.length)
            try:
                control, batches = self._count_decoded(window, at, pause.position)
            except BufferError:  # what was decoded is not noted yet: it is decoded again
                return WalkEnd(at, Ending.LOST)
            if batches:
                self._add(records - control, control, batches, self._decoder.expected_offset)
            if pause.ending != Ending.FULL:
                return pause
            at = pause.position

    def _decode(self, window: Window, at: int, limit: int) -> tuple[WalkEnd, int]:
        """Decode until the columns are full, or to the limit: the pause, and how many records."""
        self._decoder.expect(self.expected_offset)
        pause = self._decoder.decode(window.data, at, limit, guarded=window.guarded)
        taken = self._decoder.take()
        if taken.rows and self.first_offset is None:
            self.first_offset = memoryview(taken.buffers[Column.OFFSET][0]).cast("q")[0]
        return pause, taken.rows

    def _count_decoded(self, window: Window, at: int, limit: int) -> tuple[int, int]:
        """Control records and batches of a part that was decoded, so that all is well in it."""
        control_records = batches = 0
        while at < limit:
            _, control, some, at, ending, *_ = kernel.count(
                window.data, at, limit, guarded=window.guarded
            )
            control_records += control
            batches += some
            if ending == Ending.COMPRESSED:
                batches += 1
                at += entry_size(window, at, is_v07=False) or 0
        return control_records, batches

    def _step_v07(self, window: Window, at: int) -> WalkEnd:
        base_offset = (self._log_file.base_offset or 0) + window.position
        while True:
            pause = self._decoder.decode_v07(
                window.data, at, window.length, base_offset=base_offset
            )
            taken = self._decoder.take()
            if taken.rows:
                offsets = memoryview(taken.buffers[Column.OFFSET][0]).cast("q")
                if self.first_offset is None:
                    self.first_offset = offsets[0]
                self.last_offset = offsets[taken.rows - 1]
            self.records += taken.rows
            self.batches += self._entries_v07(window, at, pause.position)
            if pause.ending != Ending.FULL:
                return pause
            at = pause.position

    def _entries_v07(self, window: Window, at: int, limit: int) -> int:
        entries = 0
        while at < limit:
            held, at, *_ = kernel.walk_v07(window.data, at, limit, memoryview(self._rows))
            entries += held
        return entries

    def hop(self, position: int) -> int:
        """Go on from header to header while batches are large and nothing is odd about them."""
        plan = self._hop_plan
        if plan is None or self._deep or self._log_file.is_v07:
            return position
        log_file, ahead = self._log_file, plan.read_ahead_bytes
        if ahead:
            log_file.file.read_ahead(position, ahead)
        while position < log_file.size:
            if ahead:
                log_file.file.read_ahead(position + ahead, ahead)
            if self._progress is not None:
                self._progress(position)
            end = min(position + READ_AHEAD_BYTES, log_file.size)
            position = self._hop_until(position, end, plan.batch_bytes_min)
            if position < end and not self._grow_head(position):
                break
        return position

    def _hop_until(self, position: int, end: int, batch_bytes_min: int) -> int:
        """The loop of a hop: what it does for each batch is all that such a file costs.

        Reads a header only. The buffer is as long as the batch says it is: the kernel, asked about
        headers alone, does not look at what was not read. Whatever it does not like is left to a
        window, which holds the whole batch, and to the answer that it gives there.
        """
        buffer, size_max = self._head, len(self._head)
        # As it is now: a header says nothing of a body that was cut off since the file was opened.
        file_size = min(self._log_file.size, self._log_file.file.size())
        read, size_of, count = self._log_file.file.read_into, _SIZE.unpack_from, kernel.count
        check, limit, expected = int(self._check), self._max_batch_bytes, self.expected_offset
        note_time = None if self._latest is None else self._latest.note_header
        records = control_records = batches = 0
        with memoryview(buffer) as whole, whole[:BATCH_HEADER_SIZE] as head:
            while position < end and read(position, head) == BATCH_HEADER_SIZE:
                size = size_of(buffer)[0] + LOG_OVERHEAD
                if not batch_bytes_min <= size <= size_max or position + size > file_size:
                    break
                if buffer[MAGIC_AT] != _MAGIC:
                    break
                some, control, one, _, _, _, after = count(buffer, 0, size, check, expected, limit)
                if one != 1:
                    break
                if note_time is not None:
                    note_time(buffer)
                records += some
                control_records += control
                batches += 1
                expected = after
                position += size
        if batches:
            self._add(records, control_records, batches, expected)
        return position

    def _grow_head(self, position: int) -> bool:
        """Where a hop stopped because the buffer is shorter than the batch, make it longer."""
        size = _SIZE.unpack_from(self._head)[0] + LOG_OVERHEAD
        if len(self._head) < size <= min(self._max_batch_bytes, self._log_file.size - position):
            self._head = bytearray(2 * size)
            return True
        return False
