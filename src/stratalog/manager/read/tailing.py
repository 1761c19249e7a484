"""A tail: the records of several partitions as they arrive, from logs of this process or from files that
another process writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final, Protocol

from stratalog.errors import CorruptionError, StorageError, UsageError
from stratalog.manager.read.reading import LogRows, PartitionView, StoredRecord
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.views.log_view import Isolation
from stratalog.types import TopicPartition

__all__ = ["FollowedFolder", "LogMoves", "OwnLog", "Polling", "Tailed", "Waiting", "tail_records"]

#: How often files are looked at that another process writes: there is no notification across processes.
_POLL_S: Final = 0.05
_ROWS_AT_ONCE: Final = 4096


class Tailed(Protocol):
    """A partition that grows."""

    @property
    def is_closed(self) -> bool: ...
    def look(self) -> PartitionView: ...


class OwnLog:
    """A log that this process writes."""

    def __init__(self, log: PartitionLog, look: Callable[[], PartitionView]) -> None:
        self._log = log
        self.look = look

    @property
    def is_closed(self) -> bool:
        return self._log.is_closed


class FollowedFolder:
    """A folder that another process may be writing: opened again when its files have changed."""

    def __init__(
        self,
        look: Callable[[], PartitionView],
        trace: Callable[[], object],
        is_closed: Callable[[], bool],
    ) -> None:
        """``look`` opens the folder, which is slow. ``trace`` is cheap, and returns another value if the
        folder has changed."""
        self._look = look
        self._trace = trace
        self._is_closed = is_closed
        self._seen: tuple[object, PartitionView] | None = None

    @property
    def is_closed(self) -> bool:
        return self._is_closed()

    def look(self) -> PartitionView:
        trace = self._trace()
        if self._seen is None or self._seen[0] != trace:
            self._seen = trace, self._look()
        return self._seen[1]


class Waiting(Protocol):
    """How a tail waits for its partitions to move."""

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Notice moves while this is entered."""
        yield

    def before_look(self) -> None:
        """Forget earlier moves: the next look sees them."""

    def wait(self, timeout_s: float | None) -> None:
        """Wait until a partition has moved since ``before_look``, or the time is over. May return early."""


class LogMoves:
    """Waits for logs of this process, on one event for all of them."""

    def __init__(self, logs: Iterable[PartitionLog]) -> None:
        self._logs = list(logs)
        self._moved = threading.Event()

    @contextmanager
    def begun(self) -> Iterator[None]:
        with ExitStack() as subscriptions:
            for log in self._logs:
                subscriptions.callback(log.subscribe(self._moved.set).cancel)
            yield

    def before_look(self) -> None:
        self._moved.clear()

    def wait(self, timeout_s: float | None) -> None:
        self._moved.wait(timeout_s)


class Polling:
    """Waits for files that another process writes: for a moment."""

    @contextmanager
    def begun(self) -> Iterator[None]:
        yield

    def before_look(self) -> None:
        pass

    def wait(self, timeout_s: float | None) -> None:
        time.sleep(_POLL_S if timeout_s is None else min(timeout_s, _POLL_S))


def tail_records(
    logs: Mapping[TopicPartition, Tailed],
    waiting: Waiting,
    start: int | None,
    isolation: Isolation,
    timeout_s: float | None,
) -> Iterator[StoredRecord]:
    """Yield the records of several logs as they arrive; see ``Logs.tail``. What arrives after this call is
    yielded, also if it arrives before the first record is asked for."""
    reached = {}
    for topic_partition, log in logs.items():
        view = log.look().view
        if start is None:
            reached[topic_partition] = view.bound(isolation)
        else:
            view.check_range(start)
            reached[topic_partition] = start
    return _tail(logs, waiting, reached, isolation, timeout_s)


def _tail(
    logs: Mapping[TopicPartition, Tailed],
    waiting: Waiting,
    reached: dict[TopicPartition, int],
    isolation: Isolation,
    timeout_s: float | None,
) -> Iterator[StoredRecord]:
    with waiting.begun():
        idle_since = time.monotonic()
        while True:
            waiting.before_look()
            has_moved = yield from _new_records(logs, reached, isolation)
            if has_moved:
                idle_since = time.monotonic()
                continue
            left = None if timeout_s is None else timeout_s - (time.monotonic() - idle_since)
            if any(log.is_closed for log in logs.values()) or (left is not None and left <= 0):
                return
            waiting.wait(left)


def _new_records(
    logs: Mapping[TopicPartition, Tailed],
    reached: dict[TopicPartition, int],
    isolation: Isolation,
) -> Generator[StoredRecord, None, bool]:
    """Yield what every log holds beyond ``reached``; return whether there was anything."""
    has_moved = False
    for topic_partition, log in logs.items():
        try:
            # A look needs the files, too, if a commit is in progress.
            seen = log.look()
            bound = seen.view.bound(isolation)
            if reached[topic_partition] < bound:
                has_moved = True
                yield from _between(seen, reached, bound, isolation)
        except (CorruptionError, StorageError, UsageError):
            if log.is_closed:
                return False
            raise
        if seen.damage is not None:
            raise seen.damage
    return has_moved


def _between(
    seen: PartitionView, reached: dict[TopicPartition, int], bound: int, isolation: Isolation
) -> Iterator[StoredRecord]:
    topic_partition = seen.topic_partition
    rows = LogRows(
        [seen._replace(damage=None, log=None)],  # a tail ends when its log is closed
        start=reached[topic_partition],
        end=bound,
        isolation=isolation,
        batch_rows=_ROWS_AT_ONCE,
    )
    for record in rows.records():
        reached[topic_partition] = record.offset + 1
        yield record
    reached[topic_partition] = bound  # control records are not shown, but passed
