"""The segment that appends go to, the last of a log: its data file, and indexes that grow with it."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from typing import Final

from stratalog.records import kernel
from stratalog.records.layout import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, Row
from stratalog.storage.files.closed_file import ClosedFile
from stratalog.storage.files.filesystem import FileSystem, WritableFile
from stratalog.storage.names import FileKind, segment_file_name
from stratalog.storage.segment.sealed import SealedSegment
from stratalog.storage.segment.segment import Segment, learn_times
from stratalog.storage.segment.sparse_index import (
    IndexLimits,
    SparseIndex,
)
from stratalog.storage.segment.txn_index import ENTRY_SIZE as TXN_ENTRY_SIZE
from stratalog.storage.segment.txn_index import AbortedTxn, encode_entry
from stratalog.types import NO_TIMESTAMP, Bytes

__all__ = ["ActiveSegment"]

_MAX_TIMESTAMP: Final = int(Row.MAX_TIMESTAMP)
_POSITION: Final = int(Row.POSITION)

#: Room on the disk is asked for ahead: as much again as the segment has, up to so much, and none for small
#: ones. Measured on ext4: appends of 1 MiB take a tenth less time.
_RESERVED_MAX: Final = 4 << 20
_RESERVED_MIN: Final = 1 << 20


class ActiveSegment(Segment):
    """The segment that appends go to. One thread at a time writes; readers need not wait for it.

    Index entries are kept in memory and written out when the segment is flushed or sealed: until then
    the log behind the last flush is what recovery reads, and it makes them anew.
    """

    def __init__(
        self,
        file_system: FileSystem,
        folder: str,
        base_offset: int,
        limits: IndexLimits,
        *,
        log: WritableFile,
        offset_file: WritableFile,
        time_file: WritableFile,
        index: SparseIndex,
        size_bytes: int,
        aborted: tuple[AbortedTxn, ...] = (),
        created_ms: int,
        first_timestamp: int | None = None,
        jitter_ms: int = 0,
        is_new: bool = False,
    ) -> None:
        super().__init__(file_system, folder, base_offset, limits, size_bytes)
        self._log = log
        self._offset_file = offset_file
        self._time_file = time_file
        self._txn_file: WritableFile | None = None
        self._index = index
        self._aborted = aborted
        self._aborted_written = len(aborted)
        self._written = [0, 0]  # bytes of the two indexes that are in their files
        self._reserved_end = max(size_bytes, _RESERVED_MIN)
        # Whoever had it open before and was killed may have reserved.
        self._is_reserved = size_bytes >= _RESERVED_MIN
        self.created_ms = created_ms
        #: The largest timestamp of the first batch; None while there is none.
        self.first_timestamp = first_timestamp
        self.jitter_ms = jitter_ms
        #: Whether its names may not be on the disk yet.
        self.is_new = is_new

    @classmethod
    def create(
        cls,
        file_system: FileSystem,
        folder: str,
        base_offset: int,
        limits: IndexLimits,
        *,
        created_ms: int,
        jitter_ms: int = 0,
        preallocated_bytes: int = 0,
    ) -> ActiveSegment:
        """Make the files of a new segment. Where one cannot be made, none stays behind."""
        sizes = {
            FileKind.LOG: preallocated_bytes,
            FileKind.OFFSET_INDEX: limits.offset_entries * OFFSET_ENTRY_SIZE,
            FileKind.TIME_INDEX: limits.time_entries * TIME_ENTRY_SIZE,
        }
        paths = [os.path.join(folder, segment_file_name(base_offset, kind)) for kind in sizes]
        made: list[WritableFile] = []
        try:
            for path, size in zip(paths, sizes.values(), strict=True):
                file_system.unlink(path)
                made.append(file_system.open_writable(path, create=True))
                if size:
                    made[-1].truncate(size)
        except BaseException:
            for file in made:
                file.close()
            for path in paths:
                file_system.unlink(path)
            raise
        log, offset_file, time_file = made
        return cls(
            file_system,
            folder,
            base_offset,
            limits,
            log=log,
            offset_file=offset_file,
            time_file=time_file,
            index=SparseIndex(base_offset, limits),
            size_bytes=0,
            created_ms=created_ms,
            jitter_ms=jitter_ms,
            is_new=True,
        )

    @property
    def log(self) -> WritableFile:
        return self._log

    @property
    def index(self) -> SparseIndex:
        return self._index

    @property
    def aborted(self) -> tuple[AbortedTxn, ...]:
        return self._aborted

    def place_plain(
        self,
        data: bytearray | memoryview,
        row: array[int],
        segment_bytes: int,
        max_segment_ms: int,
        next_offset: int,
        leader_epoch: int,
    ) -> int:
        """Give a batch of ``admission.admit_plain`` its offsets, in place and in its row, where it can
        be appended here: its last offset. -1 where that is for ``roll.plan_roll`` to say."""
        first = self.first_timestamp
        return kernel.place_plain(
            data, row, self._index.state, self.size_bytes, segment_bytes,
            NO_TIMESTAMP if first is None else first, max_segment_ms - self.jitter_ms,
            next_offset, leader_epoch,
        )  # fmt: skip

    def place_group(
        self,
        group: Sequence[tuple[bytearray | memoryview, array[int]]],
        segment_bytes: int,
        max_segment_ms: int,
        next_offset: int,
        leader_epoch: int,
    ) -> tuple[list[int], array[int], bytearray]:
        """The same for several batches, one behind the other: the last offset of each, the rows of all and
        their bytes, as many as fit here. Two may be in the same memory."""
        state = self._index.state
        first = NO_TIMESTAMP if self.first_timestamp is None else self.first_timestamp
        position = self.size_bytes
        span_ms = max_segment_ms - self.jitter_ms
        ends: list[int] = []
        rows, joined = array("q"), bytearray()
        for data, row in group[: self._index.entries_left]:
            last_offset = kernel.place_plain(
                data, row, state, position + len(joined), segment_bytes, first, span_ms,
                next_offset, leader_epoch,
            )  # fmt: skip
            if last_offset < 0:
                break
            if position == 0 and not ends:
                first = row[_MAX_TIMESTAMP]
            row[_POSITION] = len(joined)
            joined += data
            next_offset = last_offset + 1
            ends.append(last_offset)
            rows += row
        return ends, rows, joined

    def append(self, data: Bytes, rows: memoryview | array[int], count: int) -> None:
        """Write ``count`` whole batches behind the last one, and note them in the indexes."""
        position = self.size_bytes
        end = position + len(data)
        if end > self._reserved_end:
            self._reserve(position, end)
        self._log.write_at(position, data)
        self.size_bytes = end
        if position == 0:
            self.first_timestamp = rows[_MAX_TIMESTAMP]
        taken, reason = self._index.note(rows, count, position)
        assert taken == count, f"a batch was admitted that does not fit its segment: {reason}"

    def _reserve(self, position: int, end: int) -> None:
        self._reserved_end = end + min(end, _RESERVED_MAX)
        self._log.reserve(position, self._reserved_end - position)
        self._is_reserved = True

    def note_aborted(self, txn: AbortedTxn) -> None:
        """Add to the transaction index."""
        self._aborted = (*self._aborted, txn)

    def write_indexes(self) -> None:
        """Bring what is only in memory into the index files."""
        for number, file, entries in (
            (0, self._offset_file, self._index.offsets),
            (1, self._time_file, self._index.times),
        ):
            done, end = self._written[number], len(entries)
            if done < end:
                file.write_at(done, bytes(entries[done:end]))
                self._written[number] = end
        if self._aborted_written < len(self._aborted):
            self._write_aborted()

    def _write_aborted(self) -> None:
        entries = b"".join(map(encode_entry, self._aborted[self._aborted_written :]))
        self._txn_index().write_at(self._aborted_written * TXN_ENTRY_SIZE, entries)
        self._aborted_written = len(self._aborted)

    def _txn_index(self) -> WritableFile:
        """The file of the transaction index, which is made for the first entry."""
        if self._txn_file is None:
            path = self.path(FileKind.TXN_INDEX)
            is_there = self._file_system.stat(path) is not None
            self._txn_file = self._file_system.open_writable(path, create=not is_there)
            self.is_new = self.is_new or not is_there
        return self._txn_file

    def mark_written(self) -> None:
        """The index files hold all entries already."""
        self._written = [len(self._index.offsets), len(self._index.times)]

    def begin_sync(self) -> None:
        """Have the disk begin with the batches; those that are there already are passed over."""
        self._log.begin_sync(0, self.size_bytes)

    def sync_log(self) -> None:
        """Wait until the batches are on the disk."""
        self._log.sync()

    def sync_indexes(self) -> None:
        """Wait until what was written of the indexes is on the disk; after the batches that they
        point to."""
        self._offset_file.sync()
        self._time_file.sync()
        if self._txn_file is not None:
            self._txn_file.sync()

    def truncate(self, offset: int) -> int:
        """Cut at the batch that holds ``offset``; the bytes that went."""
        place = self.find_offset(offset)
        if place is None:
            return 0
        gone = self.size_bytes - place.position
        self._index.truncate(offset)
        self._written = [
            min(self._written[0], len(self._index.offsets)),
            min(self._written[1], len(self._index.times)),
        ]
        self.size_bytes = place.position
        if place.position == 0:
            self.first_timestamp = None
        kept = tuple(txn for txn in self._aborted if txn.last_offset < offset)
        if len(kept) < len(self._aborted):
            self._cut_aborted(kept)
        # Entries behind the cut are zeros again, as in a file that was never written so far.
        self._reset_index_files()
        self._log.truncate(place.position)
        self._reserved_end = max(place.position, _RESERVED_MIN)
        learn_times(self._log, self._index, self.size_bytes)
        return gone

    def _cut_aborted(self, kept: tuple[AbortedTxn, ...]) -> None:
        if len(kept) < self._aborted_written:
            self._txn_index().truncate(len(kept) * TXN_ENTRY_SIZE)
            self._aborted_written = len(kept)
        self._aborted = kept

    def _reset_index_files(self) -> None:
        self._offset_file.truncate(len(self._index.offsets))
        self._time_file.truncate(len(self._index.times))
        self.grow_indexes()

    def grow_indexes(self) -> None:
        """Give the index files their full size again, as Kafka does while a segment is active."""
        offsets, times = self._index.offsets, self._index.times
        slots = self.limits.offset_entries, self.limits.time_entries
        self._offset_file.truncate(max(slots[0] * OFFSET_ENTRY_SIZE, len(offsets)))
        self._time_file.truncate(max(slots[1] * TIME_ENTRY_SIZE, len(times)))

    def finish(self) -> None:
        """The last time entry, and every file cut to what it holds."""
        self._index.close_times()
        self.write_indexes()
        self._offset_file.truncate(len(self._index.offsets))
        self._time_file.truncate(len(self._index.times))
        if self._log.size() != self.size_bytes:
            self._log.truncate(self.size_bytes)
        elif self._is_reserved:
            self._log.release()
        self._is_reserved = False

    def seal(self) -> SealedSegment:
        """What was finished becomes a segment that is only read. Its index files are closed when
        nobody holds this object any more: a flush may still be at them."""
        return SealedSegment(
            self._file_system,
            self.folder,
            self.base_offset,
            self.limits,
            self.size_bytes,
            log=self._log,
        )

    def close(self) -> None:
        # A flush may still be at them, and readers at the first.
        self._log = ClosedFile(self._log.path)
        self._offset_file = ClosedFile(self._offset_file.path)
        self._time_file = ClosedFile(self._time_file.path)
        self._txn_file = None if self._txn_file is None else ClosedFile(self._txn_file.path)
