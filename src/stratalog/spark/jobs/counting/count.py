"""``count``: how many records partitions hold, exact and from headers, in tasks by bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from stratalog.inspect.count.partition import tally
from stratalog.inspect.partition.partition_filter import Partitions, Topics
from stratalog.inspect.partition.sources import Paths
from stratalog.spark.jobs.counting.plan import count_logs, offset_range
from stratalog.spark.jobs.counting.tasks import Counting
from stratalog.spark.jobs.run.frames import frame_of
from stratalog.spark.jobs.run.log_paths import LogPaths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stratalog.types import Progress

__all__ = ["count"]

_DDL: Final = (
    "topic string, partition int, segments int, records bigint, control_records bigint, "
    "batches bigint, size_bytes bigint, first_offset bigint, last_offset bigint, status string"
)


def count(
    spark: SparkSession,
    paths: Paths,
    *,
    topics: Topics | None = None,
    partitions: Partitions | None = None,
    offsets: str | None = None,
    store: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> DataFrame:
    """Count the records of every partition: a row each, as they are when this is called.

    ``topics`` and ``partitions`` choose as the command line does (``"orders*"``, ``"0,2-5"``), ``offsets`` in
    the same words (``-1000``, ``@-1h``). Only where offsets cut inside a segment are its records decoded.
    Where a file is damaged, what stands before it is counted, and ``status`` says so.
    """
    wanted = offset_range(offsets)
    logs = LogPaths.of(paths, store)
    counted = count_logs(
        spark, logs.sources(topics, partitions), Counting(logs), wanted, progress=progress
    )
    rows = []
    for each in counted:
        topic_partition, sums = each.count.source.topic_partition, tally(each.count.segments)
        rows.append(
            (
                None if topic_partition is None else topic_partition.topic,
                None if topic_partition is None else topic_partition.partition,
                sums.segments,
                sums.records,
                sums.control_records,
                sums.batches,
                sums.size_bytes,
                sums.first_offset,
                sums.last_offset,
                sums.status,
            )
        )
    return frame_of(spark, rows, _DDL)
