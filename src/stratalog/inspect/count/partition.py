"""How many records a partition holds, all of it or within bounds: segment by segment.

A segment that lies within the bounds by its name is counted from headers. Only those at an edge are decoded,
and all of them where times are asked for: no header tells the earliest.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from stratalog.errors import StorageError
from stratalog.inspect.count.within import count_within
from stratalog.inspect.file.count import FileCount, count_file, ending_below
from stratalog.inspect.file.span import SegmentSpan, segment_spans
from stratalog.inspect.partition.sources import (
    PartitionSource,
    relisted,
    vanished,
    with_fresh_listing,
)
from stratalog.inspect.range.bounds import Bounds, bounds_of, spans_within
from stratalog.inspect.range.offset_range import WHOLE, OffsetRange
from stratalog.records.columns import WalkEnd
from stratalog.records.compression import DECOMPRESSED_SIZE_MAX_DEFAULT
from stratalog.records.layout import BATCH_SIZE_MAX_DEFAULT, Ending, Reason
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.segment.walk import FileEnd
from stratalog.types import Progress

if TYPE_CHECKING:
    from stratalog.inspect.partition.clean_excess import CleanExcess

__all__ = [
    "PartitionCount",
    "SegmentCount",
    "State",
    "Tally",
    "count_partition",
    "size_partition",
    "tally",
]

State = Literal["ok", "torn", "unread", "damaged"]


@dataclass(frozen=True, slots=True)
class SegmentCount:
    """The count of one file, and whether it is the last of its partition: only there may it be torn."""

    file: FileCount
    is_last: bool

    @property
    def status(self) -> State:
        if self.file.end.is_clean:
            return "ok"
        torn = self.is_last and self.file.end.pause.ending == Ending.INCOMPLETE
        return "torn" if torn else "damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCount:
    """The segments that were counted, of a log that holds ``start_offset`` up to but not including
    ``end_offset``; ``unread_files`` could not be read."""

    source: PartitionSource
    segments: tuple[SegmentCount, ...]
    start_offset: int
    end_offset: int
    unread_files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Several segments put together; see :class:`FileCount` for what the names mean."""

    segments: int
    records: int
    control_records: int
    batches: int
    size_bytes: int
    log_bytes: int
    first_offset: int | None
    last_offset: int | None
    first_time: int | None
    last_time: int | None
    status: State


def tally(segments: Iterable[SegmentCount], unread_files: int = 0) -> Tally:
    """The sums, the least and the largest, and the worst; also of so many files that could not be read."""
    listed = list(segments)
    files = [segment.file for segment in listed]
    return Tally(
        segments=len(files),
        records=sum(file.records for file in files),
        control_records=sum(file.control_records for file in files),
        batches=sum(file.batches for file in files),
        size_bytes=sum(file.size_bytes for file in files),
        log_bytes=sum(file.log_bytes for file in files),
        first_offset=min(
            (n for file in files if (n := file.first_offset) is not None), default=None
        ),
        last_offset=max((n for file in files if (n := file.last_offset) is not None), default=None),
        first_time=min((t for file in files if (t := file.first_time) is not None), default=None),
        last_time=max((t for file in files if (t := file.last_time) is not None), default=None),
        status=_worst(listed, unread_files),
    )


def _worst(segments: list[SegmentCount], unread_files: int) -> State:
    states = {segment.status for segment in segments}
    if "damaged" in states:
        return "damaged"
    if unread_files:
        return "unread"
    return "torn" if "torn" in states else "ok"


def count_partition(
    source: PartitionSource,
    wanted: OffsetRange = WHOLE,
    *,
    every_segment: bool = False,
    times: bool = False,
    file_system: FileSystem | None = None,
    max_batch_bytes: int = BATCH_SIZE_MAX_DEFAULT,
    max_decompressed_bytes: int = DECOMPRESSED_SIZE_MAX_DEFAULT,
    progress: Progress | None = None,
    on_error: Callable[[StorageError], None] | None = None,
) -> PartitionCount:
    """Count the segments of a partition that can hold something wanted, or ``every_segment``.

    Where a file vanished since the folder was listed, a new listing is counted; where one vanishes
    again, that raises. Any other file that cannot be read raises, too; with ``on_error`` it is handed
    over and left out.
    """
    counting = _Counting(
        wanted=wanted,
        every_segment=every_segment,
        times=times,
        file_system=file_system,
        max_batch_bytes=max_batch_bytes,
        max_decompressed_bytes=max_decompressed_bytes,
        progress=progress,
        on_error=on_error,
    )
    return with_fresh_listing(source, file_system, counting.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counting:
    wanted: OffsetRange
    every_segment: bool
    times: bool
    file_system: FileSystem | None
    max_batch_bytes: int
    max_decompressed_bytes: int
    progress: Progress | None
    on_error: Callable[[StorageError], None] | None

    def count(self, source: PartitionSource) -> PartitionCount:
        while True:
            counted = self._count(source)
            if not source.is_listed or not any(map(_breaks_order, counted.segments)):
                return counted
            # Compaction may have put one segment in the place of several since they were listed.
            fresh = relisted(source, self.file_system)
            if fresh.segments == source.segments:
                return counted
            source = fresh

    def _count(self, source: PartitionSource) -> PartitionCount:
        bounds = bounds_of(source, self.wanted, self.file_system)
        if self.every_segment:
            spans = segment_spans(source.segments)
        else:
            spans = spans_within(source, bounds, self.file_system)
        counts: list[SegmentCount] = []
        done = unread_files = 0
        for span in spans:
            is_last = span.path == source.segments[-1]
            try:
                excess = source.clean_excess(self.file_system) if is_last else None
                file = self._segment(span, bounds, done, excess)
            except StorageError as error:
                if self.on_error is None or vanished(source, error):
                    raise
                self.on_error(error)
                unread_files += 1
                continue
            done += file.size_bytes
            file = ending_below(file, span.next_offset)
            counts.append(SegmentCount(file, is_last))
        start_offset = _start_offset(source, counts)
        end_offset = counts[-1].file.next_offset if counts else 0
        if source.visible_end is not None:
            end_offset = min(end_offset, source.visible_end)
        return PartitionCount(
            source=source,
            segments=tuple(counts),
            start_offset=start_offset,
            end_offset=max(start_offset, end_offset),
            unread_files=unread_files,
        )

    def _segment(
        self, span: SegmentSpan, bounds: Bounds, done: int, excess: CleanExcess | None
    ) -> FileCount:
        """Count a segment, up to a last batch whose offset is wrong."""
        count = self._counted(span, bounds, done, None if excess is None else excess.position)
        return count if excess is None else replace(count, end=excess.end_of(count.size_bytes))

    def _counted(self, span: SegmentSpan, bounds: Bounds, done: int, end: int | None) -> FileCount:
        progress = None if self.progress is None else _shifted(self.progress, done)
        if bounds.hold(span):
            return count_file(
                span.path,
                file_system=self.file_system,
                max_batch_bytes=self.max_batch_bytes,
                max_decompressed_bytes=self.max_decompressed_bytes,
                progress=progress,
                times=self.times,
                end=end,
            )
        return count_within(
            span.path,
            bounds,
            file_system=self.file_system,
            max_batch_bytes=self.max_batch_bytes,
            max_decompressed_bytes=self.max_decompressed_bytes,
            progress=progress,
            below=span.next_offset,
            end=end,
        )


def _breaks_order(segment: SegmentCount) -> bool:
    return segment.file.end.pause.reason == Reason.OFFSET_ORDER


def _start_offset(source: PartitionSource, counts: list[SegmentCount]) -> int:
    for span in segment_spans(source.segments[:1]):
        if span.base_offset is not None:
            return max(source.log_start, span.base_offset)
    return (counts[0].file.first_offset or 0) if counts else source.log_start


def _shifted(progress: Progress, done: int) -> Progress:
    return lambda position: progress(done + position)


def size_partition(
    source: PartitionSource, file_system: FileSystem | None = None
) -> PartitionCount:
    """A partition's files by their names and sizes alone: what would have to be read counts as nothing."""
    return with_fresh_listing(
        source, file_system, lambda each: _sizes(each, file_system or OsFileSystem())
    )


def _sizes(source: PartitionSource, file_system: FileSystem) -> PartitionCount:
    segments = []
    for span in segment_spans(source.segments):
        found = file_system.stat(span.path)
        if found is None:
            raise StorageError(
                os.strerror(errno.ENOENT).lower(), path=span.path, errno=errno.ENOENT
            )
        file = FileCount(
            path=span.path,
            topic=None if source.topic_partition is None else source.topic_partition.topic,
            partition=None if source.topic_partition is None else source.topic_partition.partition,
            records=0,
            control_records=0,
            batches=0,
            size_bytes=found.size,
            first_offset=None,
            last_offset=None,
            next_offset=0,
            end=FileEnd(span.path, found.size, WalkEnd(found.size, Ending.END)),
        )
        segments.append(SegmentCount(file, span.path == source.segments[-1]))
    start_offset = _start_offset(source, segments)
    return PartitionCount(
        source=source, segments=tuple(segments), start_offset=start_offset, end_offset=start_offset
    )
