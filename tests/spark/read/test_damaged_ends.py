"""A last segment that goes on with damage: no read, stream or job takes that for the end of the log.

One flipped bit in the size of a batch hides all that follow it, as one in its magic byte does. Spark must not
count what stands before it as everything, and a stream must not wait for ever for what will never come."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import CorruptionError, StratalogError
from stratalog.spark import jobs
from tests.inspect.logs import batch, flipped, segment

pytestmark = pytest.mark.proof

WHOLE, WRONG = 200, 100
PLACE = rf"orders-0/{0:020d}\.log at byte {WRONG * len(batch(0, 1))}: "
#: Where the bit is, and what is said of it.
BITS = {"size": (9, 4, "beyond the end of the file"), "magic": (16, 3, "the magic byte")}


def damage(folder: Path, what: str = "size") -> None:
    batches = [batch(number, 1) for number in range(WHOLE)]
    at, bit, _ = BITS[what]
    batches[WRONG] = flipped(batches[WRONG], at, bit)
    segment(folder, 0, b"".join(batches))


@pytest.fixture(params=list(BITS))
def logs(tmp_path, request):
    """A log directory, and what is said of its damage."""
    folder = tmp_path / "logs"
    folder.mkdir()
    damage(folder, request.param)
    return str(folder), PLACE + ".*" + BITS[request.param][2]


def load(spark, path, **options):
    return spark.read.format("stratalog").options(**options).load(path)


def ending(offset):
    return json.dumps({"orders": {"0": offset}})


def test_a_read_up_to_the_end_fails(spark, logs):
    path, says = logs
    for options in ({}, {"endingOffsets": ending(-1)}, {"isolationLevel": "read_committed"}):
        with pytest.raises(Exception, match=says):
            load(spark, path, **options).count()
    for offset in (WRONG + 1, WHOLE):
        for loss in ("true", "false"):
            with pytest.raises(Exception, match=says):
                load(spark, path, endingOffsets=ending(offset), failOnDataLoss=loss).count()
    with pytest.raises(Exception, match=says):
        load(spark, path, endingTimestamp="5000").count()


def test_a_read_up_to_the_damage_does_not(spark, logs):
    path, _ = logs
    assert load(spark, path, endingOffsets=ending(WRONG)).count() == WRONG
    assert load(spark, path, endingOffsets=ending(7)).count() == 7


def test_a_scan_fails_where_the_condition_reaches_it(spark, logs):
    path, says = logs
    scan = stratalog.spark.scan
    for where in (None, "offset < 101", "offset > 50", "key = 'k0'"):
        with pytest.raises(CorruptionError, match=says):
            scan(spark, path, where=where)
    assert scan(spark, path, where=f"offset < {WRONG}").count() == WRONG
    assert scan(spark, path, where="partition = 7").count() == 0
    assert scan(spark, path, options={"endingOffsets": ending(WRONG)}).count() == WRONG


def copy_of(spark, path, tmp_path, **options):
    options = {"subscribePattern": ".*", **options}
    frame = spark.readStream.format("stratalog").options(**options).load(path)
    writer = frame.select("key", "value").writeStream.format("stratalog")
    writer = writer.option("topic", "copy").option("checkpointLocation", str(tmp_path / "check"))
    return writer, str(tmp_path / "target")


def copied(target):
    with stratalog.open(target, read_only=True) as logs:
        return len(list(logs.read("copy").records()))


@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"processingTime": "20 milliseconds"}])
def test_a_stream_gives_what_stands_before_it_and_then_fails(spark, logs, tmp_path, trigger):
    path, says = logs
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    for _ in range(2):  # and so does the next one
        writer, target = copy_of(spark, path, tmp_path, **options)
        query = writer.trigger(**trigger).start(target)
        with pytest.raises(Exception, match=says):
            query.awaitTermination(60)
        assert copied(target) == WRONG


def test_a_stream_that_starts_at_the_latest_does_not_wait_there(spark, logs, tmp_path):
    path, says = logs
    writer, target = copy_of(spark, path, tmp_path, startingOffsets="latest")
    query = writer.trigger(processingTime="20 milliseconds").start(target)
    with pytest.raises(Exception, match=says):
        query.awaitTermination(60)


@pytest.mark.parametrize("loss", ["true", "false"])
def test_damage_where_a_stream_was_to_read(spark, tmp_path, loss):
    """Its checkpoint says how far the batch goes: that offset is not lost, and not to be passed over."""
    from stratalog.spark.options.read_options import ReadOptions
    from stratalog.spark.read.stream_reader import StreamReader

    folder = tmp_path / "logs"
    folder.mkdir()
    segment(folder, 0, b"".join(batch(number, 1) for number in range(WHOLE)))
    given = {"path": str(folder), "subscribe": "orders", "startingoffsets": "earliest"}
    given["failondataloss"] = loss
    reader = StreamReader(ReadOptions.of(given, is_stream=True), ("value",))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == {"orders": {"0": WHOLE}}
    planned = reader.partitions(start, end)
    damage(folder)
    with pytest.raises(CorruptionError, match=PLACE):
        list(reader.read(planned[0]))
    after_a_restart = StreamReader(ReadOptions.of(given, is_stream=True), ("value",))
    with pytest.raises(CorruptionError, match=PLACE):
        after_a_restart.partitions(start, end)


def test_a_torn_tail_is_no_error_here(spark, tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    segment(folder, 0, b"".join(batch(number, 1) for number in range(20)) + batch(20, 1)[:50])
    assert load(spark, str(folder)).count() == 20
    assert stratalog.spark.scan(spark, str(folder)).count() == 20
    writer, target = copy_of(spark, str(folder), tmp_path, startingOffsets="earliest")
    query = writer.trigger(availableNow=True).start(target)
    assert query.awaitTermination(60)
    assert copied(target) == 20
    assert jobs.count(spark, str(folder)).collect()[0]["status"] == "torn"


def test_jobs_that_look_say_damaged(spark, logs):
    path, _ = logs
    (row,) = jobs.count(spark, path).collect()
    assert (row["records"], row["status"]) == (WRONG, "damaged")
    (row,) = jobs.count(spark, path, offsets="50:").collect()
    assert (row["records"], row["status"]) == (WRONG - 50, "damaged")
    (row,) = jobs.stat(spark, path).collect()
    assert row["status"] == "damaged"
    (row,) = jobs.verify(spark, path).collect()
    assert row["status"] == "damaged"


def test_export_fails(spark, logs, tmp_path):
    path, says = logs
    with pytest.raises(Exception, match=says):
        jobs.export(spark, path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    report = jobs.export(spark, path, tmp_path / "part", where=f"offset < {WRONG}")
    assert report.records == WRONG
    with pytest.raises(Exception, match=says):
        jobs.export(spark, path, tmp_path / "now", checkpoint=tmp_path / "checkpoint")
    assert spark.read.parquet(str(tmp_path / "now")).count() == WRONG


def test_mirror_copies_what_stands_before_it_and_tells(spark, logs, tmp_path):
    path, says = logs
    target = tmp_path / "copy"
    for records in (WRONG, 0):  # the next run tells, too
        told: list[StratalogError] = []
        report = jobs.mirror(spark, path, target, on_error=told.append)
        assert report.records == records
        assert len(told) == 1
        with pytest.raises(CorruptionError, match=says):
            raise told[0]
