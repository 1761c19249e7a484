"""Find the superseded records of logs by a shuffle, so that their keys need not fit in any one memory.

All records of one key meet in one place, sorted by Spark, which spills to disk as it needs to. The newest of
them in the dirty section supersedes all with lower offsets. Their offsets are then gathered by group of
segments, and stored for the tasks that rewrite the groups.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from stratalog.spark.jobs.rewriting.key_rows import (
    FOUND,
    ROWS,
    GroupFound,
    SegmentKeys,
    keys_of_segments,
    store_found,
)
from stratalog.spark.jobs.rewriting.staged_group import Staging
from stratalog.spark.jobs.run.file_parts import pack, part_size
from stratalog.spark.jobs.run.run_tasks import context_of, cores_of
from stratalog.spark.jobs.run.task_errors import in_plain_words
from stratalog.spark.jobs.run.watching import watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stratalog.types import Progress

__all__ = ["find_superseded"]

_TASKS_PER_CORE: Final = 2
#: What the keys of a partition of the shuffle come from, and how many partitions there may be.
_SHUFFLE_BYTES: Final = 256 << 20
_SHUFFLES_MAX: Final = 10_000


def find_superseded(
    spark: SparkSession,
    staging: Staging,
    segments: Sequence[SegmentKeys],
    progress: Progress | None,
) -> dict[int, GroupFound]:
    """Return what was found for each group that has superseded records, or transactions, by its number."""
    total = sum(each.segment.segment.size_bytes for each in segments)
    cores = cores_of(spark)
    tasks = pack(
        segments,
        lambda each: each.segment.segment.size_bytes,
        part_size(total, cores, _TASKS_PER_CORE),
    )
    groups = len({each.group for each in segments})
    shuffles = min(max(cores, -(-total // _SHUFFLE_BYTES)), _SHUFFLES_MAX)
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    rows = numbers.mapInArrow(partial(keys_of_segments, staging, tasks), ROWS)
    found = (
        _superseded(rows, shuffles)
        .repartition(min(groups, max(shuffles, cores)), "grp")
        .sortWithinPartitions("grp", "is_event", "off")
        .mapInArrow(partial(store_found, staging), FOUND)
    )
    return {
        int(row["grp"]): GroupFound.from_row(row) for row in _collect(spark, found, total, progress)
    }


def _superseded(rows: DataFrame, shuffles: int) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    key = ("part", "is_event", "first", "second")
    newest = f.max("dirty").over(Window.partitionBy(*key))
    return (
        rows.repartition(shuffles, *key)
        .withColumn("newest", newest)
        .where((f.col("is_event") == 1) | (f.col("off") < f.col("newest")))
        .select("grp", "is_event", "first", "second", "off")
    )


def _collect(
    spark: SparkSession, frame: DataFrame, total_bytes: int, progress: Progress | None
) -> list[Any]:
    context = context_of(spark)
    with in_plain_words():
        if context is None:
            return list(frame.collect())
        group = f"stratalog-{uuid.uuid4()}"
        with watched(context, group, "compact: keys", total_bytes, progress):
            return list(frame.collect())
