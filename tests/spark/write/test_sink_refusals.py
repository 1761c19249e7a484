"""What a write refuses before any task runs: columns that are no part of a record, configs that differ."""

from __future__ import annotations

from pathlib import Path

import pytest

import stratalog
from stratalog.errors import UsageError
from stratalog.spark.options.columns import COLUMNS, spark_schema
from stratalog.spark.options.write_options import WriteOptions
from stratalog.spark.write.plan import SinkPlan, check_sink_schema, plan_sink

pytest.importorskip("pyspark")


def options(root: Path, **given: str) -> WriteOptions:
    return WriteOptions.of({"path": str(root), "topic": "orders", **given})


def check(columns: str, root: Path) -> None:
    """``"key string, value binary"``: Spark itself parses such a text in Java only."""
    from pyspark.sql.types import (
        BinaryType,
        LongType,
        NullType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    kinds = {
        "string": StringType(), "binary": BinaryType(), "bigint": LongType(),
        "timestamp": TimestampType(), "void": NullType(),
    }  # fmt: skip
    named = [each.split() for each in columns.split(", ")]
    fields = [StructField(name, kinds[kind]) for name, kind in named]
    check_sink_schema(StructType(fields), options(root))


@pytest.mark.parametrize(
    ("ddl", "says"),
    [
        ("key string, vlaue string", "no column 'vlaue': did you mean value"),
        ("kye string, value string", "no column 'kye': did you mean key"),
        ("value string, Timestamp timestamp", "no column 'Timestamp': did you mean timestamp"),
        ("value string, id bigint", "no column 'id': It has value, key, topic"),
        ("key string", "no column value: there are key; for tombstones give it as null"),
    ],
)
def test_misspelled_or_missing_column_of_a_dataframe_is_refused(tmp_path, ddl, says):
    with pytest.raises(UsageError, match=says):
        check(ddl, tmp_path)


def test_columns_of_a_read_and_nulls_that_are_asked_for_are_taken(tmp_path):
    check_sink_schema(spark_schema(tuple(COLUMNS)), options(tmp_path))
    check("key string, value void", tmp_path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with stratalog.open(tmp_path) as logs:
        logs.create("orders", 3, {"retention.ms": 60_000, "cleanup.policy": "delete"})
        logs.create("plain", 2)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"retention.ms": "-1"}, "'orders' has retention.ms=60000, not retention.ms=-1"),
        ({"cleanup.policy": "compact"}, "has cleanup.policy=delete, not cleanup.policy=compact"),
        ({"retention.bytes": "5"}, "has retention.bytes=-1, not retention.bytes=5"),
        ({"partitions": "4"}, "'orders' has 3 partitions, not partitions=4"),
    ],
)
def test_option_of_a_new_topic_that_differs_from_the_topic_is_refused(root, given, says):
    with pytest.raises(UsageError, match=says):
        plan_sink(options(root, **given))


@pytest.mark.parametrize(
    "given",
    [
        {"retention.ms": "60000", "partitions": "3"},
        {"retention.bytes": "-1"},  # Kafka's default, which the topic has
        {},
    ],
)
def test_option_that_the_topic_has_already_is_taken(root, given):
    assert plan_sink(options(root, **given)).counts == {"orders": 3}


def test_topics_of_a_column_are_checked_when_their_rows_come(root):
    given = {"path": str(root), "retention.ms": "60000", "partitions": "3"}
    plan: SinkPlan = plan_sink(WriteOptions.of(given))
    plan.check_topic("orders")
    plan.check_topic("new")
    with pytest.raises(UsageError, match="topic 'plain' has 2 partitions"):
        plan.check_topic("plain")
    with pytest.raises(UsageError, match=r"'plain' has retention\.ms=604800000, not"):
        plan_sink(WriteOptions.of({"path": str(root), "retention.ms": "60000"})).check_topic(
            "plain"
        )


def test_topic_whose_configs_are_kept_elsewhere_takes_no_config(root):
    (root / "stratalog-topics.json").unlink()
    with pytest.raises(
        UsageError, match=r"its configs are not stored in this directory: retention\.ms=5"
    ):
        plan_sink(options(root, **{"retention.ms": "5"}))
    assert plan_sink(options(root)).counts == {"orders": 3}
