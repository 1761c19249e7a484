"""A segment: one data file and its indexes. Sealed ones are only read; one, the last, is active.

Sealing makes a ``SealedSegment`` of an ``ActiveSegment``, so that an append to a sealed one cannot be
written. Both are read in the same way, without a lock: what a reader may see is bounded by the offsets and
positions that its caller took from the log.
"""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from typing import Final

from stratalog.errors import CorruptionError, StorageError
from stratalog.records.layout import Reason
from stratalog.records.reasons import corruption
from stratalog.storage.files.filesystem import FileSystem, ReadableFile
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.names import FileKind, Stage, segment_file_name
from stratalog.storage.segment.find import (
    READ_SIZE,
    BatchPlace,
    batch_at,
    find_offset,
    find_time,
    is_largest_time,
)
from stratalog.storage.segment.neighbours import last_in_order
from stratalog.storage.segment.sparse_index import (
    IndexLimits,
    SparseIndex,
)
from stratalog.storage.segment.txn_index import AbortedTxn, decode_entries
from stratalog.types import NO_TIMESTAMP

__all__ = [
    "Segment",
    "check_last_entry",
    "learn_times",
    "read_aborted",
    "read_entries",
]

#: Room for eight million aborted transactions in one segment.
_TXN_INDEX_MAX: Final = 256 << 20


class Segment(ABC):
    """What sealed and active segments have in common: being read."""

    def __init__(
        self,
        file_system: FileSystem,
        folder: str,
        base_offset: int,
        limits: IndexLimits,
        size_bytes: int,
        swapped: Collection[FileKind] = (),
    ) -> None:
        self._file_system = file_system
        self.folder = folder
        self.base_offset = base_offset
        self.limits = limits
        #: Of the batches; a file that was preallocated is longer.
        self.size_bytes = size_bytes
        self._swapped = swapped  # the files that do not have their final name yet

    def path(self, kind: FileKind) -> str:
        return self._path(kind, Stage.SWAP if kind in self._swapped else Stage.LIVE)

    def final_path(self, kind: FileKind) -> str:
        """Return the path that a file has, or will have if it is still ``.swap``."""
        return self._path(kind, Stage.LIVE)

    def _path(self, kind: FileKind, stage: Stage) -> str:
        return os.path.join(self.folder, segment_file_name(self.base_offset, kind, stage))

    def file_size(self, kind: FileKind) -> int:
        """Return the size of one of its files; 0 if there is none."""
        found = self._file_system.stat(self.path(kind))
        return 0 if found is None else found.size

    def is_swapped(self, kind: FileKind) -> bool:
        """Whether a file was still ``.swap`` when the folder was listed."""
        return kind in self._swapped

    def check_renamed(self, kind: FileKind) -> None:
        """Raise StorageError (ENOENT) if a swap, by another process, has given the data file its final name
        and not yet this index. Call it before the index is looked for: if it has no ``.swap`` name then, it
        has its final one, or the swap comes later and ``check_in_place`` notices it."""
        if kind in self._swapped:
            return
        if self._file_system.stat(self._path(kind, Stage.SWAP)) is None:
            return
        # With its data file also ``.swap``, it may be what an interrupted swap left, and does not count.
        if self._file_system.stat(self._path(FileKind.LOG, Stage.SWAP)) is None:
            raise self._gone("the segment is being replaced")

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
        return timestamp if timestamp >= 0 else self.modified_ms()

    def modified_ms(self) -> int:
        """Return when the data file was last changed; -1 if it is gone."""
        found = self._file_system.stat(self.path(FileKind.LOG))
        return NO_TIMESTAMP if found is None else found.modified_ms

    @property
    def is_listed(self) -> bool:
        """Whether it is known which data file this is, and not only its name."""
        return False

    def check_in_place(self) -> None:
        """Raise StorageError (ENOENT) if the data file does not have its name any more."""
        if self._file_system.stat(self.path(FileKind.LOG)) is None:
            raise self._gone("the segment was deleted while it was read")

    def _gone(self, detail: str) -> StorageError:
        return StorageError(detail, path=self.path(FileKind.LOG), errno=errno.ENOENT)

    def find_offset(self, offset: int, limit: int | None = None) -> BatchPlace | None:
        """Return the first batch that reaches ``offset``, among those that start before ``limit``. For files
        whose indexes were never checked, see ``SegmentSearch.position_before``."""
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

    def offset_before_time(self, timestamp: int) -> int:
        """Return an offset up to which every record is earlier than ``timestamp``: by the time index if the
        log bears it out, else the base offset. An index has no CRC: a flipped bit would pass over records."""
        try:
            entry = self.index.time_before(timestamp - 1)
        except BufferError:  # the index file was cut under its mapping
            entry = None
        if entry is None:
            return self.base_offset
        position = _before(self.size_bytes, self._position_before(entry.offset))
        is_true = is_largest_time(self.log, position, self.size_bytes, entry)
        return entry.offset if is_true else self.base_offset

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
        """The last batch; None in an empty segment. CorruptionError where the offsets before it are not in
        order, as far as they are looked at: then the log may end elsewhere."""
        return last_in_order(self, self.size_bytes)

    def read_batch(self, place: BatchPlace) -> bytes:
        """The bytes of one batch."""
        data = self.log.read(place.position, place.size_bytes)
        if len(data) < place.size_bytes:
            raise corruption(Reason.SHORT_TAIL, place.position).located(
                path=self.path(FileKind.LOG)
            )
        return data


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
    """Return the entries of a transaction index, none if there is no file. Raise StorageError (ENOENT) if the
    segment was deleted or replaced meanwhile: it would look as if nothing had been aborted."""
    segment.check_renamed(FileKind.TXN_INDEX)
    entries = read_entries(file_system, path, segment.base_offset)
    if entries is None and segment.is_swapped(FileKind.TXN_INDEX):
        # It was in the folder, so it has its final name now, or its segment was replaced again.
        final = segment.final_path(FileKind.TXN_INDEX)
        entries = read_entries(file_system, final, segment.base_offset)
        if entries is None:
            raise StorageError("renamed while it was read", path=path, errno=errno.ENOENT)
    if entries is None or segment.is_listed:
        segment.check_in_place()
    return entries or ()


def read_entries(
    file_system: FileSystem, path: str, base_offset: int
) -> tuple[AbortedTxn, ...] | None:
    """Return the entries of the transaction index at ``path``, None if there is no file."""
    data = read_small_file(file_system, path, size_max=_TXN_INDEX_MAX)
    if data is None:
        return None
    try:
        return tuple(decode_entries(data, base_offset))
    except CorruptionError as error:
        raise error.located(path=path) from None
