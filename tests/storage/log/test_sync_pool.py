"""One small pool syncs for all logs: few threads, each log by one at a time and in turn."""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from contextlib import ExitStack

import pytest

from stratalog.errors import StorageError, StratalogError
from stratalog.storage.log.sync_pool import THREAD_NAME, THREADS_MAX, SyncPool
from stratalog.storage.log.sync_queue import SyncQueue
from stratalog.storage.partition_log import PartitionLog
from stratalog.testing import Call, Fault, FaultyFileSystem, MemoryFileSystem
from tests.storage.logs import batch

LOGS = 200


def sync_threads() -> int:
    return sum(thread.name == THREAD_NAME for thread in threading.enumerate())


class Gate:
    """A ``reach`` that counts who is inside, and lets nobody out before it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.entered = threading.Semaphore(0)
        self.lock = threading.Lock()
        self.inside: Counter[int] = Counter()
        self.most_inside = 0

    def reach(self, log: int) -> None:
        with self.lock:
            self.inside[log] += 1
            self.most_inside = max(self.most_inside, *self.inside.values())
        self.entered.release()
        assert self.opened.wait(30)
        with self.lock:
            self.inside[log] -= 1


def test_two_hundred_logs_that_wait_use_the_threads_of_the_pool() -> None:
    gate, answered = Gate(), threading.Semaphore(0)
    queues = [SyncQueue(lambda _, log=log: gate.reach(log)) for log in range(LOGS)]  # type: ignore[misc]
    for queue in queues:
        for offset in range(3):
            queue.put(offset, lambda _: answered.release())
    for _ in range(THREADS_MAX):
        assert gate.entered.acquire(timeout=30)
    assert sync_threads() <= THREADS_MAX
    gate.opened.set()
    for _ in range(LOGS * 3):
        assert answered.acquire(timeout=30)
    assert sync_threads() <= THREADS_MAX
    assert gate.most_inside == 1, "each log is served by one thread at a time"
    for queue in queues:
        queue.close()


def test_two_hundred_partition_logs_are_synced_by_the_pool() -> None:
    files = MemoryFileSystem(folders=[f"/t-{number}" for number in range(LOGS)])
    answers: list[StratalogError | None] = []
    got = threading.Semaphore(0)

    def done(error: StratalogError | None) -> None:
        answers.append(error)
        got.release()

    with ExitStack() as stack:
        for number in range(LOGS):
            log = PartitionLog.open(f"/t-{number}", file_system=files, clock=files.clock)
            stack.callback(log.close)
            for _ in range(2):
                log.when_synced(log.append(batch(b"v")).next_offset, done)
        for _ in range(2 * LOGS):
            assert got.acquire(timeout=30)
        assert sync_threads() <= THREADS_MAX
    assert answers == [None] * (2 * LOGS)


def test_a_log_that_is_never_done_does_not_keep_others_waiting() -> None:
    """With one thread: a log whose callback always brings the next is served in turn with the others."""
    pool = SyncPool(threads_max=1, name="one thread")
    served: list[str] = []
    done = threading.Event()

    class Busy:
        def serve(self) -> bool:
            served.append("busy")
            return not done.is_set()

    class Other:
        left = 3

        def serve(self) -> bool:
            served.append("other")
            self.left -= 1
            if not self.left:
                done.set()
            return self.left > 0

    pool.add(Busy())
    pool.add(Other())
    assert done.wait(30)
    last = len(served) - served[::-1].index("other")
    assert served[:last].count("other") == 3
    assert served[served.index("other") : last] == ["other", "busy", "other", "busy", "other"]


def test_closing_serves_what_waits_when_every_thread_is_busy() -> None:
    gate = Gate()
    busy = [SyncQueue(lambda _, log=log: gate.reach(log)) for log in range(THREADS_MAX)]  # type: ignore[misc]
    for queue in busy:
        queue.put(1, lambda _: None)
    for _ in range(THREADS_MAX):
        assert gate.entered.acquire(timeout=30)
    answers: list[StratalogError | None] = []
    queue = SyncQueue(lambda _: None)
    queue.put(1, answers.append)
    assert answers == []
    queue.close()
    assert answers == [None]
    gate.opened.set()
    for each in busy:
        each.close()


def test_closing_waits_for_callbacks_that_are_being_called() -> None:
    inside, go = threading.Event(), threading.Event()
    called: list[int] = []

    def slow(_: object) -> None:
        inside.set()
        assert go.wait(30)
        called.append(1)

    queue = SyncQueue(lambda _: None)
    queue.put(1, slow)
    assert inside.wait(30)
    queue.put(2, lambda _: called.append(2))
    closing = threading.Thread(target=queue.close)
    closing.start()
    go.set()
    closing.join(30)
    assert called == [1, 2]


def test_callbacks_that_close_logs_do_not_wait_for_each_other() -> None:
    """As many as there are threads, each closing another log that waits, and then its own."""
    others = [SyncQueue(lambda _: None) for _ in range(THREADS_MAX)]
    all_inside = threading.Barrier(THREADS_MAX)
    called = threading.Semaphore(0)
    queues = [SyncQueue(lambda _: None) for _ in range(THREADS_MAX)]

    def close_both(number: int) -> None:
        all_inside.wait(30)
        others[number].put(1, lambda _: called.release())
        others[number].close()
        queues[number].close()
        called.release()

    for number, queue in enumerate(queues):
        queue.put(1, lambda _, number=number: close_both(number))  # type: ignore[misc]
    for _ in range(2 * THREADS_MAX):
        assert called.acquire(timeout=30)


def test_a_failed_sync_is_reported_to_callbacks_of_its_log_only() -> None:
    made = MemoryFileSystem(folders=["/good-0", "/bad-0"])
    files = FaultyFileSystem(made)
    good = PartitionLog.open("/good-0", file_system=made, clock=made.clock)
    bad = PartitionLog.open("/bad-0", file_system=files, clock=made.clock)
    answers: dict[str, list[StratalogError | None]] = {"good": [], "bad": []}
    got = threading.Semaphore(0)

    def done(name: str, error: StratalogError | None) -> None:
        answers[name].append(error)
        got.release()

    ends = {
        name: log.append(batch(b"v")).next_offset for name, log in (("good", good), ("bad", bad))
    }
    files.arm(1, fault=Fault.EIO, sticky=True, calls=(Call.SYNC,))
    for _ in range(3):
        bad.when_synced(ends["bad"], lambda error: done("bad", error))
        good.when_synced(ends["good"], lambda error: done("good", error))
        for _ in range(2):
            assert got.acquire(timeout=30)
        if bad.failure is not None:
            break
    assert isinstance(answers["bad"][0], StorageError)
    assert set(answers["good"]) == {None}
    assert good.failure is None
    files.heal()
    good.close()
    bad.close()


def test_many_threads_put_and_every_callback_is_called_once() -> None:
    called: Counter[tuple[int, int]] = Counter()
    lock = threading.Lock()
    queues = [SyncQueue(lambda _: None) for _ in range(8)]

    def put(thread: int) -> None:
        for number in range(500):
            queue = queues[number % len(queues)]
            queue.put(number, lambda _, key=(thread, number): count(key))  # type: ignore[misc]

    def count(key: tuple[int, int]) -> None:
        with lock:
            called[key] += 1

    threads = [threading.Thread(target=put, args=(each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for queue in queues:
        queue.close()
    assert called == Counter((thread, number) for thread in range(4) for number in range(500))


def _sync_in_child(folder: str, connection: multiprocessing.connection.Connection) -> None:
    log = PartitionLog.open(folder)
    got = threading.Event()
    log.when_synced(log.append(batch(b"v")).next_offset, lambda _: got.set())
    connection.send((got.wait(30), sync_threads()))
    log.close()


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"
)  # of forking with threads, which this is about
def test_a_forked_process_starts_threads_of_its_own(tmp_path) -> None:
    queue = SyncQueue(lambda _: None)
    got = threading.Event()
    queue.put(1, lambda _: got.set())
    assert got.wait(30)
    assert sync_threads() >= 1
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=_sync_in_child, args=(str(tmp_path), there))
    child.start()
    assert here.poll(60)
    assert here.recv() == (True, 1)
    child.join()
    queue.close()


class Raises:
    """Something to serve that ends with an error no thread should see."""

    def __init__(self) -> None:
        self.served = threading.Event()

    def serve(self) -> bool:
        self.served.set()
        raise SystemExit


class Serves(Raises):
    def serve(self) -> bool:
        self.served.set()
        return False


def test_a_thread_of_the_pool_outlives_whatever_it_serves(monkeypatch) -> None:
    def leave(_: object) -> None:
        raise SystemExit

    monkeypatch.setattr(threading, "excepthook", leave)
    pool = SyncPool(threads_max=1, name="outlives")
    for each in (Raises(), Raises(), Serves()):
        pool.add(each)
        assert each.served.wait(30)


def test_an_excepthook_that_exits_keeps_no_callback_from_being_called(monkeypatch) -> None:
    def leave(_: object) -> None:
        raise SystemExit

    def fail(_: object) -> None:
        raise ValueError("of a callback")

    monkeypatch.setattr(threading, "excepthook", leave)
    for _ in range(THREADS_MAX + 1):
        queue, called = SyncQueue(lambda _: None), threading.Event()
        queue.put(1, fail)
        queue.put(1, lambda _, called=called: called.set())  # type: ignore[misc]
        assert called.wait(30)
