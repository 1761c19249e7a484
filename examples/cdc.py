"""Change data capture: a log of inserts, updates and deletes becomes a table of what is true now.

    python examples/cdc.py FOLDER     makes changes of customers, and brings the table up to date
    python examples/cdc.py FOLDER     once more: more changes; only those are read

A change is a record with the customer's number as its key; its value is the customer as JSON, or null where
it was deleted. The newest of each key goes two ways in every micro-batch: into the table, a Parquet folder
for each version, and into a topic that Kafka may compact. Both happen once, also where a batch is run again.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import stratalog
import stratalog.spark

CHANGES, LATEST = "customers.changes", "customers"
COLUMNS = "id bigint, name string, city string, balance bigint"
CITIES = ("Berlin", "Paris", "Oslo", "Madrid", "Wien")
VERSIONS_KEPT = 2

Customers = dict[int, tuple[str, str, int]]


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path, help="the logs, the checkpoint and the table")
    options.add_argument("--changes", type=int, default=10_000, help="how many to make")
    options.add_argument("--customers", type=int, default=1000)
    given = options.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    logs = given.folder / "logs"
    generate(logs, given.changes, given.customers)
    print(f"{given.changes:,} more changes in {logs}")
    spark = stratalog.spark.session("cdc")
    read = run(spark, given.folder)
    print(f"{read:,} changes read")
    table = latest_version(given.folder / "table")
    assert table is not None, "a batch has written it"
    frame = spark.read.parquet(str(table))
    frame.groupBy("city").agg(sf.count("*").alias("customers"), sf.sum("balance").alias("balance")) \
        .orderBy("city").show()  # fmt: skip
    expected = fold(logs, CHANGES)
    found = {row.id: (row.name, row.city, row.balance) for row in frame.collect()}
    if not found == expected == fold(logs, LATEST):
        print("the table is not what the changes make")
        return 1
    print(f"{len(found):,} customers, as the changes make them; {table.name} of the table")
    return 0


# The pipeline.


def run(spark: SparkSession, folder: Path, offsets_at_once: int = 5000) -> int:
    """Reads what is new and merges it; how many changes were read."""
    changes = (
        spark.readStream.format("stratalog")
        .option("subscribe", CHANGES)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", offsets_at_once)
        .load(str(folder / "logs"))
    )
    query = (
        changes.writeStream.foreachBatch(partial(merge, folder))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(each["numInputRows"] for each in query.recentProgress)


def merge(folder: Path, batch: DataFrame, batch_id: int) -> None:
    """One micro-batch. Spark may ask for it again, after a crash: the same rows under the same number."""
    # A key is always in the same partition, so that offsets tell which change is the newer.
    newest = (
        batch.groupBy("key")
        .agg(sf.max_by(sf.struct("value", "timestamp"), "offset").alias("last"))
        .select("key", "last.value", "last.timestamp")
        .persist()
    )
    try:
        (
            newest.write.format("stratalog")
            .option("topic", LATEST)
            .option("partitions", 3)
            .option("cleanup.policy", "compact")
            # Written once under this name and number, however often it is asked for.
            .option("txnAppId", query_id(folder / "checkpoint"))
            .option("txnVersion", batch_id)
            .mode("append")
            .save(str(folder / "logs"))
        )
        write_version(folder / "table", newest, batch_id)
    finally:
        newest.unpersist()


def write_version(table: Path, newest: DataFrame, batch_id: int) -> None:
    """The version before this one without the customers that changed, and those that are still there. The
    whole table is written anew, which a table format with MERGE would not."""
    changed = newest.select(
        sf.expr("cast(cast(key as string) as bigint)").alias("id"),
        sf.from_json(sf.expr("cast(value as string)"), COLUMNS).alias("customer"),
        sf.expr("value is null").alias("is_deleted"),
    )
    table.mkdir(parents=True, exist_ok=True)
    rows = changed.where("not is_deleted").select(
        "id", "customer.name", "customer.city", "customer.balance"
    )
    before = latest_version(table, below=batch_id)
    if before is not None:
        kept = newest.sparkSession.read.parquet(str(before)).join(changed, "id", "left_anti")
        rows = kept.unionByName(rows)
    rows.coalesce(1).write.mode("overwrite").parquet(str(table / version_name(batch_id)))
    for old in complete_versions(table)[:-VERSIONS_KEPT]:
        shutil.rmtree(old)


def query_id(checkpoint: Path) -> str:
    """Spark's own name of the query, which lives as long as the checkpoint that counts its batches."""
    return str(json.loads((checkpoint / "metadata").read_text())["id"])


def version_name(batch_id: int) -> str:
    return f"version={batch_id:09}"


def complete_versions(table: Path) -> list[Path]:
    """Spark leaves a mark when all files of a version are there."""
    return sorted(mark.parent for mark in table.glob("version=*/_SUCCESS"))


def latest_version(table: Path, below: int | None = None) -> Path | None:
    names = complete_versions(table)
    if below is not None:
        names = [path for path in names if path.name < version_name(below)]
    return names[-1] if names else None


# The changes, and what must become of them.


def generate(logs: Path, changes: int, customers: int) -> None:
    with stratalog.open(str(logs)) as opened:
        if CHANGES not in opened.topics():
            opened.create(CHANGES, 3, retention_ms=-1)
        made = sum(opened.latest(CHANGES, number) for number in range(3))
        opened.append(CHANGES, make_changes(changes, customers, seed=made))


def make_changes(changes: int, customers: int, seed: int) -> Iterator[dict[str, Any]]:
    """An eighth of them are deletes; whoever is changed next, is there again."""
    dice = random.Random(seed)
    for _ in range(changes):
        number = dice.randrange(customers)
        customer = {
            "name": f"customer {number}",
            "city": dice.choice(CITIES),
            "balance": dice.randrange(1000),
        }
        yield {"key": str(number), "value": None if dice.random() < 0.125 else json.dumps(customer)}


def fold(logs: Path, topic: str) -> Customers:
    """What a topic of changes says, in plain Python and without Spark."""
    customers: Customers = {}
    with stratalog.open(str(logs), read_only=True) as opened:
        for record in opened.read(topic).records():
            assert record.key is not None
            number = int(record.key)
            if record.value is None:
                customers.pop(number, None)
            else:
                value = json.loads(record.value)
                customers[number] = (value["name"], value["city"], value["balance"])
    return customers


if __name__ == "__main__":
    sys.exit(main())
