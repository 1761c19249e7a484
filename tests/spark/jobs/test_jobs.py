"""Jobs on Spark: each against the plain answer, or against the records that it was given."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import stratalog
from stratalog.errors import (
    LockedError,
    StorageError,
    StratalogError,
    UnknownPartitionError,
    UsageError,
)
from stratalog.spark import jobs
from stratalog.spark.jobs.mirroring.tasks import Mirroring, PartitionToCopy, copy_partitions
from stratalog.spark.jobs.run import file_parts
from stratalog.spark.jobs.run.log_paths import LogPaths
from stratalog.spark.jobs.run.run_tasks import run_tasks
from stratalog.storage.partition_log import PartitionLog
from stratalog.types import TopicPartition
from tests.cli.runner import command, environment, run
from tests.judges.peers.golden import golden_set

pytestmark = pytest.mark.slow

SETS = ("v2-torn", "v2-compacted", "v2-delete-records", "v2-transactions", "v1-gzip", "v07-gzip",
        "v2-multi-dir")  # fmt: skip


def folders(name: str) -> list[str]:
    return [str(each) for each in golden_set(name).log_dirs]


def rows(frame):
    return [row.asDict(recursive=True) for row in frame.collect()]


def records_of(path, topic):
    with stratalog.open(str(path), read_only=True) as logs:
        return list(logs.read(topic).records())


# Questions.


@pytest.mark.parametrize("name", SETS)
def test_count_stat_and_verify_answer_as_the_plain_commands(spark, name):
    paths = folders(name)
    counted = rows(jobs.count(spark, paths))
    assert [{**row} for row in run("count", "--by", "partition", *paths).rows()] == [
        {name: value for name, value in row.items() if name != "status"} for row in counted
    ]
    listed = run("ls", *paths).rows()
    stats = rows(jobs.stat(spark, paths))
    assert [
        {name: stat[name] for name in row} for row, stat in zip(listed, stats, strict=True)
    ] == listed
    assert rows(jobs.verify(spark, paths, deep=True)) == run("verify", "--deep", *paths).rows()


def test_one_hot_partition_is_many_tasks(spark, make_log, monkeypatch):
    """With damage in it: a CRC in the middle of a part, and an index that lies."""
    path = make_log(60, partitions=1, **{"index.interval.bytes": 500})
    extend(path, 2000)
    segment = Path(path, "orders-0", "00000000000000000000.log")
    monkeypatch.setattr(file_parts, "PART_BYTES_MIN", segment.stat().st_size // 6)
    monkeypatch.setattr(file_parts, "OPEN_BYTES", 0)
    seen = watch_tasks(monkeypatch)
    assert rows(jobs.verify(spark, path)) == run("verify", path).rows()
    assert rows(jobs.count(spark, path))[0]["records"] == 2060
    assert max(seen) >= 4
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    plain = run("verify", path).rows()
    assert plain[0]["status"] == "damaged"
    assert rows(jobs.verify(spark, path)) == plain
    index = segment.with_suffix(".index")
    entries = bytearray(index.read_bytes())
    for at in range(7, len(entries), 8):
        entries[at] ^= 4  # positions that are no batch's
    index.write_bytes(entries)
    assert rows(jobs.verify(spark, path)) == plain
    assert rows(jobs.count(spark, path))[0]["records"] == 2060


def extend(path, count):
    with stratalog.open(path) as logs:
        for number in range(count):
            logs.append("orders", [f"more {number}"], partition=0, sync=False)


def watch_tasks(monkeypatch):
    """How many tasks each call ran."""
    from stratalog.spark.jobs.run import part_tasks

    seen: list[int] = []

    def counted(spark, work, items, **settings):
        seen.append(len(items))
        return run_tasks(spark, work, items, **settings)

    monkeypatch.setattr(part_tasks, "run_tasks", counted)
    return seen


def test_count_within_offsets_and_of_a_directory_with_commits(spark, tmp_path):
    frame = spark.range(1000).selectExpr("cast(id as string) as value")
    jobs.import_rows(spark, frame, tmp_path / "logs", topic="t", write_options={"partitions": "2"})
    path = str(tmp_path / "logs")
    assert sum(row["records"] for row in rows(jobs.count(spark, path))) == 1000
    for offsets in ("-10", "5:20", ":+7"):
        plain = run("count", "--offsets", offsets, path).rows()
        found = rows(jobs.count(spark, path, offsets=offsets))
        assert [row["records"] for row in found] == [row["records"] for row in plain]


def test_progress_rises_with_the_tasks(spark):
    told: list[int] = []
    run_tasks(spark, time.sleep, [0.5] * 6, name="sleep", total_bytes=600, progress=told.append)
    assert told == sorted(told)
    assert 0 < max(told) <= 600


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda spark, path: jobs.count(spark, path + "-no"), StorageError, "no such file"),
        (lambda spark, path: jobs.count(spark, path, topics="nope"), UnknownPartitionError, "orders"),
        (lambda spark, path: jobs.count(spark, path, offsets="x"), UsageError, "is not a range of offsets"),
        (lambda spark, path: jobs.export(spark, path, "/x", decode="xml"), UsageError, "one of"),
        (lambda spark, path: jobs.export(spark, path, "/x", where="nope > 1"), UsageError, "nope"),
        (lambda spark, path: jobs.export(spark, path, "/x", mode="both"), UsageError, "mode"),
        (lambda spark, path: jobs.export(spark, path, "/x", format="none"), UsageError, "none"),
        (lambda spark, path: jobs.mirror(spark, path, path), UsageError, "of itself"),
        (lambda spark, path: jobs.mirror(spark, path, "s3://b/x"), UsageError, "object store"),
        (lambda spark, path: jobs.import_rows(spark, "/nope", path, topic="t"), UsageError, "nope"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_sentence(spark, make_log, call, error, says):
    with pytest.raises(error) as caught:
        call(spark, make_log(3))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


# Export.


def exported(spark, path, **options):
    found = spark.read.options(**options).parquet(str(path)).collect()
    return sorted((row["topic"], row["partition"], row["offset"]) for row in found)


def offsets_in(path, topic="orders"):
    return sorted((topic, each.partition, each.offset) for each in records_of(path, topic))


def test_export_once(spark, make_log, tmp_path):
    path, out = make_log(300), tmp_path / "out"
    report = jobs.export(spark, path, out, dry_run=True)
    assert not out.exists()
    assert sum(each.end_offset - each.start_offset for each in report.partitions) == 300
    assert jobs.export(spark, path, out).records == 300
    assert (out / "topic=orders" / "date=2023-11-14").is_dir()
    found = {
        (row["partition"], row["offset"]): row for row in spark.read.parquet(str(out)).collect()
    }
    for record in records_of(path, "orders"):
        row = found.pop((record.partition, record.offset))
        assert (bytes(row["key"]), bytes(row["value"])) == (record.key, record.value)
        assert row["timestamp"].timestamp() * 1000 == pytest.approx(record.timestamp, abs=0.5)
        assert [(h["key"], bytes(h["value"])) for h in row["headers"] or []] == [
            (h.key, h.value) for h in record.headers
        ]
    assert not found
    with pytest.raises(UsageError, match="already exists"):
        jobs.export(spark, path, out)
    jobs.export(spark, path, out, mode="append", where="partition = 1 and offset < 5")
    assert len(exported(spark, out)) == 305


def test_export_decoded_loses_nothing(spark, tmp_path):
    with stratalog.open(str(tmp_path / "logs")) as logs:
        logs.create("t", 1)
        values = [b'{"id": 1}', b"{no json", b"\xff\xfe", None]
        logs.append("t", [{"key": b"\xff", "value": each} for each in values])
    path = str(tmp_path / "logs")
    jobs.export(spark, path, tmp_path / "text", decode="text", partition_by=())
    text = spark.read.parquet(str(tmp_path / "text")).orderBy("offset").collect()
    assert [row["value"] for row in text] == ['{"id": 1}', "{no json", None, None]
    raw = [None if row["value_raw"] is None else bytes(row["value_raw"]) for row in text]
    assert raw == [None, None, b"\xff\xfe", None]
    assert {bytes(row["key_raw"]) for row in text} == {b"\xff"}
    jobs.export(spark, path, tmp_path / "json", decode="json", schema="id bigint", partition_by=())
    shown = spark.read.parquet(str(tmp_path / "json")).orderBy("offset").collect()
    assert shown[0]["value"]["id"] == 1
    raw = [None if row["value_raw"] is None else bytes(row["value_raw"]) for row in shown]
    assert raw == [None, b"{no json", b"\xff\xfe", None]
    jobs.export(spark, path, tmp_path / "variant", decode="json", partition_by=())
    variants = spark.read.parquet(str(tmp_path / "variant")).orderBy("offset")
    assert variants.selectExpr("variant_get(value, '$.id', 'int')").first()[0] == 1
    jobs.export(spark, path, tmp_path / "lines", format="json", decode="json", partition_by=())
    lines = "".join(each.read_text() for each in (tmp_path / "lines").glob("*.json"))
    assert json.loads(lines.splitlines()[0])["value"] == {"id": 1}


@pytest.mark.proof
def test_export_with_a_checkpoint_takes_what_is_new(spark, make_log, tmp_path):
    path, out, checkpoint = make_log(90), tmp_path / "out", tmp_path / "checkpoint"

    def export(**settings):
        return jobs.export(spark, path, out, checkpoint=checkpoint, batch_bytes=2000, **settings)

    assert export(dry_run=True).records is None
    assert not out.exists()
    first = export()
    assert first.records == 90
    assert first.batches is not None
    assert first.batches > 1
    assert export().records == 0
    make_log(30, first=90)
    planned = export(dry_run=True)
    assert sum(each.end_offset - each.start_offset for each in planned.partitions) == 30
    second = export()
    assert second.records == 30
    assert {(p.start_offset, p.end_offset) for p in second.partitions} == {
        (p.start_offset, p.end_offset) for p in planned.partitions
    }
    assert exported(spark, out) == offsets_in(path)
    with pytest.raises(UsageError, match="another checkpoint"):
        jobs.export(spark, path, tmp_path / "other", checkpoint=checkpoint)


def newest(folder: Path) -> Path:
    return max(
        (each for each in folder.iterdir() if each.name.isdigit()), key=lambda p: int(p.name)
    )


@pytest.mark.proof
@pytest.mark.parametrize("reached_sink", [True, False])
def test_export_that_died_within_a_batch_has_each_record_once(
    spark, make_log, tmp_path, reached_sink
):
    """What a crash leaves: Spark has not noted the last batch, and the sink has, or has not."""
    path, out, checkpoint = make_log(60), tmp_path / "out", tmp_path / "checkpoint"
    jobs.export(spark, path, out, checkpoint=checkpoint, batch_bytes=1500)
    assert newest(checkpoint / "commits").name != "0", "there must be several batches"
    last = newest(checkpoint / "commits")
    for folder in (checkpoint / "commits", *(() if reached_sink else (out / "_spark_metadata",))):
        (folder / last.name).unlink()
        (folder / f".{last.name}.crc").unlink(missing_ok=True)
    make_log(20, first=60)
    jobs.export(spark, path, out, checkpoint=checkpoint, batch_bytes=1500)
    assert exported(spark, out) == offsets_in(path)


@pytest.mark.proof  # a second Java starts in it
def test_export_killed_between_batches_and_run_again(spark, make_log, tmp_path):
    path, out, checkpoint = make_log(3000), tmp_path / "out", tmp_path / "checkpoint"
    arguments = ("spark", "export", path, "--to", out, "--checkpoint", checkpoint,
                 "--batch-bytes", "4000", "--master", "local[1]")  # fmt: skip
    process = subprocess.Popen(
        command(*arguments),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    )
    try:
        wait_for(lambda: (checkpoint / "commits" / "1").exists() or process.poll() is not None)
        assert process.poll() is None, "it should have been killed in the middle"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert len(list((checkpoint / "commits").glob("[0-9]*"))) < 20
    report = jobs.export(spark, path, out, checkpoint=checkpoint)
    assert report.records is not None
    assert 0 < report.records < 3000
    assert exported(spark, out) == offsets_in(path)


def wait_for(is_there, seconds=200):
    until = time.monotonic() + seconds
    while not is_there():
        assert time.monotonic() < until
        time.sleep(0.05)


# Import.


def test_import_maps_columns(spark, tmp_path):
    source = tmp_path / "rows.json"
    source.write_text(
        "".join(
            json.dumps({"id": n, "at": 1_600_000_000_000 + n, "tag": {"k": "v"}}) + "\n"
            for n in range(100)
        )
    )
    to = tmp_path / "logs"
    settings: dict[str, Any] = {
        "topic": "t",
        "format": "json",
        "columns": {"key": "id", "value": "*", "timestamp": "at", "headers": "map('h', 'x')"},
        "write_options": {"partitions": "3", "compression": "zstd", "retention.ms": "-1"},
        "txn_app_id": "nightly",
        "txn_version": 7,
    }
    planned = jobs.import_rows(spark, str(source), to, dry_run=True, **settings)
    assert planned.records == 100
    assert not to.exists()
    report = jobs.import_rows(spark, str(source), to, **settings)
    assert report.records == 100
    found = sorted(records_of(to, "t"), key=lambda record: record.timestamp)
    assert [record.key for record in found] == [b"%d" % n for n in range(100)]
    assert json.loads(found[5].value) == {"id": 5, "at": 1_600_000_000_005, "tag": {"k": "v"}}
    assert [(h.key, h.value) for h in found[5].headers] == [("h", b"x")]
    assert found[5].timestamp == 1_600_000_000_005
    again = jobs.import_rows(spark, str(source), to, **settings)
    assert again.was_done_before
    assert again.partitions == report.partitions
    assert len(records_of(to, "t")) == 100
    with pytest.raises(UsageError, match="no column is called value"):
        jobs.import_rows(spark, str(source), to, topic="t", format="json")


@pytest.mark.proof
def test_import_and_mirror_refuse_a_second_writer(spark, make_log, tmp_path):
    target, source = make_log(3), make_log(30, name="source")
    with stratalog.open(target), pytest.raises(LockedError, match="another writer"):
        jobs.import_rows(
            spark, spark.range(1).selectExpr("'x' as value"), target, topic="t",
            write_options={"lockTimeout": "1s"},
        )  # fmt: skip
    # Of this process's own lock a task would know, a driver of another process does.
    holder = subprocess.Popen(
        [*command()[:1], "-c",
         f"import stratalog, sys; logs = stratalog.open({target!r}); print(1, flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(LockedError, match="another writer"):
            jobs.mirror(spark, source, target)
    finally:
        assert holder.stdin is not None
        holder.communicate()


# Mirror.


def log_bytes(path):
    """Every partition's batches, whatever segments they are in."""
    found: dict[str, bytes] = {}
    for segment in sorted(Path(path).glob("*/*.log")):
        found[segment.parent.name] = found.get(segment.parent.name, b"") + segment.read_bytes()
    return {name: data for name, data in found.items() if data}


@pytest.mark.parametrize("name", ["v2-transactions", "v2-compacted", "v1-gzip", "v2-multi-dir"])
def test_mirror_is_the_same_bytes(spark, tmp_path, name):
    target = tmp_path / "copy"
    report = jobs.mirror(spark, folders(name), target)
    wanted = {place: data for path in folders(name) for place, data in log_bytes(path).items()}
    assert log_bytes(target) == wanted
    assert report.size_bytes == sum(map(len, wanted.values()))
    assert run("verify", "--deep", target).code == 0
    theirs = run("cat", "--control", *folders(name)).out
    assert run("cat", "--control", target).out == theirs
    before = {each: each.stat().st_mtime_ns for each in target.rglob("*")}
    again = jobs.mirror(spark, folders(name), target)
    assert again.size_bytes == 0
    assert before == {each: each.stat().st_mtime_ns for each in target.rglob("*")}


def test_mirror_keeps_starts_and_configs_and_goes_on(spark, make_log, tmp_path):
    path, target = make_log(300, **{"internal.segment.bytes": "4000"}), str(tmp_path / "copy")
    with stratalog.open(path) as logs:
        logs.delete_records("orders", 1, 33)
    planned = jobs.mirror(spark, path, target, dry_run=True)
    assert not Path(target).exists()
    assert planned.size_bytes > 0
    jobs.mirror(spark, path, target)
    make_log(100, first=300)
    second = jobs.mirror(spark, path, target)
    assert second.records == 100
    with (
        stratalog.open(target, read_only=True) as copy,
        stratalog.open(path, read_only=True) as logs,
    ):
        assert copy.topic("orders").config == logs.topic("orders").config
        for partition in range(3):
            assert copy.earliest("orders", partition) == logs.earliest("orders", partition)
            assert copy.latest("orders", partition) == logs.latest("orders", partition)
    assert run("cat", target).out == run("cat", path).out


def test_mirror_refuses_what_is_no_copy_and_what_is_lost(spark, make_log, tmp_path):
    path, target = make_log(60, partitions=1), str(tmp_path / "copy")
    jobs.mirror(spark, path, target)
    with stratalog.open(target) as logs:
        logs.append("orders", ["of its own"], partition=0)
    make_log(5, first=60)
    with pytest.raises(UsageError, match="not a copy"):
        jobs.mirror(spark, path, target)
    shutil.rmtree(target)
    jobs.mirror(spark, path, target)
    make_log(20, first=65)
    with stratalog.open(path) as logs:
        logs.delete_records("orders", 0, 75)
    with pytest.raises(UsageError, match="allow_loss=True"):
        jobs.mirror(spark, path, target)
    assert jobs.mirror(spark, path, target, allow_loss=True).records >= 10
    assert [each.offset for each in records_of(target, "orders")][-1] == 84


def test_mirror_stops_before_damage_and_tells(spark, tmp_path):
    told: list[StratalogError] = []
    jobs.mirror(spark, folders("v2-torn"), tmp_path / "copy", on_error=told.append)
    assert "crc_mismatch" in str(told[0])
    shown = run("cat", "-t", "nectar-payments", "-p", "1", tmp_path / "copy")
    assert shown.code == 0
    assert shown.out == run("cat", "-t", "nectar-payments", "-p", "1", *folders("v2-torn")).out


def test_mirror_that_dies_anywhere_goes_on_at_the_end(make_log, tmp_path, monkeypatch):
    """A task is killed before each of its appends, with the lock in its hands; the next goes on, and one
    that was left over finds nothing to do. No Spark: it is what a task does."""
    path = make_log(10, partitions=1, **{"internal.segment.bytes": "4000"})
    extend(path, 300)
    (source,) = LogPaths.of(path).sources().partitions
    item = PartitionToCopy(source, TopicPartition("orders", 0), 310, 1)
    for dies_at in range(6):
        target = str(tmp_path / f"copy-{dies_at}")
        with stratalog.open(target) as logs:
            logs.create("orders", 1)
        mirroring = Mirroring(LogPaths.of(path), target, hold_bytes=6000)
        assert killed_at_append(
            dies_at, monkeypatch, lambda m=mirroring: copy_partitions(m, [item])
        )
        (copied,) = copy_partitions(mirroring, [item])
        (late,) = copy_partitions(mirroring, [item])
        assert copied.refused is None
        assert 0 < copied.records <= 310
        assert late.records == 0
        assert log_bytes(target) == log_bytes(path)


def test_mirror_goes_on_when_segments_are_replaced_under_it(make_log, tmp_path, monkeypatch):
    """The first appends have gone to the target when three segments of the source become one."""
    path = make_log(10, partitions=1, **{"internal.segment.bytes": "4000"})
    extend(path, 300)
    (source,) = LogPaths.of(path).sources().partitions
    item = PartitionToCopy(source, TopicPartition("orders", 0), 310, 1)
    target = str(tmp_path / "copy")
    with stratalog.open(target) as logs:
        logs.create("orders", 1)
    before = log_bytes(path)
    segments = sorted(Path(path, "orders-0").glob("*.log"))
    assert len(segments) > 6
    real = PartitionLog.append_as_follower
    appends = []

    def replacing(log, data, **settings):
        appends.append(len(data))
        if len(appends) == 2:
            joined = b"".join(segment.read_bytes() for segment in segments[3:6])
            for segment in segments[3:6]:
                segment.unlink()
            segments[3].write_bytes(joined)
        return real(log, data, **settings)

    monkeypatch.setattr(PartitionLog, "append_as_follower", replacing)
    (copied,) = copy_partitions(Mirroring(LogPaths.of(path), target, hold_bytes=6000), [item])
    assert copied.refused is None
    assert len(appends) > 2
    assert log_bytes(target) == before


def killed_at_append(number, monkeypatch, work):
    """Run it in a process that dies at its n-th append; whether it came to that."""
    real = PartitionLog.append_as_follower
    left = iter(range(number))

    def dying(log, data, **settings):
        if next(left, None) is None:
            os._exit(9)
        return real(log, data, **settings)

    process = os.fork()
    if not process:
        monkeypatch.setattr(PartitionLog, "append_as_follower", dying)
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status) == 9
