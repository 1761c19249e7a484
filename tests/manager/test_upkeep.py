"""The jobs of open logs: flushing by ``flush.ms``, and removing files that were set aside."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import LogFailedError, StorageError, UsageError
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.testing import Call, Fault, FaultyFileSystem, ManualClock

NAME = "stratalog-scheduler"


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def keepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def test_what_is_older_than_flush_ms_comes_to_the_disk_by_itself(tmp_path: Path) -> None:
    with stratalog.open(tmp_path, sync=False) as logs:
        logs.create("t", flush_ms=20)
        logs.append("t", [b"a", b"b"])
        log = logs.partition("t")
        until(lambda: log.recovery_point == 2, "it was not flushed")
        logs.append("t", [b"c"])
        until(lambda: log.synced_offset == 3, "it was not flushed again")
    assert keepers() == []


def test_without_flush_ms_nobody_looks(tmp_path: Path) -> None:
    with stratalog.open(tmp_path, sync=False) as logs:
        logs.create("t")
        logs.append("t", [b"a"])
        assert keepers() == []


def test_under_a_manual_clock_a_flush_runs_when_the_test_says_so(tmp_path: Path) -> None:
    clock = ManualClock()
    with stratalog.open(tmp_path, sync=False, clock=clock) as logs:
        logs.create("t", flush_ms=1000)
        logs.append("t", [b"a"])
        log = logs.partition("t")
        assert keepers() == []
        clock.advance(999)
        assert logs.run_due_jobs() == ["flush"]
        assert log.recovery_point == 0
        clock.advance(200)
        assert logs.run_due_jobs() == ["flush"]
        assert log.recovery_point == 1
        assert logs.run_due_jobs() == []


def test_under_a_manual_clock_files_go_exactly_after_their_delay(tmp_path: Path) -> None:
    clock = ManualClock()
    with stratalog.open(tmp_path, clock=clock) as logs:
        logs.create("t", file_delete_delay_ms=500, internal_segment_bytes=200, retention_bytes=0)
        for _ in range(5):
            logs.append("t", [b"v" * 100])
        folder = tmp_path / "t-0"
        assert [job.next_due_ms for job in logs.jobs if job.name == "delete-files"] == [None]
        assert logs.retain() > 0
        (due,) = [job.next_due_ms for job in logs.jobs if job.name == "delete-files"]
        assert due == clock.now_ms() + 500
        clock.advance(499)
        assert logs.run_due_jobs() == []
        assert list(folder.glob("*.deleted"))
        clock.advance(1)
        assert logs.run_due_jobs() == ["delete-files"]
        assert not list(folder.glob("*.deleted"))
        assert [job.next_due_ms for job in logs.jobs] == [None, None]


def test_a_log_that_fails_does_not_keep_others_from_being_flushed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, files = ManualClock(), FaultyFileSystem(OsFileSystem())
    logs = stratalog.open(tmp_path, sync=False, clock=clock, file_system=files)
    logs.create("t", 3, flush_ms=100)
    for partition in range(3):
        logs.append("t", [b"a"], partition=partition)
    clock.advance(100)
    files.arm(1, fault=Fault.EIO, calls=[Call.SYNC])
    assert logs.run_due_jobs() == ["flush"]
    listed = [logs.partition("t", number) for number in range(3)]
    assert sorted(log.recovery_point for log in listed) == [0, 1, 1]
    assert sum(log.failure is not None for log in listed) == 1
    assert [record.name for record in caplog.records] == ["stratalog.scheduler"]
    (job,) = [job for job in logs.jobs if job.name == "flush"]
    assert isinstance(job.last_error, StorageError)
    assert job.last_error.__traceback__ is None
    clock.advance(100)
    assert logs.run_due_jobs() == ["flush"]  # the failed log is not tried again
    assert len(caplog.records) == 1
    assert [job.last_error for job in logs.jobs] == [None, None]
    logs.close()


class CallingClock(ManualClock):
    """A clock that calls back once, when a flush asks for the time."""

    def __init__(self) -> None:
        super().__init__()
        self.call: Callable[[], object] | None = None

    def monotonic_ms(self) -> int:
        call, self.call = self.call, None
        if call is not None:
            call()
        return super().monotonic_ms()


def test_topic_that_is_deleted_while_it_is_flushed_is_not_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = CallingClock()
    with stratalog.open(tmp_path, sync=False, clock=clock) as logs:
        logs.create("t", flush_ms=1000)
        logs.append("t", [b"a"])
        clock.advance(2000)
        clock.call = partial(logs.delete_topic, "t")
        logs._partitions._flushes.run()
        assert logs.topics() == {}
    assert caplog.records == []


def test_files_that_were_set_aside_go_when_their_time_has_come(tmp_path: Path) -> None:
    with stratalog.open(tmp_path) as logs:
        logs.create("t", file_delete_delay_ms=500, internal_segment_bytes=200, retention_bytes=0)
        for _ in range(5):
            logs.append("t", [b"v" * 100])
        folder = tmp_path / "t-0"
        assert logs.retain() > 0
        assert list(folder.glob("*.deleted"))
        until(lambda: not list(folder.glob("*.deleted")), "they stayed")
    assert keepers() == []


def test_a_flush_that_fails_fails_the_log(tmp_path: Path) -> None:
    clock, files = ManualClock(), FaultyFileSystem(OsFileSystem())
    logs = stratalog.open(tmp_path, sync=False, clock=clock, file_system=files)
    logs.create("t", flush_ms=20)
    logs.append("t", [b"a"])
    log = logs.partition("t")
    files.arm(1, fault=Fault.EIO, calls=[Call.SYNC])
    logs.append("t", [b"b"])  # time stands still: this one does not flush
    clock.advance(20)
    assert logs.run_due_jobs() == ["flush"]
    assert log.failure is not None
    with pytest.raises(LogFailedError):
        logs.append("t", [b"c"])
    logs.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_logs_that_nobody_closes_are_let_go_of(tmp_path: Path) -> None:
    logs = stratalog.open(tmp_path, sync=False)
    logs.create("t", flush_ms=20)
    logs.append("t", [b"a"])
    assert len(keepers()) == 1
    del logs
    # The thread may be at it just now, and hold it itself.
    until(lambda: gc.collect() >= 0 and keepers() == [], "it goes on")


def test_logs_that_are_not_closed_are_freed_without_the_garbage_collector(tmp_path: Path) -> None:
    logs = stratalog.open(tmp_path, sync=False, clock=ManualClock())
    logs.create("t", flush_ms=20)
    logs.append("t", [b"a"])
    held = weakref.ref(logs)
    gc.disable()
    try:
        del logs
        assert held() is None
    finally:
        gc.enable()


def test_closed_logs_run_no_jobs(tmp_path: Path) -> None:
    logs = stratalog.open(tmp_path)
    logs.close()
    with pytest.raises(UsageError, match="closed"):
        logs.run_due_jobs()
    with (
        stratalog.open(tmp_path, read_only=True) as logs,
        pytest.raises(UsageError, match="read-only"),
    ):
        logs.run_due_jobs()


def test_a_removal_that_fails_is_tried_again(tmp_path: Path) -> None:
    clock = ManualClock()
    faulty = FaultyFileSystem(OsFileSystem())
    with stratalog.open(tmp_path, clock=clock, file_system=faulty) as logs:
        logs.create("t", file_delete_delay_ms=200)
        logs.append("t", [b"a"])
        logs.delete_topic("t")
        clock.advance(200)
        faulty.arm(1, fault=Fault.EIO, calls=[Call.UNLINK])
        assert logs.run_due_jobs() == ["delete-files"]
        assert faulty.failed
        assert list(tmp_path.glob("t-0.*-delete"))
        job = next(job for job in logs.jobs if job.name == "delete-files")
        assert job.last_error is not None
        assert job.next_due_ms is not None
        clock.advance(10_000)
        assert logs.run_due_jobs() == ["delete-files"]
        assert list(tmp_path.glob("t-0.*-delete")) == []
