"""What a task does for a count: parts of files, from their headers; and the parts put together again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from stratalog.inspect.count.within import count_within
from stratalog.inspect.file.count import FileCount, count_file
from stratalog.inspect.range.bounds import Bounds
from stratalog.records.columns import WalkEnd
from stratalog.records.compression import DECOMPRESSED_SIZE_MAX_DEFAULT
from stratalog.records.layout import BATCH_SIZE_MAX_DEFAULT, Ending
from stratalog.spark.jobs.counting.batch_stats import BatchStats, HeaderStats
from stratalog.spark.jobs.run.file_parts import FilePart
from stratalog.spark.jobs.run.log_paths import LogPaths
from stratalog.storage.files.filesystem import FileSystem

__all__ = ["CountedPart", "Counting", "PartToCount", "count_file_part", "count_part", "merge_parts"]

NO_STATS: Final = BatchStats()


@dataclass(frozen=True, slots=True)
class Counting:
    """How all tasks count."""

    logs: LogPaths
    times: bool = False
    stats: bool = False
    max_batch_bytes: int = BATCH_SIZE_MAX_DEFAULT
    max_decompressed_bytes: int = DECOMPRESSED_SIZE_MAX_DEFAULT


@dataclass(frozen=True, slots=True)
class PartToCount:
    """A part, and the number of its file. With ``bounds`` its records are decoded, and only those within
    count."""

    number: int
    part: FilePart
    bounds: Bounds | None = None


@dataclass(frozen=True, slots=True)
class CountedPart:
    """What was found in a part, as if it were a file."""

    number: int
    part: FilePart
    count: FileCount
    stats: BatchStats


def count_part(counting: Counting, each: PartToCount, file_system: FileSystem) -> CountedPart:
    """Count one part of a file."""
    headers = HeaderStats() if counting.stats else None
    count = count_file_part(counting, each.part, each.bounds, file_system, headers)
    if each.bounds is not None and headers is not None:
        # Those of all batches: a batch that lies across a bound is there as a whole.
        count_file_part(counting, each.part, None, file_system, headers)
    return CountedPart(
        each.number, each.part, count, NO_STATS if headers is None else headers.stats
    )


def count_file_part(
    counting: Counting,
    part: FilePart,
    bounds: Bounds | None,
    file_system: FileSystem,
    headers: HeaderStats | None = None,
) -> FileCount:
    """Count a part of a file from its headers; with ``bounds`` its records are decoded."""
    if bounds is not None:
        return count_within(
            part.path,
            bounds,
            file_system=file_system,
            max_batch_bytes=counting.max_batch_bytes,
            max_decompressed_bytes=counting.max_decompressed_bytes,
            end=part.end,
        )
    return count_file(
        part.path,
        file_system=file_system,
        max_batch_bytes=counting.max_batch_bytes,
        max_decompressed_bytes=counting.max_decompressed_bytes,
        times=counting.times,
        latest=headers,
        start=part.start,
        end=part.end,
    )


def merge_parts(parts: Sequence[CountedPart]) -> FileCount | None:
    """The parts of one file, in their order, as its count. None where they do not prove to follow one
    another: then the file is to be counted in one go."""
    first, last = parts[0].count, parts[-1].count
    if parts[0].part.start != 0:
        return None
    expected = -1
    for each in parts:
        count = each.count
        if count.first_offset is not None:
            if count.first_offset < expected:
                return None
            expected = count.next_offset
        if each.part.end is not None and not _is_met(each.part, count.end.pause):
            return None
    counts = [each.count for each in parts]
    firsts = [n for each in counts if (n := each.first_offset) is not None]
    lasts = [n for each in counts if (n := each.last_offset) is not None]
    times = [t for each in counts if (t := each.last_time) is not None]
    return replace(
        last,
        records=sum(each.records for each in counts),
        control_records=sum(each.control_records for each in counts),
        batches=sum(each.batches for each in counts),
        first_offset=firsts[0] if firsts else None,
        last_offset=lasts[-1] if lasts else None,
        next_offset=max(each.next_offset for each in counts),
        first_time=first.first_time,
        last_time=max(times, default=None),
    )


def _is_met(part: FilePart, pause: WalkEnd) -> bool:
    """Whether the walk came out exactly where the next part begins."""
    return pause.ending == Ending.END and pause.position == part.end
