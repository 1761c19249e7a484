"""How many records a log file holds: exact, and from headers alone wherever the format allows it."""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.inspect.counter import Counter
from stratalog.inspect.walk_file import FileEnd, Progress, walk_windows
from stratalog.records.compression import DECOMPRESSED_SIZE_MAX_DEFAULT
from stratalog.records.layout import Check
from stratalog.storage.filesystem import FileSystem
from stratalog.storage.log_file import open_log_file

__all__ = ["FileCount", "count_file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCount:
    """What stands in one file before its end, or before what is wrong in it; ``end`` tells which.

    ``first_offset`` is the base offset of the first batch, ``last_offset`` the last offset of the last
    one; after compaction neither need have a record any more. None where there is no batch.
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
    end: FileEnd


def count_file(
    path: str,
    *,
    file_system: FileSystem | None = None,
    max_batch_bytes: int = 256 << 20,
    max_decompressed_bytes: int = DECOMPRESSED_SIZE_MAX_DEFAULT,
    progress: Progress | None = None,
) -> FileCount:
    """Count one file. Bytes that are wrong are no error here: the count ends in front of them."""
    with open_log_file(path, file_system) as log_file:
        counter = Counter(
            log_file,
            check=Check.ORDER,
            expected_offset=-1 if log_file.base_offset is None else log_file.base_offset,
            max_batch_bytes=max_batch_bytes,
            max_decompressed_bytes=max_decompressed_bytes,
            progress=progress,
        )
        pauses = walk_windows(
            log_file,
            counter.step,
            max_batch_bytes=max_batch_bytes,
            hop=counter.hop,
            progress=progress,
        )
        *_, pause = pauses
        place = log_file.topic_partition
        return FileCount(
            path=path,
            topic=None if place is None else place.topic,
            partition=None if place is None else place.partition,
            records=counter.records,
            control_records=counter.control_records,
            batches=counter.batches,
            size_bytes=log_file.size,
            first_offset=counter.first_offset,
            last_offset=counter.last_offset,
            end=FileEnd(path, log_file.size, pause),
        )
