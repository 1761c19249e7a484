"""Batch writes through Spark: what is written, where it goes, once and only once, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import stratalog
from stratalog.manager.write.partitioner import partition_of_key
from stratalog.spark.write.row_groups import RowGroups
from stratalog.spark.write.task import first_turn
from stratalog.storage.commits.key import CommitKey

pytestmark = pytest.mark.slow


def write(frame, path, **options):
    writer = frame.write.format("stratalog").mode("append")
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save(str(path))


def records(path, topic):
    with stratalog.open(str(path), read_only=True) as logs:
        return list(logs.read(topic).records())


def rows(spark, count, *, partitions=3):
    frame = spark.range(0, count, 1, partitions)
    return frame.selectExpr("cast(id as string) as key", "concat('value ', id) as value")


def test_rows_become_records(spark, tmp_path):
    frame = spark.createDataFrame(
        [
            (b"k", b"v", None, 1_600_000_000_123, [("h", b"1"), ("h", None)]),
            (None, b"no key", None, None, None),
            (b"", b"", None, 5, []),
            (b"tombstone", None, None, 7, None),
        ],
        "key binary, value binary, partition int, ms bigint, headers array<struct<key:string,value:binary>>",
    ).selectExpr("key", "value", "partition", "timestamp_millis(ms) as timestamp", "headers")
    write(frame.coalesce(1), tmp_path / "logs", topic="t", partitions=1)
    found = records(tmp_path / "logs", "t")
    assert [(r.key, r.value) for r in found] == [
        (b"k", b"v"), (None, b"no key"), (b"", b""), (b"tombstone", None)
    ]  # fmt: skip
    assert [r.timestamp for r in found][::2] == [1_600_000_000_123, 5]
    assert found[1].timestamp > 1_600_000_000_000  # the present time
    assert [[(h.key, h.value) for h in r.headers] for r in found] == [
        [("h", b"1"), ("h", None)],
        [],
        [],
        [],
    ]
    assert [r.offset for r in found] == [0, 1, 2, 3]


def test_keys_go_where_kafka_puts_them(spark, tmp_path):
    write(rows(spark, 2000), tmp_path / "logs", topic="t", partitions=5)
    found = records(tmp_path / "logs", "t")
    assert len(found) == 2000
    assert all(record.partition == partition_of_key(record.key, 5) for record in found)
    assert {record.value.decode() for record in found} == {f"value {n}" for n in range(2000)}


def test_a_partition_column_wins_over_the_key(spark, tmp_path):
    frame = rows(spark, 100).selectExpr("*", "cast(if(key % 2 = 0, 3, null) as int) as partition")
    write(frame, tmp_path / "logs", topic="t", partitions=4)
    for record in records(tmp_path / "logs", "t"):
        named = 3 if int(record.key) % 2 == 0 else partition_of_key(record.key, 4)
        assert record.partition == named


def test_round_robin_and_rows_without_keys_use_all_partitions(spark, tmp_path):
    write(
        rows(spark, 400, partitions=4).select("value"), tmp_path / "logs", topic="t", partitions=4
    )
    assert {record.partition for record in records(tmp_path / "logs", "t")} == {0, 1, 2, 3}
    write(
        rows(spark, 400, partitions=4),
        tmp_path / "logs",
        topic="r",
        partitions=4,
        partitioner="roundRobin",
    )
    assert {record.partition for record in records(tmp_path / "logs", "r")} == {0, 1, 2, 3}


def test_topics_by_column_and_by_option(spark, tmp_path):
    frame = rows(spark, 300).selectExpr("*", "concat('topic-', key % 3) as topic")
    write(frame, tmp_path / "logs", partitions=2)
    for number in range(3):
        assert len(records(tmp_path / "logs", f"topic-{number}")) == 100
    write(frame, tmp_path / "logs", topic="one")
    assert len(records(tmp_path / "logs", "one")) == 300


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(spark, tmp_path, codec):
    write(rows(spark, 5000), tmp_path / "logs", topic="t", compression=codec)
    found = stratalog.scan(str(tmp_path / "logs"), columns=["codec", "value"]).to_table()
    assert found.num_rows == 5000
    assert set(found["codec"].to_pylist()) == {codec}


def test_configs_of_a_topic_that_the_write_creates(spark, tmp_path):
    options = {"retention.ms": "-1", "internal.segment.bytes": "100000", "cleanup.policy": "delete"}
    write(rows(spark, 10_000), tmp_path / "logs", topic="t", **options)
    with stratalog.open(str(tmp_path / "logs"), read_only=True) as logs:
        assert logs.topic("t").config.effective_segment_bytes == 100_000
    assert len(list(Path(tmp_path, "logs", "t-0").glob("*.log"))) > 1


def test_a_version_is_written_once(spark, tmp_path):
    for _ in range(3):
        write(rows(spark, 50), tmp_path / "logs", topic="t", txnAppId="load", txnVersion=7)
    assert len(records(tmp_path / "logs", "t")) == 50
    write(rows(spark, 50), tmp_path / "logs", topic="t", txnAppId="load", txnVersion=8)
    write(rows(spark, 50), tmp_path / "logs", topic="t", txnAppId="load", txnVersion=6)
    write(rows(spark, 50), tmp_path / "logs", topic="t", txnAppId="other", txnVersion=1)
    assert len(records(tmp_path / "logs", "t")) == 150


def test_one_name_may_write_to_several_topics(spark, tmp_path):
    """The second topic got nothing, and nobody was told."""
    for _ in range(2):
        for topic in ("left", "right"):
            write(rows(spark, 5), tmp_path / "logs", topic=topic, txnAppId="load", txnVersion=1)
    assert [len(records(tmp_path / "logs", topic)) for topic in ("left", "right")] == [5, 5]


def test_round_robin_goes_row_by_row(spark, tmp_path):
    """All the rows of a task, and of every small batch of a stream, went to one partition."""
    frame = rows(spark, 4000, partitions=1)
    write(frame, tmp_path / "logs", topic="t", partitions=4, partitioner="roundRobin")
    found = Counter(record.partition for record in records(tmp_path / "logs", "t"))
    assert found == dict.fromkeys(range(4), 1000)


def test_small_writes_of_one_owner_take_turns():
    """Ten micro-batches of three rows without keys: all of them went to the same partition."""
    used = set()
    for version in range(8):
        turn = first_turn(CommitKey("query", version), task=0)
        groups = RowGroups({"t": 4}, topic="t", new_count=1, by_key=True, turn=turn)
        batch = pa.record_batch({"value": [b"x"] * 3})
        used |= {place.partition for place, _ in groups.of(batch)}
    assert used == {0, 1, 2, 3}


@pytest.mark.proof
def test_a_task_that_fails_once_leaves_nothing_twice(spark, tmp_path):
    mark = tmp_path / "failed"

    def fail_once(batches, path=str(mark)):
        from pathlib import Path

        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1 and not Path(path).exists():
            Path(path).touch()
            raise RuntimeError("planned")

    frame = rows(spark, 900).mapInArrow(fail_once, "key string, value string")
    write(frame, tmp_path / "logs", topic="t", partitions=2)
    assert mark.exists()
    assert sorted(int(r.key) for r in records(tmp_path / "logs", "t")) == list(range(900))
    assert not list(Path(tmp_path, "logs").glob("stratalog-piece*"))


@pytest.mark.proof
def test_a_write_that_fails_leaves_nothing(spark, tmp_path):
    write(rows(spark, 10), tmp_path / "logs", topic="t")

    def fail(batches):
        yield from batches
        raise RuntimeError("planned")

    frame = rows(spark, 900).mapInArrow(fail, "key string, value string")
    with pytest.raises(Exception, match="planned"):
        write(frame, tmp_path / "logs", topic="t")
    assert len(records(tmp_path / "logs", "t")) == 10
    assert not list(Path(tmp_path, "logs").glob("stratalog-piece*"))


def test_sql_inserts(spark, tmp_path):
    path = tmp_path / "logs"
    spark.sql(f"CREATE TABLE into_log USING stratalog OPTIONS (path '{path}', topic 'events')")
    try:
        spark.sql("INSERT INTO into_log (key, value) VALUES (X'61', X'62'), (X'63', null)")
        found = spark.sql("SELECT key, value, offset FROM into_log ORDER BY offset").collect()
        assert [tuple(row) for row in found] == [(b"a", b"b", 0), (b"c", None, 1)]
    finally:
        spark.sql("DROP TABLE into_log")


@pytest.mark.parametrize(
    ("change", "options", "says"),
    [
        (None, {}, "no topic"),
        (None, {"topic": "a/b"}, "topic"),
        (None, {"topic": "t", "partitions": "0"}, "of at least 1"),
        (None, {"topic": "t", "compression": "brotli"}, "one of none"),
        (None, {"topic": "t", "retention.mss": "1"}, "did you mean retention.ms"),
        (None, {"topic": "t", "segment.bytes": "many"}, "segment.bytes"),
        (None, {"topic": "t", "txnAppId": "x"}, "go together"),
        (None, {"topic": "t", "txnAppId": "x", "txnVersion": "-1"}, "txnVersion"),
        (None, {"topic": "t", "partition": "3"}, "did you mean partitions"),
        (["key"], {"topic": "t"}, "no column value"),
        (["key", "cast(key as int) as value"], {"topic": "t"}, "value is of type int"),
        (["value", "array(1) as headers"], {"topic": "t"}, "headers is of type"),
        (["value", "7 as partition"], {"topic": "t", "partitions": "2"}, "partition 7 of topic .t.: it"),
        (["value", "cast(null as string) as topic"], {}, "the topic of a row is null"),
    ],
)  # fmt: skip
def test_what_cannot_be_written(spark, tmp_path, change, options, says):
    frame = rows(spark, 5)
    with pytest.raises(Exception, match=says) as raised:
        write(frame if change is None else frame.selectExpr(*change), tmp_path / "logs", **options)
    assert "stratalog.errors." in str(raised.value)
    root = Path(tmp_path, "logs")
    assert not root.exists() or not list(root.glob("*-0")), "something was written"


def test_overwriting_is_refused(spark, tmp_path):
    writer = rows(spark, 5).write.format("stratalog").option("topic", "t").mode("overwrite")
    with pytest.raises(Exception, match="cannot be overwritten"):
        writer.save(str(tmp_path / "logs"))


def test_another_writer_is_noticed_before_any_task_runs(spark, make_log):
    path = make_log(10)
    with (
        stratalog.open(path),
        pytest.raises(Exception, match="has held the lock of this directory") as raised,
    ):
        write(rows(spark, 5), path, topic="orders", lockTimeout="100ms")
    assert "initialize" in str(raised.value)
    write(rows(spark, 5), path, topic="orders")


def test_a_large_write_is_adopted_and_a_small_one_appended(spark, tmp_path):
    frame = spark.range(0, 20_000, 1, 1).selectExpr(
        "cast(id as string) as key", "repeat(md5(cast(id as string)), 8) as value"
    )
    write(frame, tmp_path / "logs", topic="t")
    first = list(Path(tmp_path, "logs", "t-0").glob("*.log"))
    assert len(first) == 1
    write(rows(spark, 10), tmp_path / "logs", topic="t")
    assert list(Path(tmp_path, "logs", "t-0").glob("*.log")) == first
    found = records(tmp_path / "logs", "t")
    assert [record.offset for record in found] == list(range(20_010))
    assert not list(Path(tmp_path, "logs").glob("stratalog-piece*"))
