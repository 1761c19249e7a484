"""What of one partition is read: offsets and times, with where the log starts and ends worked in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stratalog.inspect.count import count_file
from stratalog.inspect.offset_range import OffsetRange
from stratalog.inspect.segment_order import SegmentSpan, segment_spans
from stratalog.inspect.sources import PartitionSource
from stratalog.inspect.time_index import ends_before
from stratalog.storage.filesystem import FileSystem

__all__ = ["NO_BOUNDS", "Bounds", "bounds_of", "spans_within"]


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
    """The bounds of a range in this partition. Nothing below the log start is read."""
    log_start = _log_start_of(source, file_system) if wanted.needs_start else source.log_start
    log_end = _log_end_of(source, file_system) if wanted.needs_end else log_start
    start, end = wanted.resolve(log_start, log_end)
    if source.log_start and (start is None or start < source.log_start):
        start = source.log_start
    return Bounds(start, end, wanted.start_time, wanted.end_time)


def _log_start_of(source: PartitionSource, file_system: FileSystem | None = None) -> int:
    """As Kafka has it: what is checkpointed, or the first segment's own start if that is higher."""
    for path, base_offset, _ in segment_spans(source.segments[:1]):
        if base_offset is None:
            base_offset = count_file(path, file_system=file_system).first_offset or 0
        return max(source.log_start, base_offset)
    return source.log_start


def _log_end_of(source: PartitionSource, file_system: FileSystem | None) -> int:
    """Behind the last whole batch, by the headers of the last segment. An index would be quicker, but
    beside a broker that lives, or behind one that died, its file is longer than its entries."""
    if not source.segments:
        return source.log_start
    return count_file(source.segments[-1], file_system=file_system).next_offset


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
