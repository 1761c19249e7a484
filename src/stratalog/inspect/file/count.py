"""How many records a log file holds: exact, and from headers alone wherever the format allows it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stratalog.inspect.file.counter import Counter
from stratalog.inspect.file.times import LatestTime, first_time
from stratalog.records.columns import WalkEnd
from stratalog.records.compression import DECOMPRESSED_SIZE_MAX_DEFAULT
from stratalog.records.layout import BATCH_SIZE_MAX_DEFAULT, Check, Ending, Reason
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.segment.log_file import LogFile, open_log_file
from stratalog.storage.segment.walk import FileEnd, walk_windows
from stratalog.types import Progress

__all__ = ["FileCount", "count_file", "ending_below", "next_offset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCount:
    """What stands in one file before its end, or before what is wrong in it; ``end`` tells which.

    ``first_offset`` is the base offset of the first batch, ``last_offset`` the last offset of the last
    one; after compaction neither need have a record any more. None where there is no batch. The next
    batch would get ``next_offset``. Times are milliseconds, None where there is none or none was asked
    for: that of the first record with one, and the latest of all.
    """

    path: str
    topic: str | None
    partition: int | None
    records: int
    control_records: int
    batches: int
    size_bytes: int
    first_offset: int | None
    last_offset: int | None
    next_offset: int
    end: FileEnd
    first_time: int | None = None
    last_time: int | None = None

    @property
    def log_bytes(self) -> int:
        """The size without a batch that is cut off and without zeros that were set aside."""
        torn = self.end.pause.ending == Ending.INCOMPLETE
        return self.end.pause.position if torn else self.size_bytes


def count_file(
    path: str,
    *,
    file_system: FileSystem | None = None,
    max_batch_bytes: int = BATCH_SIZE_MAX_DEFAULT,
    max_decompressed_bytes: int = DECOMPRESSED_SIZE_MAX_DEFAULT,
    progress: Progress | None = None,
    times: bool = False,
    latest: LatestTime | None = None,
    start: int = 0,
    end: int | None = None,
) -> FileCount:
    """Count one file. Bytes that are wrong are no error here: the count ends in front of them.

    ``start`` and ``end`` are positions of batches: of a file that is counted in parts, what lies between.
    ``latest`` is one that learns more from the headers than the latest time.
    """
    if latest is None and times:
        latest = LatestTime()
    with open_log_file(path, file_system) as whole:
        log_file = whole if end is None else whole.up_to(end)
        counter = Counter(
            log_file,
            check=Check.ORDER,
            expected_offset=-1 if log_file.base_offset is None else log_file.base_offset,
            max_batch_bytes=max_batch_bytes,
            max_decompressed_bytes=max_decompressed_bytes,
            progress=progress,
            latest=latest,
        )
        pauses = walk_windows(
            log_file,
            counter.step,
            max_batch_bytes=max_batch_bytes,
            hop=counter.hop,
            progress=progress,
            start=start,
        )
        *_, pause = pauses
        return FileCount(
            path=path,
            topic=log_file.topic,
            partition=log_file.partition,
            records=counter.records,
            control_records=counter.control_records,
            batches=counter.batches,
            size_bytes=whole.size,
            first_offset=counter.first_offset,
            last_offset=counter.last_offset,
            next_offset=next_offset(log_file, counter.expected_offset, pause.position),
            end=FileEnd(path, whole.size, pause),
            first_time=first_time(
                whole,
                max_batch_bytes=max_batch_bytes,
                max_decompressed_bytes=max_decompressed_bytes,
            )
            if times and start == 0
            else None,
            last_time=None if latest is None else latest.value,
        )


def ending_below(count: FileCount, limit: int | None) -> FileCount:
    """The count of a file whose next segment begins at ``limit``: damaged where it reaches that far. No
    CRC covers an offset, and nothing else proves that of the last batch wrong."""
    if limit is None or not count.end.is_clean or count.next_offset <= limit:
        return count
    detail = f"the last batch reaches offset {count.next_offset - 1}, and the next segment begins at {limit}"
    pause = WalkEnd(count.end.pause.position, Ending.CORRUPT, Reason.OFFSET_ORDER, detail)
    return replace(count, end=replace(count.end, pause=pause))


def next_offset(log_file: LogFile, expected_offset: int, position: int) -> int:
    """The offset behind what was read: up to a position, with the offset that was expected there."""
    if log_file.is_v07:
        return (log_file.base_offset or 0) + position
    return max(expected_offset, 0)
