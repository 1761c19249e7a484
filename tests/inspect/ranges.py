"""Small partitions for the tests of ranges (many segments and index entries), and how to read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from stratalog.inspect.partition.sources import PartitionSource, find_sources
from stratalog.inspect.range.offset_range import WHOLE
from stratalog.inspect.range.partition_reader import PartitionReader
from stratalog.inspect.range.plan import LogRange
from stratalog.inspect.range.reader import RangeReader
from stratalog.records.columns import DecodedColumns, Selection
from stratalog.records.layout import Column
from stratalog.storage.files.filesystem import (
    FileSystem,
    OsFileSystem,
    OsReadableFile,
    ReadableFile,
)
from stratalog.storage.partition_log import PartitionLog
from tests.storage.logs import T, batch, open_log

COLUMNS = Selection(columns=Column.OFFSET | Column.TIMESTAMP_MS)
#: Segments of some ten batches, and an index entry for nearly each.
SMALL = {"internal.segment.bytes": 1200, "index.interval.bytes": 150}

Row = tuple[int, int]


def rows_of(taken: Iterable[tuple[Any, DecodedColumns]]) -> list[Row]:
    """Offset and time of every row."""
    rows: list[Row] = []
    for _, part in taken:
        offsets, times = (
            memoryview(part.buffers[column][0]).cast("B").cast("q")[: part.rows].tolist()
            for column in (Column.OFFSET, Column.TIMESTAMP_MS)
        )
        rows += zip(offsets, times, strict=True)
    return rows


def read(
    *wanted: LogRange, selection: Selection = COLUMNS, file_system: FileSystem | None = None
) -> list[Row]:
    """What a reader shows of some ranges; it must not miss anything."""
    reader = RangeReader(selection, file_system)
    rows = [row for each in wanted for row in rows_of(reader.read(each))]
    assert not reader.vanished
    return rows


def whole(source: PartitionSource) -> list[Row]:
    """The judge: everything, as a scan from the first byte to the last shows it."""
    return rows_of(PartitionReader(COLUMNS, WHOLE, None, lambda _: None).read(source))


def between(
    rows: Iterable[Row],
    start: int = 0,
    end: int = 2**62,
    start_time: int | None = None,
    end_time: int | None = None,
) -> list[Row]:
    return [
        (offset, time)
        for offset, time in rows
        if start <= offset < end
        and (start_time is None or time >= start_time)
        and (end_time is None or time < end_time)
    ]


def source_of(folder: Path, file_system: FileSystem | None = None) -> PartitionSource:
    (source,) = find_sources(str(folder), file_system=file_system).partitions
    return source


def write(folder: Path, batches: Sequence[bytes], configs: dict[str, object] | None = None) -> Path:
    """A partition with these batches, as an orderly stop leaves it."""
    log = open_log(folder, configs or SMALL)
    for each in batches:
        log.append(each)
    log.close()
    return folder


def append_some(log: PartitionLog, count: int, *, records: int = 3, size: int = 20) -> None:
    for number in range(count):
        log.append(batch(*[b"%*d" % (size, number)] * records, timestamp=T + log.log_end))


def simple(folder: Path, count: int = 60) -> Path:
    """Batches of three records, a millisecond between them."""
    log = open_log(folder, SMALL)
    append_some(log, count)
    log.close()
    return folder


class Counted(OsFileSystem):
    """Files that cannot be mapped, and that tell how much was read of data files and in all."""

    def __init__(self) -> None:
        self.log_bytes = 0
        self.bytes = 0

    def open_readable(self, path: str) -> ReadableFile:
        counted = self

        class File(OsReadableFile):
            def read_into(self, position: int, buffer: memoryview) -> int:
                return self._count(super().read_into(position, buffer))

            def read(self, position: int, size: int) -> bytes:
                data = super().read(position, size)
                self._count(len(data))
                return data

            def map(self, position: int, size: int, *, reads_all: bool = False) -> memoryview:
                return memoryview(self.read(position, size))

            def _count(self, size: int) -> int:
                counted.bytes += size
                counted.log_bytes += size if path.endswith(".log") else 0
                return size

        return File(path)
