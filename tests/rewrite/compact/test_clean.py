"""Random logs are cleaned in many ways: what is left is what the rules of Kafka's cleaner say, and what a
dictionary of keys says; and everything that stays is at its offset, unchanged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import stratalog
from stratalog.records.model import Record
from stratalog.rewrite.compact.clean import CleanerSettings, UnstoredCheckpoint, clean_log
from stratalog.rewrite.limits import RewriteLimits, RewriteStoppedError
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.views.log_view import Isolation
from stratalog.testing import ManualClock, MemoryFileSystem
from stratalog.types import TopicPartition
from tests.cli.runner import run
from tests.judges.peers.golden import GoldenSet, golden_sets
from tests.manager.logdirs import memory, open_memory
from tests.rewrite.compact.workloads import (
    Workload,
    batches_of,
    check_producers,
    check_survivors,
    clean,
    clock_of,
    committed,
    new_disk,
    open_log,
)
from tests.scale import SCALE, fresh, sized
from tests.storage.logs import batch, records

Counted = Callable[[str, object], None]
DAY_MS = 86_400_000
#: How many keys a map holds.
MAPS = (1, 3, 1 << 20)


def seeds(quick: int, full: int) -> range:
    return range(sized(quick, full * SCALE))


def lose_snapshots(disk: MemoryFileSystem) -> None:
    for path in list(disk.paths()):
        if path.endswith(".snapshot"):
            disk.unlink(path)


def uncommitted(log: PartitionLog) -> list[Record]:
    return records(log, isolation=Isolation.UNCOMMITTED)


# Random logs, against the two models.


@pytest.mark.scaled
@pytest.mark.parametrize("keys_max", MAPS)
def test_what_is_left_is_what_the_models_say(keys_max: int, record_property: Counted) -> None:
    for seed in seeds(3, 25):
        workload, disk = Workload(fresh(seed)), new_disk()
        log = open_log(disk, workload.config)
        checkpoint = None
        for number in range(4):
            workload.run(log, 16)
            if number % 2:
                workload.end_all(log)
            stable = log.last_stable_offset
            cleanable = clean(log, checkpoint, keys_max=keys_max)
            checkpoint = cleanable.first_uncleanable
            expected = committed(workload.history, stable)
            check_survivors(records(log, isolation=Isolation.COMMITTED), expected, checkpoint)
            clock_of(disk).advance(workload.random.choice([1, 1000, DAY_MS // 4]))
            # From the start again: only markers and tombstones may go, when their time has come.
            clean(log, keys_max=keys_max)
            check_survivors(records(log, isolation=Isolation.COMMITTED), expected, checkpoint)
            log = check_reopened(log, workload, number)
        log.close()
    record_property("counted: random logs compacted as the models say", len(seeds(3, 25)))


def check_reopened(log: PartitionLog, workload: Workload, number: int) -> PartitionLog:
    """Close, or abandon and recover, also without producer snapshots: the log has the same content, and the
    producers go on where they were."""
    disk, before, stable = log.file_system, batches_of(log), log.last_stable_offset
    assert isinstance(disk, MemoryFileSystem)
    is_clean = number == 0
    if is_clean:
        log.close()
    else:
        log.abandon()
    if number == 2:
        lose_snapshots(disk)
    opened = open_log(disk, workload.config, is_clean=is_clean)
    assert opened.report.cuts == []
    assert opened.report.unknown_files == ()
    assert (batches_of(opened), opened.last_stable_offset) == (before, stable)
    check_producers(opened, workload)
    return opened


@pytest.mark.scaled
def test_cleaning_again_and_again_comes_to_an_end() -> None:
    """When all horizons have passed, cleanings remove markers and tombstones; then nothing changes."""
    for seed in seeds(3, 20):
        workload, disk = Workload(fresh(seed)), new_disk()
        log = open_log(disk, workload.config)
        workload.run(log, 40)
        workload.end_all(log)
        log.roll()
        live = [each for each in newest(workload, log) if each.value is not None]
        for _ in range(4):
            clean(log)
            clock_of(disk).advance(DAY_MS // 24 + workload.config.delete_retention_ms)
        before = batches_of(log)
        assert [r for b in before for r in b.records if not b.is_control] == live
        clean(log)
        assert batches_of(log) == before
        lose_snapshots(disk)
        log.abandon()
        opened = open_log(disk, workload.config)
        assert batches_of(opened) == before
        assert opened.last_stable_offset == opened.log_end, "no transaction is open"


def newest(workload: Workload, log: PartitionLog) -> list[Record]:
    found = {
        record.key: record
        for record in committed(workload.history, log.log_end)
        if record.key is not None
    }
    return sorted(found.values(), key=lambda record: record.offset)


@pytest.mark.parametrize("lost", [False, True], ids=["with-snapshots", "snapshots-lost"])
def test_producers_go_on_after_a_cleaning(lost: bool) -> None:
    for seed in seeds(3, 20):
        workload, disk = Workload(fresh(seed)), new_disk()
        log = open_log(disk, workload.config)
        workload.run(log, 30)
        workload.end_all(log)
        log.roll()
        clean(log)
        log.abandon()
        if lost:
            lose_snapshots(disk)
        log = open_log(disk, workload.config)
        check_producers(log, workload)
        workload.run(log, 20)
        workload.end_all(log)
        clean(log)
        check_producers(log, workload)
        log.close()


# Tombstones.


def tombstones() -> tuple[PartitionLog, ManualClock]:
    disk = new_disk()
    config = LogConfig.of({"internal.segment.bytes": 200, "delete.retention.ms": 1000})
    log = open_log(disk, config)
    for value in (b"old", None):
        log.append(batch(value, key=b"k"))
    log.append(batch(b"other", key=b"o"))
    log.roll()
    return log, clock_of(disk)


def kept(log: PartitionLog) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in uncommitted(log)]


def test_a_tombstone_is_kept_until_the_horizon_that_its_first_cleaning_sets() -> None:
    log, clock = tombstones()
    clean(log)
    assert kept(log) == [(b"k", None), (b"o", b"other")]
    clock.advance(999)
    clean(log)
    assert kept(log) == [(b"k", None), (b"o", b"other")]
    clock.advance(1)
    clean(log)
    assert kept(log) == [(b"o", b"other")]


def test_the_age_of_a_tombstone_counts_from_its_first_cleaning() -> None:
    log, clock = tombstones()
    clock.advance(100 * DAY_MS)
    clean(log)
    assert (b"k", None) in kept(log)
    clock.advance(999)
    clean(log)
    assert (b"k", None) in kept(log)


def test_a_clock_that_was_wrong_during_a_cleaning_removes_no_live_record() -> None:
    """The wall clock jumps by years, forward and back, around and between cleanings."""
    for jump in (-50 * 365 * DAY_MS, 50 * 365 * DAY_MS):
        log, clock = tombstones()
        start = clock.now_ms()
        for now_ms in (start + jump, start, start + jump):
            clock.set(now_ms)
            clean(log)
            assert (b"o", b"other") in kept(log)
        clock.set(start)
        assert log.retain().deletions == ()


# Stopping, and what changes meanwhile.


def test_a_cleaning_that_is_stopped_keeps_what_it_has_done() -> None:
    configs = {"internal.segment.bytes": 450, "delete.retention.ms": 1000}
    workload, disk = Workload(1, configs=configs), new_disk()
    log = open_log(disk, workload.config)
    workload.run(log, 60)
    workload.end_all(log)
    before = batches_of(log)
    checkpoint = UnstoredCheckpoint(log, now_ms=0)
    limits = RewriteLimits(bytes_max=checkpoint.find().cleanable_bytes + 1500)
    with pytest.raises(RewriteStoppedError):
        clean_log(log, checkpoint, CleanerSettings(), limits, now_ms=log.clock.now_ms())
    assert checkpoint.offset is None
    partly = batches_of(log)
    assert partly != before
    assert partly[-5:] == before[-5:]
    seen = records(log, isolation=Isolation.COMMITTED)
    assert set(newest(workload, log)) <= set(seen) <= set(committed(workload.history, log.log_end))
    assert not [path for path in disk.paths() if path.endswith((".cleaned", ".swap"))]
    clean(log)
    log.close()


# Through an open log directory.


@pytest.mark.scaled
def test_a_topic_is_cleaned_and_verified(tmp_path: Path) -> None:
    for seed in seeds(1, 6):
        workload = Workload(fresh(seed))
        root = tmp_path / str(seed)
        configs = {**workload.configs, "cleanup.policy": "compact,delete"}
        configs |= {"retention.ms": -1, "min.cleanable.dirty.ratio": 0}
        with stratalog.open(root, config={"log.cleaner.dedupe.buffer.size": 1 << 21}) as logs:
            logs.create("t", 1, {**workload.configs, "cleanup.policy": "delete"})
            log = logs.partition("t")
            workload.run(log, 30)
            workload.end_all(log)
            log.sync()
            logs.alter_configs("t", configs)
            (results,) = logs.clean("t", roll=True).values()
            assert results[-1].end_offset == log.segments[-1].base_offset
            (status,) = logs.cleaner_status("t").values()
            assert status.needs_cleaning is None
            assert status.first_dirty == results[-1].end_offset
            before = list(logs.read("t", isolation="read_committed").records())
        check_verified(root)
        with stratalog.open(root) as logs:
            assert list(logs.read("t", isolation="read_committed").records()) == before
            (status,) = logs.cleaner_status("t").values()
            assert status.first_dirty == results[-1].end_offset, "the checkpoint was stored"
            logs.alter_configs("t", {"cleanup.policy": "delete"})  # takes records without a key
            check_producers(logs.partition("t"), workload)


def check_verified(root: Path) -> None:
    answer = run("verify", root)
    assert answer.code == 0, answer.out


def test_retention_and_compaction_work_on_the_same_topic() -> None:
    disk = memory()
    clock = clock_of(disk)
    with open_memory(disk) as logs:
        logs.create(
            "t", 1,
            {
                "cleanup.policy": "compact,delete", "internal.segment.bytes": 400,
                "retention.ms": 1000, "file.delete.delay.ms": 0,
            },
        )  # fmt: skip
        log = logs.partition("t")
        for number in range(20):
            log.append(batch(b"%d" % number, key=b"old %d" % (number % 7)))
        log.sync()
        logs.clean("t", roll=True)
        assert len(list(logs.read("t").records())) == 7
        clock.advance(1001)
        log.append(batch(b"young", key=b"young", timestamp=clock.now_ms()))
        log.sync()
        assert logs.retain() > 0
        assert [r.key for r in logs.read("t").records()] == [b"young"]
        logs.clean("t", roll=True)
        assert [r.key for r in logs.read("t").records()] == [b"young"]


def test_the_checkpoint_of_a_deleted_topic_is_not_that_of_a_new_one(tmp_path: Path) -> None:
    with stratalog.open(tmp_path) as logs:
        for count in (30, 40):
            logs.create("t", 1, {"cleanup.policy": "compact", "internal.segment.bytes": 400})
            log = logs.partition("t")
            for number in range(count):
                log.append(batch(b"%d" % number, key=b"k"))
            log.sync()
            assert logs.cleaner_status("t")[TopicPartition("t", 0)].first_dirty == 0
            logs.clean("t", roll=True)
            assert [r.offset for r in logs.read("t").records()] == [count - 1]
            if count == 30:
                logs.delete_topic("t")


# Old formats.

OLD = [
    golden
    for golden in golden_sets()
    if golden.name.split("-")[0] in ("v0", "v1", "mixed") and not golden.damaged
]


@pytest.mark.parametrize("golden", OLD, ids=[golden.name for golden in OLD])
def test_logs_of_old_formats_keep_the_newest_record_of_each_key(
    golden: GoldenSet, tmp_path: Path
) -> None:
    for partition in golden.partitions():
        folder = tmp_path / partition.dir.name
        shutil.copytree(partition.dir, folder)
        config = LogConfig.of({"delete.retention.ms": DAY_MS})
        log = PartitionLog.open(str(folder), config, watermark="written", clock=ManualClock())
        log.roll()
        before = uncommitted(log)
        for _ in range(2):
            checkpoint = UnstoredCheckpoint(log, now_ms=0)
            now_ms = log.clock.now_ms()
            clean_log(log, checkpoint, CleanerSettings(), RewriteLimits(), now_ms=now_ms)
            check_survivors(uncommitted(log), before, log.log_end)
        after = uncommitted(log)
        log.close()
        opened = PartitionLog.open(str(folder), config, watermark="written")
        assert uncommitted(opened) == after
        opened.close()
        check_verified(folder)
