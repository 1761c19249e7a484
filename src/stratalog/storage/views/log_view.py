"""What a reader sees of a log: its segments and its limits at one moment, in a value that never changes.

The log makes a new view whenever something moves. Readers take the one that is there and need no lock: an
append, a roll or a deletion meanwhile changes the log, not their view.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from operator import is_
from typing import Final, NamedTuple

from stratalog.errors import LimitExceededError, OffsetOutOfRangeError, UsageError
from stratalog.storage.files.filesystem import ReadableFile
from stratalog.storage.names import FileKind
from stratalog.storage.segment.find import BatchPlace
from stratalog.storage.segment.segment import Segment
from stratalog.storage.segment.txn_index import AbortedTxn, collect_aborted

__all__ = ["FileRegion", "Isolation", "LogRead", "LogView", "SegmentList"]


class Isolation(StrEnum):
    """How far a reader may see."""

    LOG_END = "log_end"
    UNCOMMITTED = "read_uncommitted"
    COMMITTED = "read_committed"


# What a named tuple's own function does, without that function: every read makes some.
_new: Final = tuple.__new__
# A member of an enumeration is found by a search, which every read would make.
_LOG_END: Final = Isolation.LOG_END
_COMMITTED: Final = Isolation.COMMITTED


class FileRegion(NamedTuple):
    """A part of a data file, for ``sendfile`` or to be read. The file stays readable as long as this
    is held, even when its segment is deleted meanwhile."""

    file: ReadableFile
    position: int
    size_bytes: int

    def read(self) -> bytes:
        """The bytes; fewer where the file was cut meanwhile."""
        return self.file.read(self.position, self.size_bytes)


class LogRead(NamedTuple):
    """The answer to a read. The region starts with the batch that holds the offset asked for, so that
    records before it may come along; it may end in the middle of a batch."""

    start_offset: int
    region: FileRegion | None
    high_watermark: int
    last_stable_offset: int
    log_start: int
    log_end: int
    #: Only under read_committed: transactions whose records in the region are to be skipped.
    aborted: tuple[AbortedTxn, ...] | None = None
    #: Of the segment that the region lies in, in its view.
    number: int = -1

    @property
    def size_bytes(self) -> int:
        return 0 if self.region is None else self.region.size_bytes


class SegmentList:
    """The segments of a log, oldest first; there is always one. Never changed: replaced."""

    __slots__ = ("_bases", "segments")

    def __init__(self, segments: Sequence[Segment]) -> None:
        assert segments, "a log has at least one segment"
        self.segments = tuple(segments)
        self._bases = [segment.base_offset for segment in segments]

    def __len__(self) -> int:
        return len(self.segments)

    def __getitem__(self, number: int) -> Segment:
        return self.segments[number]

    @property
    def last(self) -> Segment:
        return self.segments[-1]

    def replacing(self, old: Sequence[Segment], new: Sequence[Segment]) -> SegmentList:
        """Return the list with ``new`` in the place of ``old``, which are neighbours in this list.

        Raise UsageError if they are not, or if the new ones are not in order between the neighbours that
        stay: a reader would then find an offset in two segments, or in none.
        """
        if not old:
            raise UsageError("no segments to replace: name at least one")
        first = self.floor(old[0].base_offset)
        after = first + len(old)
        kept_before, kept_after = self.segments[: max(first, 0)], self.segments[after:]
        if not self.has_run(old):
            raise UsageError(f"the segments at {_bases_of(old)} are not neighbours in this log")
        made = SegmentList([*kept_before, *new, *kept_after])
        if any(low >= high for low, high in pairwise(made._bases)):
            raise UsageError(
                f"segments at {_bases_of(new)} cannot take the place of those at {_bases_of(old)}: "
                f"their neighbours are at {_bases_of((*kept_before[-1:], *kept_after[:1]))}"
            )
        return made

    def has_run(self, segments: Sequence[Segment]) -> bool:
        """Return whether these very segments are neighbours in this list."""
        first = max(self.floor(segments[0].base_offset), 0)
        found = self.segments[first : first + len(segments)]
        return len(found) == len(segments) and all(map(is_, found, segments))

    def floor(self, offset: int) -> int:
        """Return the number of the segment that may hold ``offset``; -1 if it lies before all."""
        return bisect_right(self._bases, offset) - 1

    def next_base(self, number: int, log_end: int) -> int:
        """Return where the segment after this one starts, or where the log ends."""
        return self._bases[number + 1] if number + 1 < len(self._bases) else log_end


def _bases_of(segments: Sequence[Segment]) -> list[int]:
    return [segment.base_offset for segment in segments]


class LogView(NamedTuple):
    """A log at one moment. ``end_position`` is where its last segment ended then."""

    segments: SegmentList
    log_start: int
    log_end: int
    end_position: int
    high_watermark: int
    last_stable_offset: int

    def bound(self, isolation: Isolation) -> int:
        """The first offset that a reader may not see."""
        if isolation is Isolation.LOG_END:
            return self.log_end
        if isolation is Isolation.UNCOMMITTED:
            return self.high_watermark
        return self.last_stable_offset

    def limit(self, number: int) -> int:
        """Where a segment ends in this view."""
        segments = self.segments.segments
        return self.end_position if number + 1 == len(segments) else segments[number].size_bytes

    def find(self, offset: int) -> tuple[int, BatchPlace] | None:
        """The first batch that reaches ``offset``, and the number of its segment. A batch may have
        been compacted away: then the next one that is there."""
        segments = self.segments.segments
        number = max(self.segments.floor(offset), 0)
        last = len(segments) - 1
        while number <= last:
            segment = segments[number]
            limit = segment.size_bytes if number < last else self.end_position
            place = segment.find_offset(offset, limit)
            if place is not None:
                return number, place
            number += 1
        return None

    def check_range(self, offset: int) -> None:
        if not self.log_start <= offset <= self.log_end:
            raise OffsetOutOfRangeError(offset, self.log_start, self.log_end)

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: Isolation = Isolation.LOG_END,
        *,
        at_least_one: bool = True,
        max_batch_bytes: int = 256 << 20,
    ) -> LogRead:
        """Bytes from ``offset`` on, of one segment and up to ``max_bytes``. With ``at_least_one`` the
        first batch comes whole, however large it is, up to ``max_batch_bytes``."""
        log_start, log_end = self.log_start, self.log_end
        if not log_start <= offset <= log_end:
            raise OffsetOutOfRangeError(offset, log_start, log_end)
        bound = log_end if isolation is _LOG_END else self.bound(isolation)
        found = self.find(offset) if offset < bound else None
        region, number = None, -1
        aborted: tuple[AbortedTxn, ...] | None = () if isolation is _COMMITTED else None
        if found is not None:
            number, place = found
            size = place.size_bytes
            if size > max_bytes and at_least_one:
                self._check_size(number, place, max_batch_bytes)
            else:
                size = max_bytes
            position = place.position
            end = self.limit(number) if bound >= log_end else self._bound_position(number, bound)
            if size > end - position:
                size = end - position
            if size > 0:
                log = self.segments.segments[number].log
                region = _new(FileRegion, (log, position, size))
                if aborted is not None:
                    aborted = self._aborted(offset, region, number)
        hw, stable = self.high_watermark, self.last_stable_offset
        return _new(LogRead, (offset, region, hw, stable, log_start, log_end, aborted, number))

    def _check_size(self, number: int, place: BatchPlace, max_batch_bytes: int) -> None:
        if place.size_bytes > max_batch_bytes:
            raise LimitExceededError(
                "batch_size",
                f"a batch of {place.size_bytes} bytes is above max_batch_bytes={max_batch_bytes}",
                position=place.position,
                path=self.segments[number].path(FileKind.LOG),
            )

    def _bound_position(self, number: int, bound: int) -> int:
        """Where in segment ``number`` a reader must stop: before the batch that holds ``bound``."""
        if bound >= self.segments.next_base(number, self.log_end):
            return self.limit(number)
        place = self.segments[number].find_offset(bound, self.limit(number))
        return self.limit(number) if place is None else place.position

    def _aborted(self, offset: int, region: FileRegion, number: int) -> tuple[AbortedTxn, ...]:
        """The aborted transactions that may touch a region: some may not, none is missing."""
        if not any(segment.aborted for segment in self.segments.segments[number:]):
            return ()
        upper = self.segments[number].offset_behind(region.position + region.size_bytes)
        if upper is None:
            upper = self.segments.next_base(number, self.log_end)
        return self.aborted_between(offset, upper, number)

    def aborted_between(
        self, start: int, end: int, number: int | None = None
    ) -> tuple[AbortedTxn, ...]:
        """The aborted transactions with records from ``start`` up to ``end``; their markers lie at
        ``start`` or above it."""
        if number is None:
            number = max(self.segments.floor(start), 0)
        found: list[AbortedTxn] = []
        for segment in self.segments.segments[number:]:
            some, is_complete = collect_aborted(segment.aborted, start, end)
            found += some
            if is_complete:
                break
        return tuple(found)

    def bytes_behind(self, offset: int, isolation: Isolation) -> int:
        """How many bytes a reader at ``offset`` may still read, from the batch that holds it on."""
        bound = self.bound(isolation)
        found = self.find(offset) if offset < bound else None
        if found is None:
            return 0
        number, place = found
        last = max(self.segments.floor(bound), 0)
        if number > last:  # what compaction has left lies above the bound
            return 0
        total = -place.position
        for each in range(number, last):
            total += self.limit(each)
        return total + self._bound_position(last, bound)
