"""The options of a read: what each means, and one clear error for what cannot be."""

from __future__ import annotations

import json

import pytest

from stratalog.errors import UsageError
from stratalog.inspect.latest.latest_reader import LatestPerKey
from stratalog.spark.options.columns import check_schema
from stratalog.spark.options.offsets import (
    EARLIEST,
    LATEST,
    Kind,
    offsets_as_dict,
    parse_assignment,
    parse_offsets_dict,
    parse_position,
)
from stratalog.spark.options.read_options import ReadOptions
from stratalog.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def read(is_stream=False, **options):
    given = {"path": "logs", **{name: str(value) for name, value in options.items()}}
    if is_stream and not {"subscribe", "subscribePattern", "assign"} & given.keys():
        given["subscribe"] = "a"
    return ReadOptions.of(
        {name.lower(): value for name, value in given.items()}, is_stream=is_stream
    )


def test_offsets_are_written_in_one_order():
    one = offsets_as_dict({B0: 1, A1: 2, A0: 3})
    other = offsets_as_dict({A0: 3, B0: 1, A1: 2})
    assert json.dumps(one) == json.dumps(other) == '{"a": {"0": 3, "1": 2}, "b": {"0": 1}}'
    assert parse_offsets_dict(json.loads(json.dumps(one)), "x") == {A0: 3, A1: 2, B0: 1}


def test_ten_partitions_keep_their_numbers():
    offsets = {TopicPartition("a", number): number for number in range(12)}
    assert parse_offsets_dict(offsets_as_dict(offsets), "x") == offsets


@pytest.mark.parametrize(
    ("text", "kind", "numbers"),
    [
        ("earliest", Kind.EARLIEST, None),
        (" Latest ", Kind.LATEST, None),
        ('{"a": {"0": 5, "1": -2}}', Kind.OFFSETS, {A0: 5, A1: EARLIEST}),
        ('{"a": {"0": -1}}', Kind.OFFSETS, {A0: LATEST}),
    ],
)
def test_positions(text, kind, numbers):
    position = parse_position(text, "startingOffsets")
    assert (position.kind, position.numbers) == (kind, numbers)


@pytest.mark.parametrize(
    "text",
    [
        "first", "{", "[]", "3", '{"a": 3}', '{"a": {"x": 3}}', '{"a": {"0": "3"}}', '{"a": {"0": -3}}',
        '{"a": {"0": true}}', '{"a": {"0": 1e3}}', '{"a": {"-1": 3}}', '{"a": {"99999999999": 3}}',
        '{"a": {"0": 99999999999999999999}}', "[" * 100_000,
    ],
)  # fmt: skip
def test_positions_that_cannot_be(text):
    with pytest.raises(UsageError, match="startingOffsets"):
        parse_position(text, "startingOffsets")


def test_assignments():
    assert parse_assignment('{"a": [1, 0], "b": [0]}', "assign") == (A0, A1, B0)
    for wrong in ("a", "[]", '{"a": 0}', '{"a": [-1]}', '{"a": ["0"]}', '{"a": [0.5]}'):
        with pytest.raises(UsageError, match="assign"):
            parse_assignment(wrong, "assign")


def test_defaults_are_those_of_the_kafka_source():
    batch, stream = read(), read(is_stream=True)
    assert batch.start.kind is Kind.EARLIEST
    assert stream.start.kind is Kind.LATEST
    assert batch.end.kind is stream.end.kind is Kind.LATEST
    assert batch.fail_on_data_loss
    assert not batch.is_committed
    assert stream.max_trigger_delay_ms == 15 * 60_000


def test_the_strongest_way_to_say_a_start_wins():
    said = read(
        startingTimestamp=5,
        startingOffsetsByTimestamp='{"a": {"0": 7}}',
        startingOffsets='{"a": {"0": 9}}',
    )
    assert (said.start.kind, said.start.time_ms) == (Kind.TIME, 5)
    said = read(startingOffsetsByTimestamp='{"a": {"0": 7}}', startingOffsets="earliest")
    assert (said.start.kind, said.start.numbers) == (Kind.TIMES, {A0: 7})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "only one of them"),
        ({"subscribe": " , "}, "subscribe"),
        ({"subscribePattern": "("}, "subscribePattern"),
        ({"subscribePattern": "[a-z&&[^x]]+"}, "subscribePattern.*set"),
        ({"startingOffsets": "latest"}, "batch read cannot start"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "batch read cannot start"),
        ({"endingOffsets": "earliest"}, "cannot end at the earliest"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "cannot end at the earliest"),
        ({"startingTimestamp": "yesterday"}, "milliseconds"),
        ({"maxOffsetsPerTrigger": "0"}, "of at least 1"),
        ({"maxOffsetsPerTrigger": "many"}, "of at least 1"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "is above"),
        ({"failOnDataLoss": "perhaps"}, "true or false"),
        ({"splitBytes": "huge"}, "64m"),
        ({"maxTriggerDelay": "soon"}, "15m"),
        ({"isolationLevel": "read_all"}, "read_committed"),
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "error, latest"),
        ({"paths": "{}"}, "JSON list"),
    ],
)
def test_options_that_cannot_be(options, says):
    with pytest.raises(UsageError, match=says):
        read(**options)


def test_a_stream_has_no_end_but_a_time():
    for option in ("endingOffsets", "endingOffsetsByTimestamp"):
        with pytest.raises(UsageError, match="a stream has no end"):
            read(is_stream=True, **{option: '{"a": {"0": 5}}'})
    assert read(is_stream=True, endingTimestamp=9).end.time_ms == 9


def test_no_directory_is_said():
    with pytest.raises(UsageError, match="no directory to read"):
        ReadOptions.of({}, is_stream=False)


def test_what_a_table_or_a_consumer_brings_along_is_no_error():
    read(**{
        "owner": "me", "provider": "stratalog", "option.subscribe": "a", "kafka.bootstrap.servers": "x:9092",
        "groupIdPrefix": "g", "kafkaConsumer.pollTimeoutMs": "5",
    })  # fmt: skip


def test_isolation_by_either_name():
    assert read(isolationLevel="read_committed").is_committed
    assert read(**{"kafka.isolation.level": "read_committed"}).is_committed
    both = read(**{"kafka.isolation.level": "read_committed", "isolationLevel": "read_uncommitted"})
    assert not both.is_committed


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("64m", 64 << 20), ("2g", 2 << 30), ("8KiB", 8 << 10), ("3 MB", 3 << 20), ("5b", 5)],
)
def test_sizes(text, size):
    assert read(splitBytes=text).split_bytes == size


def test_patterns_of_paths(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    found = ReadOptions.of({"path": f"{tmp_path}/*"}, is_stream=False).paths
    assert found == (f"{tmp_path}/one", f"{tmp_path}/two")
    with pytest.raises(UsageError, match="nothing matches"):
        ReadOptions.of({"path": f"{tmp_path}/x*"}, is_stream=False)
    several = ReadOptions.of({"path": f"{tmp_path}/one, {tmp_path}/two"}, is_stream=False)
    assert len(several.paths) == 2


def test_a_schema_may_not_promise_what_the_log_does_not():
    """A task failed with a traceback at the first null."""
    types = pytest.importorskip("pyspark.sql.types")
    binary = types.BinaryType()
    assert check_schema(types.StructType([types.StructField("value", binary)])) == ("value",)
    with pytest.raises(UsageError, match="leave out NOT NULL"):
        check_schema(types.StructType([types.StructField("value", binary, nullable=False)]))


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        ("order", ["orders"]),
        ("s$", ["orders", "payments"]),
        ("^orders$|^x", ["orders"]),
        (".*", ["orders", "payments"]),
        ("offsets", []),
    ],
)
def test_a_pattern_is_found_anywhere_in_a_name_as_in_spark_s_kafka_source(pattern, topics):
    there = ("orders", "payments", "__consumer_offsets", "__transaction_state")
    wanted = read(subscribePattern=pattern).wanted
    assert [topic for topic in there if wanted.takes(TopicPartition(topic, 0))] == topics


@pytest.mark.parametrize("option", ["subscribe", "topic"])
def test_a_topic_by_name_is_no_pattern(option):
    with pytest.raises(UsageError, match=r"'ord\*' is not a topic"):
        read(**{option: "ord*"})


@pytest.mark.parametrize(
    "options",
    [
        {"startingTimestamp": "-" + "9" * 30},
        {"startingTimestamp": str(1 << 63)},
        {"minPartitions": "1" * 5000},
        {"splitBytes": "1" * 5000},
        {"maxTriggerDelay": "1" * 5000},
        {"startingOffsets": '{"a": {"%s": 1}}' % ("1" * 5000)},
        {"startingOffsets": '{"a": {"0": %s}}' % ("1" * 5000)},
        {"path": "lo\0gs"},
    ],
)
def test_numbers_and_paths_that_cannot_be_are_one_error_of_ours(options):
    with pytest.raises(UsageError):
        read(**options)


def test_a_folder_whose_name_looks_like_a_pattern(tmp_path):
    (tmp_path / "h[1]").mkdir()
    assert read(path=tmp_path / "h[1]").paths == (str(tmp_path / "h[1]"),)


def test_latest_per_key():
    assert read().latest is None
    latest = read(latestPerKey="true", latestPerKeyMemory="1m", tombstones="TRUE").latest
    assert latest == LatestPerKey(memory_bytes=1 << 20, tombstones=True)
    assert read(latestPerKey="true", splitBytes="1g").latest == LatestPerKey()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"latestPerKey": "yes"}, "true or false"),
        ({"tombstones": "true"}, "tombstones needs latestPerKey=true"),
        ({"latestPerKeyMemory": "1m"}, "latestPerKeyMemory needs latestPerKey=true"),
        ({"latestPerKey": "true", "latestPerKeyMemory": "1k"}, "at least 65536 bytes"),
        ({"latestPerKey": "true", "minPartitions": 4}, "minPartitions cannot be combined"),
        ({"latestPerKey": "true", "maxRecordsPerPartition": 4}, "maxRecordsPerPartition cannot"),
        ({"latestPerKey": "true", "includeControl": "true"}, "control records have no keys"),
        ({"latestPerKey": "true", "is_stream": True}, "latestPerKey is for batch reads"),
    ],
)
def test_latest_per_key_is_refused_with_what_it_cannot_do(options, says):
    with pytest.raises(UsageError, match=says):
        read(**options)
