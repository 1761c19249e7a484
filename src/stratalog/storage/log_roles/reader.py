"""Read an open log: by offset, by time, and waiting for more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from stratalog.errors import CorruptionError, StorageError, UsageError
from stratalog.records.layout import INT64_MIN
from stratalog.storage.epochs.leader_epochs import EpochEnd, EpochEntry
from stratalog.storage.log.waiters import Subscription
from stratalog.storage.log_roles.open_log import OpenLog
from stratalog.storage.views.log_view import Isolation, LogRead, LogView
from stratalog.storage.views.time_lookup import TimedOffset, find_largest_time, find_time

__all__ = ["LogReader"]

T = TypeVar("T")
Given = TypeVarTuple("Given")


class LogReader(OpenLog):
    """Reads, without a lock: each works on the view of its moment."""

    @property
    def view(self) -> LogView:
        """The log at this moment, for reading."""
        return self._state.view

    @property
    def size_bytes(self) -> int:
        view = self._state.view
        return sum(view.limit(number) for number in range(len(view.segments)))

    def read(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        isolation: Isolation | str = Isolation.LOG_END,
        *,
        at_least_one: bool = True,
        max_batch_bytes: int = 256 << 20,
    ) -> LogRead:
        """Return a region of the log that starts with the batch that holds ``offset``; see
        :meth:`LogView.read`."""
        if type(isolation) is not Isolation:
            isolation = _isolation(isolation)
        try:
            return self._state.view.read(
                offset,
                max_bytes,
                isolation,
                at_least_one=at_least_one,
                max_batch_bytes=max_batch_bytes,
            )
        except (CorruptionError, StorageError):
            with self._state.guard.lock:  # as in _look()
                self._state.guard.check_open()
                return self._state.view.read(
                    offset,
                    max_bytes,
                    isolation,
                    at_least_one=at_least_one,
                    max_batch_bytes=max_batch_bytes,
                )

    def offset_for_time(self, timestamp: int) -> TimedOffset | None:
        """Return the first record of this time or later."""
        if timestamp < INT64_MIN:
            raise UsageError(f"no time: {timestamp} does not fit 64 bits")
        return self._look(find_time, timestamp)

    def offset_of_largest_time(self) -> TimedOffset | None:
        """Return the first record with the largest timestamp."""
        return self._look(find_largest_time)

    def _look(self, look: Callable[[LogView, *Given], T], *given: *Given) -> T:
        """Ask the view of this moment. If that fails, what it shows may have been truncated or deleted: ask
        once more while nothing moves. Raise UsageError if the log was closed."""
        try:
            return look(self._state.view, *given)
        except (CorruptionError, StorageError):
            with self._state.guard.lock:
                self._state.guard.check_open()
                return look(self._state.view, *given)

    def wait(
        self,
        offset: int,
        *,
        min_bytes: int = 1,
        isolation: Isolation | str = Isolation.LOG_END,
        timeout_s: float | None = None,
    ) -> bool:
        """Wait until a reader at ``offset`` has ``min_bytes`` to read. Return False if the time is over or
        the log was closed."""
        state, guard = self._state, self._state.guard
        isolation = _isolation(isolation)

        def is_there() -> bool:
            return guard.is_closed or state.view.bytes_behind(offset, isolation) >= min_bytes

        state.waiters.wait_for(is_there, timeout_s)
        return not guard.is_closed and state.view.bytes_behind(offset, isolation) >= min_bytes

    def subscribe(self, callback: Callable[[], object]) -> Subscription:
        """Call ``callback`` whenever the log moves: an append becomes visible, the high watermark or the
        last stable offset advances, the log is closed. For readers of several logs, and for event loops
        (``loop.call_soon_threadsafe``).

        The thread that moved the log makes the call and holds the log's lock. The callback must be cheap,
        and must neither wait nor change the log; it may look at ``view``. What it raises is logged to
        ``stratalog.subscriptions``. To miss nothing: subscribe, then look, then wait for the callback.
        """
        if not callable(callback):
            raise UsageError(f"a callback is a function without arguments, not {callback!r}")
        return self._state.waiters.subscribe(callback)

    def wake_readers(self) -> None:
        """Wake waiting readers as if the log had moved: what is hidden from them has changed."""
        if self._state.waiters.count:
            self._state.waiters.wake()

    # Leader epochs.

    @property
    def epochs(self) -> tuple[EpochEntry, ...]:
        return self._state.epochs.entries

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Return where the epoch ends, as a follower asks before it truncates."""
        return self._state.epochs.end_offset_for(epoch, self._state.view.log_end)


def _isolation(named: Isolation | str) -> Isolation:
    try:
        return Isolation(named)
    except ValueError:
        raise UsageError(f"no isolation {named!r}: there are {', '.join(Isolation)}") from None
