"""Write new segments with their indexes: as ``.cleaned`` files next to the ones that they will replace, or
under their final names in a new folder.

Batches come whole and in order. One segment holds them all, unless it would grow above its limit or beyond
the 31 bits that an index has for offsets: then another one begins. Nothing is fsynced before ``sync``: a swap
does that itself before it touches the old segments.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.records.layout import INT32_MAX, ROW_WIDTH, Check, Ending, Reason, Row
from stratalog.records.reasons import corruption
from stratalog.storage.files.filesystem import FileSystem, WritableFile
from stratalog.storage.names import SEGMENT_KINDS, FileKind, Stage, segment_file_name
from stratalog.storage.segment.sparse_index import IndexLimits, SparseIndex
from stratalog.storage.segment.txn_index import AbortedTxn, encode_entry

__all__ = ["CleanedSegments", "PathOf", "SegmentSize", "cleaned_paths"]

_HEADERS_AT_ONCE: Final = 1024
#: The disk begins with so many bytes at a time, so that the fsync before the swap waits for less.
_BEGIN_SYNC_BYTES: Final = 16 << 20

_POSITION: Final = int(Row.POSITION)
_SIZE: Final = int(Row.SIZE)
_BASE_OFFSET: Final = int(Row.BASE_OFFSET)
_LAST_OFFSET: Final = int(Row.LAST_OFFSET)
_RECORD_COUNT: Final = int(Row.RECORD_COUNT)


#: Where a file of a new segment goes, by its base offset and kind.
PathOf = Callable[[int, FileKind], str]


def cleaned_paths(folder: str, stage: Stage = Stage.CLEANED) -> PathOf:
    """Return where new segments lie before they are swapped in: as ``.cleaned`` in the partition's folder. In
    a folder that is not in use yet, they may be ``LIVE`` at once."""

    def path_of(base_offset: int, kind: FileKind) -> str:
        return os.path.join(folder, segment_file_name(base_offset, kind, stage))

    return path_of


class SegmentSize(NamedTuple):
    """A segment before or after a rewrite."""

    base_offset: int
    size_bytes: int


class _Cleaned:
    """One segment under construction."""

    def __init__(
        self, file_system: FileSystem, path_of: PathOf, base_offset: int, limits: IndexLimits
    ) -> None:
        self._file_system = file_system
        self._path_of = path_of
        self.base_offset = base_offset
        self.size_bytes = 0
        self.index = SparseIndex(base_offset, limits)
        self.aborted: list[AbortedTxn] = []
        self._log: WritableFile | None = None
        self._begun = 0

    def begin(self) -> None:
        """Create the data file. Apart from the constructor, so that whoever interrupts it finds a segment
        that can be discarded."""
        for kind in SEGMENT_KINDS:
            self._file_system.unlink(self.path(kind))
        self._log = self._file_system.open_writable(self.path(FileKind.LOG), create=True)

    @property
    def log(self) -> WritableFile:
        assert self._log is not None, "begin() was called"
        return self._log

    def path(self, kind: FileKind) -> str:
        return self._path_of(self.base_offset, kind)

    def write(self, data: memoryview) -> None:
        self.log.write_at(self.size_bytes, data)
        self.size_bytes += len(data)
        if self.size_bytes - self._begun >= _BEGIN_SYNC_BYTES:
            self.log.begin_sync(self._begun, self.size_bytes - self._begun)
            self._begun = self.size_bytes

    def finish(self, modified_ms: int | None) -> tuple[FileKind, ...]:
        """Write the indexes, and give all files the time that they are to have; return which files there
        are."""
        self.log.close()
        self.index.close_times()
        contents = {
            FileKind.OFFSET_INDEX: bytes(self.index.offsets),
            FileKind.TIME_INDEX: bytes(self.index.times),
        }
        if self.aborted:
            contents[FileKind.TXN_INDEX] = b"".join(map(encode_entry, self.aborted))
        for kind, content in contents.items():
            file = self._file_system.open_writable(self.path(kind), create=True)
            try:
                file.write_at(0, content)
            finally:
                file.close()
        kinds = (FileKind.LOG, *contents)
        if modified_ms is not None:
            for kind in kinds:
                self._file_system.set_modified(self.path(kind), modified_ms)
        return kinds

    def sync(self) -> None:
        for kind in SEGMENT_KINDS:
            if kind is FileKind.TXN_INDEX and not self.aborted:
                continue
            file = self._file_system.open_writable(self.path(kind))
            try:
                file.sync()
            finally:
                file.close()

    def discard(self) -> None:
        if self._log is not None:
            self._log.close()
        for kind in SEGMENT_KINDS:
            self._file_system.unlink(self.path(kind))


class CleanedSegments:
    """The segments that one group of old ones becomes. Call ``begin``, then ``finish``, or ``discard`` on the
    way out."""

    def __init__(
        self,
        file_system: FileSystem,
        path_of: PathOf,
        base_offset: int,
        limits: IndexLimits,
        *,
        size_max: int = INT32_MAX,
    ) -> None:
        """``path_of`` says where files go, ``base_offset`` is that of the first old segment. No segment grows
        above ``size_max`` bytes, unless a single batch is larger."""
        self._file_system = file_system
        self._path_of = path_of
        self._limits = limits
        self._size_max = size_max
        self._headers = memoryview(array("q", bytes(8 * ROW_WIDTH * _HEADERS_AT_ONCE)))
        self._segments: list[_Cleaned] = []
        self._base_offset = base_offset
        self._next_offset = base_offset
        #: How many records were written; None if a wrapper, which does not say how many it holds, was.
        self.records: int | None = 0

    def begin(self) -> None:
        """Create the first segment. From here on there are files to be discarded."""
        self._add(self._base_offset)

    def _add(self, base_offset: int) -> None:
        segment = _Cleaned(self._file_system, self._path_of, base_offset, self._limits)
        self._segments.append(segment)
        segment.begin()

    @property
    def base_offsets(self) -> list[int]:
        return [segment.base_offset for segment in self._segments]

    def sizes(self) -> tuple[SegmentSize, ...]:
        return tuple(SegmentSize(each.base_offset, each.size_bytes) for each in self._segments)

    def put(self, data: Any, aborted: Sequence[AbortedTxn]) -> None:
        """Write whole batches, and note the aborted transactions whose markers are among them."""
        self.append(data)
        self.note_aborted(aborted)

    def append(self, data: Any) -> None:
        """Write whole batches after the last ones."""
        view = memoryview(data)
        at = 0
        while at < len(view):
            held, reached, ending, reason, _ = kernel.walk(
                view, at, len(view), self._headers, Check.NONE, -1, INT32_MAX
            )
            row = 0
            while row < held:
                row = self._write(view, row, held)
            if ending not in (Ending.END, Ending.FULL):
                raise corruption(Reason(reason), reached)
            at = reached

    def _write(self, view: memoryview, row: int, held: int) -> int:
        """Write the batches of as many header rows as fit the last segment; return the row reached."""
        headers = self._headers
        segment = self._segments[-1]
        start = headers[row * ROW_WIDTH + _POSITION]
        fit = self._fitting(segment, row, held, start)
        if fit == row:
            lowest = headers[row * ROW_WIDTH + _LAST_OFFSET] - INT32_MAX
            if segment.size_bytes == 0 and segment.base_offset >= lowest:
                fit = row + 1  # larger than a segment may be: alone in one
            else:
                base = headers[row * ROW_WIDTH + _BASE_OFFSET]
                base = base if base >= 0 else max(self._next_offset, lowest)
                self._add(base)
                return row
        last = (fit - 1) * ROW_WIDTH
        end = headers[last + _POSITION] + headers[last + _SIZE]
        taken, reason = segment.index.note(
            headers[row * ROW_WIDTH : fit * ROW_WIDTH], fit - row, segment.size_bytes - start
        )
        if taken < fit - row:
            raise corruption(Reason(reason), segment.size_bytes)
        segment.write(view[start:end])
        self._count(row, fit)
        self._next_offset = headers[last + _LAST_OFFSET] + 1
        return fit

    def _fitting(self, segment: _Cleaned, row: int, held: int, start: int) -> int:
        """Return the first row whose batch does not fit into the segment any more."""
        headers = self._headers
        room = self._size_max - segment.size_bytes
        reach = segment.base_offset + INT32_MAX
        fit = held
        while fit > row:
            last = (fit - 1) * ROW_WIDTH
            end = headers[last + _POSITION] + headers[last + _SIZE]
            if end - start <= room and headers[last + _LAST_OFFSET] <= reach:
                break
            fit -= 1
        return fit

    def _count(self, row: int, fit: int) -> None:
        counts = self._headers[row * ROW_WIDTH + _RECORD_COUNT : fit * ROW_WIDTH : ROW_WIDTH]
        if self.records is not None:
            self.records = None if min(counts) < 0 else self.records + sum(counts)

    def note_aborted(self, transactions: Sequence[AbortedTxn]) -> None:
        """Add to the transaction index of the segment that holds each marker. Raise CorruptionError if it is
        none of these: the index that the transaction was found in is wrong."""
        for transaction in transactions:
            marker = transaction.last_offset
            home = [each for each in self._segments if each.base_offset <= marker]
            if not home:
                raise CorruptionError(
                    "txn_index_order",
                    f"a marker at offset {marker}, where the least possible is {self.base_offsets[0]}: "
                    "rebuild the transaction index",
                )
            home[-1].aborted.append(transaction)

    def finish(self, modified_ms: int | None = None) -> dict[int, tuple[FileKind, ...]]:
        """Complete all files, as old as ``modified_ms`` says, if it does; return the base offsets of the
        segments, with the files of each."""
        return {segment.base_offset: segment.finish(modified_ms) for segment in self._segments}

    def sync(self) -> None:
        """Fsync all files, once they are complete."""
        for segment in self._segments:
            segment.sync()

    def discard(self) -> None:
        """Remove everything that was written."""
        for segment in self._segments:
            segment.discard()
