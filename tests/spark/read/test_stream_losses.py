"""What a stream does where a log is no longer what it was: it says so, or continues without, as it was told.

Spark's questions are asked here as Spark asks them, in its order, without a session.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMinRows

import stratalog
from stratalog.errors import StratalogError
from stratalog.spark.options.columns import DEFAULT_NAMES
from stratalog.spark.options.read_options import ReadOptions
from stratalog.spark.read.stream_reader import StreamReader

ALL = ReadAllAvailable()


def append(root: Path, topic: str, count: int, first: int = 0) -> None:
    with stratalog.open(str(root), sync=False) as logs:
        if topic not in logs.topics():
            logs.create(topic, 1, {"retention.ms": -1})
        records = [
            {"value": f"{topic}-{number}", "timestamp": 1_700_000_000_000 + number}
            for number in range(first, first + count)
        ]
        logs.append(topic, records)


def reader(root: Path, **options: str) -> StreamReader:
    given = {"path": str(root), "startingoffsets": "earliest", **options}
    if not {"subscribe", "subscribepattern", "assign"} & given.keys():
        given["subscribepattern"] = ".*"
    return StreamReader(ReadOptions.of(given, is_stream=True), DEFAULT_NAMES)


def rows(stream: StreamReader, start: Any, end: Any) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for partition in stream.partitions(start, end):
        for batch in stream.read(partition):
            found += zip(batch["topic"].to_pylist(), batch["offset"].to_pylist(), strict=True)
    return found


def run(stream: StreamReader, start: Any, limit: Any = ALL) -> tuple[Any, list[tuple[str, int]]]:
    """Batches until nothing is new, and where that is."""
    found: list[tuple[str, int]] = []
    while (end := stream.latestOffset(start, limit)) != start:
        found += rows(stream, start, end)
        start = end
    return start, found


def first_batch(stream: StreamReader) -> tuple[Any, list[tuple[str, int]]]:
    """Where the first batch ends, and its rows: what a driver has done when it dies before the second."""
    begin = stream.initialOffset()
    end = stream.latestOffset(begin, ALL)
    return end, rows(stream, begin, end)


def of(topic: str, *numbers: int) -> list[tuple[str, int]]:
    return [(topic, number) for number in range(*numbers)]


def test_a_log_that_is_shorter_than_what_was_read_is_a_loss(tmp_path: Path) -> None:
    """The stream was silent until it was longer again, and went on from there."""
    append(tmp_path, "orders", 100)
    first = reader(tmp_path)
    end, found = run(first, first.initialOffset())
    assert found == of("orders", 100)
    shutil.rmtree(tmp_path / "orders-0")
    append(tmp_path, "orders", 50)
    with pytest.raises(
        StratalogError, match="offset 100 is out of range: the log holds 0 up to 50"
    ):
        reader(tmp_path).latestOffset(end, ALL)
    end, found = run(reader(tmp_path, failondataloss="false"), end)
    assert found == of("orders", 50)
    append(tmp_path, "orders", 5, first=50)
    end, found = run(reader(tmp_path), end)
    assert found == of("orders", 50, 55)


@pytest.mark.parametrize("moved", [40, 100])
def test_the_first_batch_comes_again_from_where_it_began(tmp_path: Path, moved: int) -> None:
    """Spark asks anew where the stream starts; by then retention may have moved the start."""
    append(tmp_path, "orders", 100)
    with stratalog.open(str(tmp_path)) as logs:
        logs.delete_records("orders", 0, 10)
    first = reader(tmp_path)
    start = first.initialOffset()
    end = first.latestOffset(start, ALL)
    assert rows(first, start, end) == of("orders", 10, 100)
    again = reader(tmp_path)
    assert rows(again, again.initialOffset(), end) == of("orders", 10, 100)
    assert again.latestOffset(end, ALL) == end  # no batch for nothing
    append(tmp_path, "orders", 3, first=100)
    assert run(again, end)[1] == of("orders", 100, 103)
    with stratalog.open(str(tmp_path)) as logs:
        logs.delete_records("orders", 0, moved)
    again = reader(tmp_path)
    with pytest.raises(StratalogError, match="offset 10 is out of range"):
        rows(again, again.initialOffset(), end)
    again = reader(tmp_path, failondataloss="false")
    assert rows(again, again.initialOffset(), end) == of("orders", moved, 100)


def test_a_first_batch_from_offset_zero_needs_no_note_in_its_offsets(tmp_path: Path) -> None:
    append(tmp_path, "orders", 100)
    first = reader(tmp_path)
    end = first.latestOffset(first.initialOffset(), ALL)
    assert end == {"orders": {"0": 100}}
    with stratalog.open(str(tmp_path)) as logs:
        logs.delete_records("orders", 0, 40)
    again = reader(tmp_path)
    with pytest.raises(StratalogError, match="offset 0 is out of range"):
        rows(again, again.initialOffset(), end)


def test_what_came_after_an_unfinished_first_batch_from_the_latest_is_read(tmp_path: Path) -> None:
    append(tmp_path, "orders", 10)
    first = reader(tmp_path, startingoffsets="latest")
    start = first.initialOffset()
    end = first.latestOffset(start, ALL)
    assert (end, rows(first, start, end)) == (start, [])
    append(tmp_path, "orders", 10, first=10)
    again = reader(tmp_path, startingoffsets="latest")
    assert rows(again, again.initialOffset(), end) == []
    assert run(again, end)[1] == of("orders", 10, 20)


def test_bytes_limit_a_batch_also_where_a_partition_was_emptied(tmp_path: Path) -> None:
    """IndexError: there was nothing to cut."""
    append(tmp_path, "orders", 10)
    append(tmp_path, "other", 1)
    lenient = reader(tmp_path, failondataloss="false", maxbytespertrigger="100")
    end, _ = run(lenient, lenient.initialOffset(), ReadMaxBytes(100))
    append(tmp_path, "orders", 10, first=10)
    append(tmp_path, "other", 50, first=1)
    with stratalog.open(str(tmp_path)) as logs:
        logs.delete_records("orders", 0, 20)
    with pytest.raises(StratalogError, match="offset 10 is out of range"):
        run(reader(tmp_path, maxbytespertrigger="100"), end, ReadMaxBytes(100))
    lenient = reader(tmp_path, failondataloss="false", maxbytespertrigger="100")
    assert run(lenient, end, ReadMaxBytes(100))[1] == of("other", 1, 51)


@pytest.mark.parametrize(
    "wanted", [{"subscribe": "orders,other"}, {"assign": '{"orders": [0], "other": [0]}'}]
)
def test_a_topic_that_is_gone_does_not_stop_who_bears_losses(
    tmp_path: Path, wanted: dict[str, str]
) -> None:
    append(tmp_path, "orders", 10)
    append(tmp_path, "other", 10)
    first = reader(tmp_path, **wanted)
    end, _ = run(first, first.initialOffset())
    shutil.rmtree(tmp_path / "other-0")
    append(tmp_path, "orders", 5, first=10)
    with pytest.raises(StratalogError, match="other"):
        run(reader(tmp_path, **wanted), end)
    assert run(reader(tmp_path, failondataloss="false", **wanted), end)[1] == of("orders", 10, 15)
    # Where a stream begins, what was named must be there.
    stream = reader(tmp_path, failondataloss="false", **wanted)
    with pytest.raises(StratalogError, match="other"):
        run(stream, stream.initialOffset())


def test_a_partition_that_came_later_and_does_not_begin_at_zero_is_a_loss(tmp_path: Path) -> None:
    append(tmp_path, "orders", 10)
    first = reader(tmp_path)
    start, _ = run(first, first.initialOffset())
    append(tmp_path, "new", 20)
    with stratalog.open(str(tmp_path)) as logs:
        logs.delete_records("new", 0, 15)
    with pytest.raises(StratalogError, match="offset 0 is out of range: the log holds 15 up to 20"):
        run(reader(tmp_path), start)
    assert run(reader(tmp_path, failondataloss="false"), start)[1] == of("new", 15, 20)


def test_the_first_batch_does_not_wait_for_more(tmp_path: Path) -> None:
    append(tmp_path, "orders", 10)
    stream = reader(tmp_path, minoffsetspertrigger="100", maxtriggerdelay="3600000")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadMinRows(100))
    assert end == {"orders": {"0": 10}}
    append(tmp_path, "orders", 5, first=10)
    assert stream.latestOffset(end, ReadMinRows(100)) == end


def test_a_delay_without_a_unit_is_in_milliseconds(tmp_path: Path) -> None:
    given = {"path": str(tmp_path), "subscribe": "orders", "maxtriggerdelay": "5000"}
    assert ReadOptions.of(given, is_stream=True).max_trigger_delay_ms == 5000


@pytest.mark.parametrize(
    "start",
    [
        {"startingoffsets": "earliest"},
        {"startingoffsets": '{"orders": {"0": -2}}'},
        {"startingoffsets": '{"orders": {"0": 0}}'},
        {"startingtimestamp": "1000"},
        {"startingoffsetsbytimestamp": '{"orders": {"0": 1000}}'},
    ],
)
def test_a_first_batch_that_comes_again_after_retention_is_told_however_it_started(
    tmp_path: Path, start: dict[str, str]
) -> None:
    append(tmp_path, "orders", 30)
    end, _ = first_batch(reader(tmp_path, **start))
    with stratalog.open(str(tmp_path)) as logs:
        logs.delete_records("orders", 0, 9)
    again = reader(tmp_path, **start)
    with pytest.raises(StratalogError, match="offset 0 is out of range"):
        rows(again, again.initialOffset(), end)


@pytest.mark.parametrize(
    "start",
    [
        {"startingoffsets": '{"orders": {"0": 3}}'},
        {"startingtimestamp": "1700000000003"},
        {"startingoffsetsbytimestamp": '{"orders": {"0": 1700000000003}}'},
    ],
)
def test_a_first_batch_comes_again_also_when_a_partition_has_come(
    tmp_path: Path, start: dict[str, str]
) -> None:
    append(tmp_path, "orders", 10)
    end, had = first_batch(reader(tmp_path, **start))
    with stratalog.open(str(tmp_path)) as logs:
        logs.add_partitions("orders", 2)
    again = reader(tmp_path, **start)
    assert rows(again, again.initialOffset(), end) == had == of("orders", 3, 10)
    fresh = reader(tmp_path, **start)
    with pytest.raises(StratalogError, match="orders-1"):
        fresh.latestOffset(fresh.initialOffset(), ALL)


def test_a_topic_that_is_not_read_does_not_stop_who_bears_losses(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    append(one, "orders", 5)
    for root in (one, other):
        append(root, "twice", 1)
    stream = reader(one, path=f"{one},{other}", subscribe="orders", failondataloss="false")
    assert run(stream, stream.initialOffset())[1] == of("orders", 0, 5)
