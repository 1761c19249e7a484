"""Streams through Spark: offsets, limits, restarts, live directories, exactly once into another log."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

import stratalog

pytestmark = pytest.mark.slow


def values(path, topic):
    with stratalog.open(str(path), read_only=True) as logs:
        return sorted((record.value or b"").decode() for record in logs.read(topic).records())


def stream(spark, path, **options):
    reader = spark.readStream.format("stratalog")
    if not {"subscribe", "subscribePattern", "assign"} & options.keys():
        options["subscribePattern"] = ".*"
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(path)


def copy_to(frame, target, checkpoint, *, topic="copy", **options):
    writer = frame.select("key", "value", "timestamp").writeStream.format("stratalog")
    for name, value in {"topic": topic, "checkpointLocation": str(checkpoint), **options}.items():
        writer = writer.option(name, value)
    return writer.trigger(availableNow=True).start(str(target))


def finish(query):
    query.awaitTermination(60)
    assert not query.isActive
    assert query.exception() is None
    return [
        json.loads(each.json) if hasattr(each, "json") else each for each in query.recentProgress
    ]


def numbers(count, first=0):
    return sorted(f"value-{number}" for number in range(first, first + count))


@pytest.mark.proof
def test_what_is_available_now_is_copied_once_over_restarts(spark, make_log, tmp_path):
    path = make_log(300)
    target, checkpoint = tmp_path / "target", tmp_path / "checkpoint"
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 100}
    progress = finish(copy_to(stream(spark, path, **options), target, checkpoint))
    assert len([each for each in progress if each["numInputRows"]]) >= 3
    assert values(target, "copy") == numbers(300)
    finish(copy_to(stream(spark, path, **options), target, checkpoint))
    assert values(target, "copy") == numbers(300)
    make_log(200, first=300)
    finish(copy_to(stream(spark, path, **options), target, checkpoint))
    assert values(target, "copy") == numbers(500)


def test_progress_shows_offsets_in_kafkas_shape(spark, make_log, tmp_path):
    path = make_log(90, partitions=2)
    query = copy_to(
        stream(spark, path, startingOffsets="earliest"),
        tmp_path / "target",
        tmp_path / "checkpoint",
    )
    finish(query)
    last = [each for each in query.recentProgress if each["numInputRows"]][-1]["sources"][0]
    end, latest = json.loads(last["endOffset"]), json.loads(last["latestOffset"])
    assert set(end) == {"orders"}
    assert sum(end["orders"].values()) == 90
    assert latest == end


@pytest.mark.proof
def test_a_commit_that_is_asked_for_again_does_nothing(spark, make_log, tmp_path):
    """What Spark does after a crash between the sink's commit and its own: the batch comes once more."""
    path = make_log(200)
    target, checkpoint = tmp_path / "target", tmp_path / "checkpoint"
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 100}
    finish(copy_to(stream(spark, path, **options), target, checkpoint))
    for name in sorted(Path(checkpoint, "commits").glob("*")):
        name.unlink()  # Spark's own record that the batches are done
    finish(copy_to(stream(spark, path, **options), target, checkpoint))
    assert values(target, "copy") == numbers(200)


@pytest.mark.proof
def test_a_start_at_the_latest_offset_survives_a_crash_before_the_first_commit(
    spark, make_log, tmp_path
):
    path = make_log(100)
    target, checkpoint = tmp_path / "target", tmp_path / "checkpoint"
    query = copy_to(stream(spark, path), target, checkpoint)  # latest is the default
    finish(query)
    for name in Path(checkpoint, "commits").glob("*"):
        name.unlink()  # as if it had died in its first batch
    make_log(50, first=100)
    finish(copy_to(stream(spark, path), target, checkpoint))
    make_log(50, first=150)
    finish(copy_to(stream(spark, path), target, checkpoint))
    assert values(target, "copy") == numbers(100, first=100)


@pytest.mark.proof
def test_bytes_limit_a_trigger(spark, tmp_path):
    path = str(tmp_path / "logs")
    with stratalog.open(path) as logs:
        logs.create("orders", 1)
        for start in range(0, 200, 10):
            logs.append("orders", [f"value-{n}" + "x" * 2000 for n in range(start, start + 10)])
    frame = stream(spark, path, startingOffsets="earliest", maxBytesPerTrigger="100k")
    query = copy_to(frame, tmp_path / "target", tmp_path / "checkpoint")
    progress = finish(query)
    counts = [each["numInputRows"] for each in progress if each["numInputRows"]]
    assert sum(counts) == 200
    assert len(counts) >= 4
    assert max(counts) <= 70


def test_a_stream_may_end_at_a_time(spark, make_log, tmp_path):
    path = make_log(100)
    frame = stream(spark, path, startingOffsets="earliest", endingTimestamp=1_700_000_000_000 + 40)
    finish(copy_to(frame, tmp_path / "target", tmp_path / "checkpoint"))
    assert values(tmp_path / "target", "copy") == numbers(40)


@pytest.mark.proof
def test_partitions_that_come_later_are_read_from_their_beginning(spark, make_log, tmp_path):
    path = make_log(60, partitions=1)
    target, checkpoint = tmp_path / "target", tmp_path / "checkpoint"
    finish(copy_to(stream(spark, path, startingOffsets="earliest"), target, checkpoint))
    with stratalog.open(path) as logs:
        logs.add_partitions("orders", 3)
        logs.append("orders", [{"value": f"value-{n}", "partition": 2} for n in range(60, 80)])
    finish(copy_to(stream(spark, path, startingOffsets="earliest"), target, checkpoint))
    assert values(target, "copy") == numbers(80)


@pytest.mark.proof
def test_deleted_records_are_an_error_unless_they_may_be(spark, make_log, tmp_path):
    path = make_log(100, partitions=1)
    target, checkpoint = tmp_path / "target", tmp_path / "checkpoint"
    options = {"startingOffsets": "earliest"}
    finish(copy_to(stream(spark, path, **options), target, checkpoint))
    make_log(100, partitions=1, first=100)
    with stratalog.open(path) as logs:
        logs.delete_records("orders", 0, 150)
    query = copy_to(stream(spark, path, **options), target, checkpoint)
    with pytest.raises(Exception, match="offset 100 is out of range: the log holds 150 up to 200"):
        query.awaitTermination(60)
    finish(copy_to(stream(spark, path, failOnDataLoss="false", **options), target, checkpoint))
    assert values(target, "copy") == sorted(numbers(100) + numbers(50, first=150))


def test_a_live_directory_is_followed(spark, make_log, tmp_path):
    """Its owner appends, rolls and deletes while the stream reads."""
    path = make_log(10, partitions=2, **{"internal.segment.bytes": 4096})
    target, checkpoint = tmp_path / "target", tmp_path / "checkpoint"
    frame = stream(spark, path, startingOffsets="earliest").select("key", "value", "timestamp")
    writer = frame.writeStream.format("stratalog").option("topic", "copy")
    query = writer.option("checkpointLocation", str(checkpoint)).start(str(target))
    done = threading.Event()

    def append():
        with stratalog.open(path) as logs:
            for number in range(10, 400, 10):
                logs.append(
                    "orders",
                    [
                        {"key": f"key-{n}", "value": f"value-{n}"}
                        for n in range(number, number + 10)
                    ],
                )
                done.wait(0.02)

    thread = threading.Thread(target=append)
    thread.start()
    thread.join()
    query.processAllAvailable()
    query.stop()
    assert values(target, "copy") == numbers(400)
    assert len(list(Path(path).glob("orders-*/*.log"))) > 4


def test_the_rows_of_a_batch_stay_the_same(spark, make_log, tmp_path):
    """Read again with the same checkpoint into another place: the same batch ids hold the same rows."""
    import shutil

    path = make_log(300)
    seen: list[dict[int, list[tuple[int, int]]]] = []
    for name in ("one", "two"):
        checkpoint = tmp_path / f"checkpoint-{name}"
        if seen:
            shutil.copytree(tmp_path / "checkpoint-one" / "offsets", checkpoint / "offsets")
            shutil.copy(tmp_path / "checkpoint-one" / "metadata", checkpoint / "metadata")
            make_log(100, first=300)
        batches: dict[int, list[tuple[int, int]]] = {}

        def keep(frame, batch_id, batches=batches):
            batches[batch_id] = sorted(map(tuple, frame.select("partition", "offset").collect()))

        frame = stream(spark, path, startingOffsets="earliest", maxOffsetsPerTrigger=100)
        query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
        finish(query.trigger(availableNow=True).start())
        seen.append(batches)
    one, two = seen
    last = max(one)
    assert two[last] == one[last]  # the one batch that Spark plans anew from its own log
    assert sum(map(len, one.values())) == 300
