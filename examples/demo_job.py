"""The pipeline of the demo, as a program of its own: so that it can be killed.

    orders ──count by city and minute──────> windows, a topic      (windowed aggregation, exactly once)
       └─────running total of each customer─> totals, Parquet files (keyed state, exactly once)

It goes on from its checkpoints, ends when there is nothing more to read, and tells what it does in lines of
JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

import stratalog.spark

CONFIGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.pyspark.jvmStacktrace.enabled": "true",  # where it fails, the cause stands in there
}


def main(root: Path, orders_at_once: int) -> None:
    spark = stratalog.spark.session("demo", configs={**CONFIGS, **places(root)})
    tell(started=os.getpid(), spark=spark.version)
    orders = (
        spark.readStream.format("stratalog")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", orders_at_once)
        .load(str(root / "logs"))
        .selectExpr(
            "cast(key as string) as customer",
            "timestamp",
            "from_json(cast(value as string), 'city string, cents bigint') as placed",
        )
        .select("customer", "timestamp", "placed.city", "placed.cents")
    )
    queries = {
        "windows": write_windows(orders, root),
        "totals": write_totals(orders, root),
    }
    follow(queries)
    tell(totals=count_totals(spark, root))


def places(root: Path) -> dict[str, str]:
    """Whatever Spark puts on the disk goes where the demo cleans up."""
    return {
        "spark.local.dir": str(root / "spark"),
        "spark.sql.warehouse.dir": str(root / "spark" / "warehouse"),
    }


def write_windows(orders: DataFrame, root: Path) -> StreamingQuery:
    """How many orders, and of how much, in each city and minute: a record for each, when it is over."""
    counted = (
        orders.withWatermark("timestamp", "1 minute")
        .groupBy(sf.window("timestamp", "1 minute"), "city")
        .agg(sf.count("*").alias("orders"), sf.sum("cents").alias("cents"))
        .selectExpr(
            "concat(unix_millis(window.start), ' ', city) as key",
            "to_json(struct(orders, cents)) as value",
            "window.start as timestamp",
        )
    )
    return (
        counted.writeStream.format("stratalog")
        .option("topic", "windows")
        .option("partitions", 2)
        .option("checkpointLocation", str(root / "checkpoints" / "windows"))
        .trigger(availableNow=True)
        .start(str(root / "logs"))
    )


def write_totals(orders: DataFrame, root: Path) -> StreamingQuery:
    """Each order with its number among those of its customer, and what they come to so far."""
    named = orders.where("customer is not null")
    numbered = named.groupBy("customer").applyInPandasWithState(
        add_up,
        outputStructType="customer string, number bigint, cents bigint, total bigint",
        stateStructType="number bigint, total bigint",
        outputMode="append",
        timeoutConf="NoTimeout",
    )
    return (
        numbered.writeStream.format("parquet")
        .option("checkpointLocation", str(root / "checkpoints" / "totals"))
        .trigger(availableNow=True)
        .start(str(root / "totals"))
    )


def add_up(
    key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    number, total = state.get if state.exists else (0, 0)
    for frame in frames:
        cents = frame["cents"].astype("int64")
        totals = cents.cumsum() + total
        numbers = range(number + 1, number + 1 + len(frame))
        yield pd.DataFrame({"customer": key[0], "number": numbers, "cents": cents, "total": totals})
        number, total = number + len(frame), total + int(cents.sum())
    state.update((number, total))


def follow(queries: dict[str, StreamingQuery]) -> None:
    """Tells every batch when it is done."""
    told = dict.fromkeys(queries, -1)
    while True:
        is_active = any(query.isActive for query in queries.values())
        for name, query in queries.items():
            for batch in query.recentProgress:
                if batch["batchId"] > told[name] and "addBatch" in batch["durationMs"]:
                    told[name] = batch["batchId"]
                    seconds = batch["durationMs"]["triggerExecution"] / 1000
                    tell(
                        query=name, batch=told[name], orders=batch["numInputRows"], seconds=seconds
                    )
            error = query.exception()
            if error is not None:
                raise error
        if not is_active:
            return
        time.sleep(0.1)


def count_totals(spark: SparkSession, root: Path) -> dict[str, tuple[int, ...]]:
    """By customer: rows, different numbers, the highest of them, cents, the last total. Spark reads the
    files that its commits name: what a killed task has left there does not count."""
    rows = spark.read.parquet(str(root / "totals")).groupBy("customer").agg(
        sf.count("*"), sf.count_distinct("number"), sf.max("number"), sf.sum("cents"), sf.max("total")
    )  # fmt: skip
    return {row[0]: tuple(row[1:]) for row in rows.collect()}


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
