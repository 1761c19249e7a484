"""Records of open logs for users: Arrow batches, Python objects, or a tail that goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stratalog.errors import UsageError
from stratalog.records.columns import (
    COLUMN_NAMES,
    DEFAULT_COLUMNS,
    RECORD_COLUMNS,
    Selection,
    Taken,
    column_mask,
    records_of,
)
from stratalog.records.layout import TimestampType
from stratalog.records.model import RecordHeader
from stratalog.storage.log_view import Isolation, LogView
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.record_reader import read_columns
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LogRows", "StoredRecord", "tail_records"]

_PLACE_COLUMNS: Final = ("topic", "partition")
#: While several partitions are tailed, each is asked again after so long.
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record and where it stands."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...]


class LogRows:
    """Records to be read, as they were when this was made. Iterating reads them, as often as wanted."""

    def __init__(
        self,
        views: Sequence[tuple[TopicPartition, LogView]],
        *,
        start: int | None,
        end: int | None,
        start_time: int | None,
        end_time: int | None,
        columns: Sequence[str] | None,
        isolation: Isolation,
        batch_rows: int,
    ) -> None:
        self._views = list(views)
        self._start = start
        self._end = end
        self._times = (start_time, end_time)
        self.columns = (*_PLACE_COLUMNS, *DEFAULT_COLUMNS) if columns is None else tuple(columns)
        for name in self.columns:
            if name not in COLUMN_NAMES and name not in _PLACE_COLUMNS:
                known = ", ".join((*_PLACE_COLUMNS, *COLUMN_NAMES))
                raise UsageError(f"no column {name!r}: there are {known}")
        self._isolation = isolation
        self._batch_rows = batch_rows

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of every batch."""
        import pyarrow as pa

        from stratalog.records.arrow import arrow_schema

        kinds = {"topic": pa.string(), "partition": pa.int32()}
        return pa.schema(
            [
                pa.field(name, kinds[name]) if name in kinds else arrow_schema((name,))[0]
                for name in self.columns
            ]
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        from stratalog.records.arrow import ArrowBatches

        batches = ArrowBatches(self.schema, rows_max=self._batch_rows)
        selection = self._selection([name for name in self.columns if name in COLUMN_NAMES])
        for place, view in self._views:
            constants = {
                name: value
                for name, value in zip(_PLACE_COLUMNS, place, strict=True)
                if name in self.columns
            }
            for taken in self._columns(view, selection):
                yield from batches.of(taken, constants)

    def to_table(self) -> pa.Table:
        """Everything as one table."""
        import pyarrow as pa

        return pa.Table.from_batches(self, schema=self.schema)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(self.schema, iter(self))
        return reader.__arrow_c_stream__(requested_schema)

    def records(self) -> Iterator[StoredRecord]:
        """Everything as Python objects, one by one."""
        selection = self._selection(None)
        for place, view in self._views:
            for taken in self._columns(view, selection):
                for record in records_of(taken):
                    yield StoredRecord(
                        place.topic,
                        place.partition,
                        record.offset,
                        record.timestamp,
                        record.timestamp_type,
                        record.key,
                        record.value,
                        record.headers,
                    )

    def _selection(self, names: list[str] | None) -> Selection:
        return Selection(
            columns=RECORD_COLUMNS if names is None else column_mask(names),
            start_time=self._times[0],
            end_time=self._times[1],
            batch_rows=self._batch_rows,
        )

    def _columns(self, view: LogView, selection: Selection) -> Iterator[Taken]:
        return read_columns(view, selection, self._isolation, start=self._start, end=self._end)


def tail_records(
    logs: Mapping[TopicPartition, PartitionLog],
    start: int | None,
    isolation: Isolation,
    timeout_s: float | None,
) -> Iterator[StoredRecord]:
    """Records of several logs as they come; see ``Logs.tail``."""
    reached = {
        place: log.view.bound(isolation) if start is None else start for place, log in logs.items()
    }
    idle_since = time.monotonic()
    while True:
        is_idle = True
        for place, log in logs.items():
            view = log.view
            bound = view.bound(isolation)
            if reached[place] >= bound:
                continue
            is_idle = False
            rows = LogRows(
                [(place, view)],
                start=reached[place],
                end=bound,
                start_time=None,
                end_time=None,
                columns=None,
                isolation=isolation,
                batch_rows=4096,
            )
            for record in rows.records():
                reached[place] = record.offset + 1
                yield record
            reached[place] = bound  # control records are not shown, but passed
        if not is_idle:
            idle_since = time.monotonic()
            continue
        left = None if timeout_s is None else timeout_s - (time.monotonic() - idle_since)
        if left is not None and left <= 0:
            return
        if not _wait(logs, reached, isolation, left):
            return


def _wait(
    logs: Mapping[TopicPartition, PartitionLog],
    reached: Mapping[TopicPartition, int],
    isolation: Isolation,
    left: float | None,
) -> bool:
    """Wait for more in any of the logs; False where they are closed."""
    place, log = next(iter(logs.items()))
    if len(logs) > 1:
        left = _POLL_S if left is None else min(left, _POLL_S)
    log.wait(reached[place], isolation=isolation, timeout_s=left)
    return not any(each.is_closed for each in logs.values())
