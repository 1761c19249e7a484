"""Run a function once for each item in Spark tasks, and collect the answers.

An answer is one small value for each item. Errors of files come back as values, too, so that the driver can
report them without a traceback; any other exception is a bug, and fails the job.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from stratalog.spark.jobs.run.watching import watched
from stratalog.spark.worker.memory import freeze_worker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from stratalog.types import Progress

__all__ = ["context_of", "cores_of", "run_tasks"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def cores_of(spark: SparkSession) -> int:
    """Return how many tasks run at once; a guess where only the cluster's own driver knows."""
    context = context_of(spark)
    return 8 if context is None else max(1, int(context.defaultParallelism))


def run_tasks(
    spark: SparkSession,
    work: Callable[[Item], Answer],
    items: Sequence[Item],
    *,
    name: str,
    total_bytes: int = 0,
    progress: Progress | None = None,
) -> list[Answer]:
    """Return ``work`` of every item, in the order of the items. ``work`` is a function that other processes
    can import. ``progress`` is called with how many of ``total_bytes`` are done."""
    if not items:
        return []
    context = context_of(spark)
    if context is None:
        return _run_by_frame(spark, work, items)
    group = f"stratalog-{uuid.uuid4()}"
    with watched(context, group, name, total_bytes, progress):
        return list(
            context.parallelize(list(items), len(items)).map(partial(_call, work)).collect()
        )


def context_of(spark: SparkSession) -> Any:
    """The context of a session of this process. A session of Spark Connect has none."""
    from pyspark.sql.utils import is_remote

    return None if is_remote() else spark.sparkContext


def _call(work: Callable[[Item], Answer], item: Item) -> Answer:
    freeze_worker()
    return work(item)


def _run_by_frame(
    spark: SparkSession, work: Callable[[Item], Answer], items: Sequence[Item]
) -> list[Answer]:
    """The same as a DataFrame, which every session has; a task costs three times as much."""
    count = len(items)
    rows = (
        spark.range(0, count, 1, count)
        .mapInArrow(partial(_answers, work, tuple(items)), "number bigint, answer binary")
        .collect()
    )
    return [pickle.loads(row["answer"]) for row in sorted(rows, key=lambda row: int(row["number"]))]  # noqa: S301


def _answers(
    work: Callable[[Item], Answer], items: Sequence[Item], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from stratalog.records.arrow_values import bytes_array

    for batch in numbers:
        column = batch.column(0)
        for row, number in enumerate(column.to_pylist()):
            answer = bytes_array([pickle.dumps(_call(work, items[number]))])
            yield pa.record_batch({"number": column.slice(row, 1), "answer": answer})
