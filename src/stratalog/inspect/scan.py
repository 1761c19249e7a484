"""``stratalog.scan``: log files as Arrow record batches.

A scan is a description; iterating runs it, as often as wanted. It reads in windows, or with ``views`` maps
the files and lets keys and values point into them. Whole files are left out by their names, whole batches
by their headers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from stratalog.errors import StorageError, UsageError
from stratalog.inspect.segment_order import is_last_segment
from stratalog.inspect.walk_file import FileEnd, Progress, walk_windows
from stratalog.records.columns import (
    COLUMN_NAMES,
    DEFAULT_COLUMNS,
    Pause,
    RegionDecoder,
    Selection,
    Taken,
    column_mask,
)
from stratalog.records.compression import DECOMPRESSED_SIZE_MAX_DEFAULT
from stratalog.records.layout import INT32_MAX, Check, Ending
from stratalog.storage.filesystem import FileSystem
from stratalog.storage.log_file import LogFile, Window, open_log_file
from stratalog.storage.names import parse_segment_name

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FILE_COLUMNS", "Scan", "path_list", "scan"]

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
Time = int | datetime

#: Columns that come from the file's folder, not from its bytes.
FILE_COLUMNS: Final = ("topic", "partition")


def scan(
    paths: Paths,
    *,
    start: int | None = None,
    end: int | None = None,
    start_time: Time | None = None,
    end_time: Time | None = None,
    columns: Sequence[str] | None = None,
    check_crc: bool = True,
    views: bool = False,
    batch_rows: int = 65536,
    control: bool = False,
    max_batch_bytes: int = 256 << 20,
    max_decompressed_bytes: int = DECOMPRESSED_SIZE_MAX_DEFAULT,
    file_system: FileSystem | None = None,
) -> Scan:
    """Read one or more log files as columns.

    Offsets are taken from ``start`` up to but not including ``end``, timestamps (milliseconds, or
    datetimes with a time zone) from ``start_time`` up to but not including ``end_time``. ``columns``
    are by default offset, timestamp, timestamp_type, key, value and headers; others are topic,
    partition, timestamp_ms, position, base_offset, producer_id, producer_epoch, sequence,
    leader_epoch, codec, is_control and is_transactional. ``control`` shows control records too.

    Batches that the bounds leave out by their headers are not read further, so their CRC is not checked:
    ``stratalog verify`` does that.

    ``views`` yields keys and values as ``binary_view`` that point into the mapped files: nothing that
    is not compressed is copied. Map only files that nobody truncates meanwhile.

    The result is iterated for ``pyarrow.RecordBatch``, has ``schema``, ``to_table()`` and
    ``__arrow_c_stream__``, so that Polars, DuckDB and pyarrow take it directly.
    """
    names = tuple(DEFAULT_COLUMNS if columns is None else columns)
    unknown = [name for name in names if name not in COLUMN_NAMES and name not in FILE_COLUMNS]
    if unknown:
        known = ", ".join((*FILE_COLUMNS, *COLUMN_NAMES))
        raise UsageError(f"no column {unknown[0]!r}: there are {known}")
    if len(set(names)) != len(names):
        raise UsageError(f"a column is named twice: {', '.join(names)}")
    check = Check.ORDER | (Check.CRC if check_crc else Check.NONE)
    if control:
        check |= Check.INCLUDE_CONTROL
    selection = Selection(
        columns=column_mask(name for name in names if name in COLUMN_NAMES),
        start=start,
        end=end,
        start_time=_milliseconds(start_time),
        end_time=_milliseconds(end_time),
        check=check,
        views=views,
        batch_rows=batch_rows,
        max_batch_bytes=max_batch_bytes,
        max_decompressed_bytes=max_decompressed_bytes,
    )
    return Scan(path_list(paths), names, selection, file_system)


def path_list(paths: Paths) -> tuple[str, ...]:
    listed = (paths,) if isinstance(paths, str | os.PathLike) else tuple(paths)
    if not listed:
        raise UsageError("no file to read")
    return tuple(os.fspath(path) for path in listed)


def _milliseconds(time: Time | None) -> int | None:
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        raise UsageError(f"{time} has no time zone: say which, or give milliseconds since 1970")
    seconds, microseconds = divmod(round(time.timestamp() * 1_000_000), 1_000_000)
    return seconds * 1000 + microseconds // 1000


class Scan:
    """Files, columns and bounds to be read; see :func:`scan`."""

    def __init__(
        self,
        paths: tuple[str, ...],
        columns: tuple[str, ...],
        selection: Selection,
        file_system: FileSystem | None = None,
    ) -> None:
        self.paths = paths
        self.columns = columns
        self.selection = selection
        self._file_system = file_system
        self._kept = _prune(paths, selection)
        self.bytes_read = 0
        self.skipped_batches = 0
        self.ends: list[FileEnd] = []
        #: Called with the bytes that are done, all files together, once a window.
        self.progress: Progress | None = None

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of every batch."""
        import pyarrow as pa

        from stratalog.records.arrow import arrow_schema

        kinds = {"topic": pa.string(), "partition": pa.int32()}
        views = self.selection.views
        return pa.schema(
            [
                pa.field(name, kinds[name])
                if name in kinds
                else arrow_schema((name,), views=views)[0]
                for name in self.columns
            ]
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        from stratalog.records.arrow import ArrowBatches

        batches = ArrowBatches(self.schema, rows_max=self.selection.batch_rows)
        for log_file, taken in self.taken():
            yield from batches.of(taken, _constants(log_file, self.columns))

    def to_table(self) -> pa.Table:
        """Everything as one table."""
        import pyarrow as pa

        return pa.Table.from_batches(self, schema=self.schema)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(self.schema, iter(self))
        return reader.__arrow_c_stream__(requested_schema)

    def taken(self) -> Iterator[tuple[LogFile, Taken]]:
        """The columns as they leave the kernel, file by file: for those who need no Arrow.

        Raises CorruptionError where a file is damaged, after what stands before the damage. A torn tail
        is no error in the last segment of a partition: ``ends`` tells of it.
        """
        self.bytes_read = 0
        self.ends = []
        decoder = RegionDecoder(self.selection)
        for number, path in enumerate(self._kept):
            with open_log_file(path, self._file_system) as log_file:
                decoder.expect(-1 if log_file.base_offset is None else log_file.base_offset)
                yield from self._file(log_file, decoder)
            end = self.ends[-1]
            torn = end.pause.ending == Ending.INCOMPLETE
            if not end.is_clean and not (torn and is_last_segment(self._kept, number)):
                raise end.error()
        self.skipped_batches = decoder.skipped_batches

    def _file(self, log_file: LogFile, decoder: RegionDecoder) -> Iterator[tuple[LogFile, Taken]]:
        done = self.bytes_read

        def note(position: int) -> None:
            self.bytes_read = done + position
            if self.progress is not None:
                self.progress(self.bytes_read)

        if self.selection.views:
            pauses = _map_file(log_file, decoder)
        else:
            pauses = _read_file(log_file, decoder, self.selection, note)
        for pause in pauses:
            note(pause.position)
            if pause.ending != Ending.FULL:
                self.ends.append(FileEnd(log_file.path, log_file.size, pause))
            if decoder.rows:
                yield log_file, decoder.take()
        self.bytes_read = done + log_file.size


def _read_file(
    log_file: LogFile, decoder: RegionDecoder, selection: Selection, progress: Progress
) -> Iterator[Pause]:
    def step(window: Window, at: int) -> Pause:
        if log_file.is_v07:
            base_offset = (log_file.base_offset or 0) + window.position
            return decoder.decode_v07(window.data, at, window.length, base_offset=base_offset)
        return decoder.decode(
            window.data, at, window.length, position_base=window.position, guarded=window.guarded
        )

    return walk_windows(
        log_file, step, max_batch_bytes=selection.max_batch_bytes, progress=progress
    )


def _map_file(log_file: LogFile, decoder: RegionDecoder) -> Iterator[Pause]:
    if log_file.size > INT32_MAX:
        raise UsageError(f"{log_file.path}: a segment of 2 GiB or more cannot be read with views")
    region = log_file.map()
    at = 0
    while True:
        if log_file.is_v07:
            pause = decoder.decode_v07(
                region, at, log_file.size, base_offset=log_file.base_offset or 0
            )
        else:
            pause = decoder.decode(region, at, log_file.size, guarded=True)
        if pause.ending == Ending.LOST:
            raise StorageError(
                f"cut short, or could not be read, behind byte {pause.position} while it was mapped",
                path=log_file.path,
            )
        yield pause
        if pause.ending != Ending.FULL:
            return
        at = pause.position


def _constants(log_file: LogFile, columns: tuple[str, ...]) -> dict[str, Any]:
    place = log_file.topic_partition
    values = {
        "topic": None if place is None else place.topic,
        "partition": None if place is None else place.partition,
    }
    return {name: values[name] for name in FILE_COLUMNS if name in columns}


def _prune(paths: tuple[str, ...], selection: Selection) -> tuple[str, ...]:
    """The files that can hold a wanted offset, by the names of their own and the next segment."""
    kept = []
    for number, path in enumerate(paths):
        name = parse_segment_name(os.path.basename(path))
        if name is not None:
            if selection.end is not None and name.base_offset >= selection.end:
                continue
            if selection.start is not None and not is_last_segment(paths, number):
                following = parse_segment_name(os.path.basename(paths[number + 1]))
                if following is not None and following.base_offset <= selection.start:
                    continue
        kept.append(path)
    return tuple(kept)
