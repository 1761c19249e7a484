"""``stratalog.scan``: log directories and log files as Arrow record batches.

A scan is a description; iterating runs it, as often as wanted. It reads in windows, or with ``views`` maps
the files and lets keys and values point into them. Whole files are left out by their names and time indexes,
whole batches by their headers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, Final

from stratalog.clock import SYSTEM_CLOCK
from stratalog.errors import (
    CorruptionError,
    OffsetOutOfRangeError,
    SpillError,
    StorageError,
    UsageError,
)
from stratalog.inspect.file.skipped_damage import (
    OnDamagedBatch,
    SkippedDamage,
    on_damage_of,
    refuse_committed_skip,
    with_advice,
)
from stratalog.inspect.latest.latest_reader import (
    MEMORY_BYTES_DEFAULT,
    LatestPerKey,
    LatestReader,
    LeftOut,
    keys_only,
)
from stratalog.inspect.partition.partition_filter import Partitions, Topics, partition_filter
from stratalog.inspect.partition.sources import (
    PartitionSource,
    Paths,
    Sources,
    find_sources,
    path_list,
)
from stratalog.inspect.range.offset_range import (
    Anchor,
    Bound,
    OffsetRange,
    milliseconds_of,
    parse_offsets,
)
from stratalog.inspect.range.partition_reader import PartitionReader, StartBeyondEnd
from stratalog.records.arrow_stream import ArrowStream
from stratalog.records.columns import (
    COLUMN_NAMES,
    DEFAULT_COLUMNS,
    DecodedColumns,
    Selection,
    column_mask,
)
from stratalog.records.compression import DECOMPRESSED_SIZE_MAX_DEFAULT
from stratalog.records.layout import BATCH_SIZE_MAX_DEFAULT, INT64_MAX, Check, Column
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.segment.log_file import LogFile
from stratalog.storage.segment.walk import FileEnd
from stratalog.types import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

__all__ = ["FILE_COLUMNS", "Scan", "scan"]

Time = int | datetime

#: Columns that come from the file's folder, not from its bytes.
FILE_COLUMNS: Final = ("topic", "partition")


def scan(
    paths: Paths,
    *,
    topics: Topics | None = None,
    partitions: Partitions | None = None,
    offsets: str | None = None,
    start: int | None = None,
    end: int | None = None,
    start_time: Time | None = None,
    end_time: Time | None = None,
    columns: Sequence[str] | None = None,
    check_crc: bool = True,
    views: bool = False,
    batch_rows: int = 65536,
    control: bool = False,
    isolation: str = "read_uncommitted",
    on_damage: str = "fail",
    latest_per_key: bool = False,
    tombstones: bool = False,
    memory_bytes: int | None = None,
    temp_dir: str | os.PathLike[str] | None = None,
    max_batch_bytes: int = BATCH_SIZE_MAX_DEFAULT,
    max_decompressed_bytes: int = DECOMPRESSED_SIZE_MAX_DEFAULT,
    file_system: FileSystem | None = None,
    on_refused: Callable[[StorageError], None] | None = None,
) -> Scan:
    """Read log directories, partitions' folders or log files as columns; also in an object store, as
    ``s3://bucket/logs``.

    ``topics`` are names, with ``*`` and ``?`` as in a shell; ``partitions`` are numbers, or a text such
    as ``"0,2-5"``. In folders, what a log directory's checkpoint says was deleted is left out.

    ``offsets`` is a text in the grammar of ``rpk topic consume``, resolved for every partition:
    ``"100:200"``, ``"-10"`` (the last ten), ``"+10"``, ``"@2024-03-13"``, ``"@-2h:-1h"``. Without it,
    offsets are taken from ``start`` up to but not including ``end``, timestamps (milliseconds, or
    datetimes with a time zone) from ``start_time`` up to but not including ``end_time``.

    ``columns`` are by default offset, timestamp, timestamp_type, key, value and headers; others are
    topic, partition, timestamp_ms, position, base_offset, producer_id, producer_epoch, sequence,
    leader_epoch, codec, is_control and is_transactional. ``control`` shows control records too.

    ``isolation="read_committed"`` leaves out the records of transactions that were aborted, and everything
    from the first open one on. Of files that are named one by one, only markers in these files count.

    ``on_damage`` says what happens at a damaged batch: ``"fail"`` raises CorruptionError after what stands
    before it, and what follows, in this partition and in others, is not read; ``"skip"`` goes on
    at the next intact batch, and ``skipped`` of the result lists what was left out.

    ``latest_per_key`` yields only the newest record of each key of each partition, among those that the
    other parameters select: what compaction would leave. The files are read twice. Records without a key
    are left out, and so are keys whose newest record is a tombstone, unless ``tombstones``; ``left_out`` of
    the result has the numbers. Keys take ``memory_bytes`` (256 MiB, enough for 6.7 million) at most; more of
    them are spilled to files in ``temp_dir``, by default the system's. Of a damaged partition nothing is
    shown, unless ``on_damage`` is ``"skip"``.

    Batches that the bounds leave out by their headers are not read further, so their CRC is not checked:
    ``stratalog verify`` does that.

    ``views`` yields keys and values as ``binary_view`` that point into the mapped files: nothing that
    is not compressed is copied. Map only files that nobody truncates meanwhile.

    A partition's folder that cannot be listed is an error; with ``on_refused`` that is called with it, and
    the other partitions are read.

    The result is iterated for ``pyarrow.RecordBatch``, has ``schema``, ``to_table()`` and
    ``__arrow_c_stream__``, so that Polars, DuckDB and pyarrow take it directly.
    """
    names = _column_names(DEFAULT_COLUMNS if columns is None else columns)
    check = Check.ORDER | (Check.CRC if check_crc else Check.NONE)
    if control:
        check |= Check.INCLUDE_CONTROL
    selection = Selection(
        columns=_mask(names),
        check=check,
        views=views,
        batch_rows=_number(batch_rows, "batch_rows"),
        max_batch_bytes=max(0, min(_number(max_batch_bytes, "max_batch_bytes"), INT64_MAX)),
        max_decompressed_bytes=_number(max_decompressed_bytes, "max_decompressed_bytes"),
    )
    wanted = _range(
        offsets,
        None if start is None else _number(start, "start"),
        None if end is None else _number(end, "end"),
        _milliseconds(start_time, "start_time"),
        _milliseconds(end_time, "end_time"),
    )
    listed = path_list(paths)
    if file_system is None and any("://" in path for path in listed):
        from stratalog.storage.files.object_store import open_store

        file_system, listed = open_store(listed)
    damaged = on_damage_of(on_damage)
    is_committed = _is_committed(isolation)
    latest = None
    if latest_per_key:
        latest = _latest(memory_bytes, temp_dir, tombstones=tombstones, control=control)
    else:
        _refuse_alone(tombstones, memory_bytes, temp_dir)
    refuse_committed_skip(is_committed=is_committed, on_damage=damaged)
    wanted_partitions = partition_filter(topics, partitions)
    find = partial(find_sources, listed, wanted_partitions, file_system, on_refused=on_refused)
    return Scan(
        find,
        names,
        wanted,
        selection,
        file_system,
        damaged,
        is_committed=is_committed,
        latest=latest,
    )


def _column_names(columns: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(columns, Iterable):
        raise UsageError(f"columns are a list of names, not {columns!r}")
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    unknown = [name for name in names if name not in COLUMN_NAMES and name not in FILE_COLUMNS]
    if unknown:
        known = ", ".join((*FILE_COLUMNS, *COLUMN_NAMES))
        raise UsageError(f"no column {unknown[0]!r}: there are {known}")
    if len(set(names)) != len(names):
        raise UsageError(f"a column is named twice: {', '.join(names)}")
    return names


def _mask(names: Sequence[str]) -> Column:
    return column_mask(name for name in names if name in COLUMN_NAMES)


def _range(
    offsets: str | None,
    start: int | None,
    end: int | None,
    start_time: int | None,
    end_time: int | None,
) -> OffsetRange:
    if offsets is None:
        for name, bound in (("start", start), ("end", end)):
            if bound is not None and bound < 0:
                raise UsageError(
                    f"{name} is an offset, 0 or more, not {bound}: offsets='{bound}' counts from the end"
                )
        first = None if start is None else Bound(Anchor.ZERO, start)
        last = None if end is None else Bound(Anchor.ZERO, end)
        return OffsetRange(first, last, start_time, end_time)
    if any(bound is not None for bound in (start, end, start_time, end_time)):
        raise UsageError("offsets cannot be combined with start, end, start_time or end_time")
    if not isinstance(offsets, str):
        raise UsageError(f"offsets is a text such as '100:200', not {offsets!r}")
    return parse_offsets(offsets, SYSTEM_CLOCK.now_ms())


def _is_committed(isolation: object) -> bool:
    words = ("read_uncommitted", "read_committed")
    if isolation not in words:
        raise UsageError(f"isolation is {' or '.join(words)}, not {isolation!r}")
    return isolation == words[1]


def _refuse_alone(tombstones: bool, memory_bytes: object, temp_dir: object) -> None:
    """UsageError for what only a read of the newest records uses."""
    for name, is_given in (
        ("tombstones=True", tombstones),
        ("memory_bytes", memory_bytes is not None),
        ("temp_dir", temp_dir is not None),
    ):
        if is_given:
            raise UsageError(f"{name} needs latest_per_key=True")


def _latest(
    memory_bytes: int | None,
    temp_dir: str | os.PathLike[str] | None,
    *,
    tombstones: bool,
    control: bool,
) -> LatestPerKey:
    if control:
        raise UsageError(
            "control records have no keys: control=True and latest_per_key=True cannot be combined"
        )
    size = MEMORY_BYTES_DEFAULT if memory_bytes is None else _number(memory_bytes, "memory_bytes")
    folder = None if temp_dir is None else os.fspath(temp_dir)
    if folder is not None and not os.path.isdir(folder):
        raise UsageError(f"temp_dir={folder!r} is not a directory")
    return LatestPerKey(memory_bytes=size, tombstones=tombstones, temp_dir=folder)


def _number(value: Any, name: str) -> int:
    """A whole number, also one of numpy's."""
    try:
        if not isinstance(value, bool):
            return index(value)
    except TypeError:
        pass
    raise UsageError(f"{name} is a whole number, not {value!r}")


def _milliseconds(time: Time | None, name: str) -> int | None:
    if time is None:
        return None
    if not isinstance(time, datetime):
        return _number(time, name)
    if time.tzinfo is None:
        raise UsageError(f"{time} has no time zone: say which, or give milliseconds since 1970")
    return milliseconds_of(time)


class Scan(ArrowStream):
    """Partitions, columns and bounds to be read; see :func:`scan`."""

    def __init__(
        self,
        find: Callable[[], Sources],
        columns: tuple[str, ...],
        wanted: OffsetRange,
        selection: Selection,
        file_system: FileSystem | None = None,
        on_damage: OnDamagedBatch = OnDamagedBatch.FAIL,
        *,
        is_committed: bool = False,
        latest: LatestPerKey | None = None,
    ) -> None:
        self.columns = columns
        self._latest = latest
        self._is_committed = is_committed
        self._on_damage = on_damage
        self.selection = selection
        self._has_views = selection.views
        #: What was found under the paths, when that was last looked at.
        self.sources = find()
        self._find = find
        self._is_fresh = True
        self._wanted = wanted
        self._file_system = file_system
        #: Called with the bytes that are done, all files together, once a window.
        self.progress: Progress | None = None
        #: Called with the error that ends the reading of a partition; the others are read then. None: it
        #: is raised, and they are not.
        self.on_failure: Callable[[CorruptionError | StorageError], None] | None = None
        self._reader = self._new_reader(selection)
        #: What the second of two passes is read with, where only the newest records are wanted.
        self._second: PartitionReader | None = None
        #: What was left out because only the newest record of each key is wanted; None: all are.
        self.left_out = None if latest is None else LeftOut()

    def with_columns(self, columns: Sequence[str], *, batch_rows: int) -> Scan:
        """The same records with other columns. What was found under the paths is not looked for again."""
        names = _column_names(columns)
        selection = replace(self.selection, columns=_mask(names), batch_rows=batch_rows)
        first = [self.sources]
        find = self._find
        return Scan(
            lambda: first.pop() if first else find(),
            names,
            self._wanted,
            selection,
            self._file_system,
            self._on_damage,
            is_committed=self._is_committed,
            latest=self._latest,
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        from stratalog.records.arrow import ArrowBatches

        batches = ArrowBatches(self.schema, rows_max=self.selection.batch_rows)
        for log_file, taken in self.taken():
            yield from batches.of(taken, _constants(log_file, self.columns))

    def taken(self) -> Iterator[tuple[LogFile, DecodedColumns]]:
        """The columns as they leave the kernel, file by file: for those who need no Arrow.

        Raises CorruptionError where a file is damaged, after what stands before the damage. A torn tail
        is no error in the last segment of a partition: ``ends`` tells of it.
        """
        if not self._is_fresh:
            self.sources = self._find()
        self._is_fresh = False
        read = self._new_run()
        reader = self._reader
        partitions = self.sources.partitions
        for number, source in enumerate(partitions):
            try:
                yield from read(source)
            except SpillError:
                raise  # the next partition would not fare better
            except (CorruptionError, StorageError) as error:
                if self.on_failure is not None:
                    self.on_failure(error)
                elif isinstance(error, CorruptionError):
                    raise _told(error, reader, len(partitions) - number - 1) from None
                else:
                    raise
        if partitions and len(reader.beyond) == len(partitions):
            _, start, end = reader.beyond[0]
            raise OffsetOutOfRangeError(start, partitions[0].log_start, end)

    def _new_run(self) -> Callable[[PartitionSource], Iterator[tuple[LogFile, DecodedColumns]]]:
        if self._latest is None:
            self._reader = self._new_reader(self.selection)
            return self._reader.read
        self._reader = self._new_reader(keys_only(self.selection))
        self._second = self._new_reader(self.selection)
        latest = LatestReader(self._reader, self._second, self._latest)
        self.left_out = latest.left_out
        return latest.read

    def _new_reader(self, selection: Selection) -> PartitionReader:
        return PartitionReader(
            selection,
            self._wanted,
            self._file_system,
            self._note_progress,
            self._on_damage,
            is_committed=self._is_committed,
        )

    def _note_progress(self, _: int) -> None:
        if self.progress is not None:
            self.progress(self.bytes_read // (1 if self._latest is None else 2))

    @property
    def ends(self) -> list[FileEnd]:
        """How each file that was read ended."""
        return self._reader.ends

    @property
    def is_skipping(self) -> bool:
        """Whether damaged batches are passed over."""
        return self._on_damage is OnDamagedBatch.SKIP

    @property
    def skipped(self) -> list[SkippedDamage]:
        """What was left out because it is damaged, in the order in which it was met."""
        first = self._reader.skipped
        if self._second is None:
            return first
        return [*first, *(each for each in self._second.skipped if each not in first)]

    @property
    def beyond(self) -> list[StartBeyondEnd]:
        """Partitions that end before ``start``. Where all do, reading raises OffsetOutOfRangeError."""
        return self._reader.beyond

    @property
    def vanished(self) -> list[str]:
        """Files that were gone before they could be read: a broker deleted them meanwhile."""
        second = [] if self._second is None else self._second.vanished
        return [*self._reader.vanished, *second]

    @property
    def bytes_read(self) -> int:
        """Bytes of log that were gone through, in both passes if there are two."""
        second = 0 if self._second is None else self._second.bytes_read
        return self._reader.bytes_read + second

    @property
    def skipped_batches(self) -> int:
        """Batches that the bounds left out by their header alone; so does a second pass with those that
        hold no record it wants."""
        second = 0 if self._second is None else self._second.skipped_batches
        return self._reader.skipped_batches + second


def _told(error: CorruptionError, reader: PartitionReader, unread: int) -> CorruptionError:
    """The error of a damaged partition, with where reading could go on and what else was not read."""
    parts = [] if error.advice is None else [error.advice]
    if reader.skipped:
        resume = reader.skipped[-1].resume_offset
        parts.append(
            "nothing intact follows in this partition"
            if resume is None
            else f"reading can resume at offset {resume}"
        )
    if unread:
        parts.append(f"{unread} more partitions were not read")
    return with_advice(
        error, "; ".join([*parts, "on_damage='skip' skips only the damaged batches"])
    )


def _constants(log_file: LogFile, columns: tuple[str, ...]) -> dict[str, Any]:
    values = {"topic": log_file.topic, "partition": log_file.partition}
    return {name: values[name] for name in FILE_COLUMNS if name in columns}
