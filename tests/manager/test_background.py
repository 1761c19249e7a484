"""Background jobs: what Kafka's log manager does, driven by a clock that the test moves."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stratalog
from stratalog.errors import StorageError, UsageError
from stratalog.manager import background
from stratalog.manager.logs import Logs
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.formats.checkpoints import decode_offsets
from stratalog.testing import (
    Call,
    Facts,
    Fault,
    FaultyFileSystem,
    ManualClock,
    MemoryFileSystem,
    explore,
)
from stratalog.types import TopicPartition
from tests.manager.logdirs import ROOT, memory, open_memory
from tests.manager.staging import stage
from tests.scale import SCALE, fresh, sized

JOBS = {
    "checkpoint-log-starts", "checkpoint-recovery-points", "delete-files", "expire-producers", "flush",
    "retention",
}  # fmt: skip
CLEANER = "clean-0"
QUICK = {
    "log.initial.task.delay.ms": 10, "log.retention.check.interval.ms": 1000,
    "log.flush.offset.checkpoint.interval.ms": 100, "log.flush.start.offset.checkpoint.interval.ms": 200,
    "producer.id.expiration.check.interval.ms": 500,
}  # fmt: skip


def opened(root: Path, clock: ManualClock, **options: Any) -> Logs:
    config = {**QUICK, **options.pop("config", {})}
    return stratalog.open(root, background=True, config=config, clock=clock, **options)


def due(logs: Logs, name: str) -> int | None:
    (job,) = [job for job in logs.jobs if job.name == name]
    return job.next_due_ms


def segments(root: Path, topic: str) -> int:
    return len(list((root / f"{topic}-0").glob("*.log")))


def fill(logs: Logs, topic: str, count: int = 5, **fields: object) -> None:
    """Records of which each begins a segment."""
    for _ in range(count):
        logs.append(topic, [{"key": b"k", "value": b"v" * 100, **fields}])


def offsets(root: Path, name: str) -> dict[TopicPartition, int]:
    path = root / name
    return decode_offsets(path.read_bytes()) if path.exists() else {}


def test_jobs_first_run_after_the_initial_delay(tmp_path: Path) -> None:
    clock = ManualClock()
    with stratalog.open(tmp_path, background=True, clock=clock) as logs:
        assert {job.name for job in logs.jobs} == JOBS | {CLEANER}
        started = {
            job.next_due_ms
            for job in logs.jobs
            if job.name not in ("flush", "delete-files", CLEANER)
        }
        assert started == {clock.now_ms() + 30_000}
        clock.advance(29_999)
        assert logs.run_due_jobs() == [CLEANER]  # as in Kafka, it does not wait
        clock.advance(1)
        assert set(logs.run_due_jobs()) == JOBS - {"flush", "delete-files"}
        assert due(logs, "retention") == clock.now_ms() + 300_000
        assert due(logs, "checkpoint-recovery-points") == clock.now_ms() + 60_000
        assert due(logs, "checkpoint-log-starts") == clock.now_ms() + 60_000
        assert due(logs, "expire-producers") == clock.now_ms() + 600_000


def test_without_background_there_are_only_the_jobs_of_open_logs(tmp_path: Path) -> None:
    with stratalog.open(tmp_path) as logs:
        assert [job.name for job in logs.jobs] == ["delete-files", "flush"]
    with pytest.raises(UsageError, match="open them without read_only"):
        stratalog.open(tmp_path, read_only=True, background=True)


def test_retention_runs_every_interval(tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(tmp_path, clock) as logs:
        logs.create("t", internal_segment_bytes=200, retention_ms=1500)
        fill(logs, "t")
        clock.advance(10)
        assert "retention" in logs.run_due_jobs()
        assert segments(tmp_path, "t") == 5
        clock.advance(1000)
        assert "retention" in logs.run_due_jobs()
        assert segments(tmp_path, "t") == 5
        clock.advance(1000)
        assert "retention" in logs.run_due_jobs()
        assert (segments(tmp_path, "t"), logs.earliest("t")) == (1, 5)
        clock.advance(60_000)
        assert "delete-files" in logs.run_due_jobs()
        assert not list((tmp_path / "t-0").glob("*.deleted"))


@pytest.mark.parametrize(
    ("policy", "left_by_start", "left_by_age"),
    [("compact", 3, 3), ("compact,delete", 3, 1), ("", 3, 3)],
)
def test_compacted_topics_lose_what_is_below_the_log_start_and_by_age_only_with_delete(
    tmp_path: Path, policy: str, left_by_start: int, left_by_age: int
) -> None:
    clock = ManualClock()
    with opened(tmp_path, clock) as logs:
        logs.create("t", internal_segment_bytes=200, retention_ms=500, cleanup_policy=policy)
        fill(logs, "t")
        logs.partition("t").advance_start(2)
        clock.advance(10)
        logs.run_due_jobs()
        assert segments(tmp_path, "t") == left_by_start
        clock.advance(1000)
        logs.run_due_jobs()
        assert segments(tmp_path, "t") == left_by_age


def test_partition_that_was_not_used_is_retained_and_only_that_one_opened(tmp_path: Path) -> None:
    clock = ManualClock()
    with stratalog.open(tmp_path, clock=clock) as logs:
        for topic, retention_ms in (("old", 1000), ("young", 100_000), ("kept", -1)):
            logs.create(topic, internal_segment_bytes=200, retention_ms=retention_ms)
            fill(logs, topic)
        logs.create("empty", retention_ms=1)
    clock.advance(5000)
    with opened(tmp_path, clock) as logs:
        clock.advance(10)
        assert "retention" in logs.run_due_jobs()
        assert logs._partitions.open_now() == [TopicPartition("old", 0)]
        assert [segments(tmp_path, each) for each in ("old", "young", "kept")] == [1, 5, 5]
    with stratalog.open(tmp_path, clock=clock) as logs:
        assert (logs.earliest("old"), logs.latest("old")) == (5, 5)


def test_topic_of_kafka_whose_configs_are_not_known_is_kept(tmp_path: Path) -> None:
    clock = ManualClock()
    with stratalog.open(tmp_path, clock=clock) as logs:
        logs.create("t", internal_segment_bytes=200)
        fill(logs, "t")
    (file,) = tmp_path.glob("*topics*")
    file.unlink()  # as if a broker had created it
    clock.advance(30 * 86_400_000)
    with opened(tmp_path, clock, config={"log.retention.ms": 1000}) as logs:
        clock.advance(10)
        assert "retention" in logs.run_due_jobs()
        assert segments(tmp_path, "t") == 5
        logs.partition("t").advance_start(2)
        clock.advance(1000)
        logs.run_due_jobs()
        assert segments(tmp_path, "t") == 3
        logs.alter_configs("t", {"retention.ms": 1000})
        clock.advance(1000)
        logs.run_due_jobs()
        assert segments(tmp_path, "t") == 1


def test_round_over_many_partitions_takes_several_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_STEP", 3)
    clock = ManualClock()
    with opened(tmp_path, clock) as logs:
        logs.create("t", 8, internal_segment_bytes=200, retention_bytes=0)
        for partition in range(8):
            fill(logs, "t", 2, partition=partition)
        clock.advance(10)
        runs = 0
        while "retention" in logs.run_due_jobs():
            runs += 1
        assert runs == 3
        assert not [path for path in tmp_path.glob("t-*/*.log") if path.stat().st_size]
        assert due(logs, "retention") == clock.now_ms() + 1000
        assert due(logs, "expire-producers") == clock.now_ms() + 500


def test_recovery_points_and_log_starts_are_checkpointed(tmp_path: Path) -> None:
    clock = ManualClock()
    place = TopicPartition("t", 0)
    with opened(tmp_path, clock) as logs:
        logs.create("t")
        logs.append("t", [b"a", b"b", b"c"])
        logs.partition("t").flush()
        logs.partition("t").advance_start(2)
        clock.advance(10)
        logs.run_due_jobs()
        assert offsets(tmp_path, "recovery-point-offset-checkpoint") == {place: 3}
        assert offsets(tmp_path, "replication-offset-checkpoint") == {place: 3}
        assert offsets(tmp_path, "log-start-offset-checkpoint") == {place: 2}
        logs.append("t", [b"d"])
        logs.partition("t").flush()
        logs.partition("t").advance_start(3)
        clock.advance(100)
        assert logs.run_due_jobs() == ["checkpoint-recovery-points"]
        assert offsets(tmp_path, "recovery-point-offset-checkpoint") == {place: 4}
        assert offsets(tmp_path, "log-start-offset-checkpoint") == {place: 2}
        clock.advance(100)
        assert set(logs.run_due_jobs()) == {"checkpoint-recovery-points", "checkpoint-log-starts"}
        assert offsets(tmp_path, "log-start-offset-checkpoint") == {place: 3}


def test_interval_of_zero_checkpoints_once_as_in_kafka(tmp_path: Path) -> None:
    clock = ManualClock()
    config = {"log.flush.offset.checkpoint.interval.ms": 0}
    with opened(tmp_path, clock, config=config) as logs:
        clock.advance(10)
        assert "checkpoint-recovery-points" in logs.run_due_jobs()
        assert due(logs, "checkpoint-recovery-points") is None


def test_idle_producers_are_forgotten(tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(tmp_path, clock, config={"producer.id.expiration.ms": 400}) as logs:
        logs.create("t")
        with logs.transaction() as transaction:
            transaction.append("t", [b"a"])
        clock.advance(10)
        assert "expire-producers" in logs.run_due_jobs()
        log = logs.partition("t")
        assert len(log.producers) == 1
        clock.advance(500)
        assert "expire-producers" in logs.run_due_jobs()
        assert len(log.producers) == 0


def test_logs_are_flushed_by_the_default_of_the_broker(tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(tmp_path, clock, sync=False, config={"log.flush.interval.ms": 100}) as logs:
        logs.create("t")
        logs.append("t", [b"a"])
        clock.advance(120)
        assert "flush" in logs.run_due_jobs()
        assert logs.partition("t").recovery_point == 1


def test_damaged_partition_does_not_stop_the_others_and_is_not_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    with stratalog.open(tmp_path, clock=clock) as logs:
        for topic in ("a", "b"):
            logs.create(topic, internal_segment_bytes=200, retention_ms=1000)
            fill(logs, topic)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    with (tmp_path / "a-0" / f"{0:020}.log").open("r+b") as file:
        file.seek(70)
        file.write(b"\xff\xff\xff")
    clock.advance(5000)
    logs = opened(tmp_path, clock)
    clock.advance(10)
    assert "retention" in logs.run_due_jobs()
    (job,) = [job for job in logs.jobs if job.name == "retention"]
    assert job.last_error is not None
    assert len(logs.damage) == 1
    assert segments(tmp_path, "b") == 1
    assert segments(tmp_path, "a") == 5
    clock.advance(1000)
    logs.run_due_jobs()
    assert [job.last_error for job in logs.jobs if job.name == "retention"] == [None]
    assert len(caplog.records) == 1
    logs.close()


def test_log_that_failed_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, files = ManualClock(), FaultyFileSystem(OsFileSystem())
    logs = opened(tmp_path, clock, file_system=files)
    logs.create("t", internal_segment_bytes=200, retention_bytes=0)
    fill(logs, "t", 2)
    files.arm(1, fault=Fault.EIO, calls=[Call.SYNC])
    with pytest.raises(StorageError):
        fill(logs, "t", 1)
    clock.advance(10)
    assert "retention" in logs.run_due_jobs()
    assert "expire-producers" not in logs.run_due_jobs()
    assert [job.last_error for job in logs.jobs] == [None] * len(JOBS | {CLEANER})
    assert caplog.records == []
    logs.close()


def test_topic_that_is_deleted_during_a_round_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_STEP", 1)
    clock = ManualClock()
    with opened(tmp_path, clock) as logs:
        logs.create("a")
        logs.create("b")
        clock.advance(10)
        assert "retention" in logs.run_due_jobs()
        logs.delete_topic("b")
        assert "retention" in logs.run_due_jobs()
        assert [job.last_error for job in logs.jobs] == [None] * len(JOBS | {CLEANER})


def test_retention_waits_for_a_commit() -> None:
    disk = memory()
    logs = open_memory(disk, background=True, config=QUICK)
    logs.create("t", internal_segment_bytes=200, retention_ms=0)
    key = CommitKey("query", 1)
    pieces = stage(disk, ROOT, key, {("t", 0): ["a"]}, clock=disk.clock)
    clock = disk.clock
    assert isinstance(clock, ManualClock)
    clock.advance(10)
    with logs._gate.closed():
        assert "retention" in logs.run_due_jobs()
        assert due(logs, "retention") == clock.now_ms() + 100
    logs.commit(key, pieces)
    assert logs.latest("t") == 1
    clock.advance(100)
    assert "retention" in logs.run_due_jobs()
    assert logs.earliest("t") == 1
    assert due(logs, "retention") == clock.now_ms() + 1000
    logs.close()


@pytest.mark.scaled
def test_power_cut_during_the_jobs_loses_nothing_that_was_to_stay(
    record_property: Callable[[str, object], None],
) -> None:
    """At every step: what was acknowledged and is not above the limit of size is there, in its order."""

    def scenario(disk: MemoryFileSystem, facts: Facts[int]) -> None:
        logs = open_memory(
            disk, background=True, config={**QUICK, "log.segment.delete.delay.ms": 100}
        )
        logs.create("t", internal_segment_bytes=200, retention_bytes=400)
        for number in range(8):
            logs.append("t", [(b"k", b"%d" % number * 60)])
            facts.note(number)
            if number % 3 == 1:
                disk.clock.advance(1000)  # type: ignore[attr-defined]
                logs.run_due_jobs()

    def check(disk: MemoryFileSystem, facts: Facts[int]) -> None:
        if not facts:
            return
        with open_memory(disk) as logs:
            start, end = logs.earliest("t"), logs.latest("t")
            assert end > facts[-1]
            assert start <= max(facts[-1] - 2, 0)
            found = [record.value for record in logs.read("t").records()]
            assert found == [b"%d" % number * 60 for number in range(start, end)]

    done = explore(
        scenario, check, seed=fresh(0), states_per_point=sized(1, 3 * SCALE), depth=1,
        start=lambda: MemoryFileSystem(folders=(ROOT,)),
    )  # fmt: skip
    record_property("counted: power cuts during background jobs", done.crashes)
    assert done.points > 100


def test_another_job_can_be_added(tmp_path: Path) -> None:
    clock, ran = ManualClock(), []
    with opened(tmp_path, clock) as logs:
        logs._background.add("clean", lambda: ran.append(1), 50, delay_ms=0)
        assert logs.run_due_jobs() == ["clean"]
        assert due(logs, "clean") == clock.now_ms() + 50
        clock.advance(50)
        assert "clean" in logs.run_due_jobs()
    assert ran == [1, 1]


def test_closing_waits_only_for_the_partition_that_is_visited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    logs = opened(tmp_path, clock)
    logs.create("t", 5, internal_segment_bytes=200, retention_bytes=0)
    for partition in range(5):
        fill(logs, "t", 2, partition=partition)
    is_visiting, goes_on = threading.Event(), threading.Event()
    visited = []
    retain_log = logs._partitions.retain_log

    def slowly(log: Any, policies: Any) -> Any:
        visited.append(log)
        is_visiting.set()
        assert goes_on.wait(30)
        return retain_log(log, policies)

    monkeypatch.setattr(logs._partitions, "retain_log", slowly)
    clock.advance(10)
    job = threading.Thread(target=logs.run_due_jobs)
    job.start()
    assert is_visiting.wait(30)
    closing = threading.Thread(target=logs.close)
    closing.start()
    while not logs._background.is_stopping:
        pass
    goes_on.set()
    closing.join(30)
    job.join(30)
    assert not closing.is_alive()
    assert len(visited) == 1


def test_thread_runs_the_jobs_under_the_system_clock(tmp_path: Path) -> None:
    ran = threading.Event()
    with stratalog.open(tmp_path, background=True, config={"log.initial.task.delay.ms": 0}) as logs:
        logs._background.add("signal", ran.set, None, delay_ms=0)
        assert ran.wait(30)
    assert [each for each in threading.enumerate() if each.name == "stratalog-scheduler"] == []


def test_logs_that_are_not_closed_are_freed_without_the_garbage_collector(tmp_path: Path) -> None:
    logs = opened(tmp_path, ManualClock())
    logs.create("t")
    held = weakref.ref(logs)
    gc.disable()
    try:
        del logs
        assert held() is None
    finally:
        gc.enable()
