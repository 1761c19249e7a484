"""Which parts of which files a count reads, and the partitions put together from what was found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stratalog.clock import SYSTEM_CLOCK
from stratalog.errors import CorruptionError, StorageError, StratalogError
from stratalog.inspect.count.partition import PartitionCount, SegmentCount
from stratalog.inspect.file.count import FileCount, ending_below
from stratalog.inspect.file.search import SegmentSearch
from stratalog.inspect.file.span import SegmentSpan, segment_spans
from stratalog.inspect.partition.clean_excess import CleanExcess
from stratalog.inspect.partition.sources import PartitionSource, Sources, relisted, vanished
from stratalog.inspect.range.bounds import NO_BOUNDS, Bounds, bounds_of, spans_within
from stratalog.inspect.range.offset_range import WHOLE, OffsetRange, parse_offsets
from stratalog.spark.jobs.counting.batch_stats import BatchStats
from stratalog.spark.jobs.counting.tasks import (
    CountedPart,
    Counting,
    PartToCount,
    count_file_part,
    count_part,
    merge_parts,
)
from stratalog.spark.jobs.run.file_parts import FilePart, cut_file, part_size
from stratalog.spark.jobs.run.part_tasks import FailedPart, run_parts
from stratalog.spark.jobs.run.run_tasks import cores_of
from stratalog.spark.jobs.run.task_errors import OnError, tell
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.replace.settle import LISTINGS_MAX
from stratalog.storage.segment.walk import FileEnd

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stratalog.types import Progress

__all__ = ["CountedLog", "count_logs", "offset_range"]

#: Headers are read at the speed of memory: few tasks, each with much.
_TASKS_PER_CORE = 2
_PART_BYTES_MAX = 4 << 30


@dataclass(frozen=True, slots=True)
class CountedLog:
    """A partition's count, and what else its headers told where that was asked for."""

    count: PartitionCount
    stats: BatchStats


def offset_range(offsets: str | None) -> OffsetRange:
    """What ``--offsets`` asks for."""
    return WHOLE if offsets is None else parse_offsets(offsets, SYSTEM_CLOCK.now_ms())


def count_logs(
    spark: SparkSession,
    sources: Sources,
    counting: Counting,
    wanted: OffsetRange = WHOLE,
    *,
    every_segment: bool = False,
    name: str = "count",
    progress: Progress | None = None,
    on_error: OnError | None = None,
) -> list[CountedLog]:
    """Count partitions, as ``inspect.count_partition`` does one. A file that cannot be read is told
    ``on_error``, and left out; without it, that raises."""
    job = _CountJob(spark, counting, wanted, every_segment, name, progress, on_error)
    return [job.whole(source) for source in job.run(sources.partitions)]


@dataclass(slots=True)
class _File:
    """A file that is counted: of which partition, and what came of it."""

    source: PartitionSource
    span: SegmentSpan
    bounds: Bounds
    found: list[CountedPart]
    refused: StratalogError | None = None
    count: FileCount | None = None


class _CountJob:
    def __init__(
        self,
        spark: SparkSession,
        counting: Counting,
        wanted: OffsetRange,
        every_segment: bool,
        name: str,
        progress: Progress | None,
        on_error: OnError | None,
    ) -> None:
        self._spark = spark
        self._counting = counting
        self._wanted = wanted
        self._every_segment = every_segment
        self._name = name
        self._progress = progress
        self._on_error = on_error
        self._file_system = counting.logs.file_system
        self._files: list[_File] = []
        self._of: dict[str, list[_File]] = {}

    def run(self, sources: Sequence[PartitionSource]) -> list[PartitionSource]:
        """Count everything; a partition of which a file vanished is listed and counted anew."""
        counted = list(sources)
        self._count(counted)
        for number in range(len(counted)):
            for _ in range(LISTINGS_MAX):
                source = counted[number]
                files = self._of[source.folder]
                is_gone = any(self._is_gone(each) for each in files)
                if not is_gone and not any(map(_overlaps, files)):
                    break
                again = relisted(source, self._file_system)
                if not is_gone and again.segments == source.segments:
                    break
                counted[number] = again
                self._count([again])
        return counted

    def _is_gone(self, file: _File) -> bool:
        return isinstance(file.refused, StorageError) and vanished(file.source, file.refused)

    def _count(self, sources: Sequence[PartitionSource]) -> None:
        first = len(self._files)
        for source in sources:
            self._of[source.folder] = listed = []
            for span, bounds in self._spans(source):
                listed.append(_File(source, span, bounds, []))
            self._files += listed
        self._run(self._parts(range(first, len(self._files))))
        # Those whose parts did not fit together are counted in one go.
        self._run(
            [
                PartToCount(
                    number,
                    FilePart(file.span.path, 0, None, self._size(file.span.path)),
                    None if file.bounds == NO_BOUNDS else file.bounds,
                )
                for number, file in enumerate(self._files)
                if file.refused is None and file.count is None
            ]
        )

    def _spans(self, source: PartitionSource) -> Iterator[tuple[SegmentSpan, Bounds]]:
        try:
            bounds = bounds_of(source, self._wanted, self._file_system)
            spans = (
                segment_spans(source.segments)
                if self._every_segment
                else spans_within(source, bounds, self._file_system)
            )
            for span in spans:
                yield span, NO_BOUNDS if bounds.hold(span) else bounds
        except StorageError as error:
            if not vanished(source, error):
                tell(error, self._on_error)

    def _parts(self, numbers: range) -> list[PartToCount]:
        sizes = {number: self._size(self._files[number].span.path) for number in numbers}
        size = self._part_size(sum(sizes.values()))
        parts: list[PartToCount] = []
        for number in numbers:
            file = self._files[number]
            try:
                parts += self._cut(number, file, size)
            except StratalogError as error:
                file.refused = error
        return parts

    def _cut(self, number: int, file: _File, size: int) -> list[PartToCount]:
        bounds, path = file.bounds, file.span.path
        if bounds == NO_BOUNDS:
            return [
                PartToCount(number, part) for part in cut_file(file.span, self._file_system, size)
            ]
        end = _end_of_whole_batches(file.span, bounds, self._file_system)
        if end is None:
            return [PartToCount(number, FilePart(path, 0, None, self._size(path)), bounds)]
        parts = [part for part in cut_file(file.span, self._file_system, size) if part.start < end]
        parts[-1] = FilePart(path, parts[-1].start, end, end - parts[-1].start)
        return [PartToCount(number, part) for part in parts]

    def _part_size(self, total_bytes: int) -> int:
        return part_size(total_bytes, cores_of(self._spark), _TASKS_PER_CORE, _PART_BYTES_MAX)

    def _size(self, path: str) -> int:
        found = self._file_system.stat(path)
        return 0 if found is None else found.size

    def _run(self, parts: list[PartToCount]) -> None:
        if not parts:
            return
        task_bytes = self._part_size(sum(each.part.size_bytes for each in parts))
        touched = set()
        for each in run_parts(
            self._spark, count_part, self._counting, parts, task_bytes,
            name=self._name, progress=self._progress,
        ):  # fmt: skip
            if isinstance(each, FailedPart):
                self._files[each.number].refused = each.error
            else:
                self._files[each.number].found.append(each)
                touched.add(each.number)
        for number in touched:
            self._settle(self._files[number])

    def _settle(self, file: _File) -> None:
        file.found.sort(key=lambda each: each.part.start)
        file.count = merge_parts(file.found)
        if file.count is None:
            file.found.clear()

    def _up_to(self, excess: CleanExcess, file: _File) -> FileCount:
        """Count a file up to a last batch whose offset is wrong, on the driver: it is rare, and one file."""
        part = FilePart(excess.path, 0, excess.position, excess.position)
        bounds = None if file.bounds == NO_BOUNDS else file.bounds
        count = count_file_part(self._counting, part, bounds, self._file_system)
        return replace(count, end=excess.end_of(count.size_bytes))

    def whole(self, source: PartitionSource) -> CountedLog:
        files = self._of[source.folder]
        excess = source.clean_excess(self._file_system)
        segments, stats, unread = [], [], 0
        for file in files:
            if file.refused is not None:
                tell(file.refused, self._on_error)
                unread += 1
                continue
            assert file.count is not None
            shown = ending_below(_shown(file), file.span.next_offset)
            if excess is not None and excess.path == file.span.path:
                shown = self._up_to(excess, file)
            segments.append(SegmentCount(shown, file.span.path == source.segments[-1]))
            stats += [each.stats for each in file.found]
        start = _start_of(source, segments)
        end = segments[-1].file.next_offset if segments else 0
        count = PartitionCount(
            source=source,
            segments=tuple(segments),
            start_offset=start,
            end_offset=max(start, end),
            unread_files=unread,
        )
        return CountedLog(count, BatchStats.sum(stats))


def _end_of_whole_batches(span: SegmentSpan, bounds: Bounds, file_system: FileSystem) -> int | None:
    """Where everything up to ``bounds.end`` ends, if that is all that the bounds say of the segment and it
    lies between two batches: then headers are enough. A log that is committed to ends so for its readers."""
    if bounds.end is None or bounds.start_time is not None or bounds.end_time is not None:
        return None
    if bounds.start is not None and (span.base_offset is None or span.base_offset < bounds.start):
        return None
    with SegmentSearch(span, file_system) as search:
        if not search.is_searchable or bounds.end <= search.base_offset:
            return None
        try:
            last = search.find(bounds.end - 1)
        except CorruptionError:
            return None
    if last is None or last.last_offset != bounds.end - 1:
        return None
    return last.end_position


def _overlaps(file: _File) -> bool:
    """Whether a file reaches beyond where the next segment begins."""
    if file.count is None:
        return False
    return ending_below(file.count, file.span.next_offset) is not file.count


def _shown(file: _File) -> FileCount:
    """What a file that was counted up to a bound ends in is not the count's business."""
    count = file.count
    assert count is not None
    end = file.found[-1].part.end
    if end is None:
        return count
    return replace(count, end=FileEnd(count.path, end, count.end.pause))


def _start_of(source: PartitionSource, counts: list[SegmentCount]) -> int:
    for span in segment_spans(source.segments[:1]):
        if span.base_offset is not None:
            return max(source.log_start, span.base_offset)
    return (counts[0].file.first_offset or 0) if counts else source.log_start
