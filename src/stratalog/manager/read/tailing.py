"""A tail: the records of several partitions as they come, from their writer's log or from beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from stratalog.errors import CorruptionError, StorageError
from stratalog.manager.read.reading import LogRows, PartitionView, StoredRecord
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.views.log_view import Isolation
from stratalog.types import TopicPartition

__all__ = ["FollowedFolder", "OwnLog", "Tailed", "tail_records"]

#: While several partitions are tailed, or one that another process writes, each is asked again so soon.
_POLL_S: Final = 0.05
_ROWS_AT_ONCE: Final = 4096


class Tailed(Protocol):
    """A partition that grows."""

    @property
    def is_closed(self) -> bool: ...
    def look(self) -> PartitionView: ...
    def wait(self, offset: int, isolation: Isolation, timeout_s: float | None) -> None:
        """Until there is more behind ``offset``, or the time is over; sooner does no harm."""
        ...


class OwnLog:
    """One that this process writes."""

    def __init__(self, log: PartitionLog, look: Callable[[], PartitionView]) -> None:
        self._log = log
        self.look = look

    @property
    def is_closed(self) -> bool:
        return self._log.is_closed

    def wait(self, offset: int, isolation: Isolation, timeout_s: float | None) -> None:
        self._log.wait(offset, isolation=isolation, timeout_s=timeout_s)


class FollowedFolder:
    """One that another process may be writing: looked at anew when its files have changed."""

    def __init__(
        self,
        look: Callable[[], PartitionView],
        trace: Callable[[], object],
        is_closed: Callable[[], bool],
    ) -> None:
        """``look`` opens it, which costs; ``trace`` is cheap, and another one when there is more."""
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

    def wait(self, offset: int, isolation: Isolation, timeout_s: float | None) -> None:  # noqa: ARG002
        time.sleep(_POLL_S if timeout_s is None else min(timeout_s, _POLL_S))


def tail_records(
    logs: Mapping[TopicPartition, Tailed],
    start: int | None,
    isolation: Isolation,
    timeout_s: float | None,
) -> Iterator[StoredRecord]:
    """Records of several logs as they come; see ``Logs.tail``. What comes after this call is seen, also
    when nobody has asked for the first record yet."""
    reached = {}
    for place, log in logs.items():
        view = log.look().view
        if start is None:
            reached[place] = view.bound(isolation)
        else:
            view.check_range(start)
            reached[place] = start
    return _tail(logs, reached, isolation, timeout_s)


def _tail(
    logs: Mapping[TopicPartition, Tailed],
    reached: dict[TopicPartition, int],
    isolation: Isolation,
    timeout_s: float | None,
) -> Iterator[StoredRecord]:
    idle_since = time.monotonic()
    while True:
        is_idle = True
        for place, log in logs.items():
            seen = log.look()
            bound = seen.view.bound(isolation)
            if reached[place] < bound:
                is_idle = False
                try:
                    yield from _between(seen, reached, bound, isolation)
                except (CorruptionError, StorageError):
                    if log.is_closed:
                        return
                    raise
            if seen.damage is not None:
                raise seen.damage
        if not is_idle:
            idle_since = time.monotonic()
            continue
        left = None if timeout_s is None else timeout_s - (time.monotonic() - idle_since)
        if any(log.is_closed for log in logs.values()) or (left is not None and left <= 0):
            return
        _wait(logs, reached, isolation, left)


def _between(
    seen: PartitionView, reached: dict[TopicPartition, int], bound: int, isolation: Isolation
) -> Iterator[StoredRecord]:
    place = seen.place
    rows = LogRows(
        [seen._replace(damage=None)],
        start=reached[place],
        end=bound,
        isolation=isolation,
        batch_rows=_ROWS_AT_ONCE,
    )
    for record in rows.records():
        reached[place] = record.offset + 1
        yield record
    reached[place] = bound  # control records are not shown, but passed


def _wait(
    logs: Mapping[TopicPartition, Tailed],
    reached: Mapping[TopicPartition, int],
    isolation: Isolation,
    left: float | None,
) -> None:
    place, log = next(iter(logs.items()))
    if len(logs) > 1:
        left = _POLL_S if left is None else min(left, _POLL_S)
    log.wait(reached[place], isolation, left)
