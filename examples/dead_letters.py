"""Records that cannot be parsed go to a topic of dead letters, and after a fix into the main topic, once.

    python examples/dead_letters.py FOLDER     payments in, ledger out; dead letters fixed and replayed
    python examples/dead_letters.py FOLDER     once more: there is nothing new, and nothing happens twice

    payments ──parse──> ledger
        ^       └─────> payments.dead     with headers that say why, and where it was
        └──replay, fixed──┘   └─────────> payments.parked     what no fix helps

One sink writes both topics of a step in one commit: a payment is in the one or in the other, never in both.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

import stratalog
import stratalog.spark

PAYMENTS, LEDGER, DEAD, PARKED = "payments", "ledger", "payments.dead", "payments.parked"
TOPICS = (PAYMENTS, LEDGER, DEAD, PARKED)


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path, help="the logs and the checkpoints")
    options.add_argument("--payments", type=int, default=10_000, help="how many to make at first")
    given = options.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    generate(given.folder / "logs", given.payments)
    spark = stratalog.spark.session("dead-letters")
    parse(spark, given.folder)
    show("parsed", given.folder)
    replay(spark, given.folder)
    show("replayed", given.folder)
    parse(spark, given.folder)
    counts = show("parsed again", given.folder)
    booked = ledger(given.folder / "logs")
    if booked != expected_ledger(counts[PARKED] + counts[LEDGER]):
        print("the ledger is not what was paid")
        return 1
    print(f"{sum(booked.values()):,} payments in the ledger, each once")
    return 0


# The pipelines.


def parse(spark: SparkSession, folder: Path) -> None:
    """Payments into the ledger, or among the dead letters."""
    payments = read_stream(spark, folder, PAYMENTS)
    amount = amount_of("value")
    why = sf.when(json_field("value", "id").isNull(), "no JSON with an id").when(
        amount.isNull(),
        sf.concat(sf.lit("no amount: "), sf.coalesce(json_field("value", "amount"), sf.lit(""))),
    )
    place = [
        ("error", why),
        ("topic", sf.col("topic")),
        ("partition", sf.col("partition")),
        ("offset", sf.col("offset")),
    ]
    booked = sf.to_json(
        sf.struct(json_field("value", "id").cast("bigint").alias("id"), amount.alias("amount"))
    )
    rows = payments.select(
        sf.when(why.isNull(), LEDGER).otherwise(DEAD).alias("topic"),
        "key",
        sf.when(why.isNull(), booked.cast("binary")).otherwise(sf.col("value")).alias("value"),
        "timestamp",
        sf.when(why.isNotNull(), headers_of(place)).alias("headers"),
    )
    write(rows, folder, "parse")


def replay(spark: SparkSession, folder: Path) -> None:
    """Dead letters, fixed, back into the main topic; what the fix does not help is parked. The checkpoint
    knows which were replayed already."""
    dead = read_stream(spark, folder, DEAD)
    fixed = dead.withColumn("fixed", fix(sf.col("value").cast("string")).cast("binary"))
    is_good = amount_of("fixed").isNotNull() & json_field("fixed", "id").isNotNull()
    rows = fixed.select(
        sf.when(is_good, PAYMENTS).otherwise(PARKED).alias("topic"),
        "key",
        sf.when(is_good, sf.col("fixed")).otherwise(sf.col("value")).alias("value"),
        "timestamp",
        "headers",  # why it was dead, and where it came from, goes along
    )
    write(rows, folder, "replay")


def fix(text: Column) -> Column:
    """What was wrong: some shops write 12,50 for 12.50."""
    return sf.regexp_replace(text, r'("amount": "\d+),(\d\d")', "$1.$2")


def json_field(column: str, name: str) -> Column:
    return sf.get_json_object(sf.col(column).cast("string"), f"$.{name}")


def amount_of(column: str) -> Column:
    return json_field(column, "amount").try_cast("decimal(12,2)")


def headers_of(fields: list[tuple[str, Column]]) -> Column:
    return sf.array(
        *(
            sf.struct(sf.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
            for name, value in fields
        )
    )


def read_stream(spark: SparkSession, folder: Path, topic: str) -> DataFrame:
    return (
        spark.readStream.format("stratalog")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load(str(folder / "logs"))
    )


def write(rows: DataFrame, folder: Path, step: str) -> None:
    """Into the topics that the rows name, of the same directory."""
    query = (
        rows.writeStream.format("stratalog")
        .option("checkpointLocation", str(folder / "checkpoints" / step))
        .trigger(availableNow=True)
        .start(str(folder / "logs"))
    )
    query.awaitTermination()


# The payments, and what must become of them.


def generate(logs: Path, payments: int) -> None:
    with stratalog.open(str(logs)) as opened:
        if PAYMENTS not in opened.topics():
            opened.create(PAYMENTS, 2, retention_ms=-1)
            opened.append(
                PAYMENTS,
                ((f"shop-{n % 50}", text) for n, text in enumerate(make_payments(payments))),
            )


def make_payments(payments: int) -> Iterator[str]:
    """Every tenth has a comma in its amount, every 37th is torn."""
    for number in range(payments):
        amount = str(amount_paid(number))
        if number % 10 == 0:
            amount = amount.replace(".", ",")
        text = json.dumps({"id": number, "amount": amount})
        yield text[:9] if number % 37 == 0 else text


def amount_paid(number: int) -> Decimal:
    return Decimal(number % 9973) / 100 + Decimal("0.01")


def expected_ledger(payments: int) -> Counter[tuple[int, Decimal]]:
    return Counter((n, amount_paid(n)) for n in range(payments) if n % 37 != 0)


def ledger(logs: Path) -> Counter[tuple[int, Decimal]]:
    booked: Counter[tuple[int, Decimal]] = Counter()
    with stratalog.open(str(logs), read_only=True) as opened:
        for record in opened.read(LEDGER).records():
            value = json.loads(record.value or b"", parse_float=Decimal)
            booked[value["id"], value["amount"]] += 1
    return booked


def show(step: str, folder: Path) -> dict[str, int]:
    with stratalog.open(str(folder / "logs"), read_only=True) as opened:
        counts = {
            topic: opened.read(topic, columns=["offset"]).to_table().num_rows
            if topic in opened.topics()
            else 0
            for topic in TOPICS
        }
    print(f"{step:<14}" + "  ".join(f"{topic} {count:,}" for topic, count in counts.items()))
    return counts


if __name__ == "__main__":
    sys.exit(main())
