"""What of one partition is read: offsets and times, with where the log starts and ends worked in."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stratalog.errors import StorageError
from stratalog.inspect.file.skip_by_time import ends_before
from stratalog.inspect.file.span import SegmentSpan, segment_spans
from stratalog.inspect.partition.sources import PartitionSource
from stratalog.inspect.range.offset_range import OffsetRange
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem

__all__ = ["NO_BOUNDS", "Bounds", "bounds_of", "part_within", "spans_within"]

#: Below this, to read everything is as quick as to search.
_SEARCH_BYTES_MIN: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Bounds:
    """From, and up to but not including; None is no bound. Times are milliseconds."""

    start: int | None = None
    end: int | None = None
    start_time: int | None = None
    end_time: int | None = None

    def hold(self, span: SegmentSpan) -> bool:
        """Whether everything in a segment lies within, by its name: then nothing in it is looked for."""
        if self.start_time is not None or self.end_time is not None:
            return False
        if self.start is not None and (span.base_offset is None or span.base_offset < self.start):
            return False
        return self.end is None or (span.next_offset is not None and span.next_offset <= self.end)


NO_BOUNDS: Final = Bounds()


def bounds_of(
    source: PartitionSource, wanted: OffsetRange, file_system: FileSystem | None = None
) -> Bounds:
    """The bounds of a range in this partition. Nothing below the log start is read, and nothing of a
    commit that is under way."""
    log_start = log_end = source.log_start
    if wanted.needs_start or wanted.needs_end:
        from stratalog.inspect.partition.ends import partition_ends

        ends = partition_ends(source, file_system)
        log_start, log_end = ends.start, ends.end
    start, end = wanted.resolve(log_start, log_end)
    if source.log_start and (start is None or start < source.log_start):
        start = source.log_start
    if source.visible_end is not None and (end is None or end > source.visible_end):
        end = source.visible_end
    return Bounds(start, end, wanted.start_time, wanted.end_time)


def spans_within(
    source: PartitionSource, bounds: Bounds, file_system: FileSystem | None = None
) -> Iterator[SegmentSpan]:
    """The segments that can hold something wanted, by their names and, for times, their time index."""
    for span in segment_spans(source.segments):
        if span.base_offset is not None:
            if bounds.end is not None and span.base_offset >= bounds.end:
                continue
            if span.next_offset is not None:
                if bounds.start is not None and span.next_offset <= bounds.start:
                    continue
                if bounds.start_time is not None and ends_before(
                    span, bounds.start_time, file_system
                ):
                    continue
        yield span


def part_within(
    span: SegmentSpan, bounds: Bounds, size: int, file_system: FileSystem | None = None
) -> tuple[int, int]:
    """From which batch of a segment up to which position lies everything within bounds. All of a segment
    that is small, or where nothing else is proved."""
    base, behind = span.base_offset, span.next_offset
    starts = base is not None and bounds.start is not None and bounds.start > base
    ends = bounds.end is not None and (behind is None or bounds.end < behind)
    if size < _SEARCH_BYTES_MIN or not (starts or ends or bounds.start_time is not None):
        return 0, size
    from stratalog.inspect.file.search import SegmentSearch

    try:
        search = SegmentSearch(span, file_system or OsFileSystem())
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        return 0, size  # deleted meanwhile: who has it open can still read it
    with search:
        if not search.is_searchable:
            return 0, size
        position = search.position_before(bounds.start) if bounds.start is not None else 0
        if bounds.start_time is not None:
            early = search.batch_before_time(bounds.start_time)
            position = max(position, 0 if early is None else early.position)
        limit = search.size if bounds.end is None else search.position_behind(bounds.end, size)
    return position, max(min(limit, size), position)
