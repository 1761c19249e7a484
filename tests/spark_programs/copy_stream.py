"""A pipeline in a driver of its own, to be killed and started again: a log as a stream into another log.

``python -m tests.spark_programs.copy_stream SOURCE TARGET CHECKPOINT copy|windows ROWS_PER_BATCH``; with 0
rows a batch it takes what is there and ends.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from stratalog.spark.session import session
from tests.judges.interop.spark_processes import quick_configs
from tests.spark_programs.killing_sink import KillingSource


def pipeline(rows: Any, kind: str) -> Any:
    """What is to be written: each record as it is, or how many there were in each second of each key."""
    if kind == "copy":
        return rows.selectExpr("key", "value", "timestamp")
    from pyspark.sql import functions as f

    counts = (
        rows.withWatermark("timestamp", "1 second")
        .groupBy(f.window("timestamp", "1 second"), "key")
        .agg(
            f.count("*").alias("count"), f.sum(rows.value.cast("string").cast("long")).alias("sum")
        )
    )
    return counts.selectExpr(
        "key",
        "to_json(struct(unix_millis(window.start) AS start, count, sum)) AS value",
        "window.start AS timestamp",
    )


def main(source: str, target: str, checkpoint: str, kind: str, rows_per_batch: int) -> None:
    folder = Path(os.environ["SPARK_LOCAL_DIRS"])
    spark = session(
        master="local[2]",
        configs={**quick_configs(folder), "spark.sql.shuffle.partitions": "1"},
    )
    spark.dataSource.register(KillingSource)
    reader = (
        spark.readStream.format("stratalog")
        .option("subscribePattern", ".*")
        .option("startingOffsets", "earliest")
    )
    if rows_per_batch:
        reader = reader.option("maxOffsetsPerTrigger", rows_per_batch)
    writer = (
        pipeline(reader.load(source), kind)
        .writeStream.format("stratalog_killing")
        .option("topic", "out")
        .option("partitions", 2)
        .option("checkpointLocation", checkpoint)
    )
    if not rows_per_batch:
        writer = writer.trigger(availableNow=True)
    writer.start(target).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    _, in_, out, notes, kind, rows = sys.argv
    main(in_, out, notes, kind, int(rows))
