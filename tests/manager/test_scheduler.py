"""Named jobs: when they run, what a failure leaves, and that they keep nothing alive."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from queue import SimpleQueue

import pytest

from stratalog.clock import SYSTEM_CLOCK
from stratalog.errors import UsageError
from stratalog.manager.scheduler import JobStatus, Scheduler
from stratalog.testing import ManualClock


class Worker:
    """Something that has a job."""

    def __init__(self) -> None:
        self.runs = 0
        self.ran: SimpleQueue[int] = SimpleQueue()
        self.interval: int | None = 10

    def run(self) -> None:
        self.runs += 1
        self.ran.put(self.runs)

    def next_ms(self) -> int | None:
        return self.interval


class ThreadedClock(ManualClock):
    """A clock that a test moves, and that a thread of the scheduler waits for."""

    is_manual = False


def status(scheduler: Scheduler, name: str) -> JobStatus:
    (found,) = [job for job in scheduler.jobs() if job.name == name]
    return found


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "stratalog-scheduler"]


def test_a_job_with_a_fixed_interval_runs_an_interval_after_the_end_of_its_last_run():
    clock, ran = ManualClock(now_ms=1000), []
    scheduler = Scheduler(clock)

    def run() -> None:
        ran.append(clock.monotonic_ms())
        clock.advance(3)

    scheduler.add("retention", run, 10)
    assert status(scheduler, "retention") == JobStatus("retention", None, 1010)
    assert scheduler.run_due() == []
    clock.advance(10)
    assert scheduler.run_due() == ["retention"]
    assert status(scheduler, "retention") == JobStatus("retention", 1010, 1023)
    clock.advance(100)
    assert scheduler.run_due() == ["retention"]  # once, not for every interval that was missed
    assert ran == [10, 113]


def test_a_job_with_a_delay_first_runs_after_it_and_then_after_its_interval():
    clock, worker = ManualClock(), Worker()
    scheduler = Scheduler(clock)
    scheduler.add("retention", worker.run, 10, delay_ms=3)
    scheduler.add("once", worker.run, None, delay_ms=0)
    assert scheduler.run_due() == ["once"]
    clock.advance(3)
    assert scheduler.run_due() == ["retention"]
    clock.advance(9)
    assert scheduler.run_due() == []
    clock.advance(1)
    assert scheduler.run_due() == ["retention"]
    assert status(scheduler, "once").next_due_ms is None


def test_a_job_can_see_that_the_scheduler_is_stopping():
    clock, seen = ManualClock(), []
    scheduler = Scheduler(clock)

    def run() -> None:
        seen.append(scheduler.is_stopping)
        scheduler.stop()
        seen.append(scheduler.is_stopping)

    scheduler.add("cleaner", run, 0)
    assert scheduler.run_due() == ["cleaner"]
    assert seen == [False, True]


def test_a_computed_interval_of_none_waits_for_reschedule():
    clock, worker = ManualClock(), Worker()
    worker.interval = None
    scheduler = Scheduler(clock)
    scheduler.add("cleaner", worker.run, worker.next_ms)
    clock.advance(1_000_000)
    assert scheduler.run_due() == []
    worker.interval = 5
    scheduler.reschedule("cleaner")
    worker.interval = 50
    scheduler.reschedule("cleaner")  # never later than planned
    clock.advance(5)
    assert scheduler.run_due() == ["cleaner"]
    clock.advance(49)
    assert scheduler.run_due() == []
    scheduler.reschedule("unknown")


def test_jobs_run_in_the_order_in_which_they_are_due():
    clock = ManualClock()
    scheduler = Scheduler(clock)
    for name, interval in (("c", 30), ("a", 20), ("b", 10)):
        scheduler.add(name, lambda: None, interval)
    clock.advance(30)
    assert scheduler.run_due() == ["b", "a", "c"]
    assert [job.name for job in scheduler.jobs()] == ["a", "b", "c"]


def test_a_job_that_fails_stops_neither_itself_nor_others(caplog):
    clock, worker = ManualClock(now_ms=0), Worker()
    scheduler = Scheduler(clock)
    errors: list[Exception | None] = [ValueError("a bug"), UsageError("a refusal"), None]

    def fail() -> None:
        error = errors.pop(0)
        if error is not None:
            raise error

    scheduler.add("failing", fail, 10)
    scheduler.add("working", worker.run, 10)
    seen = []
    for _ in range(3):
        clock.advance(10)
        assert scheduler.run_due() == ["failing", "working"]
        seen.append(repr(status(scheduler, "failing").last_error))
    assert seen == ["ValueError('a bug')", "UsageError('a refusal')", "None"]
    assert worker.runs == 3
    assert [(each.name, each.getMessage()) for each in caplog.records] == [
        ("stratalog.scheduler", "the job 'failing' failed: a bug"),
        ("stratalog.scheduler", "the job 'failing' failed: a refusal"),
    ]
    assert [each.exc_info is not None for each in caplog.records] == [True, False]


def test_an_interval_that_cannot_be_computed_is_an_error_of_its_job(caplog):
    clock, worker, results = ManualClock(), Worker(), [10]
    scheduler = Scheduler(clock)
    scheduler.add("broken", lambda: None, results.pop)
    scheduler.add("working", worker.run, 10)
    clock.advance(10)
    assert scheduler.run_due() == ["broken", "working"]
    assert isinstance(status(scheduler, "broken").last_error, IndexError)
    assert len(caplog.records) == 1


def test_a_job_may_remove_itself_add_another_and_stop_the_scheduler():
    clock, worker = ManualClock(), Worker()
    scheduler = Scheduler(clock)

    def once() -> None:
        scheduler.remove("once")
        scheduler.add("next", worker.run, 0)

    scheduler.add("once", once, 0)
    assert scheduler.run_due() == ["once"]
    assert [job.name for job in scheduler.jobs()] == ["next"]
    scheduler.add("stop", scheduler.stop, 0)
    assert scheduler.run_due() == ["next", "stop"]
    assert scheduler.run_due() == []
    assert worker.runs == 1


def test_two_jobs_cannot_have_one_name():
    scheduler = Scheduler(ManualClock())
    scheduler.add("flush", lambda: None, 1)
    with pytest.raises(UsageError, match="'flush' is scheduled already"):
        scheduler.add("flush", lambda: None, 1)
    scheduler.remove("flush")
    scheduler.remove("flush")
    scheduler.add("flush", lambda: None, 1)


def test_a_thread_runs_jobs_as_the_clock_moves_and_ends_when_none_is_due():
    clock, worker = ThreadedClock(), Worker()
    scheduler = Scheduler(clock)
    worker.interval = None
    scheduler.add("flush", worker.run, worker.next_ms)
    assert threads() == []
    worker.interval = 10
    scheduler.reschedule("flush")
    (thread,) = threads()
    clock.advance(10)
    assert worker.ran.get(timeout=30) == 1
    worker.interval = None
    clock.advance(10)
    assert worker.ran.get(timeout=30) == 2
    thread.join(30)
    assert threads() == []
    worker.interval = 1
    scheduler.reschedule("flush")
    clock.advance(1)
    assert worker.ran.get(timeout=30) == 3
    scheduler.stop()
    assert threads() == []


def test_a_job_that_is_due_sooner_wakes_the_thread():
    clock, slow, fast = ThreadedClock(), Worker(), Worker()
    scheduler = Scheduler(clock)
    scheduler.add("slow", slow.run, 1_000_000)
    scheduler.add("fast", fast.run, 0)
    assert fast.ran.get(timeout=30) == 1
    scheduler.stop()
    assert slow.runs == 0


def test_stop_waits_for_the_job_that_runs():
    clock = ThreadedClock()
    scheduler = Scheduler(clock)
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()

    def run() -> None:
        entered.set()
        leave.wait(30)
        left.set()

    scheduler.add("long", run, 0)
    assert entered.wait(30)
    threading.Timer(0.01, leave.set).start()
    scheduler.stop()
    assert left.is_set()


def test_a_job_ends_with_its_object_and_its_thread_with_the_last_job():
    clock, worker = ThreadedClock(), Worker()
    scheduler = Scheduler(clock)
    scheduler.add("daily", worker.run, 86_400_000)
    (thread,) = threads()
    held = weakref.ref(worker)
    del worker
    gc.collect()
    assert held() is None
    thread.join(30)  # woken by the weak reference, a day early
    assert threads() == []
    assert scheduler.jobs() == ()


def test_an_error_does_not_keep_the_object_of_its_job_alive(caplog):
    class Failing(Worker):
        def run(self) -> None:
            try:
                raise ValueError("cause")
            except ValueError:
                raise UsageError("failed") from None

    clock, worker = ManualClock(), Failing()
    scheduler = Scheduler(clock)
    scheduler.add("failing", worker.run, 0)
    assert scheduler.run_due() == ["failing"]
    caplog.clear()
    held = weakref.ref(worker)
    del worker
    gc.collect()
    assert held() is None


def test_jobs_can_be_listed_in_a_forked_process_whatever_the_parent_was_doing():
    clock = ThreadedClock()
    scheduler = Scheduler(clock)
    entered, leave = threading.Event(), threading.Event()

    def run() -> None:
        with scheduler._lock:  # a lock that the child inherits as taken
            entered.set()
            leave.wait(30)

    scheduler.add("busy", run, 0)
    assert entered.wait(30)
    child = os.fork()
    if child == 0:
        os._exit(0 if [job.name for job in scheduler.jobs()] == ["busy"] else 1)
    assert os.waitpid(child, 0)[1] == 0
    leave.set()
    scheduler.stop()


def test_a_job_of_run_due_may_stop_the_scheduler_while_its_thread_waits_for_the_job():
    scheduler = Scheduler(SYSTEM_CLOCK)
    stopped = threading.Event()
    runner: list[int] = []

    def stop() -> None:
        if threading.get_ident() in runner:
            scheduler.add("other", lambda: None, 0)  # its thread starts, and waits for this job
            scheduler.stop()
            stopped.set()

    def run() -> None:
        runner.append(threading.get_ident())
        while not stopped.is_set():
            scheduler.run_due()

    scheduler.add("stop", stop, 1)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert stopped.wait(30)
    thread.join(30)
    assert not thread.is_alive()
