"""Keys as rows of a shuffle: what a task reads of segments, and what is left of it for each group.

A row is a record that has a key, or something that happens to a transaction. Both are needed for each group
of segments, and both come from one reading of the log.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from stratalog.errors import CorruptionError
from stratalog.rewrite.compact.key_scan import EventKind, KeyColumns, TransactionEvent, scan_keys
from stratalog.rewrite.compact.plan import SegmentToClean
from stratalog.spark.jobs.rewriting.staged_group import Staging, attempt_number
from stratalog.storage.files.filesystem import WritableFile
from stratalog.storage.names import PieceName, PieceStage, piece_file_name

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FOUND", "ROWS", "GroupFound", "SegmentKeys", "keys_of_segments", "store_found"]

#: A record: the number of its partition and its group, both halves of the MD5 of its key, its offset, and the
#: same once more if it may supersede others, else -1. An event of a transaction: producer, kind and offset.
ROWS: Final = (
    "part int, grp int, is_event int, first bigint, second bigint, off bigint, dirty bigint"
)
#: What was found for a group: the file with the offsets of its superseded records, and its events.
FOUND: Final = "grp int, name string, records bigint, events binary"
_CLEAN: Final = -1
_EVENT_FIELDS: Final = 3


@dataclass(frozen=True, slots=True)
class SegmentKeys:
    """A segment whose keys are to be read. Records from offset ``start`` on may supersede others."""

    partition: int
    group: int
    start: int
    segment: SegmentToClean


class GroupFound(NamedTuple):
    """What is known of a group before it is rewritten. ``name`` is that of the file with the offsets of its
    superseded records, in the root; None if there are none."""

    name: str | None = None
    events: tuple[TransactionEvent, ...] = ()

    @property
    def is_damaged(self) -> bool:
        return any(each.kind is EventKind.DAMAGE for each in self.events)

    @classmethod
    def from_row(cls, row: Any) -> GroupFound:
        numbers = array("q", bytes(row["events"])).tolist()
        events = zip(*(numbers[at::_EVENT_FIELDS] for at in range(_EVENT_FIELDS)), strict=True)
        return cls(
            row["name"] if row["records"] else None,
            tuple(TransactionEvent(offset, pid, EventKind(kind)) for offset, pid, kind in events),
        )


def keys_of_segments(
    staging: Staging, tasks: Sequence[Sequence[SegmentKeys]], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the segments of the tasks with these numbers.

    A damaged segment ends where the damage begins. It is an event, and not an error here: its partition is
    not compacted, and others are.
    """
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            for each in tasks[number]:
                yield from _rows_of(staging, each)


def _rows_of(staging: Staging, keys: SegmentKeys) -> Iterator[pa.RecordBatch]:
    source = keys.segment.segment.source(staging.file_system)
    events: list[TransactionEvent] = []
    try:
        for columns in scan_keys(source, keys.segment.aborted, events, lambda _: None):
            yield _record_rows(keys, columns)
    except CorruptionError:
        events.append(TransactionEvent(source.base_offset, -1, EventKind.DAMAGE))
    finally:
        source.segment.close()
    if events:
        yield _event_rows(keys, events)


def _record_rows(keys: SegmentKeys, columns: KeyColumns) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    def numbers(buffer: Any) -> Any:
        return pa.Array.from_buffers(pa.int64(), columns.rows, [None, pa.py_buffer(buffer)])

    offsets = numbers(columns.offsets)
    is_dirty = pc.greater_equal(offsets, pa.scalar(keys.start, pa.int64()))
    dirty = pc.if_else(is_dirty, offsets, pa.scalar(_CLEAN, pa.int64()))
    return _batch(
        keys, columns.rows, 0, numbers(columns.first), numbers(columns.second), offsets, dirty
    )


def _event_rows(keys: SegmentKeys, events: Sequence[TransactionEvent]) -> pa.RecordBatch:
    columns = (
        [each.producer_id for each in events],
        [int(each.kind) for each in events],
        [each.offset for each in events],
        [_CLEAN] * len(events),
    )
    return _batch(keys, len(events), 1, *map(_longs, columns))


def _longs(values: Iterable[int]) -> Any:
    import pyarrow as pa

    listed = array("q", values)
    return pa.Array.from_buffers(pa.int64(), len(listed), [None, pa.py_buffer(listed)])


def _batch(keys: SegmentKeys, rows: int, is_event: int, *columns: Any) -> pa.RecordBatch:
    import pyarrow as pa

    from stratalog.records.arrow_values import repeat_value

    constants = [
        repeat_value(value, pa.int32(), rows) for value in (keys.partition, keys.group, is_event)
    ]
    names = [field.split()[0] for field in ROWS.split(", ")]
    return pa.RecordBatch.from_arrays([*constants, *columns], names=names)


def store_found(staging: Staging, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Store the offsets of the superseded records of each group in a file of its own, and yield a row for
    each group. ``batches`` have the columns ``grp``, ``is_event``, ``first``, ``second`` and ``off``, sorted
    by group, events last, and offset."""
    store: _GroupStore | None = None
    for batch in batches:
        for number, start, rows in _runs(batch.column(0)):
            if store is None or store.number != number:
                if store is not None:
                    yield store.row()
                store = _GroupStore(staging, number)
            store.add(batch.slice(start, rows))
    if store is not None:
        yield store.row()


def _runs(groups: Any) -> Iterator[tuple[int, int, int]]:
    """Yield each group of a sorted column, where its rows begin, and how many there are."""
    start = 0
    for each in groups.value_counts().to_pylist():
        yield each["values"], start, each["counts"]
        start += each["counts"]


class _GroupStore:
    """The file of one group, and its events."""

    def __init__(self, staging: Staging, number: int) -> None:
        self.number = number
        owner = PieceName(
            staging.key.owner_digest, staging.key.version, number, attempt_number(), 0
        )
        self._name = piece_file_name(owner._replace(stage=PieceStage.OFFSETS))
        self._path = os.path.join(staging.root, self._name)
        self._files = staging.file_system
        self._file: WritableFile | None = None
        self._size = 0
        self._events = array("q")

    def add(self, rows: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        events = pc.sum(rows.column(1)).as_py()
        records = rows.num_rows - events
        if records:
            self._write(rows.column(4).slice(0, records))
        if events:
            offsets, pids, kinds = (rows.column(at).slice(records).to_pylist() for at in (4, 2, 3))
            self._events.extend(chain.from_iterable(zip(offsets, pids, kinds, strict=True)))

    def _write(self, offsets: Any) -> None:
        if self._file is None:
            self._files.unlink(self._path)
            self._file = self._files.open_writable(self._path, create=True)
        data = memoryview(offsets.buffers()[1]).cast("B")
        start = 8 * offsets.offset
        self._file.write_at(self._size, data[start : start + 8 * len(offsets)])
        self._size += 8 * len(offsets)

    def row(self) -> pa.RecordBatch:
        import pyarrow as pa

        from stratalog.records.arrow_values import bytes_array, int32_array, string_array

        if self._file is not None:
            self._file.close()
        return pa.RecordBatch.from_arrays(
            [
                int32_array([self.number]),
                string_array([self._name]),
                _longs([self._size // 8]),
                bytes_array([self._events.tobytes()]),
            ],
            names=[field.split()[0] for field in FOUND.split(", ")],
        )
