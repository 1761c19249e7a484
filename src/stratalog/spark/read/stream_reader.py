"""A stream from log directories, live or at rest.

Spark runs this in one process of its own for each query, and asks again and again: how far does it go now,
and which tasks read from here to there. Its offsets are those of Spark's Kafka source.

A start must mean the same after a crash, and Spark asks for it anew where the first batch was not finished.
Nothing can be kept beside the checkpoint: its place is not told. So the first batch of a stream from the
latest offset is empty: it writes down where the stream starts, and asked anew, there is no row in it. Any
other start that is not offset 0 is written down with the end of the first batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from stratalog.clock import SYSTEM_CLOCK
from stratalog.errors import OffsetOutOfRangeError, StratalogError, UnknownPartitionError
from stratalog.spark.options.offsets import (
    FIRST_START,
    LATEST,
    Kind,
    Offsets,
    offsets_as_dict,
    parse_offsets_dict,
)
from stratalog.spark.read.batch_reader import RangePartition
from stratalog.spark.read.planner import LogDirectories, check_partitions, with_way_out
from stratalog.spark.read.task import read_ranges
from stratalog.spark.read.triggers import backlog, limit_by_offsets, merged_start, reached_or_less
from stratalog.spark.worker.errors import without_traceback
from stratalog.spark.write.stream_loops import note_input
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from stratalog.inspect.partition.ends import PartitionEnds
    from stratalog.inspect.partition.sources import PartitionSource
    from stratalog.spark.options.read_options import ReadOptions

__all__ = ["StreamReader"]

_Json = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Answers Spark's questions about one stream."""

    def __init__(self, options: ReadOptions, names: Sequence[str]) -> None:
        self._options = options
        self._names = tuple(names)
        self._directories = LogDirectories(options)
        self._initial: dict[TopicPartition, int] | None = None
        self._starts_latest = (
            options.start.kind is Kind.LATEST or LATEST in (options.start.numbers or {}).values()
        )
        #: Why there is no start: of no matter to a first batch that comes again.
        self._no_start: StratalogError | None = None
        #: Whether Spark has asked where to start, and not yet how far its first batch goes.
        self._is_first = False
        self._target: dict[TopicPartition, int] | None = None
        #: Where the partitions ended when they were last looked at.
        self._ends: dict[TopicPartition, PartitionEnds] = {}
        self._waiting_since_ms: int | None = None

    # What Spark asks on the driver.

    @without_traceback
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._latest()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    @without_traceback
    def initialOffset(self) -> _Json:  # noqa: N802
        # Asked twice for one query: what is latest must not move in between.
        if self._initial is None:
            self._is_first = True
            try:
                self._initial = self._resolve_start()
            except StratalogError as error:
                self._no_start = error
                return {}
        return offsets_as_dict(self._initial)

    def _resolve_start(self) -> dict[TopicPartition, int]:
        directories = self._directories
        sources = directories.sources()
        ends = directories.ends(sources)
        check_partitions(self._options.start, sources)
        start = directories.resolve(self._options.start, sources, ends, is_start=True)
        return start if self._target is None else reached_or_less(start, self._target)

    @without_traceback
    def latestOffset(self, start: _Json, limit: ReadLimit) -> _Json:  # noqa: N802
        is_first, self._is_first = self._is_first, False
        if is_first and self._initial is None and self._no_start is not None:
            raise self._no_start
        if is_first and self._starts_latest:
            return start
        begin = self._parsed(start)
        if self._target is None:
            latest = self._latest()
        else:
            self._look()
            latest = dict(self._target)
        self._check_damage(begin)
        # A partition that is gone, or whose time is over, does not take the stream back.
        highest = {
            topic_partition: max(offset, begin.get(topic_partition, 0))
            for topic_partition, offset in latest.items()
        }
        highest = {**begin, **highest}
        origin = merged_start(begin, self._starts_of_new(begin, highest))
        end = {**self._limited(origin, highest, limit, begin), **self._starts_of_shorter(begin)}
        if end == begin and not is_first:
            return start  # as it was written: Spark compares texts
        result: _Json = dict(offsets_as_dict(end))
        if is_first and any(begin.values()):
            result[FIRST_START] = start
        return result

    def _check_damage(self, begin: Offsets) -> None:
        """A stream that has read all up to damage has not come to the end."""
        for topic_partition, each in self._ends.items():
            reached = self._directories.reader_end(each)
            if each.damage is not None and begin.get(topic_partition, -1) >= reached:
                raise with_way_out(each.damage, topic_partition, reached)

    def _starts_of_shorter(self, begin: Offsets) -> dict[TopicPartition, int]:
        """Where partitions begin that end before what was read of them: they were cut, or made anew. That is
        a loss; who goes on nevertheless reads them from their beginning."""
        ends = self._ends.items()
        shorter = {
            topic_partition: each
            for topic_partition, each in ends
            if each.end < begin.get(topic_partition, 0)
        }
        for topic_partition, each in shorter.items():
            if each.damage is not None:
                raise with_way_out(each.damage, topic_partition, each.end)
            if self._options.fail_on_data_loss:
                raise OffsetOutOfRangeError(begin[topic_partition], each.start, each.end)
        return {topic_partition: each.start for topic_partition, each in shorter.items()}

    def _sources(self) -> dict[TopicPartition, PartitionSource]:
        """What there is to read now. A partition may be gone for good where losses are borne."""
        return self._directories.sources(may_miss=not self._options.fail_on_data_loss)

    def _limited(
        self, origin: Offsets, highest: Offsets, limit: ReadLimit, begin: Offsets
    ) -> dict[TopicPartition, int]:
        options = self._options
        if isinstance(limit, ReadAllAvailable):
            return dict(highest)
        held = backlog(origin, highest)
        least = options.min_offsets_per_trigger
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        if (
            least is not None
            and held < least
            and self._target is None
            and self._waiting_since_ms is not None
            and now_ms - self._waiting_since_ms < options.max_trigger_delay_ms
        ):
            return dict(begin)
        self._waiting_since_ms = now_ms
        end = dict(highest)
        if options.max_offsets_per_trigger is not None:
            end = limit_by_offsets(origin, end, options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            end = self._directories.limit_by_bytes(
                self._sources(), origin, end, options.max_bytes_per_trigger
            )
        return end

    def _starts_of_new(self, begin: Offsets, highest: Offsets) -> dict[TopicPartition, int]:
        """Partitions that came after the query began are read from their beginning."""
        new = [topic_partition for topic_partition in highest if topic_partition not in begin]
        if not new:
            return {}
        sources = self._sources()
        ends = self._directories.ends(
            {
                topic_partition: sources[topic_partition]
                for topic_partition in new
                if topic_partition in sources
            }
        )
        return {
            topic_partition: min(each.start, highest[topic_partition])
            for topic_partition, each in ends.items()
        }

    @without_traceback
    def reportLatestOffset(self) -> _Json:  # noqa: N802
        return offsets_as_dict(self._latest(with_end_time=False))

    @without_traceback
    def partitions(self, start: _Json, end: _Json) -> Sequence[RangePartition]:
        stop = self._parsed(end)
        begin = self._begin_of_first(end, stop) if self._is_first else self._parsed(start)
        self._is_first = False
        directories = self._directories
        sources = self._sources()
        self._check_there(begin, stop, sources)
        sources = {
            topic_partition: source
            for topic_partition, source in sources.items()
            if topic_partition in stop
        }
        ends = directories.ends(sources)
        self._check_new(begin, ends)
        begin = merged_start(
            begin, {topic_partition: ends[topic_partition].start for topic_partition in sources}
        )
        first: dict[TopicPartition, int] = {}
        last: dict[TopicPartition, int] = {}
        for topic_partition in sources:
            # A start behind the end: a partition that begins anew.
            first[topic_partition] = min(begin[topic_partition], stop[topic_partition])
            last[topic_partition] = stop[topic_partition]
            if first[topic_partition] < last[topic_partition]:
                first[topic_partition] = self._kept(
                    first[topic_partition], last[topic_partition], ends[topic_partition]
                )
                last[topic_partition] = min(last[topic_partition], ends[topic_partition].end)
        directories.warn_of_skipped(ends, last)
        return [RangePartition(each) for each in directories.plan(sources, first, last)]

    def _begin_of_first(self, end: _Json, stop: Offsets) -> dict[TopicPartition, int]:
        """Where the first batch began, when it comes again: what the start means now is another matter."""
        if self._starts_latest:
            return dict(stop)
        if FIRST_START in end:
            return self._parsed(end[FIRST_START])
        return dict.fromkeys(stop, 0)  # all that is not written down

    def _check_new(self, begin: Offsets, ends: Mapping[TopicPartition, PartitionEnds]) -> None:
        """A partition that came later begins at 0, or part of it went before it was read."""
        for topic_partition, each in ends.items():
            if topic_partition not in begin and each.start > 0 and self._options.fail_on_data_loss:
                raise OffsetOutOfRangeError(0, each.start, each.end)

    def _kept(self, first: int, last: int, ends: PartitionEnds) -> int:
        """Where a range begins in what is still there."""
        log_start, log_end = ends.start, ends.end
        if last > log_end and ends.damage is not None:
            # Nothing is lost, but no reader can read it.
            raise with_way_out(ends.damage, None, log_end)
        if first < log_start or last > log_end:
            if self._options.fail_on_data_loss:
                gone = first if first < log_start else last
                raise OffsetOutOfRangeError(gone, log_start, log_end)
            return min(max(first, log_start), last)
        return first

    def _check_there(self, begin: Offsets, stop: Offsets, there: Any) -> None:
        gone = [p for p, end in stop.items() if p not in there and end > begin.get(p, 0)]
        if gone and self._options.fail_on_data_loss:
            raise UnknownPartitionError(
                f"{gone[0]} is gone, and with it records that the stream had not read; "
                "failOnDataLoss=false continues without"
            )

    def commit(self, end: _Json) -> None:
        """Nothing is kept for a stream: its checkpoint says where it is."""

    def stop(self) -> None:
        """Nothing is held open between questions."""

    def _latest(self, *, with_end_time: bool = True) -> dict[TopicPartition, int]:
        directories = self._directories
        sources = self._look()
        end = self._options.end
        if with_end_time and end.kind is Kind.TIME:
            return directories.resolve(end, sources, self._ends, is_start=False)
        return {
            topic_partition: directories.reader_end(each)
            for topic_partition, each in self._ends.items()
        }

    def _look(self) -> dict[TopicPartition, PartitionSource]:
        """What there is to read, and where it ends now."""
        sources = self._sources()
        self._ends = self._directories.ends(sources)
        return sources

    def _parsed(self, offsets: _Json) -> dict[TopicPartition, int]:
        return parse_offsets_dict(offsets, "the checkpoint")

    # What a task does.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Where there was nothing to plan, Spark still runs one task, and hands it nothing.
        ranges = partition.ranges if isinstance(partition, RangePartition) else ()
        note_input(self._options)
        return read_ranges(self._options, self._names, ranges)
