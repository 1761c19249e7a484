"""Clean logs in the background, in threads of their own: a cleaning takes longer than other jobs may wait.

Each of the ``log.cleaner.threads`` is a scheduler with one job, which cleans the dirtiest log, and the next
one at once, until none needs cleaning; then it pauses for ``log.cleaner.backoff.ms``.
"""

from __future__ import annotations

from stratalog.clock import Clock
from stratalog.errors import StratalogError
from stratalog.manager.cleaning.cleaner import Cleaner
from stratalog.manager.scheduler import JobStatus, Scheduler
from stratalog.rewrite.limits import RewriteLimits, RewriteStoppedError, Throttle
from stratalog.storage.broker_config import BrokerConfig

__all__ = ["CleanerThreads"]


class CleanerThreads:
    """The background threads of a cleaner. All of them share one throttle."""

    def __init__(self, cleaner: Cleaner, broker: BrokerConfig, clock: Clock) -> None:
        self._broker = broker
        throttle = Throttle(broker.log_cleaner_io_max_bytes_per_second, clock)
        self._threads = [
            _CleanerThread(
                cleaner, throttle, broker.log_cleaner_backoff_ms, clock, f"clean-{number}"
            )
            for number in range(broker.log_cleaner_threads)
        ]

    def start(self) -> None:
        """Begin cleaning, unless ``log.cleaner.enable`` is false."""
        if self._broker.log_cleaner_enable:
            for thread in self._threads:
                thread.start()

    def jobs(self) -> tuple[JobStatus, ...]:
        """Return the status of every thread that was started, by name."""
        return tuple(job for thread in self._threads for job in thread.scheduler.jobs())

    def run_due(self) -> list[str]:
        """Do on this thread what is due; see ``Scheduler.run_due``."""
        return [name for thread in self._threads for name in thread.scheduler.run_due()]

    def stop(self) -> None:
        """Stop all threads. A cleaning in progress is given up; what it has swapped in stays."""
        for thread in self._threads:
            thread.scheduler.stop()


class _CleanerThread:
    def __init__(
        self, cleaner: Cleaner, throttle: Throttle, backoff_ms: int, clock: Clock, name: str
    ) -> None:
        self._cleaner = cleaner
        self._throttle = throttle
        self._backoff_ms = backoff_ms
        self._clock = clock
        self._name = name
        self._has_more = False
        self.scheduler = Scheduler(clock)

    def start(self) -> None:
        self.scheduler.add(self._name, self.run, self.pause_ms)

    def run(self) -> None:
        """Clean the dirtiest log. An error is remembered with the partition, which is not tried again before
        its segments change; the others have their turn at once."""
        limits = RewriteLimits(
            is_stopped=lambda: self.scheduler.is_stopping,
            throttle=self._throttle,
            clock=self._clock,
        )
        self._has_more = False
        try:
            self._has_more = self._cleaner.clean_dirtiest(limits)
        except RewriteStoppedError:
            return
        except StratalogError:
            self._has_more = True
            raise

    def pause_ms(self) -> int:
        """Return the time until the next look for a dirty log."""
        return 0 if self._has_more else self._backoff_ms
