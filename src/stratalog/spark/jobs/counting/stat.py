"""``stat``: what names, indexes and headers tell of partitions: sizes, offsets, times, codecs, batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from stratalog.inspect.count.partition import tally
from stratalog.inspect.partition.partition_filter import Partitions, Topics
from stratalog.inspect.partition.sources import Paths
from stratalog.spark.jobs.counting.plan import CountedLog, count_logs
from stratalog.spark.jobs.counting.tasks import Counting
from stratalog.spark.jobs.run.frames import frame_of
from stratalog.spark.jobs.run.log_paths import LogPaths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stratalog.types import Progress

__all__ = ["COLUMNS", "row_of", "stat"]

#: By name; times are milliseconds.
COLUMNS: Final[dict[str, str]] = {
    "topic": "string",
    "partition": "int",
    "segments": "int",
    "records": "bigint",
    "control_records": "bigint",
    "batches": "bigint",
    "start_offset": "bigint",
    "end_offset": "bigint",
    "log_bytes": "bigint",
    "first_time": "bigint",
    "last_time": "bigint",
    "codecs": "map<string,bigint>",
    "formats": "map<string,bigint>",
    "compressed_bytes": "bigint",
    "record_bytes_mean": "bigint",
    "batch_bytes_min": "bigint",
    "batch_bytes_mean": "bigint",
    "batch_bytes_max": "bigint",
    "batch_records_mean": "bigint",
    "batch_records_max": "bigint",
    "transactional_batches": "bigint",
    "idempotent_batches": "bigint",
    "status": "string",
}


def stat(
    spark: SparkSession,
    paths: Paths,
    *,
    topics: Topics | None = None,
    partitions: Partitions | None = None,
    store: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> DataFrame:
    """Look at every header of partitions: a row each, as they are when this is called.

    ``codecs`` and ``formats`` say how many batches are of each; ``compressed_bytes`` is what those take that
    are compressed. Sizes of batches are those in the file, header and all. Times are those that ``ls``
    shows: milliseconds of the earliest that a segment begins with, and of the latest of all.
    """
    logs = LogPaths.of(paths, store)
    counted = count_logs(
        spark,
        logs.sources(topics, partitions),
        Counting(logs, times=True, stats=True),
        every_segment=True,
        name="stat",
        progress=progress,
    )
    ddl = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    return frame_of(spark, [tuple(row_of(each).values()) for each in counted], ddl)


def row_of(counted: CountedLog) -> dict[str, Any]:
    """A partition as a row: the columns above."""
    count, stats = counted.count, counted.stats
    topic_partition, sums = count.source.topic_partition, tally(count.segments, count.unread_files)
    batches = sum(stats.codecs.values())
    records = sums.records + sums.control_records
    return {
        "topic": None if topic_partition is None else topic_partition.topic,
        "partition": None if topic_partition is None else topic_partition.partition,
        "segments": sums.segments,
        "records": sums.records,
        "control_records": sums.control_records,
        "batches": sums.batches,
        "start_offset": count.start_offset,
        "end_offset": count.end_offset,
        "log_bytes": sums.log_bytes,
        "first_time": sums.first_time,
        "last_time": sums.last_time,
        "codecs": dict(sorted(stats.codecs.items())),
        "formats": {f"v{magic}": stats.magics[magic] for magic in sorted(stats.magics)},
        "compressed_bytes": stats.compressed_bytes,
        "record_bytes_mean": _mean(sums.log_bytes, records),
        "batch_bytes_min": stats.batch_bytes_min,
        "batch_bytes_mean": _mean(stats.batch_bytes, batches),
        "batch_bytes_max": stats.batch_bytes_max,
        "batch_records_mean": _mean(records, sums.batches),
        "batch_records_max": stats.batch_records_max,
        "transactional_batches": stats.transactional_batches,
        "idempotent_batches": stats.idempotent_batches,
        "status": sums.status,
    }


def _mean(total: int, count: int) -> int | None:
    return total // count if count else None
