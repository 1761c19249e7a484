"""``stratalog.spark.scan``: a DataFrame whose condition and columns are known before anything is read.

A data source in Python is told neither. Here both come with the call: partitions, segments and batches that
cannot pass are left out by names, indexes and headers, columns that nobody asks for are not decoded, and rows
go to Spark on the shorter way of ``mapInArrow``. The condition is then applied in full by Spark, so that the
answer is right whatever was left out. What is read is decided once: the DataFrame may be used many times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from stratalog.inspect.partition.sources import Paths, path_list
from stratalog.spark.options.columns import COLUMNS, column_names, ddl_of, names_of
from stratalog.spark.options.options import Given
from stratalog.spark.options.read_options import ReadOptions
from stratalog.spark.pushdown.catalyst import pruning_of, references_of
from stratalog.spark.pushdown.pruning import EVERYTHING, Interval, Pruning
from stratalog.spark.read.planner import LogDirectories, TimeBounds
from stratalog.spark.read.task import read_ranges
from stratalog.storage.names import INTERNAL_TOPICS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from stratalog.inspect.range.plan import LogRange

__all__ = ["plan_scan", "scan"]


def scan(
    spark: SparkSession,
    paths: Paths,
    *,
    where: str | Column | None = None,
    columns: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Log directories as a DataFrame, of the rows that ``where`` lets pass.

    ``where`` is a condition on any columns of the source, as SQL text or a Column. What it says of topic,
    partition, offset and timestamp decides what is read. ``columns`` are those of the source, by default
    those that Spark's Kafka source has. ``options`` are the reading options of the data source
    (``startingOffsets``, ``endingTimestamp``, ``isolationLevel``, …), and ``maxLateness``: how much older
    than those before it a record can be, such as ``1h``. A log does not tell, so that without it an upper
    bound of times saves no reading.
    """
    given = {name.lower(): _text(value) for name, value in (options or {}).items()}
    lateness = given.pop("maxlateness", None)
    given["paths"] = _as_json(path_list(paths))
    wanted = column_names(given) if columns is None else names_of(columns)
    read = ReadOptions.of({k: v for k, v in given.items() if k != "columns"}, is_stream=False)
    everything = partial(_read_number, read, tuple(COLUMNS), ())
    unread = spark.range(0, 1, 1, 1).mapInArrow(everything, ddl_of(tuple(COLUMNS)))
    pruning = Pruning()
    names = wanted
    if where is not None:
        filtered = unread.where(where)
        filtered.schema  # noqa: B018  # a condition that cannot be is said here
        pruning, needed = _said(spark, filtered, where)
        names = tuple(COLUMNS) if needed is None else _with(wanted, needed)
    lateness_ms = None
    if lateness is not None:
        lateness_ms = Given({"maxLateness": lateness}).duration_ms("maxLateness", 0)
    tasks = plan_scan(read, pruning, lateness_ms)
    count = max(1, len(tasks))
    rows = spark.range(0, count, 1, count).mapInArrow(
        partial(_read_number, read, names, tuple(tasks)), ddl_of(names)
    )
    if where is not None:
        rows = rows.where(where)
    return rows if names == wanted else rows.select(*wanted)


def _said(
    spark: SparkSession, filtered: DataFrame, where: str | Column
) -> tuple[Pruning, frozenset[str] | None]:
    """What the condition lets through, and the columns that it looks at; None where nobody can tell."""
    if hasattr(filtered, "_jdf"):
        return pruning_of(filtered), references_of(filtered)
    from stratalog.spark.pushdown.connect_condition import condition_of

    found = condition_of(spark, where)
    return (EVERYTHING, None) if found is None else found


def plan_scan(
    options: ReadOptions, pruning: Pruning, lateness_ms: int | None = None
) -> list[tuple[LogRange, ...]]:
    """The ranges that can hold rows that pass, cut and packed for tasks."""
    directories = LogDirectories(_with_named(options, pruning))
    sources = directories.sources()
    if pruning.is_nothing:
        return []
    chosen = {
        topic_partition: source
        for topic_partition, source in sources.items()
        if (pruning.topics is None or topic_partition.topic in pruning.topics)
        and pruning.partitions.holds(topic_partition.partition)
    }
    if options.latest is not None:
        # A record that passes is not the newest of its key if a newer one does not pass.
        pruning = replace(pruning, offsets=EVERYTHING.offsets, times_us=EVERYTHING.times_us)
    ends = directories.ends(chosen)
    start, end = directories.bounds(chosen, ends, among=sources)
    low, high = pruning.offsets.low, pruning.offsets.high
    reached = {
        topic_partition: ends[topic_partition]
        for topic_partition in chosen
        if high is None or high >= end[topic_partition]
    }
    directories.check_end(options.end, reached, end)
    for topic_partition in chosen:
        start[topic_partition] = (
            start[topic_partition] if low is None else max(start[topic_partition], low)
        )
        end[topic_partition] = (
            end[topic_partition] if high is None else min(end[topic_partition], high + 1)
        )
    return directories.plan(chosen, start, end, _times(pruning.times_us, lateness_ms))


def _with_named(options: ReadOptions, pruning: Pruning) -> ReadOptions:
    """The options, with internal topics where the condition asks for one by name. Others are pruned."""
    if options.wanted.is_given or not INTERNAL_TOPICS & (pruning.topics or frozenset()):
        return options
    return replace(options, wanted=replace(options.wanted, includes_internal=True))


def _times(times_us: Interval, lateness_ms: int | None) -> TimeBounds:
    """Bounds in milliseconds that let through whatever those in microseconds do."""
    return TimeBounds(
        None if times_us.low is None else times_us.low // 1000,
        None if times_us.high is None else times_us.high // 1000 + 1,
        lateness_ms,
    )


def _read_number(
    options: ReadOptions,
    names: tuple[str, ...],
    tasks: tuple[tuple[LogRange, ...], ...],
    numbers: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """What a task does: the numbers that Spark hands it say which ranges are its own."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            if number < len(tasks):
                yield from read_ranges(options, names, tasks[number])


def _with(wanted: tuple[str, ...], more: Iterable[str]) -> tuple[str, ...]:
    """The columns that are asked for, and those that a condition looks at, however it spells them."""
    looked_at = {name.lower() for name in more}
    return (*wanted, *(n for n in COLUMNS if n.lower() in looked_at and n not in wanted))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _as_json(paths: Sequence[str]) -> str:
    import json

    return json.dumps(list(paths))
