"""Clicks in a log become sessions in Parquet, partitioned by date, each written once.

    python examples/clickstream.py FOLDER     generates two days of clicks, and sessionises them
    python examples/clickstream.py FOLDER     once more: two more days; only those are read

A session is one user's clicks with less than half an hour between them. It is written when no click can
belong to it any more; the sessions that are still open when the clicks end wait for the next run.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import stratalog
import stratalog.spark

TOPIC = "clicks"
FIRST_DAY_MS = 1_767_225_600_000  # 2026-01-01
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
GAP_MS = 30 * MINUTE
LATENESS_MS = 2 * HOUR
PAGES = ("/", "/search", "/product", "/cart", "/pay")


class Session(NamedTuple):
    """What must come out."""

    user: str
    start_ms: int
    last_ms: int
    clicks: int
    entry: str
    exit: str


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path, help="the log, the checkpoint and the Parquet files")
    options.add_argument("--users", type=int, default=200)
    options.add_argument("--days", type=int, default=2)
    given = options.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    logs, target = given.folder / "logs", given.folder / "sessions"
    days, clicks = generate(logs, given.users, given.days)
    print(f"{clicks:,} more clicks of {given.users} users in {logs}")
    spark = stratalog.spark.session("clickstream")
    read = run(spark, logs, target, given.folder / "checkpoint")
    print(f"{read:,} clicks read")
    found = written_sessions(spark, target)
    spark.read.parquet(str(target)).groupBy("date").agg(
        sf.count("*").alias("sessions"), sf.sum("clicks").alias("clicks")
    ).orderBy("date").show()
    expected = finished_sessions(given.users, days)
    if found != expected:
        print(f"{len(found)} sessions are not the {len(expected)} that were generated")
        return 1
    print(f"{len(found):,} sessions, each once; those still open wait for more clicks")
    return 0


# The pipeline.


def run(spark: SparkSession, logs: Path, target: Path, checkpoint: Path) -> int:
    """Reads what is new, writes the sessions that are over; how many clicks were read."""
    clicks = (
        spark.readStream.format("stratalog")
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 5000)
        .load(str(logs))
    )
    query = (
        sessions_of(clicks)
        .writeStream.format("parquet")
        .partitionBy("date")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)  # without it, it runs for ever
        .start(str(target))
    )
    query.awaitTermination()
    return sum(each["numInputRows"] for each in query.recentProgress)


def sessions_of(clicks: DataFrame) -> DataFrame:
    """Clicks by user and pause. The watermark says how late a click may come."""
    return (
        clicks.selectExpr(
            "cast(key as string) as user",
            "timestamp",
            "get_json_object(cast(value as string), '$.page') as page",
        )
        .withWatermark("timestamp", f"{LATENESS_MS} milliseconds")
        .groupBy("user", sf.session_window("timestamp", f"{GAP_MS} milliseconds"))
        .agg(
            sf.min("timestamp").alias("start"),
            sf.max("timestamp").alias("last"),
            sf.count("*").alias("clicks"),
            sf.min_by("page", "timestamp").alias("entry"),
            sf.max_by("page", "timestamp").alias("exit"),
        )
        .drop("session_window")
        .withColumn("date", sf.to_date("start"))
    )


def written_sessions(spark: SparkSession, target: Path) -> list[Session]:
    rows = spark.read.parquet(str(target)).selectExpr(
        "user", "unix_millis(start)", "unix_millis(last)", "clicks", "entry", "exit"
    )
    return sorted(Session(*row) for row in rows.collect())


# The clicks, and what must become of them.


def generate(logs: Path, users: int, days: int) -> tuple[int, int]:
    """Appends so many more days; how many days and how many of its clicks the log has got."""
    with stratalog.open(str(logs)) as opened:
        first = 0
        if TOPIC in opened.topics():
            times = opened.read(TOPIC, columns=["timestamp_ms"]).to_table()["timestamp_ms"]
            first = (max(times.to_pylist()) - FIRST_DAY_MS) // DAY + 1
        else:
            opened.create(TOPIC, 3, retention_ms=-1)
        clicks = sorted(
            (at, session.user, page)
            for session, pages in sessions_of_days(users, range(first, first + days))
            for at, page in pages
        )
        opened.append(
            TOPIC,
            (
                {"key": user, "value": json.dumps({"page": page}), "timestamp": at}
                for at, user, page in clicks
            ),
        )
    return first + days, len(clicks)


def sessions_of_days(users: int, days: range) -> Iterator[tuple[Session, list[tuple[int, str]]]]:
    """Up to four sessions a user and day, hours apart."""
    for day in days:
        dice = random.Random(day)
        for number in range(users):
            for quarter in range(4):
                if dice.random() < 0.5:
                    continue
                at = FIRST_DAY_MS + day * DAY + quarter * 6 * HOUR + dice.randrange(3 * HOUR)
                pages = []
                for _ in range(dice.randint(1, 12)):
                    pages.append((at, dice.choice(PAGES)))
                    at += dice.randint(SECOND, 9 * MINUTE)
                (start, entry), (last, left) = pages[0], pages[-1]
                yield Session(f"user-{number:04}", start, last, len(pages), entry, left), pages


def finished_sessions(users: int, days: int) -> list[Session]:
    """Those that no click can belong to any more, seen from the last one."""
    everything = [session for session, _ in sessions_of_days(users, range(days))]
    newest = max(session.last_ms for session in everything)
    return sorted(each for each in everything if each.last_ms + GAP_MS <= newest - LATENESS_MS)


if __name__ == "__main__":
    sys.exit(main())
