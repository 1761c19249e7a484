"""What is due is done also when nobody calls: ``flush.ms``, and the removal of files that were set aside."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import LogFailedError
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.testing import Call, Fault, FaultyFileSystem, ManualClock

NAME = "stratalog-upkeep"


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


def test_where_a_test_tells_the_time_nobody_looks(tmp_path: Path) -> None:
    with stratalog.open(tmp_path, sync=False, clock=ManualClock()) as logs:
        logs.create("t", flush_ms=1)
        logs.append("t", [b"a"])
        assert keepers() == []


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
    files = FaultyFileSystem(OsFileSystem())
    logs = stratalog.open(tmp_path, sync=False, file_system=files)
    logs.create("t", flush_ms=20)
    logs.append("t", [b"a"])
    log = logs.partition("t")
    files.arm(1, fault=Fault.EIO, calls=[Call.SYNC])
    logs.append("t", [b"b"])
    until(lambda: log.failure is not None, "nobody noticed")
    with pytest.raises(LogFailedError):
        logs.append("t", [b"c"])
    logs.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert keepers() == []


def test_logs_that_nobody_closes_are_let_go_of(tmp_path: Path) -> None:
    logs = stratalog.open(tmp_path, sync=False)
    logs.create("t", flush_ms=20)
    logs.append("t", [b"a"])
    assert len(keepers()) == 1
    del logs
    # The thread may be at it just now, and hold it itself.
    until(lambda: gc.collect() >= 0 and keepers() == [], "it goes on")
