"""Clicks out of a log, sessions into a table and into another topic of the same log."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

spark = SparkSession.active()
logs = spark.conf.get("spark.clickstream.logs")
assert logs is not None

dp.create_sink("session_log", "stratalog", {"path": logs, "topic": "sessions", "partitions": "3"})


@dp.table
def sessions() -> DataFrame:
    """Each once, when no click can belong to it any more."""
    clicks = (
        spark.readStream.format("stratalog")
        .option("subscribe", "clicks")
        .option("startingOffsets", "earliest")
        .load(logs)
    )
    return (
        clicks.selectExpr("cast(key as string) as user", "timestamp")
        .withWatermark("timestamp", "2 hours")
        .groupBy("user", sf.session_window("timestamp", "30 minutes"))
        .agg(
            sf.min("timestamp").alias("start"),
            sf.max("timestamp").alias("last"),
            sf.count("*").alias("clicks"),
        )
        .select("user", "start", "last", "clicks", sf.to_date("start").alias("date"))
    )


@dp.materialized_view
def sessions_by_date() -> DataFrame:
    return spark.read.table("sessions").groupBy("date").agg(
        sf.count("*").alias("sessions"), sf.sum("clicks").alias("clicks")
    )  # fmt: skip


@dp.append_flow(target="session_log")
def to_the_log() -> DataFrame:
    """The table's new rows, as records."""
    return spark.readStream.table("sessions").selectExpr(
        "user as key", "to_json(struct(user, start, last, clicks)) as value", "last as timestamp"
    )
