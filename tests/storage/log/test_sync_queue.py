"""Callbacks that wait for the disk: each is called once, after its append is there, or with the error."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from stratalog.errors import OffsetOutOfRangeError, StorageError, StratalogError
from stratalog.records.builder import build_batch
from stratalog.records.model import Record
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.log.sync_queue import SyncQueue
from stratalog.storage.partition_log import PartitionLog
from stratalog.testing import Call, Fault, FaultyFileSystem

BATCH = build_batch([Record(b"v", timestamp=1)])


def test_every_callback_is_called_once_and_not_before_its_offset() -> None:
    synced = 0
    syncs = []

    def reach(offset: int) -> None:
        nonlocal synced
        syncs.append(offset)
        synced = max(synced, offset)

    queue = SyncQueue(reach)
    answers: list[tuple[int, int, object]] = []
    for offset in range(1, 201):

        def done(error: object, at: int = offset) -> None:
            answers.append((at, synced, error))

        queue.put(offset, done)
    queue.close()
    assert sorted(at for at, _, _ in answers) == list(range(1, 201))
    assert all(at <= reached and error is None for at, reached, error in answers)
    assert len(syncs) <= 200


def test_who_waits_while_a_sync_runs_shares_the_next() -> None:
    go = threading.Semaphore(0)
    begun = threading.Semaphore(0)
    syncs = []

    def reach(offset: int) -> None:
        begun.release()
        go.acquire()
        syncs.append(offset)

    queue = SyncQueue(reach)
    done = threading.Semaphore(0)
    queue.put(1, lambda _: done.release())
    begun.acquire()
    for offset in range(2, 65):
        queue.put(offset, lambda _: done.release())
    go.release(2)
    for _ in range(64):
        done.acquire()
    queue.close()
    assert syncs == [1, 64]


def test_a_failed_sync_is_told_to_all_and_the_log_is_done(tmp_path: Path) -> None:
    files = FaultyFileSystem(OsFileSystem())
    log = PartitionLog.open(str(tmp_path), file_system=files)
    log.append(BATCH, sync=True)
    result = log.append(BATCH)
    files.arm(fail_at=1, fault=Fault.EIO, calls=(Call.SYNC,))
    told: list[StratalogError | None] = []
    got = threading.Semaphore(0)

    def done(error: StratalogError | None) -> None:
        told.append(error)
        got.release()

    log.when_synced(result.next_offset, done)
    got.acquire()
    assert isinstance(told[0], StorageError)
    assert log.failure is not None
    assert log.synced_offset == 1
    log.close()


def test_appends_are_answered_when_they_are_synced(tmp_path: Path) -> None:
    log = PartitionLog.open(str(tmp_path))
    got = threading.Semaphore(0)
    late = []
    for _ in range(64):
        offset = log.append(BATCH).next_offset

        def done(error: StratalogError | None, offset: int = offset) -> None:
            if error is not None or log.synced_offset < offset:
                late.append(offset)
            got.release()

        log.when_synced(offset, done)
    for _ in range(64):
        got.acquire()
    assert late == []
    assert log.synced_offset == 64
    log.close()


def test_callbacks_that_close_the_log_of_each_other_return() -> None:
    """Each is called by a thread of its own, and waits until the other one is called, too."""
    queues = [SyncQueue(lambda _: None) for _ in range(2)]
    both, closed, waiting = threading.Barrier(2), threading.Semaphore(0), threading.Semaphore(0)

    def close(other: SyncQueue) -> None:
        other.put(2, lambda _: waiting.release())
        both.wait(30)
        other.close()
        closed.release()

    for queue, other in zip(queues, reversed(queues), strict=True):
        queue.put(1, lambda _, other=other: close(other))  # type: ignore[misc]
    for _ in queues:
        assert closed.acquire(timeout=30), "two closes wait for each other"
        assert waiting.acquire(timeout=30), "what waits in a log that is closed is served"


def test_a_close_within_a_callback_waits_for_a_sync_that_runs() -> None:
    begun, go = threading.Event(), threading.Event()
    steps: list[str] = []

    def reach(_: int) -> None:
        begun.set()
        assert go.wait(30)
        steps.append("synced")

    busy, queue, done = SyncQueue(reach), SyncQueue(lambda _: None), threading.Event()
    busy.put(1, lambda _: None)
    assert begun.wait(30)

    def close(_: object) -> None:
        threading.Timer(0.01, go.set).start()
        busy.close()
        steps.append("closed")
        done.set()

    queue.put(1, close)
    assert done.wait(30)
    assert steps == ["synced", "closed"]


@pytest.mark.parametrize("change", ["truncate", "restart"])
def test_a_record_that_was_truncated_is_not_acknowledged(tmp_path: Path, change: str) -> None:
    """The callback waits while the log is truncated and other records take its offsets."""
    log = PartitionLog.open(str(tmp_path), watermark="synced")
    begun, go, answered = threading.Event(), threading.Event(), threading.Semaphore(0)
    answers: dict[int, StratalogError | None] = {}

    def hold(_: object) -> None:
        begun.set()
        assert go.wait(30)

    def when_synced(offset: int) -> None:
        def done(error: StratalogError | None) -> None:
            answers[offset] = error
            answered.release()

        log.when_synced(offset, done)

    log.append(BATCH)
    log.when_synced(1, hold)
    assert begun.wait(30)
    log.append(BATCH)
    when_synced(1)
    when_synced(2)
    if change == "truncate":
        log.truncate(1)
    else:
        log.restart(1)
    log.append(BATCH)
    log.append(BATCH)
    when_synced(3)
    go.set()
    for _ in range(3):
        assert answered.acquire(timeout=30)
    assert isinstance(answers.pop(2), OffsetOutOfRangeError)
    assert (answers.pop(1) is None) == (change == "truncate")
    assert answers == {3: None}
    log.close()
