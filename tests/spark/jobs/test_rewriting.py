"""Rewrites on Spark leave what the local ones leave, byte for byte; what is refused changes nothing; and what
failed tasks left is removed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stratalog
from stratalog.errors import CorruptionError, LockedError, StorageError, UsageError
from stratalog.manager.logs import Logs, open_logs
from stratalog.manager.rewrites import RewriteOptions, RewriteReport
from stratalog.rewrite.erase.erasure import Erase
from stratalog.rewrite.erase.keys import KeySet
from stratalog.rewrite.erase.search import Targets
from stratalog.rewrite.recompress import Recompress, codec_named
from stratalog.rewrite.upgrade import Upgrade
from stratalog.spark import jobs
from stratalog.spark.jobs.rewriting import rewrite as rewrite_module
from stratalog.spark.jobs.rewriting.compacting import Compacting
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.testing import ManualClock
from stratalog.types import TopicPartition
from tests.judges.peers.golden import golden_set
from tests.rewrite.compact.workloads import Workload
from tests.scale import fresh, sized

CONFIGS = {"internal.segment.bytes": 2000, "delete.retention.ms": 0, "file.delete.delay.ms": 0}


def random_logs(folder: Path, *, seeds: int, steps: int = 60) -> str:
    """A log directory whose partitions have random histories, with transactions of every kind."""
    path = str(folder / "logs")
    with stratalog.open(path, clock=clock()) as logs:
        logs.create("t", seeds, CONFIGS)
        for number in range(seeds):
            workload = Workload(fresh(number), configs=CONFIGS)
            log = logs.partition("t", number)
            workload.run(log, steps)
            workload.end_all(log)
            log.roll()
    return path


def clock() -> ManualClock:
    return ManualClock()


def copied(path: str, name: str) -> str:
    return shutil.copytree(path, f"{path}-{name}", copy_function=shutil.copy2)


def contents(path: str) -> dict[str, tuple[bytes, int]]:
    """All files that make up the logs, with their times; and how far they are compacted. Those of an empty
    active segment change whenever a log is opened."""
    found = {}
    for folder, _, names in os.walk(path):
        for name in (each for each in names if not each.startswith("stratalog-piece")):
            whole = Path(folder, name)
            if name.endswith((".log", ".index", ".timeindex", ".txnindex")):
                data = whole.read_bytes()
                changed_ms = int(whole.stat().st_mtime_ns // 1_000_000) if data else 0
                found[str(whole.relative_to(path))] = data, changed_ms
            elif name in ("cleaner-offset-checkpoint", "leader-epoch-checkpoint"):
                found[str(whole.relative_to(path))] = (whole.read_bytes(), 0)
    return found


def data_of(path: str) -> dict[str, bytes]:
    """The same without times, for logs that were written one after the other."""
    return {name: data for name, (data, _) in contents(path).items()}


def left_over(path: str) -> list[str]:
    signs = ("stratalog-piece", ".cleaned", ".swap", ".deleted")
    return [
        name for _, _, names in os.walk(path) for name in names if any(s in name for s in signs)
    ]


def locally(path: str, rewrite: Callable[[Logs], Any], topic: str) -> RewriteReport:
    with open_logs(path, clock=clock()) as logs:
        run = logs.begin_rewrite(rewrite(logs), logs.topic_partitions(topic, None))
        return run.run()


# --- the same as the local ones --------------------------------------------------------------------


def test_compaction_leaves_what_the_local_one_leaves(spark, tmp_path):
    path = random_logs(tmp_path, seeds=sized(3, 12))
    local = copied(path, "local")
    expected = locally(local, Logs.compaction, "t")
    report = jobs.compact(spark, path, topics="t", write=True, clock=clock())
    assert contents(path) == contents(local)
    assert left_over(path) == []
    assert (report.bytes_before, report.bytes_after) == (
        expected.bytes_before,
        expected.bytes_after,
    )
    assert report.counts() == expected.counts()
    assert sum(len(each.groups) for each in report.partitions) > len(report.partitions)


def test_a_second_compaction_goes_on_where_the_first_ended(spark, tmp_path):
    path = random_logs(tmp_path, seeds=2)
    local = copied(path, "local")
    for number in range(2):
        locally(local, Logs.compaction, "t")
        jobs.compact(spark, path, topics="t", write=True, clock=clock())
        assert data_of(path) == data_of(local)
        for each in (path, local):
            with stratalog.open(each, clock=clock()) as logs:
                workload = Workload(fresh(100 + number), configs=CONFIGS)
                workload.sequences = {}
                for _ in range(20):
                    logs.partition("t", 0).append(workload.batch(clock().now_ms()))
                logs.partition("t", 0).roll()


@pytest.mark.parametrize(
    "name", ["v2-compacted", "v2-transactions", "v1-compacted", "v0-compacted"]
)
def test_golden_logs_are_compacted_as_the_local_one_does(spark, tmp_path, name):
    given = golden_set(name)
    path = str(shutil.copytree(given.path, tmp_path / "logs", copy_function=shutil.copy2))
    with stratalog.open(path) as logs:
        topics = [each for each in logs.topics() if not each.startswith("__")]
        for topic in topics:
            for each in logs.topic_partitions(topic, None):
                logs.partition(*each).roll()
    local = copied(path, "local")
    for topic in topics:
        locally(local, Logs.compaction, topic)
    jobs.compact(spark, path, topics=topics, write=True, clock=clock())
    assert contents(path) == contents(local)


def test_erasure_leaves_what_the_local_one_leaves(spark, tmp_path):
    path = random_logs(tmp_path, seeds=2)
    local = copied(path, "local")
    keys = KeySet.of(["key-1", "key-4"])
    expected = locally(local, lambda _: Erase(Targets(keys)), "t")
    planned = jobs.erase(spark, path, keys, topics="t", clock=clock())
    report = jobs.erase(spark, path, keys, topics="t", write=True, clock=clock())
    assert contents(path) == contents(local)
    assert report.counts() == expected.counts()
    plans = [each.plan for each in planned.partitions if each.plan is not None]
    found = sum(group.records or 0 for plan in plans for group in plan.groups)
    assert found == report.counts()["erased"]


def test_recompression_leaves_what_the_local_one_leaves(spark, tmp_path):
    path = random_logs(tmp_path, seeds=2)
    local = copied(path, "local")
    locally(local, lambda _: Recompress(codec_named("lz4")), "t")
    jobs.recompress(spark, path, "lz4", topics="t", write=True, clock=clock())
    assert contents(path) == contents(local)


def test_upgrading_leaves_what_the_local_one_leaves(spark, tmp_path):
    given = golden_set("v1-gzip")
    path = str(shutil.copytree(given.path, tmp_path / "logs", copy_function=shutil.copy2))
    with stratalog.open(path) as logs:
        topics = list(logs.topics())
        for topic in topics:
            for each in logs.topic_partitions(topic, None):
                logs.partition(*each).roll()
    local = copied(path, "local")
    for topic in topics:
        locally(local, lambda _: Upgrade(), topic)
    jobs.upgrade(spark, path, write=True)
    assert contents(path) == contents(local)


# --- plans, manifests and originals --------------------------------------------------------------------


def test_without_write_nothing_changes(spark, tmp_path):
    path = random_logs(tmp_path, seeds=1)
    before = {each.name: each.stat().st_mtime_ns for each in Path(path, "t-0").iterdir()}
    for report in (
        jobs.compact(spark, path, topics="t"),
        jobs.erase(spark, path, KeySet.of(["key-1"])),
        jobs.recompress(spark, path, "zstd"),
    ):
        (partition,) = report.partitions
        assert partition.plan is not None
        assert partition.plan.groups
        assert partition.groups == ()
    assert {each.name: each.stat().st_mtime_ns for each in Path(path, "t-0").iterdir()} == before
    assert left_over(path) == []


def test_a_manifest_lists_what_was_replaced_and_originals_are_restored(spark, tmp_path):
    path = random_logs(tmp_path, seeds=1)
    before = data_of(path)
    manifest = str(tmp_path / "manifest.json")
    options = RewriteOptions(keep_undo=True, manifest=manifest)
    report = jobs.erase(spark, path, KeySet.of(["key-1"]), write=True, options=options)
    document = json.loads(Path(manifest).read_bytes())
    (partition,) = document["partitions"]
    assert len(partition["groups"]) == len(report.partitions[0].groups)
    assert data_of(path) != before
    with stratalog.open(path) as logs:
        logs.undo(report.id)
    assert data_of(path) == before


def test_the_active_segment_is_included_if_it_is_rolled(spark, tmp_path):
    path = str(tmp_path / "logs")
    with stratalog.open(path) as logs:
        logs.create("t", 1)
        logs.append("t", [("k", f"v{number}") for number in range(10)])
    jobs.compact(spark, path, topics="t", write=True, options=RewriteOptions(roll=True))
    with stratalog.open(path, read_only=True) as logs:
        assert [record.value for record in logs.read("t").records()] == [b"v9"]


# --- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize("meddle", ["retain", "compact", "append"])
def test_a_log_that_others_change_before_the_commit(spark, tmp_path, monkeypatch, meddle):
    path = random_logs(tmp_path, seeds=1)
    real = Compacting.carry_out
    changed: dict[str, Any] = {}

    def carry_out(work: Compacting, *given: Any) -> Any:
        outcomes = real(work, *given)
        with stratalog.open(path, clock=clock()) as logs:
            log = logs.partition("t", 0)
            if meddle == "retain":
                log.advance_start(log.segments[1].base_offset)
                logs.retain()
            elif meddle == "compact":
                logs.clean("t")
            else:
                logs.append("t", [("k", "later")])
        changed.update(contents(path))
        return outcomes

    monkeypatch.setattr(Compacting, "carry_out", carry_out)
    if meddle == "append":
        report = jobs.compact(spark, path, topics="t", write=True, clock=clock())
        assert report.bytes_after < report.bytes_before
    else:
        with pytest.raises(StorageError, match="changed since the rewrite was planned"):
            jobs.compact(spark, path, topics="t", write=True, clock=clock())
        assert contents(path) == changed
    assert left_over(path) == []


def test_a_damaged_partition_is_left_out_and_the_others_are_compacted(spark, tmp_path):
    path = random_logs(tmp_path, seeds=2)
    segment = sorted(Path(path, "t-0").glob("*.log"))[1]
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    before = {name: found for name, found in contents(path).items() if name.startswith("t-0")}
    for run in (
        lambda: jobs.compact(spark, path, topics="t", write=True, clock=clock()),
        lambda: jobs.recompress(spark, path, "lz4", write=True),
    ):
        report = run()
        damaged, sound = report.partitions
        assert isinstance(damaged.error, CorruptionError)
        assert str(segment) in str(damaged.error)
        assert sound.groups
        after = {name: found for name, found in contents(path).items() if name.startswith("t-0")}
        assert after == before
    assert left_over(path) == []


@pytest.mark.proof
def test_a_task_that_fails_once_is_tried_again(spark, tmp_path):
    """Its first attempt has staged a part of a segment: only what the second staged is committed."""
    path = random_logs(tmp_path, seeds=1)
    local = copied(path, "local")
    locally(local, Logs.compaction, "t")
    marker = tmp_path / "failed"
    rewrite_module.rewrite_on_spark(
        spark, path, FailingOnce(str(marker)), topics="t", write=True, clock=clock()
    )
    assert marker.exists()
    assert contents(path) == contents(local)
    assert left_over(path) == []


class FailingOnce(Compacting):
    """A compaction whose first task dies after it has staged a segment."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def carry_out(self, spark: Any, staging: Any, plans: Any, progress: Any) -> Any:
        from functools import partial
        from unittest import mock

        from stratalog.spark.jobs.rewriting import compacting

        failing = partial(fail_once, self.marker)
        with mock.patch.object(compacting, "compact_group", failing):
            return super().carry_out(spark, staging, plans, progress)


def fail_once(marker: str, staging: Any, group: Any) -> Any:
    from stratalog.spark.jobs.rewriting.compacting import compact_group

    done = compact_group(staging, group)
    if group.number == 0 and not Path(marker).exists():
        Path(marker).touch()
        raise RuntimeError("this attempt dies")
    return done


def test_a_directory_in_use_is_refused(spark, tmp_path, monkeypatch):
    path = random_logs(tmp_path, seeds=1)
    monkeypatch.setattr(rewrite_module, "_LOCK_SECONDS", 0.0)
    with stratalog.open(path), pytest.raises(LockedError):
        jobs.compact(spark, path, topics="t", write=True)


def test_a_full_disk_is_refused_before_anything_is_written(spark, tmp_path, monkeypatch):
    path = random_logs(tmp_path, seeds=1)
    before = contents(path)
    monkeypatch.setattr(OsFileSystem, "free_bytes", lambda *_: 10)
    with pytest.raises(StorageError, match="make room on this disk"):
        jobs.compact(spark, path, topics="t", write=True)
    assert contents(path) == before


@pytest.mark.parametrize(
    ("path", "how", "match"),
    [
        ("nowhere", {}, "no such log directory"),
        ("s3://bucket/logs", {}, "object store"),
        (".", {"options": RewriteOptions(max_bytes=1)}, "committed as a whole"),
        (".", {"topics": None}, "name the topics"),
        (".", {"topics": "nope"}, "nope"),
    ],
)
def test_what_cannot_be_is_said_before_a_task_runs(spark, tmp_path, path, how, match):
    whole = path if "://" in path else str(tmp_path / path)
    with pytest.raises((StorageError, UsageError), match=match):
        jobs.compact(spark, whole, **{"topics": "t", "write": True, **how})


def test_topics_of_several_directories_are_committed_one_after_the_other(spark, tmp_path):
    paths = [str(tmp_path / name) for name in ("one", "other")]
    with stratalog.open(paths) as logs:
        logs.create("t", 2, CONFIGS)
        for partition in (0, 1):
            logs.append("t", [("k", "a"), ("k", "b")], partition=partition)
            logs.partition("t", partition).roll()
    report = jobs.compact(spark, paths, topics="t", write=True)
    assert [each.topic_partition for each in report.partitions] == [
        TopicPartition("t", 0),
        TopicPartition("t", 1),
    ]
    with stratalog.open(paths, read_only=True) as logs:
        assert [record.value for record in logs.read("t").records()] == [b"b", b"b"]
    assert [left_over(path) for path in paths] == [[], []]
