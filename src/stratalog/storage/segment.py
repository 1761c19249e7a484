"""A segment: one data file and its indexes. Sealed ones are only read; one, the last, is active.

Sealing makes a :class:`SealedSegment` of an :class:`ActiveSegment`, so that an append to a sealed one cannot
be written. Both are read in the same way, without a lock: what a reader may see is bounded by the offsets
and positions that its caller took from the log.
"""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from stratalog.errors import CorruptionError, StorageError
from stratalog.records import kernel
from stratalog.records.layout import Reason, Row
from stratalog.records.reasons import corruption
from stratalog.storage.batch_finder import (
    READ_SIZE,
    BatchPlace,
    batch_at,
    find_last_batch,
    find_offset,
    find_time,
)
from stratalog.storage.closed_file import ClosedFile
from stratalog.storage.filesystem import FileSystem, ReadableFile, WritableFile
from stratalog.storage.index_check import index_is_sane
from stratalog.storage.names import FileKind, Stage, segment_file_name
from stratalog.storage.segment_scan import rebuild_index
from stratalog.storage.sparse_index import (
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    IndexLimits,
    SparseIndex,
)
from stratalog.storage.txn_index import ENTRY_SIZE as TXN_ENTRY_SIZE
from stratalog.storage.txn_index import AbortedTxn, decode_entries, encode_entry
from stratalog.types import NO_TIMESTAMP

__all__ = [
    "SEGMENT_KINDS",
    "ActiveSegment",
    "SealedSegment",
    "Segment",
    "check_last_entry",
    "learn_times",
    "read_aborted",
]

_MAX_TIMESTAMP: Final = int(Row.MAX_TIMESTAMP)

#: The files of a segment, in the order in which they are renamed.
SEGMENT_KINDS: Final = (
    FileKind.LOG,
    FileKind.OFFSET_INDEX,
    FileKind.TIME_INDEX,
    FileKind.TXN_INDEX,
)


class Segment(ABC):
    """What sealed and active segments have in common: being read."""

    def __init__(
        self,
        file_system: FileSystem,
        folder: str,
        base_offset: int,
        limits: IndexLimits,
        size_bytes: int,
    ) -> None:
        self._file_system = file_system
        self.folder = folder
        self.base_offset = base_offset
        self.limits = limits
        #: Of the batches; a file that was preallocated is longer.
        self.size_bytes = size_bytes

    def path(self, kind: FileKind, stage: Stage = Stage.LIVE) -> str:
        return os.path.join(self.folder, segment_file_name(self.base_offset, kind, stage))

    @property
    @abstractmethod
    def log(self) -> ReadableFile:
        """The data file."""

    @property
    @abstractmethod
    def index(self) -> SparseIndex:
        """Where to begin reading for an offset or a time."""

    @property
    @abstractmethod
    def aborted(self) -> tuple[AbortedTxn, ...]:
        """The aborted transactions whose markers lie in this segment."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the files as they are. Each is closed when nobody reads it any more; who asks this
        segment for them from now on gets an error."""

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of its batches; -1 where none has one."""
        return self.index.max_timestamp

    @property
    def largest_timestamp(self) -> int:
        """What retention and time look-ups go by: where no batch has a time, the file's."""
        timestamp = self.max_timestamp
        if timestamp >= 0:
            return timestamp
        found = self._file_system.stat(self.path(FileKind.LOG))
        return NO_TIMESTAMP if found is None else found.modified_ms

    def find_offset(self, offset: int, limit: int | None = None) -> BatchPlace | None:
        """The first batch that reaches ``offset``, among those that start before ``limit``."""
        end = self.size_bytes if limit is None else limit
        try:
            start, named = self.index.places_of(offset)
        except BufferError:  # the index file was cut under its mapping
            start = named = 0
        if named - start > READ_SIZE or named == start:
            # Batches that are larger than what is read at once: the next entry's is the one, most times.
            place = batch_at(self.log, named, end, offset)
            if place is not None:
                return place
        start = _before(end, start)
        try:
            place = find_offset(self.log, start, end, offset)
            # An entry names an offset of its batch or a later one: a batch behind it was not meant.
            if place is None or place.position != start or place.base_offset <= offset:
                return place
        except CorruptionError:
            if start == 0:
                raise
        # The index points where no such batch starts. What the log itself says is right.
        return find_offset(self.log, 0, end, offset) if start else place

    def _position_before(self, offset: int) -> int:
        try:
            return self.index.position_before(offset)
        except BufferError:
            return 0

    def find_time(self, timestamp: int, start_offset: int) -> Iterator[BatchPlace]:
        """The batches that may hold the first record of this time or later, one after the other."""
        for place in self._find_time(timestamp, start_offset):
            if place.last_offset >= start_offset:
                yield place

    def _find_time(self, timestamp: int, start_offset: int) -> Iterator[BatchPlace]:
        try:
            entry = self.index.time_before(timestamp)
            if entry is not None and entry.offset > start_offset:
                start = self._position_before(entry.offset)
                yield from find_time(self.log, start, self.size_bytes, timestamp, entry)
                return
        except (CorruptionError, BufferError):
            pass  # what the index says is not so: nothing was found by it
        first = self.find_offset(start_offset) if start_offset > self.base_offset else None
        start = 0 if first is None else first.position
        yield from find_time(self.log, start, self.size_bytes, timestamp)

    def offset_behind(self, position: int) -> int | None:
        """The first offset of some batch that starts at or behind ``position``; None: look further."""
        try:
            start = self.index.position_behind(position)
            if start is None:
                return None
            place = find_offset(self.log, start, self.size_bytes, 0)
        except (CorruptionError, BufferError):
            return None
        return None if place is None or place.base_offset < 0 else place.base_offset

    def last_batch(self) -> BatchPlace | None:
        """The last batch; None in an empty segment."""
        try:
            last = self.index.last_offset_entry
            if last is not None:
                return find_last_batch(self.log, last.position, self.size_bytes)
        except (CorruptionError, BufferError):
            pass
        return find_last_batch(self.log, 0, self.size_bytes)

    def read_batch(self, place: BatchPlace) -> bytes:
        """The bytes of one batch."""
        data = self.log.read(place.position, place.size_bytes)
        if len(data) < place.size_bytes:
            raise corruption(Reason.SHORT_TAIL, place.position).located(
                path=self.path(FileKind.LOG)
            )
        return data


class SealedSegment(Segment):
    """A segment that will not be written again. Its files are opened when they are first needed."""

    def __init__(
        self,
        file_system: FileSystem,
        folder: str,
        base_offset: int,
        limits: IndexLimits,
        size_bytes: int,
        *,
        log: ReadableFile | None = None,
    ) -> None:
        super().__init__(file_system, folder, base_offset, limits, size_bytes)
        self._log = log
        self._index: SparseIndex | None = None
        self._aborted: tuple[AbortedTxn, ...] | None = None
        #: Whether its index was made from its batches just now, and knows all that they say.
        self.is_walked = False

    @property
    def log(self) -> ReadableFile:
        if self._log is None:
            self._log = self._file_system.open_readable(self.path(FileKind.LOG))
        return self._log

    @property
    def index(self) -> SparseIndex:
        index = self._index
        if index is None:
            index = self._index = self._load_index()
        return index

    def take_end(self, size_bytes: int, index: SparseIndex, aborted: Iterable[AbortedTxn]) -> None:
        """Go by what a walk over the data has found, not by the files' own word."""
        self.size_bytes = size_bytes
        self._index = index
        self._aborted = tuple(aborted)
        self.is_walked = True

    def _load_index(self) -> SparseIndex:
        self._check_open()
        try:
            offsets = self._map(FileKind.OFFSET_INDEX)
            times = self._map(FileKind.TIME_INDEX)
            if index_is_sane(offsets, times, self.size_bytes):
                index = SparseIndex(self.base_offset, self.limits, offsets, times, guarded=True)
                with self._opened() as log:
                    check_last_entry(log, index, self.size_bytes)
                    # Behind the last entry: times that fell, or entries that were cut off.
                    learn_times(log, index, self.size_bytes)
                return index
        except (StorageError, BufferError, CorruptionError):
            pass  # missing, lost or nonsense: whatever it is, the log knows better
        with self._opened() as log:
            return rebuild_index(log, self.base_offset, self.limits, self.size_bytes)

    @contextmanager
    def _opened(self) -> Iterator[ReadableFile]:
        """The data file for a look into it: retention asks all segments, and shall not keep them open."""
        if self._log is not None:
            yield self._log
            return
        log = self._file_system.open_readable(self.path(FileKind.LOG))
        try:
            yield log
        finally:
            log.close()

    def _map(self, kind: FileKind) -> memoryview:
        file = self._file_system.open_readable(self.path(kind))
        try:
            return file.map(0, file.size())
        finally:
            file.close()

    @property
    def aborted(self) -> tuple[AbortedTxn, ...]:
        if self._aborted is None:
            self._check_open()
            self._aborted = read_aborted(self._file_system, self.path(FileKind.TXN_INDEX), self)
        return self._aborted

    def _check_open(self) -> None:
        """Without this, a closed segment would open its files again, and nobody would close them."""
        if isinstance(self._log, ClosedFile):
            self._log.refuse()

    def close(self) -> None:
        self._log = ClosedFile(self.path(FileKind.LOG))
        self._index = None


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

    def append(
        self, data: bytes | bytearray | memoryview, rows: memoryview | array[int], count: int
    ) -> None:
        """Write ``count`` whole batches behind the last one, and note them in the indexes."""
        position = self.size_bytes
        self._log.write_at(position, data)
        self.size_bytes = position + len(data)
        if position == 0:
            self.first_timestamp = rows[_MAX_TIMESTAMP]
        taken, reason = self._index.note(rows, count, position)
        assert taken == count, f"a batch was admitted that does not fit its segment: {reason}"

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
        self._offset_file.truncate(self.limits.offset_entries * OFFSET_ENTRY_SIZE)
        self._time_file.truncate(self.limits.time_entries * TIME_ENTRY_SIZE)

    def finish(self) -> None:
        """The last time entry, and every file cut to what it holds."""
        self._index.close_times()
        self.write_indexes()
        self._offset_file.truncate(len(self._index.offsets))
        self._time_file.truncate(len(self._index.times))
        if self._log.size() != self.size_bytes:
            self._log.truncate(self.size_bytes)

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


def _before(end: int, position: int) -> int:
    """Where to begin reading: not where an entry names what is not there."""
    return position if position < end else 0


def check_last_entry(log: ReadableFile, index: SparseIndex, size_bytes: int) -> None:
    """CorruptionError where the last entry of the offset index is not true: it is another log's.

    Brokers before 4.0 note the last offset of an append with the position of its first batch, those
    before 0.11 its first offset: all of them lie in the batch at that position or behind it.
    """
    last = index.last_offset_entry
    if last is None:
        return
    place = find_offset(log, last.position, size_bytes, 0)
    if place is None or place.position != last.position or place.base_offset > last.offset:
        raise corruption(Reason.OFFSET_ORDER, last.position, detail="the index is of another log")


def learn_times(log: ReadableFile, index: SparseIndex, size_bytes: int) -> None:
    """Look behind the last time entry for a larger timestamp, from headers. CorruptionError where the
    entry is not true."""
    last = index.last_time_entry
    start = 0 if last is None else index.position_before(last.offset)
    largest = int(NO_TIMESTAMP) if last is None else last.timestamp
    offset = -1
    for place in find_time(log, start, size_bytes, max(largest, 0), last):
        if place.max_timestamp > largest:
            largest, offset = place.max_timestamp, place.last_offset
    index.relearn_times(largest, offset)


def read_aborted(file_system: FileSystem, path: str, segment: Segment) -> tuple[AbortedTxn, ...]:
    """The entries of a transaction index; none where there is no file."""
    found = file_system.stat(path)
    if found is None and file_system.stat(segment.path(FileKind.LOG)) is None:
        # Without this, a segment deleted under a reader would look as if nothing had been aborted.
        raise StorageError("deleted while it was read", path=path, errno=errno.ENOENT)
    if found is None or found.size == 0:
        return ()
    file = file_system.open_readable(path)
    try:
        data = bytearray(found.size)
        size = file.read_into(0, memoryview(data))
    finally:
        file.close()
    try:
        return tuple(decode_entries(bytes(data[:size]), segment.base_offset))
    except CorruptionError as error:
        raise error.located(path=path) from None
