"""Records of open logs for users: Arrow batches, or Python objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from stratalog.errors import CorruptionError, StorageError, UnknownPartitionError, UsageError
from stratalog.records.arrow_stream import ArrowStream
from stratalog.records.columns import (
    COLUMN_NAMES,
    DEFAULT_COLUMNS,
    RECORD_COLUMNS,
    DecodedColumns,
    Selection,
    column_mask,
    records_of,
)
from stratalog.records.layout import INT32_MAX, Column, TimestampType
from stratalog.records.model import RecordHeader
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.views.log_view import Isolation, LogView
from stratalog.storage.views.read_columns import read_columns
from stratalog.storage.views.refresh import ViewRefresher
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LogRows", "PartitionView", "StoredRecord", "isolation_of"]

_PLACE_COLUMNS: Final = ("topic", "partition")


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


class PartitionView(NamedTuple):
    """A partition as it is at one moment. If it ends with ``damage`` and not where the writer stopped, a
    reader that gets so far raises that."""

    topic_partition: TopicPartition
    view: LogView
    damage: CorruptionError | None = None
    #: Looks again, if another process owns the files and may replace them while they are read.
    again: Callable[[], PartitionView] | None = None
    #: The log that the view was taken of, if it is one of this process.
    log: PartitionLog | None = None


class _Looks:
    """The latest look at a partition, which changes when another process replaces its files."""

    def __init__(self, first: PartitionView) -> None:
        self.latest = first

    def again(self) -> LogView:
        assert self.latest.again is not None
        self.latest = self.latest.again()
        return self.latest.view


class LogRows(ArrowStream):
    """Records to be read, as they were when this was made. Iterating reads them, as often as wanted.

    If another process compacts the log meanwhile, later records are read too: they may be the only ones left
    of their keys.
    """

    def __init__(
        self,
        views: Sequence[PartitionView],
        *,
        start: int | None = None,
        end: int | None = None,
        start_time: int | None = None,
        end_time: int | None = None,
        columns: Sequence[str] | None = None,
        isolation: Isolation = Isolation.COMMITTED,
        batch_rows: int = 65536,
        is_closed: Callable[[], bool] = lambda: False,
    ) -> None:
        self.columns = _checked(columns)
        if type(batch_rows) is not int or not 1 <= batch_rows <= INT32_MAX:
            raise UsageError(
                f"batch_rows is a whole number from 1 to {INT32_MAX}, not {batch_rows!r}"
            )
        self._views = list(views)
        self._start = start
        self._end = end
        self._selection = Selection(
            columns=column_mask([name for name in self.columns if name in COLUMN_NAMES]),
            start_time=start_time,
            end_time=end_time,
            batch_rows=batch_rows,
        )
        self._isolation = isolation
        self._is_closed = is_closed
        for name, bound in (
            ("start", start), ("end", end), ("start_time", start_time), ("end_time", end_time)
        ):  # fmt: skip
            if bound is not None and type(bound) is not int:
                raise UsageError(f"{name} is a whole number, not {bound!r}")
        if start is not None:
            for each in self._views:
                if each.damage is not None and start > each.view.log_end:
                    raise each.damage  # what follows the damage may well be there
                each.view.check_range(start)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        from stratalog.records.arrow import ArrowBatches

        batches = ArrowBatches(self.schema, rows_max=self._selection.batch_rows)
        for each in self._views:
            constants = dict(zip(_PLACE_COLUMNS, each.topic_partition, strict=True))
            for taken in self._columns(each, self._selection):
                yield from batches.of(taken, constants)

    def records(self) -> Iterator[StoredRecord]:
        """Everything as Python objects, one by one."""
        given = self._selection
        selection = Selection(
            columns=RECORD_COLUMNS,
            start_time=given.start_time,
            end_time=given.end_time,
            batch_rows=given.batch_rows,
        )
        for each in self._views:
            for taken in self._columns(each, selection):
                for record in records_of(taken):
                    yield StoredRecord(
                        each.topic_partition.topic,
                        each.topic_partition.partition,
                        record.offset,
                        record.timestamp,
                        record.timestamp_type,
                        record.key,
                        record.value,
                        record.headers,
                    )

    def _columns(self, each: PartitionView, selection: Selection) -> Iterator[DecodedColumns]:
        looks = _Looks(each)
        again = looks.again if each.again is not None else None
        bound = self._bound(each.view)
        self._check_open(each)
        try:
            view, start = self._begin(each.view, again)
            while start is not None:
                yield from read_columns(
                    view, selection, self._isolation, start=start, end=bound, again=again
                )
                if looks.latest.view is view or self._bound(looks.latest.view) <= bound:
                    self._check_hidden(each, view, bound)
                    break
                # Files were replaced: a newer record of a key that was removed may follow the old end.
                view = looks.latest.view
                start, bound = max(bound, view.log_start), self._bound(view)
        except (CorruptionError, StorageError):
            self._check_open(each)  # its files are closed, or another's by now
            raise
        latest = looks.latest
        if latest.damage is not None and (self._end is None or self._end > latest.view.log_end):
            raise latest.damage

    def _bound(self, view: LogView) -> int:
        """The offset up to which a view is read."""
        bound = view.bound(self._isolation)
        return bound if self._end is None else min(bound, self._end)

    def _check_open(self, each: PartitionView) -> None:
        if self._is_closed():
            raise UsageError("these logs are closed") from None
        if each.log is not None and each.log.is_closed:
            raise UnknownPartitionError(
                f"the topic of {each.topic_partition} was deleted after this read began"
            ) from None

    def _check_hidden(self, each: PartitionView, view: LogView, bound: int) -> None:
        """CorruptionError if what an open transaction hides in the files of another writer is damaged: a
        damaged marker may look like a transaction that is still open."""
        stable = view.bound(Isolation.COMMITTED)
        is_hiding = self._isolation is Isolation.COMMITTED and bound == stable < view.log_end
        if is_hiding and each.again is not None:
            nothing = Selection(columns=Column.OFFSET)
            again = _view_again(each)
            for _ in read_columns(view, nothing, Isolation.LOG_END, start=stable, again=again):
                pass

    def _begin(
        self, view: LogView, again: Callable[[], LogView] | None
    ) -> tuple[LogView, int | None]:
        """Where to begin, and in which view: files of the first may be gone already."""
        refresher = ViewRefresher(again)
        while True:
            try:
                return view, self._first_offset(view)
            except StorageError as error:
                view = refresher.after(error)

    def _first_offset(self, view: LogView) -> int | None:
        """Where to begin: what the time indexes say is too old is not read. None: nothing is to be."""
        start = view.log_start if self._start is None else self._start
        time = self._selection.start_time
        if time is None or time <= 0:
            return start
        for number, segment in enumerate(view.segments.segments):
            if view.limit(number) and segment.max_timestamp >= time:
                # Up to the offset of an earlier time all records are older than what is wanted. The
                # index may know of more by now than the view does.
                return min(max(start, segment.offset_before_time(time)), view.log_end)
        return None


def _view_again(each: PartitionView) -> Callable[[], LogView] | None:
    again = each.again
    return None if again is None else lambda: again().view


def _checked(columns: Sequence[str] | None) -> tuple[str, ...]:
    known = (*_PLACE_COLUMNS, *COLUMN_NAMES)
    if columns is None:
        return (*_PLACE_COLUMNS, *DEFAULT_COLUMNS)
    if not isinstance(columns, Iterable):
        raise UsageError(f"columns are a list of names, not {columns!r}")
    wanted = (columns,) if isinstance(columns, str) else tuple(columns)
    for name in wanted:
        if name not in known:
            raise UsageError(f"no column {name!r}: there are {', '.join(known)}")
    if not wanted or len(set(wanted)) < len(wanted):
        raise UsageError("name at least one column, and each only once")
    return wanted


def isolation_of(isolation: Isolation | str) -> Isolation:
    """The isolation of this name."""
    try:
        return Isolation(isolation)
    except ValueError:
        names = ", ".join(each.value for each in Isolation)
        raise UsageError(f"no isolation {isolation!r}: there are {names}") from None
