"""How many records of a log file lie within bounds: decoded, because a batch may lie across an edge."""

from __future__ import annotations

from dataclasses import replace
from operator import ne
from typing import Final

from stratalog.inspect.file.count import FileCount, next_offset
from stratalog.inspect.file.decode import decode_file
from stratalog.inspect.file.span import segment_spans
from stratalog.inspect.file.times import LatestTime
from stratalog.inspect.range.bounds import Bounds, part_within
from stratalog.records.columns import DecodedColumns, RegionDecoder, Selection, WalkEnd
from stratalog.records.compression import DECOMPRESSED_SIZE_MAX_DEFAULT
from stratalog.records.layout import BATCH_SIZE_MAX_DEFAULT, Check, Column, Ending
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.segment.log_file import open_log_file
from stratalog.storage.segment.walk import FileEnd
from stratalog.types import Progress

__all__ = ["count_within"]

_COLUMNS: Final = Column.OFFSET | Column.POSITION | Column.TIMESTAMP_MS | Column.IS_CONTROL


def count_within(
    path: str,
    bounds: Bounds,
    *,
    file_system: FileSystem | None = None,
    max_batch_bytes: int = BATCH_SIZE_MAX_DEFAULT,
    max_decompressed_bytes: int = DECOMPRESSED_SIZE_MAX_DEFAULT,
    progress: Progress | None = None,
    below: int | None = None,
    end: int | None = None,
) -> FileCount:
    """Count the records of a file that lie within bounds, as ``count_file`` does; offsets and times are
    those of records, and batches those that have one. CRCs are not checked. The next segment begins at
    ``below``. ``end`` is the position of the batch up to which the file is counted."""
    decoder = RegionDecoder(
        Selection(
            columns=_COLUMNS,
            start=bounds.start,
            end=bounds.end,
            start_time=bounds.start_time,
            end_time=bounds.end_time,
            check=Check.ORDER | Check.INCLUDE_CONTROL,
            max_batch_bytes=max_batch_bytes,
            max_decompressed_bytes=max_decompressed_bytes,
        )
    )
    seen = _Seen()
    with open_log_file(path, file_system) as whole:
        log_file = whole if end is None else whole.up_to(end)
        last = WalkEnd(0, Ending.END)
        # Only its beginning is left out: the log's end is told, too.
        (span,) = segment_spans((path,))
        start, _ = part_within(span, replace(bounds, end=None), log_file.size, file_system)
        for pause in decode_file(log_file, decoder, progress, start=start, below=below):
            seen.add(decoder.take())
            last = pause
        return FileCount(
            path=path,
            topic=log_file.topic,
            partition=log_file.partition,
            records=seen.records - seen.control_records,
            control_records=seen.control_records,
            batches=seen.batches,
            size_bytes=whole.size,
            first_offset=seen.first_offset,
            last_offset=seen.last_offset,
            next_offset=next_offset(log_file, decoder.expected_offset, last.position),
            end=FileEnd(path, whole.size, last),
            first_time=seen.first_time,
            last_time=seen.latest.value,
        )


class _Seen:
    """What the columns showed so far."""

    def __init__(self) -> None:
        self.records = 0
        self.control_records = 0
        self.batches = 0
        self.first_offset: int | None = None
        self.last_offset: int | None = None
        self.first_time: int | None = None
        self.latest = LatestTime()
        self._position = -1  # of the last batch: it may come in two parts

    def add(self, taken: DecodedColumns) -> None:
        if not taken.rows:
            return
        offsets, positions, times = (
            memoryview(taken.buffers[column][0]).cast("B").cast("q")[: taken.rows]
            for column in (Column.OFFSET, Column.POSITION, Column.TIMESTAMP_MS)
        )
        listed = positions.tolist()
        self.batches += sum(map(ne, listed, [self._position, *listed]))
        self._position = listed[-1]
        if self.first_offset is None:
            self.first_offset = offsets[0]
        if self.first_time is None:
            self.first_time = next((time for time in times if time >= 0), None)
        self.last_offset = offsets[-1]
        self.latest.note(max(times))
        self.records += taken.rows
        bits = int.from_bytes(taken.buffers[Column.IS_CONTROL][0], "little")
        self.control_records += (bits & ((1 << taken.rows) - 1)).bit_count()
