"""A stream from log directories, live or at rest.

Spark runs this in one process of its own for each query, and asks again and again: how far does it go now,
and which tasks read from here to there. Its offsets are those of Spark's Kafka source.

A start at the latest offset must mean the same after a crash, and Spark asks for it anew where the first
batch was not finished. Nothing can be kept beside the checkpoint: its place is not told. So the first batch
of such a stream is empty. It writes down where the stream starts; asked anew, there is no row in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from stratalog.errors import OffsetOutOfRangeError, UnknownPartitionError
from stratalog.spark.batch_reader import RangePartition
from stratalog.spark.driver_errors import in_one_sentence
from stratalog.spark.log_directories import LogDirectories
from stratalog.spark.offsets import (
    LATEST,
    Kind,
    Offsets,
    offsets_as_dict,
    parse_offsets_dict,
)
from stratalog.spark.range_rows import read_ranges
from stratalog.spark.triggers import backlog, limit_by_offsets, merged_start, reached_or_less
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from stratalog.spark.read_options import ReadOptions

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
        self._is_first = False
        self._target: dict[TopicPartition, int] | None = None
        self._waiting_since_ms = SYSTEM_CLOCK.monotonic_ms()

    # What Spark asks on the driver.

    @in_one_sentence
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

    @in_one_sentence
    def initialOffset(self) -> _Json:  # noqa: N802
        # Asked twice for one query: what is latest must not move in between.
        if self._initial is None:
            self._initial = self._resolve_start()
            self._is_first = self._starts_latest
        return offsets_as_dict(self._initial)

    def _resolve_start(self) -> dict[TopicPartition, int]:
        directories = self._directories
        sources = directories.sources()
        ends = directories.ends(sources)
        start = directories.resolve(self._options.start, sources, ends, is_start=True)
        return start if self._target is None else reached_or_less(start, self._target)

    @in_one_sentence
    def latestOffset(self, start: _Json, limit: ReadLimit) -> _Json:  # noqa: N802
        if self._is_first:
            self._is_first = False
            return start
        begin = self._parsed(start)
        latest = self._latest() if self._target is None else dict(self._target)
        # A partition that is gone, or shorter than it was, does not take the stream back.
        highest = {place: max(offset, begin.get(place, 0)) for place, offset in latest.items()}
        highest = {**begin, **highest}
        origin = merged_start(begin, self._starts_of_new(begin, highest))
        return offsets_as_dict(self._limited(origin, highest, limit, begin))

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
            and now_ms - self._waiting_since_ms < options.max_trigger_delay_ms
        ):
            return dict(begin)
        self._waiting_since_ms = now_ms
        end = dict(highest)
        if options.max_offsets_per_trigger is not None:
            end = limit_by_offsets(origin, end, options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            sources = self._directories.sources()
            end = self._directories.limit_by_bytes(
                sources, origin, end, options.max_bytes_per_trigger
            )
        return end

    def _starts_of_new(self, begin: Offsets, highest: Offsets) -> dict[TopicPartition, int]:
        """Partitions that came after the query began are read from their beginning."""
        new = [place for place in highest if place not in begin]
        if not new:
            return {}
        sources = self._directories.sources()
        ends = self._directories.ends({place: sources[place] for place in new if place in sources})
        return {place: min(each.start, highest[place]) for place, each in ends.items()}

    @in_one_sentence
    def reportLatestOffset(self) -> _Json:  # noqa: N802
        return offsets_as_dict(self._latest(with_end_time=False))

    @in_one_sentence
    def partitions(self, start: _Json, end: _Json) -> Sequence[RangePartition]:
        begin, stop = self._parsed(start), self._parsed(end)
        directories = self._directories
        sources = directories.sources()
        self._check_there(begin, stop, sources)
        sources = {place: source for place, source in sources.items() if place in stop}
        ends = directories.ends(sources)
        begin = merged_start(begin, {place: ends[place].start for place in sources})
        first: dict[TopicPartition, int] = {}
        last: dict[TopicPartition, int] = {}
        for place in sources:
            # A start behind the end: asked anew about a first batch that is empty.
            first[place] = min(begin[place], stop[place])
            last[place] = stop[place]
            if first[place] < last[place]:
                first[place] = self._kept(
                    first[place], last[place], ends[place].start, ends[place].end
                )
                last[place] = min(last[place], ends[place].end)
        return [RangePartition(each) for each in directories.plan(sources, first, last)]

    def _kept(self, first: int, last: int, log_start: int, log_end: int) -> int:
        """Where a range begins in what is still there."""
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
                "failOnDataLoss=false goes on without"
            )

    def commit(self, end: _Json) -> None:
        """Nothing is kept for a stream: its checkpoint says where it is."""

    def stop(self) -> None:
        """Nothing is held open between questions."""

    def _latest(self, *, with_end_time: bool = True) -> dict[TopicPartition, int]:
        directories = self._directories
        sources = directories.sources()
        ends = directories.ends(sources)
        latest = {place: directories.reader_end(each) for place, each in ends.items()}
        end = self._options.end
        if with_end_time and end.kind is Kind.TIME:
            return directories.resolve(end, sources, ends, is_start=False)
        return latest

    def _parsed(self, offsets: _Json) -> dict[TopicPartition, int]:
        return parse_offsets_dict(offsets, "the checkpoint")

    # What a task does.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Where there was nothing to plan, Spark still runs one task, and hands it nothing.
        ranges = partition.ranges if isinstance(partition, RangePartition) else ()
        return read_ranges(self._options, self._names, ranges)
