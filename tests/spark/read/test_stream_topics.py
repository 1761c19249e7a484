"""Which topics a read is of: a stream must choose, internal ones are left out, and none is fed by itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import stratalog
from stratalog.errors import UnknownPartitionError, UsageError
from stratalog.spark.jobs.exporting.topics import topics_pattern
from stratalog.spark.options.read_options import ReadOptions, Wanted
from stratalog.spark.write.stream_loops import QueryRun, StreamInput, inputs_of
from stratalog.storage.names import INTERNAL_TOPICS
from stratalog.types import TopicPartition

INTERNAL = "__consumer_offsets"


def why(error: BaseException) -> str:
    """Our own sentence in an error of Spark's."""
    return [line for line in str(error).splitlines() if "stratalog.errors" in line][-1]


def count(path: str, topic: str) -> int:
    with stratalog.open(path, read_only=True) as logs:
        return len(list(logs.read(topic).records()))


@pytest.fixture
def with_internal(make_log) -> str:
    """A log directory with an internal topic beside another."""
    make_log(5, topic=INTERNAL, partitions=1)
    return str(make_log(30))


@pytest.mark.parametrize(
    "options", [{}, {"startingoffsets": "earliest"}, {"includeinternal": "true"}]
)
def test_stream_without_topics_is_refused_with_the_names_of_the_options(options):
    given = {"path": "logs", **options}
    with pytest.raises(UsageError, match="one of subscribe, subscribePattern and assign"):
        ReadOptions.of(given, is_stream=True)
    assert not ReadOptions.of(given, is_stream=False).wanted.is_given
    for name, value in (("subscribe", "a"), ("subscribepattern", ".*"), ("assign", '{"a": [0]}')):
        ReadOptions.of({**given, name: value}, is_stream=True)


@pytest.mark.parametrize("internal", sorted(INTERNAL_TOPICS))
def test_internal_topics_are_taken_by_name_and_by_option_only(internal):
    place = TopicPartition(internal, 0)
    assert not Wanted().takes(place)
    assert not Wanted(pattern=".*").takes(place)
    assert Wanted(includes_internal=True).takes(place)
    assert Wanted(pattern="^__", includes_internal=True).takes(place)
    assert Wanted(topics=(internal,)).takes(place)
    assert Wanted(topic_partitions=(place,)).takes(place)


@pytest.mark.parametrize(
    ("topics", "named", "takes"),
    [
        (None, (), {"orders", "__own"}),
        ("*", (), {"orders", "__own"}),
        ("__*", (), {"__own"}),
        (INTERNAL, (), {INTERNAL}),
        (("o*", INTERNAL), (), {"orders", INTERNAL}),
        (None, (INTERNAL,), {"orders", "__own", INTERNAL}),
    ],
)
def test_export_takes_internal_topics_by_name_only(topics, named, takes):
    there = {"orders", "__own", INTERNAL, "__transaction_state"}
    pattern = topics_pattern(topics, named)
    assert {topic for topic in there if re.search(pattern, topic)} == takes


def test_what_a_stream_reads_is_noted_and_found_by_its_own_run_only(tmp_path: Path):
    from stratalog.spark.write.stream_loops import _note

    place = TopicPartition("orders", 0)
    (tmp_path / "logs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    run, other = QueryRun("query", "run 1"), QueryRun("query", "run 2")
    sources = [
        StreamInput((str(tmp_path / "link"),), Wanted(pattern="^c")),
        StreamInput((str(tmp_path / "logs" / "orders-0"),), Wanted(topic_partitions=(place,))),
    ]
    for source in sources:
        _note(run, str(tmp_path), source)
    found = list(inputs_of(run, str(tmp_path)))
    assert sorted(map(str, found)) == sorted(map(str, sources))
    assert list(inputs_of(other, str(tmp_path))) == []
    root = str(tmp_path / "logs")
    pattern, assigned = sources
    assert pattern.reads(root, "copy")
    assert not pattern.reads(root, "orders")
    assert not pattern.reads(str(tmp_path), "copy"), "another directory"
    assert assigned.reads(root, "orders"), "the path is a partition's folder"
    assert not assigned.reads(root, "copy")


@pytest.mark.slow
def test_internal_topics_are_left_out_of_reads_scans_and_exports(spark, with_internal, tmp_path):
    from stratalog.spark import jobs

    def read(**options: str) -> Any:
        return spark.read.format("stratalog").options(**options).load(with_internal)

    assert read().select("topic").distinct().collect() == [("orders",)]
    assert read(includeInternal="true").count() == 35
    assert read(subscribe=INTERNAL).count() == 5
    scan = stratalog.spark.scan
    assert scan(spark, with_internal).count() == 30
    assert scan(spark, with_internal, where=f"topic = '{INTERNAL}'").count() == 5
    folder = f"{with_internal}/{INTERNAL}-0"
    assert scan(spark, folder).count() == 5, "a path names it, too"
    report = jobs.export(spark, with_internal, tmp_path / "out", dry_run=True)
    assert {each.topic for each in report.partitions} == {"orders"}
    named = jobs.export(spark, with_internal, tmp_path / "out", topics=INTERNAL, dry_run=True)
    assert {each.topic for each in named.partitions} == {INTERNAL}


@pytest.mark.slow
def test_directory_of_internal_topics_alone_is_not_read_as_empty(spark, make_log, tmp_path):
    from stratalog.spark import jobs

    path = make_log(5, topic=INTERNAL, partitions=1)
    with pytest.raises(UnknownPartitionError, match="only internal topics"):
        stratalog.spark.scan(spark, path)
    with pytest.raises(UnknownPartitionError, match=f"topics='{INTERNAL}'"):
        jobs.export(spark, path, tmp_path / "out", dry_run=True)


@pytest.mark.proof
@pytest.mark.slow
def test_stream_that_reads_its_own_sink_is_refused_before_it_writes(spark, make_log, tmp_path):
    path = make_log(30)

    def run(sink: str, shuffle: bool = False, **options: str) -> None:
        frame = spark.readStream.format("stratalog").option("startingOffsets", "earliest")
        rows = frame.options(**options).load(path).select("key", "value")
        rows = rows.repartition(2) if shuffle else rows
        writer = rows.writeStream.format("stratalog").option("topic", sink)
        query = writer.option("checkpointLocation", str(tmp_path / f"checkpoint-{sink}"))
        query.trigger(availableNow=True).start(path).awaitTermination(60)

    for sink, shuffle, options in (
        ("orders", False, {"subscribe": "orders"}),
        ("copy", True, {"subscribePattern": ".*"}),
    ):
        with pytest.raises(Exception, match="writes to it") as caught:
            run(sink, shuffle, **options)
        assert f"UsageError: this stream reads topic '{sink}' in {path}" in why(caught.value)
    with stratalog.open(path, read_only=True) as logs:
        assert list(logs.topics()) == ["orders"]
    assert count(path, "orders") == 30
    # The same query, with another topic to write to: nothing of the refused run is in its way.
    run("copy", True, subscribePattern="^orders$")
    assert count(path, "copy") == 30
