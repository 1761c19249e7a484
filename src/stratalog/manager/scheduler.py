"""Named jobs that run as time passes, by a :class:`~stratalog.clock.Clock`.

Under the system clock one background thread runs them, one after the other. The thread starts when the first
job has a due time, and ends when no job has one. Under a manual clock there is no thread: the test calls
``run_due``.

A job that fails stops neither the others nor itself: the error is logged to ``stratalog.scheduler`` and kept
as the job's last error until it succeeds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from types import MethodType
from typing import Final, TypeVar
from weakref import WeakMethod

from stratalog.clock import Clock
from stratalog.errors import StratalogError, UsageError

__all__ = ["Interval", "JobStatus", "Scheduler"]

#: Milliseconds from the end of one run to the next: a number, or a function that computes it after each run.
#: None: the job does not run until ``reschedule`` is called.
Interval = int | Callable[[], int | None] | None

T = TypeVar("T")

_LOGGER_NAME: Final = "stratalog.scheduler"
_THREAD_NAME: Final = "stratalog-scheduler"


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What is known of a job. Times are milliseconds since 1970; None if there was, or will be, no run."""

    name: str
    last_run_ms: int | None = None
    next_due_ms: int | None = None
    #: Why the last run failed; None if it succeeded.
    last_error: Exception | None = None


@dataclass(frozen=True, slots=True)
class _Job:
    """A job and what became of its last run. ``due_ms`` is monotonic."""

    name: str
    run: Callable[[], Callable[[], object] | None]
    interval: Callable[[], Interval]
    due_ms: int | None = None
    last_run_ms: int | None = None
    last_error: Exception | None = None


class Scheduler:
    """Runs jobs when they are due, until it is stopped. Threads may share it.

    Bound methods are held weakly: a job does not keep its object alive, and ends with it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        #: Held while a job runs: jobs do not run at the same time as each other.
        self._running = threading.RLock()
        # Replaced, never changed: `jobs` reads it without a lock.
        self._jobs: Mapping[str, _Job] = {}
        # Weak references put into it too, from any thread: it needs no lock.
        self._wake_ups: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        #: The thread that runs a job now. Changed only while ``_running`` is held.
        self._runner: int | None = None
        self._is_stopped = False

    def add(
        self,
        name: str,
        run: Callable[[], object],
        interval: Interval,
        *,
        delay_ms: int | None = None,
    ) -> None:
        """Add a job, which first runs ``delay_ms`` from now; if that is not given, one interval from now.
        UsageError if the name is taken."""
        with self._lock:
            if name in self._jobs:
                raise UsageError(f"a job named {name!r} is scheduled already")
            job = _Job(name, self._held(run), self._held(interval))
            due = self._next_due(job) if delay_ms is None else self._after(delay_ms)
            self._put(replace(job, due_ms=due))
            self._follow_up()

    def remove(self, name: str) -> None:
        """Remove a job, if it is there. Waits for a run in progress: the caller must not hold a lock that the
        job takes."""
        with self._running, self._lock:
            self._jobs = {key: job for key, job in self._jobs.items() if key != name}
            self._follow_up()

    def reschedule(self, name: str) -> None:
        """Compute the interval of a job again, if it is there. Its next run may come sooner than planned,
        never later."""
        with self._lock:
            job = self._jobs.get(name)
            if job is None:
                return
            due = self._next_due(job)
            if due is not None and (job.due_ms is None or due < job.due_ms):
                self._put(replace(job, due_ms=due))
                self._follow_up()

    @property
    def is_stopping(self) -> bool:
        """Whether ``stop`` was called. A long job looks at it, and ends early: ``stop`` waits for it."""
        return self._is_stopped

    def jobs(self) -> tuple[JobStatus, ...]:
        """Return the status of every job, by name."""
        ahead_ms = self._clock.now_ms() - self._clock.monotonic_ms()
        jobs = self._jobs
        return tuple(
            JobStatus(
                name,
                jobs[name].last_run_ms,
                None if (due := jobs[name].due_ms) is None else due + ahead_ms,
                jobs[name].last_error,
            )
            for name in sorted(jobs)
        )

    def run_due(self) -> list[str]:
        """Run every job whose time has come, the longest due first, on this thread; return their names."""
        now = self._clock.monotonic_ms()
        due = [job for job in self._jobs.values() if job.due_ms is not None and job.due_ms <= now]
        due.sort(key=lambda job: job.due_ms or 0)
        return [job.name for job in due if self._run(job.name)]

    def _run(self, name: str) -> bool:
        """Run a job unless it was removed or has run meanwhile; return whether it ran."""
        with self._running:
            job = self._jobs.get(name)
            if job is None or job.due_ms is None or job.due_ms > self._clock.monotonic_ms():
                return False
            run = job.run()
            if self._is_stopped or run is None:
                return False
            started_ms = self._clock.now_ms()
            # A reschedule during the run sets a time again.
            self._update(name, due_ms=None)
            outer, self._runner = self._runner, threading.get_ident()
            try:
                error = _error_of(name, run)
            finally:
                self._runner = outer
            error = _error_of(name, partial(self.reschedule, name)) or error
            self._update(name, last_run_ms=started_ms, last_error=error)
            return True

    def _update(self, name: str, **changes: object) -> None:
        with self._lock:
            job = self._jobs.get(name)
            if job is not None:
                self._put(replace(job, **changes))  # type: ignore[arg-type]

    def _put(self, job: _Job) -> None:
        self._jobs = {**self._jobs, job.name: job}

    def _next_due(self, job: _Job) -> int | None:
        interval = job.interval()
        ms = interval() if callable(interval) else interval
        return None if ms is None else self._after(ms)

    def _after(self, ms: int) -> int:
        return self._clock.monotonic_ms() + ms

    def _held(self, value: T) -> Callable[[], T | None]:
        """Return a function that returns ``value``; or None if it is a method whose object is gone."""
        if isinstance(value, MethodType):
            wake_ups = self._wake_ups
            held: Callable[[], T | None] = WeakMethod(value, lambda _: wake_ups.put(None))
            return held
        return lambda: value

    # The thread.

    def _follow_up(self) -> None:
        """Start the thread if something is due and it does not run; otherwise let it look again."""
        if self._is_stopped or self._clock.is_manual:
            return
        if self._thread is not None:
            self._wake_ups.put(None)
        elif self._next() is not None:
            self._thread = threading.Thread(target=self._loop, name=_THREAD_NAME, daemon=True)
            self._thread.start()

    def _next(self) -> int | None:
        """Drop the jobs whose objects are gone; return when the next of the others is due."""
        self._jobs = {name: job for name, job in self._jobs.items() if job.run() is not None}
        return min(
            (job.due_ms for job in self._jobs.values() if job.due_ms is not None), default=None
        )

    def _loop(self) -> None:
        while True:
            with self._lock:
                until = self._next()
                if self._is_stopped or until is None:
                    self._thread = None
                    return
            self._clock.wait(self._wake_ups, until)
            self.run_due()

    def stop(self) -> None:
        """Stop. When this returns no job runs, and none will; but for the one that calls this, if a job does.
        The caller must not hold a lock that a job takes."""
        with self._lock:
            self._is_stopped = True
            thread = self._thread
        self._wake_ups.put(None)
        if self._runner == threading.get_ident():
            return  # the thread may be waiting for this job to end, and will find that it is stopped
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._running:  # another thread may be in run_due
            pass


def _error_of(name: str, run: Callable[[], object]) -> Exception | None:
    """Call a function of a job; log what it raises, and return it."""
    try:
        run()
    except Exception as error:  # one job's bug must not stop the others
        import logging  # not at the top: it takes a tenth of the time that starting the command line takes

        logger = logging.getLogger(_LOGGER_NAME)
        is_bug = not isinstance(error, StratalogError)
        logger.error("the job %r failed: %s", name, error, exc_info=error if is_bug else None)
        return _without_frames(error)
    return None


def _without_frames(error: Exception) -> Exception:
    """Return the error without its traceback, which would keep the objects of the job alive."""
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__context__
    return error
