"""Group commit: one sync for all who wait, and never a word about what was not synced."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from stratalog.errors import LogFailedError, OffsetOutOfRangeError, StorageError
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.log.group_sync import GroupCommit
from stratalog.storage.partition_log import PartitionLog
from stratalog.testing import Call, Fault, FaultyFileSystem
from tests.storage.logs import T, batch, crash, open_log, values


class Disk:
    """A sync that takes as long as the test wants, and brings what was written before it began."""

    def __init__(self) -> None:
        self.written = 0
        self.syncs = 0
        self.started = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.failure: BaseException | None = None

    def sync(self) -> int:
        end = self.written
        self.syncs += 1
        self.started.release()
        self.go.acquire()
        if self.failure is not None:
            raise self.failure
        return end


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    answers: list[object] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:  # noqa: BLE001
            answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, answers


def wait_for_waiting(commit: GroupCommit, count: int) -> None:
    while len(commit._waiting) < count:
        time.sleep(0.001)


def test_who_comes_while_a_sync_runs_is_served_by_the_next() -> None:
    disk = Disk()
    commit = GroupCommit(disk.sync)
    disk.written = 1
    first, answers = in_thread(lambda: commit.reach(1))
    disk.started.acquire()
    disk.written = 10
    others = [in_thread(partial(commit.reach, at)) for at in range(2, 11)]
    wait_for_waiting(commit, 9)
    disk.go.release()
    first.join()
    assert (answers, commit.synced_offset) == ([None], 1)
    disk.started.acquire()
    assert all(thread.is_alive() for thread, _ in others)
    disk.go.release()
    for thread, got in others:
        thread.join()
        assert got == [None]
    assert (disk.syncs, commit.synced_offset) == (2, 10)
    commit.reach(10)
    assert disk.syncs == 2


def test_a_failed_sync_is_nobodys_success() -> None:
    """Whether there is a second try is for the log to decide: it refuses."""
    disk = Disk()
    commit = GroupCommit(disk.sync)
    disk.written = 5
    disk.failure = StorageError("input/output error", path="log", errno=5)
    runs = [in_thread(lambda: commit.reach(3)) for _ in range(4)]
    for _ in runs:
        disk.go.release()
    for thread, got in runs:
        thread.join()
        assert got == [disk.failure]
    assert commit.synced_offset == 0


def test_who_is_interrupted_while_it_waits_leaves_its_turn_to_others() -> None:
    disk = Disk()
    commit = GroupCommit(disk.sync)
    disk.written = 1
    first, _ = in_thread(lambda: commit.reach(1))
    disk.started.acquire()
    disk.written = 9

    class Interrupted:
        """The lock of a thread that a signal wakes up."""

        def acquire(self) -> None:
            raise KeyboardInterrupt

        def release(self) -> None: ...

    turn = Interrupted()
    commit._waiting.append((5, turn))  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        commit._await(turn)  # type: ignore[arg-type]
    second, got = in_thread(lambda: commit.reach(6))
    wait_for_waiting(commit, 1)
    disk.go.release()
    disk.started.acquire()
    disk.go.release()
    for thread in (first, second):
        thread.join()
    assert (got, commit.synced_offset) == ([None], 9)


def test_an_interrupted_sync_interrupts_only_who_did_it() -> None:
    disk = Disk()
    commit = GroupCommit(disk.sync)
    disk.written = 5
    disk.failure = KeyboardInterrupt()
    first, got = in_thread(lambda: commit.reach(3))
    disk.started.acquire()
    second, answer = in_thread(lambda: commit.reach(3))
    disk.go.release()
    first.join()
    assert got == [disk.failure]
    disk.started.acquire()
    disk.failure = None
    disk.go.release()
    second.join()
    assert (answer, commit.synced_offset) == ([None], 5)


def test_what_was_cut_while_it_was_synced_does_not_count() -> None:
    """The log is cut and grows again during a sync: the sync has seen none of the new records."""
    disk = Disk()
    commit = GroupCommit(disk.sync)
    disk.written = 100
    first, got = in_thread(lambda: commit.reach(40))
    disk.started.acquire()
    commit.lower(50)
    disk.written = 60
    disk.go.release()
    disk.started.acquire()  # the first one must look again
    disk.go.release()
    first.join()
    assert (got, commit.synced_offset, disk.syncs) == ([None], 60, 2)


def test_who_waits_for_what_was_cut_away_is_told() -> None:
    disk = Disk()
    commit = GroupCommit(disk.sync)
    disk.written = 100
    first, got = in_thread(lambda: commit.reach(100))
    disk.started.acquire()
    commit.lower(50)
    disk.written = 50
    disk.go.release()
    disk.started.acquire()
    disk.go.release()
    first.join()
    (error,) = got
    assert isinstance(error, OffsetOutOfRangeError)
    assert (error.offset, error.end) == (99, 50)


# --- in a log ------------------------------------------------------------------------------------


class SlowSync(FaultyFileSystem):
    """Syncs take a while, as on a disk."""

    def call(self, call, path, perform, *, fail=None):
        if call is Call.SYNC and path.endswith(".log"):
            time.sleep(0.003)
        return super().call(call, path, perform, fail=fail)


def test_sixty_four_callers_share_their_syncs(tmp_path: Path) -> None:
    files = SlowSync(OsFileSystem())
    log = open_log(tmp_path, file_system=files)
    each, callers = 5, 64
    got: list[tuple[int, bytes, int]] = []

    def work(number: int) -> None:
        for at in range(each):
            value = b"%d %d" % (number, at)
            result = log.append(batch(value), sync=True)
            got.append((result.last_offset, value, log.synced_offset))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(callers)]
    before = files.counts[Call.SYNC]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    syncs = files.counts[Call.SYNC] - before
    assert len(got) == callers * each
    assert all(offset < synced for offset, _, synced in got)
    assert syncs < callers * each / 4
    assert log.synced_offset == callers * each
    assert values(log) == [value for _, value, _ in sorted(got)]
    log.close()


def test_a_failed_sync_fails_the_log_and_everyone(tmp_path: Path) -> None:
    files = FaultyFileSystem(OsFileSystem())
    log = open_log(tmp_path, file_system=files)
    log.append(batch(b"safe"), sync=True)
    files.arm(1, fault=Fault.EIO, calls={Call.SYNC})
    errors: list[BaseException] = []

    def work() -> None:
        try:
            log.append(batch(b"lost"), sync=True)
        except StorageError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 8
    syncs = files.counts[Call.SYNC]
    for call in (lambda: log.append(batch(b"x")), log.sync, log.flush, log.roll):
        with pytest.raises(LogFailedError):
            call()
    assert (files.counts[Call.SYNC], log.synced_offset) == (syncs, 1)
    assert log.failure is not None
    assert values(log)[0] == b"safe"  # reading goes on
    log.close()


def append_and_flush(log: PartitionLog) -> None:
    for at in range(100):
        log.append(batch(b"v", timestamp=T + at))


def append_and_sync(log: PartitionLog) -> None:
    for at in range(50):
        log.append(batch(b"v", timestamp=T + at), sync=True)


def flush(log: PartitionLog) -> None:
    for _ in range(60):
        log.flush()


def roll(log: PartitionLog) -> None:
    for _ in range(20):
        log.roll()
        time.sleep(0.001)


def test_appends_flushes_syncs_and_rolls_do_not_wait_for_each_other_for_ever(
    tmp_path: Path,
) -> None:
    """``flush.messages`` makes appends flush by themselves, while others sync, flush and roll."""
    configs = {"flush.messages": 2, "index.interval.bytes": 0, "internal.segment.bytes": 5000}
    log = open_log(tmp_path, configs, file_system=SlowSync(OsFileSystem()))
    works = (append_and_flush, append_and_flush, append_and_sync, append_and_sync, flush, roll)
    runs = [in_thread(partial(work, log)) for work in works]
    for thread, got in runs:
        thread.join()
        assert got == [None]
    assert log.log_end == 300
    log.flush()
    assert log.recovery_point == 300
    log.close()
    kept = {path.name: path.read_bytes() for path in tmp_path.glob("*index")}
    log = crash(log)  # recovery makes the same indexes: none was written with a hole
    log.close()
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*index")} == kept
