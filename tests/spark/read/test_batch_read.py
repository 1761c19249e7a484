"""A batch read through Spark: schema, options, splits, nulls, errors; and every golden set, row by row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import stratalog
from stratalog.types import TopicPartition
from tests.judges.peers.golden import decoded, golden_sets

pytestmark = pytest.mark.slow

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KAFKA_SCHEMA = [
    ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"), ("offset", "bigint"),
    ("timestamp", "timestamp"), ("timestampType", "int"),
]  # fmt: skip


def load(spark, path, **options):
    reader = spark.read.format("stratalog")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(path)


def offsets(frame):
    rows = frame.select("topic", "partition", "offset").collect()
    return sorted((row.topic, row.partition, row.offset) for row in rows)


def test_the_schema_is_that_of_sparks_kafka_source(spark, make_log):
    frame = load(spark, make_log(10))
    assert frame.dtypes == KAFKA_SCHEMA
    assert all(field.nullable for field in frame.schema.fields)
    with_headers = load(spark, make_log(10), includeHeaders="true")
    assert with_headers.dtypes == [
        *KAFKA_SCHEMA,
        ("headers", "array<struct<key:string,value:binary>>"),
    ]


def test_rows_are_the_records(spark, make_log):
    path = make_log(500)
    rows = load(spark, path, includeHeaders="true").collect()
    assert len(rows) == 500
    by_value = {bytes(row.value).decode(): row for row in rows}
    for number in range(500):
        row = by_value[f"value-{number}"]
        assert bytes(row.key).decode() == f"key-{number}"
        assert row.timestampType == 0
        headers = None if row.headers is None else [(h.key, bytes(h.value)) for h in row.headers]
        assert headers == ([("number", str(number).encode())] if number % 3 == 0 else None)
        assert (row.timestamp.astimezone(UTC) - EPOCH) / timedelta(milliseconds=1) == (
            1_700_000_000_000 + number
        )


@pytest.mark.parametrize("names", ["offset", "value,key", "codec,producerId,baseOffset,position"])
def test_columns_are_those_that_were_asked_for(spark, make_log, names):
    path = make_log(100)
    frame = load(spark, path, columns=names)
    assert frame.columns == names.split(",")
    assert frame.count() == 100
    assert len(frame.collect()) == 100


def test_a_schema_of_the_users_own(spark, make_log):
    path = make_log(100)
    frame = spark.read.format("stratalog").schema("offset bigint, value binary").load(path)
    assert frame.columns == ["offset", "value"]
    assert frame.count() == 100
    with pytest.raises(Exception, match="of type bigint, not string"):
        spark.read.format("stratalog").schema("offset string").load(path).count()
    with pytest.raises(Exception, match="no column 'offsets'"):
        spark.read.format("stratalog").schema("offsets bigint").load(path).count()


@pytest.mark.proof
def test_one_hot_partition_becomes_many_tasks(spark, tmp_path):
    path = str(tmp_path / "logs")
    with stratalog.open(path) as logs:
        logs.create("hot", 1)
        for _ in range(40):
            logs.append("hot", [{"value": b"x" * 1000} for _ in range(100)], batch_bytes=16384)
    one = load(spark, path)
    many = load(spark, path, splitBytes="256k")
    assert one.rdd.getNumPartitions() == 1
    assert many.rdd.getNumPartitions() > 8
    assert offsets(many) == offsets(one) == [("hot", 0, offset) for offset in range(4000)]
    at_least = load(spark, path, minPartitions="7")
    assert at_least.rdd.getNumPartitions() >= 7
    assert at_least.count() == 4000
    limited = load(spark, path, maxRecordsPerPartition="1000")
    assert limited.rdd.getNumPartitions() >= 4
    assert offsets(limited) == offsets(one)


def test_topics_by_name_pattern_and_assignment(spark, make_log):
    path = make_log(60)
    make_log(30, topic="payments", partitions=2)
    make_log(10, topic="returns", partitions=1)
    assert load(spark, path).count() == 100
    assert load(spark, path, subscribe="orders,returns").count() == 70
    assert load(spark, path, subscribePattern="(pay|ret).*").count() == 40
    assert load(spark, path, assign='{"returns": [0]}').count() == 10


def test_start_and_end(spark, make_log):
    path = make_log(300, partitions=2)
    whole = [offset for _, partition, offset in offsets(load(spark, path)) if partition == 1]
    start = '{"orders": {"0": 10, "1": -2}}'
    end = '{"orders": {"0": 20, "1": -1}}'
    found = offsets(load(spark, path, startingOffsets=start, endingOffsets=end))
    assert found == [
        *(("orders", 0, offset) for offset in range(10, 20)),
        *(("orders", 1, offset) for offset in whole),
    ]
    at = 1_700_000_000_100
    timed = load(spark, path, startingTimestamp=at, endingTimestamp=at + 50).collect()
    assert sorted(bytes(row.value).decode() for row in timed) == sorted(
        f"value-{number}" for number in range(100, 150)
    )
    with pytest.raises(Exception, match="startingOffsetsByTimestampStrategy=latest"):
        load(spark, path, startingTimestamp=at + 10**9).count()
    late = load(
        spark, path, startingTimestamp=at + 10**9, startingOffsetsByTimestampStrategy="latest"
    )
    assert late.count() == 0


def test_the_same_dataframe_gives_the_same_rows_again(spark, make_log):
    path = make_log(50)
    frame = load(spark, path)
    assert frame.count() == 50
    make_log(50, first=50)
    assert frame.count() == 50
    assert frame.filter("partition = 0").union(frame.filter("partition = 1")).count() < 50
    assert load(spark, path).count() == 100


def test_several_directories(spark, make_log, tmp_path):
    make_log(20, name="one-logs")
    make_log(30, topic="payments", name="two-logs")
    assert load(spark, f"{tmp_path}/one-logs,{tmp_path}/two-logs").count() == 50
    assert load(spark, f"{tmp_path}/*-logs").count() == 50
    make_log(20, name="three-logs")
    with pytest.raises(Exception, match="read them one at a time"):
        load(spark, f"{tmp_path}/*-logs").count()


def test_sql(spark, make_log):
    path = make_log(40)
    spark.sql(f"CREATE TABLE from_log USING stratalog OPTIONS (path '{path}', subscribe 'orders')")
    try:
        assert spark.sql("SELECT count(*) FROM from_log WHERE offset >= 0").first()[0] == 40
        joined = "SELECT count(*) FROM from_log a JOIN from_log b USING (topic, partition, offset)"
        assert spark.sql(joined).first()[0] == 40
    finally:
        spark.sql("DROP TABLE from_log")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "nope"}, "no topic 'nope'; found orders"),
        ({"assign": '{"orders": [9]}'}, "no partition orders-9"),
        ({"startingOffsets": '{"orders": {"0": 5}}'}, "it must list every partition"),
        ({"startingOffsets": '{"orders": {"0": 5, "1": 99999, "2": 0}}'}, "offset 99999 is out of range"),
        ({"columns": "valu"}, "no column 'valu'"),
        ({"splitBytes": "-1"}, "a size of at least 1"),
    ],
)  # fmt: skip
def test_errors_are_one_sentence_on_the_driver(spark, make_log, options, says):
    path = make_log(20)
    with pytest.raises(Exception, match=says) as raised:
        load(spark, path, **options).count()
    text = str(raised.value)
    assert "stratalog.errors." in text
    assert "\tat " not in text, "a Java stack trace"
    assert text.count("File ") <= 2, text


def test_a_missing_directory(spark, tmp_path):
    with pytest.raises(Exception, match="no such file or directory"):
        load(spark, str(tmp_path / "nowhere")).count()


def test_damage_names_the_file_and_the_place(spark, make_log):
    from pathlib import Path

    path = make_log(2000, partitions=1)
    file = next(Path(path).glob("orders-0/*.log"))
    data = bytearray(file.read_bytes())
    data[data.index(b"value-7") + 3] ^= 1
    file.write_bytes(data)
    with pytest.raises(Exception, match=r"00000000000000000000\.log at byte \d+: .*crc"):
        load(spark, path).count()
    assert load(spark, path, checkCrc="false").count() == 2000  # at the reader's own risk


@pytest.mark.parametrize("golden", golden_sets(), ids=lambda golden: golden.name)
def test_golden_sets_read_as_they_are_listed(spark, golden):
    if golden.damaged or golden.is_v07:
        pytest.skip(
            "a damaged set, or one without partitions' folders: read by the other golden tests"
        )
    paths = ",".join(map(str, golden.log_dirs))
    names = "topic,partition,offset,timestampMs,timestampType,key,value,headers"
    for committed in (False, True) if golden.has_committed else (False,):
        level = "read_committed" if committed else "read_uncommitted"
        options = {"columns": names, "isolationLevel": level, "includeInternal": "true"}
        rows = load(spark, paths, **options).collect()
        found = sorted(
            (
                TopicPartition(row.topic, row.partition), row.offset, row.timestampMs, row.timestampType,
                row.key, row.value, [(h.key, h.value) for h in row.headers or ()],
            )
            for row in rows
        )  # fmt: skip
        assert found == sorted(map(expected_row, golden.expected(committed=committed)))


def expected_row(row):
    row = decoded(row)
    return (
        TopicPartition(row["topic"], row["partition"]), row["offset"], row["timestamp"],
        row["timestamp_type"], row["key"], row["value"], [tuple(h) for h in row["headers"]],
    )  # fmt: skip
