"""What goes wrong is one sentence with what to do, wherever it does: in a stream, in a task, in a commit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import stratalog

pytestmark = pytest.mark.slow


def stream(spark, path, **options):
    reader = spark.readStream.format("stratalog")
    if not {"subscribe", "subscribePattern", "assign"} & options.keys():
        options["subscribePattern"] = ".*"
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(path)


def copied(frame, tmp_path, **options):
    """Run a stream into a log to its end, or to its error."""
    writer = frame.select("key", "value").writeStream.format("stratalog")
    options = {"topic": "copy", "checkpointLocation": tmp_path / "checkpoint", **options}
    for name, value in options.items():
        writer = writer.option(name, str(value))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "target"))
    assert query.awaitTermination(60)


def check(error, says):
    """Ours, by its name; no Java, and no more Python than Spark itself puts around it."""
    text = str(error)
    assert re.search(says, text), text
    assert "stratalog.errors." in text
    assert "\tat " not in text, "a Java stack trace"
    assert len(text) < 3000, text
    own = [line for line in text.splitlines() if "/stratalog/" in line and 'File "' in line]
    assert len(own) <= 2, text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "nope"}, "no topic 'nope'; found orders"),
        ({"endingOffsets": "latest"}, "a stream has no end, except an endingTimestamp"),
        ({"maxOffsetsPerTrigger": "0"}, "an integer of at least 1"),
        ({"startingOffsets": '{"orders": {"0": 5}}'}, "it must list every partition"),
        (
            {"startingOffsets": '{"orders": {"0": 0, "1": 0, "2": 777}}'},
            "offset 777 is out of range: the log holds 0 up to",
        ),
    ],
)
def test_stream_that_cannot_start(spark, make_log, tmp_path, options, says):
    path = make_log(20)
    with pytest.raises(Exception, match=says) as raised:
        copied(stream(spark, path, **options), tmp_path)
    check(raised.value, says)
    assert not list(tmp_path.glob("target/*-0"))


def test_stream_of_a_directory_that_is_not_there(spark, tmp_path):
    with pytest.raises(Exception, match="no such file or directory") as raised:
        copied(stream(spark, str(tmp_path / "nowhere")), tmp_path)
    check(raised.value, "nowhere")
    assert not (tmp_path / "nowhere").exists()


def flip(path, word):
    file = next(Path(path).glob("orders-0/*.log"))
    data = bytearray(file.read_bytes())
    data[data.index(word) + 3] ^= 1
    file.write_bytes(data)


def test_damage_is_told_by_the_task_that_meets_it(spark, make_log, tmp_path):
    path = make_log(500, partitions=1)
    flip(path, b"value-77")
    says = r"00000000000000000000\.log at byte \d+: .*crc"
    with pytest.raises(Exception, match=says) as raised:
        spark.read.format("stratalog").load(path).count()
    check(raised.value, says)
    with pytest.raises(Exception, match=says) as raised:
        copied(stream(spark, path, startingOffsets="earliest"), tmp_path)
    check(raised.value, says)
    assert not list(tmp_path.glob("target/stratalog-piece*"))


@pytest.mark.proof
def test_writer_beside_a_stream_that_writes(spark, make_log, tmp_path):
    path = make_log(20)
    with (
        stratalog.open(str(tmp_path / "target")),
        pytest.raises(Exception, match="has held the lock of this directory") as raised,
    ):
        copied(stream(spark, path, startingOffsets="earliest"), tmp_path, lockTimeout="100ms")
    check(raised.value, "has held the lock of this directory")
    copied(stream(spark, path, startingOffsets="earliest"), tmp_path)  # and when it is gone
    with stratalog.open(str(tmp_path / "target"), read_only=True) as logs:
        assert len(list(logs.read("copy").records())) == 20


def test_commit_into_a_directory_that_is_damaged(spark, make_log, tmp_path):
    path = make_log(20)
    copied(stream(spark, path, startingOffsets="earliest"), tmp_path)
    journal = tmp_path / "target" / "stratalog-commits.journal"
    data = bytearray(journal.read_bytes())
    data[10] ^= 1
    journal.write_bytes(data)
    make_log(20, first=20)
    with pytest.raises(Exception, match=r"stratalog-commits\.journal") as raised:
        copied(stream(spark, path, startingOffsets="earliest"), tmp_path)
    check(raised.value, "restore it from a backup")
    assert journal.read_bytes() == data


def test_worker_that_does_not_see_the_directory_says_so(spark, make_log, tmp_path):
    """It must not take that for records that were deleted, which one may be told to do without."""
    path = make_log(50)
    frame = spark.read.format("stratalog").option("failOnDataLoss", "false").load(path)
    assert frame.count() == 50  # planned: from now on only tasks look at the files
    Path(path).rename(tmp_path / "elsewhere")
    says = "every worker must see the log directory under this path"
    with pytest.raises(Exception, match=says) as raised:
        frame.count()
    check(raised.value, says)
    (tmp_path / "elsewhere").rename(path)
    assert frame.count() == 50


def test_piece_that_the_driver_does_not_see(tmp_path):
    """What a worker without the shared directory wrote lies on a disk of its own."""
    import pyarrow as pa

    from stratalog.errors import CorruptionError
    from stratalog.spark.options.write_options import WriteOptions
    from stratalog.spark.write.plan import plan_sink
    from stratalog.spark.write.sink import BatchSink, StagedPieces
    from stratalog.spark.write.task import stage_rows
    from stratalog.storage.commits.key import CommitKey

    key = CommitKey("load", 1)
    there, here = (
        plan_sink(WriteOptions.of({"path": str(tmp_path / name), "topic": "t"}))
        for name in ("there", "here")
    )
    rows = pa.record_batch({"value": [b"one", b"two"]})
    staged = StagedPieces(key, 0, stage_rows(there, key, iter([rows]), task=0, attempt=1))
    with pytest.raises(CorruptionError, match="every worker must reach the log directory"):
        BatchSink(here, key).commit([staged])
    assert not list(tmp_path.glob("here/t-*"))
    BatchSink(there, key).commit([staged])
    with stratalog.open(str(tmp_path / "there"), read_only=True) as logs:
        assert [record.value for record in logs.read("t").records()] == [b"one", b"two"]
