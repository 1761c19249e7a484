"""Finds places in one segment by its indexes, where the log itself agrees with what they say.

An index has no CRC: it may be left from a crash, belong to another log, be cut or flipped, and beside a live
broker its file is longer than its entries. So an entry is a hint. It is believed only where the log has the
batch that it names; where it has not, the headers are read from the segment's first byte on.

``Segment.find_offset`` answers the same for a log that is open. It differs in what it believes: the index was
checked as a whole when the segment was opened, so the entry that fits best is taken, and a read checks the
neighbours of its first batch once. Here nothing was checked before, so the place is one entry earlier, and
what follows is decoded in order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple, Self

from stratalog.errors import CorruptionError, LimitExceededError, StorageError
from stratalog.inspect.file.span import SegmentSpan
from stratalog.records.layout import (
    INT64_MAX,
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
)
from stratalog.storage.files.filesystem import FileSystem, ReadableFile
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.names import V07_SUFFIX, FileKind, sidecar_path
from stratalog.storage.segment.find import BatchPlace, find_offset, is_largest_time, places_from
from stratalog.storage.segment.index_entries import (
    OFFSET_KEY,
    POSITION_KEY,
    TIMESTAMP_KEY,
    offset_entry_at,
    slot_up_to,
    time_entry_at,
)

__all__ = ["CutPoint", "SegmentSearch"]

#: How many entries are tried, from the one that fits best backwards. Those of old brokers name an offset
#: inside of their batch, so that the best may not do.
_TRIES: Final = 3


class CutPoint(NamedTuple):
    """Where a segment may be cut in two. What is below ``offset`` ends before ``end_position``, what is at
    or above it begins at ``position`` or behind it. A hint: who reads there looks."""

    offset: int
    position: int
    end_position: int


class SegmentSearch:
    """One open segment and what its indexes say. Nothing is read before it is asked for."""

    def __init__(self, span: SegmentSpan, files: FileSystem) -> None:
        self._files = files
        self.span = span
        self.file: ReadableFile = files.open_readable(span.path)
        self.size = self.file.size()
        self._offsets: bytes | None = None
        self._times: bytes | None = None

    def close(self) -> None:
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def base_offset(self) -> int:
        return self.span.base_offset or 0

    @property
    def is_searchable(self) -> bool:
        """Whether offsets can be looked up: not in 0.7's files, and not where the name tells nothing."""
        return self.span.base_offset is not None and not self.is_v07

    @property
    def is_v07(self) -> bool:
        return self.span.path.endswith(V07_SUFFIX)

    # Offsets.

    def position_before(self, offset: int) -> int:
        """Where to begin reading: whatever is at or above ``offset`` lies there or behind it."""
        entries = self.offset_entries
        # One entry earlier than need be. An offset lies outside of the CRC: were that of the very first
        # batch wrong, nothing would show it. Now it follows a batch, above which it must lie.
        slot = slot_up_to(entries, OFFSET_KEY, offset - self.base_offset) - 1
        for each in range(slot, max(slot - _TRIES, -1), -1):
            position = offset_entry_at(entries, each, self.base_offset).position
            place = self._batch_at(position)
            if place is not None and place.first_offset <= offset:
                return position
        return 0

    def find(self, offset: int, limit: int | None = None) -> BatchPlace | None:
        """The first batch before ``limit`` that reaches ``offset``; None: there is none. CorruptionError
        where the headers in between cannot be read."""
        end = self.size if limit is None else limit
        start = self.position_before(offset)
        try:
            return find_offset(self.file, start, end, offset)
        except CorruptionError:
            if start == 0:
                raise
        return find_offset(self.file, 0, end, offset)

    def position_behind(self, offset: int, limit: int) -> int:
        """Where to stop reading: whatever is below ``offset`` lies before it. A batch more than need be where
        the last one is compacted away: an offset that is wrong could look the same."""
        if offset <= self.base_offset:
            return 0
        try:
            last = self.find(offset - 1, limit)
        except CorruptionError:
            return limit  # whoever reads will say what is wrong
        return limit if last is None else last.end_position

    def last_entry(self) -> int:
        """The position of the last batch that the offset index knows and the log has; 0: none."""
        return self.position_before(INT64_MAX)

    def cuts(self, start: int, end: int, step: int) -> Iterator[CutPoint]:
        """Places between two positions, about ``step`` bytes apart: from the index, or from the headers
        where there is none. They rise; more is not known of them."""
        entries = self.offset_entries
        if not entries and end - start > step:
            entries = self._made_entries()
        offset, position = self.base_offset, start
        while position + step < end:
            # Not at the first: it needs one before it.
            slot = max(1 + slot_up_to(entries, POSITION_KEY, position + step - 1), 1)
            if (slot + 2) * OFFSET_ENTRY_SIZE > len(entries):
                return
            # An entry names the last offset of its batch, or of the append that this batch begins: what
            # follows it is cut off, and lies before the next entry's batch.
            before, found, behind = (
                offset_entry_at(entries, each, self.base_offset)
                for each in (slot - 1, slot, slot + 1)
            )
            is_ahead = position + step <= found.position < behind.position < end
            if not is_ahead or found.offset + 1 <= offset:
                return
            offset, position = found.offset + 1, found.position
            yield CutPoint(offset, max(before.position, start), behind.position)

    def _batch_at(self, position: int) -> BatchPlace | None:
        """The batch at a position, by its header; None where there is none that belongs to the segment."""
        if not 0 < position < self.size:
            return None
        try:
            place = next(places_from(self.file, position, self.size), None)
        except CorruptionError:
            return None
        if place is None or place.position != position or place.last_offset < place.base_offset:
            return None
        behind = self.span.next_offset
        is_ours = self.base_offset <= place.first_offset and (
            behind is None or place.last_offset < behind
        )
        return place if is_ours else None

    # Times.

    def batch_before_time(self, time_ms: int) -> BatchPlace | None:
        """A batch up to which, itself included, everything is earlier than ``time_ms``; None where the
        time index proves nothing.

        An entry has the largest time so far, and the offset that has it. Its neighbours must be in order,
        and the log must confirm it.
        """
        entries = self.time_entries
        slot = slot_up_to(entries, TIMESTAMP_KEY, time_ms - 1)
        if slot < 0 or not _rises_around(entries, slot):
            return None
        time, offset = time_entry_at(entries, slot, self.base_offset)
        if time < 0 or offset < self.base_offset:
            return None
        position = self.position_before(offset)
        if not is_largest_time(self.file, position, self.size, (time, offset)):
            return None
        return find_offset(self.file, position, self.size, offset)

    # The files of the indexes.

    @property
    def offset_entries(self) -> bytes:
        """The entries of the offset index; none where it is missing."""
        if self._offsets is None:
            self._offsets = self._read(FileKind.OFFSET_INDEX, OFFSET_ENTRY_SIZE)
        return self._offsets

    @property
    def time_entries(self) -> bytes:
        """The entries of the time index; none where it is missing."""
        if self._times is None:
            self._times = self._read(FileKind.TIME_INDEX, TIME_ENTRY_SIZE)
        return self._times

    def _read(self, kind: FileKind, entry_size: int) -> bytes:
        path = sidecar_path(self.span.path, kind) if self.is_searchable else None
        if path is None:
            return b""
        try:
            data = read_small_file(self._files, path) or b""
        except (LimitExceededError, StorageError):
            return b""  # larger than any index of a segment, or refused: it would only have been a hint
        count = len(data) // entry_size
        # Beside a live broker zeros follow, that are set aside for more. No entry is zeros only.
        none = bytes(entry_size)
        held = bisect_left(
            range(count), True, key=lambda n: data[n * entry_size : (n + 1) * entry_size] == none
        )
        return data[: held * entry_size]

    def _made_entries(self) -> bytes:
        """The offset index as it would be, from the headers."""
        if not self.is_searchable:
            return b""
        # Imported here, because most segments have the index that they should.
        from stratalog.storage.segment.scan import rebuild_index
        from stratalog.storage.segment.sparse_index import IndexLimits

        made = rebuild_index(self.file, self.base_offset, IndexLimits(), self.size)
        self._offsets = bytes(made.offsets)
        return self._offsets


def _rises_around(entries: bytes, slot: int) -> bool:
    """Return whether an entry of a time index and its neighbours are in order."""
    slots = range(max(slot - 1, 0), min(slot + 2, len(entries) // TIME_ENTRY_SIZE))
    neighbours = [time_entry_at(entries, each, 0) for each in slots]
    return all(one[0] < two[0] and one[1] <= two[1] for one, two in pairwise(neighbours))
