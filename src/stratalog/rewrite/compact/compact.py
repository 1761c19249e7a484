"""The rewrite ``compact``: clean named logs now, whatever their policy and dirty ratio."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from stratalog.rewrite.compact.clean import (
    CleanerSettings,
    Cleaning,
    find_cleanable,
    planned_groups,
    preview,
    rounds,
)
from stratalog.rewrite.compact.sections import CleanableLog
from stratalog.rewrite.limits import RewriteLimits
from stratalog.rewrite.operation import GroupRecorder, RewrittenGroup
from stratalog.rewrite.plan import LeftSegments, RewritePlan
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.views.log_view import LogView
from stratalog.types import Progress

__all__ = ["Compact"]


class Compact:
    """The rewrite ``compact``. ``checkpoint_of`` returns where the last cleaning of a partition's folder
    ended, None if there was none; ``store`` is called with the log and the end of each round."""

    verb: Final = "compact"

    def __init__(
        self,
        settings: CleanerSettings,
        now_ms: int,
        checkpoint_of: Callable[[str], int | None],
        store: Callable[[PartitionLog, int], None],
    ) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self._checkpoint_of = checkpoint_of
        self._store = store

    @property
    def now_ms(self) -> int:
        """The time that the cleaning goes by."""
        return self._now_ms

    def options(self) -> Mapping[str, object]:
        return {"dedupe_bytes": self._settings.dedupe_bytes}

    def plan(
        self,
        view: LogView,
        config: LogConfig,
        end: int,
        progress: Progress,
        *,
        counts: bool = True,
    ) -> RewritePlan:
        """Plan to clean a log up to ``end``. With ``counts``, what is left of each group is found out by
        reading it."""
        cleanable = self.cleanable(view, config, end)
        groups = []
        if cleanable.first_dirty < cleanable.first_uncleanable:
            if counts:
                groups = preview(
                    view, config, cleanable, self._settings, progress, now_ms=self._now_ms
                )
            else:
                groups = planned_groups(view, config, cleanable, cleanable.first_uncleanable)
        left = _left(view, cleanable, has_groups=bool(groups))
        return RewritePlan(self.verb, cleanable.first_uncleanable, tuple(groups), left)

    def cleanable(self, view: LogView, config: LogConfig, end: int) -> CleanableLog:
        """Return how dirty a log is below ``end``."""
        checkpoint = self._checkpoint_of(view.segments[0].folder)
        return find_cleanable(view, config, checkpoint=checkpoint, now_ms=self._now_ms, limit=end)

    def carry_out(
        self,
        log: PartitionLog,
        plan: RewritePlan,
        config: LogConfig,
        limits: RewriteLimits,
        recorder: GroupRecorder,
    ) -> Iterator[RewrittenGroup]:
        """Clean a log in as many rounds as its keys need; see ``Rewrite.carry_out``."""
        checkpoint = _LogCheckpoint(self, log, config, plan.end)
        for cleaning in rounds(
            lambda limit: Cleaning(
                log,
                checkpoint,
                self._settings,
                limits,
                now_ms=self._now_ms,
                limit=limit,
                config=config,
                recorder=recorder,
            )
        ):
            yield from cleaning.groups()

    def store(self, log: PartitionLog, end_offset: int) -> None:
        """Store where a cleaning of a log ended."""
        self._store(log, end_offset)


class _LogCheckpoint:
    """The checkpoint of one log that is compacted below ``end``."""

    def __init__(self, compact: Compact, log: PartitionLog, config: LogConfig, end: int) -> None:
        self._compact = compact
        self._log = log
        self._config = config
        self._end = end

    def find(self, limit: int | None = None) -> CleanableLog:
        end = self._end if limit is None else min(self._end, limit)
        return self._compact.cleanable(self._log.view, self._config, end)

    def store(self, end_offset: int) -> None:
        self._compact.store(self._log, end_offset)


def _left(view: LogView, cleanable: CleanableLog, *, has_groups: bool) -> tuple[LeftSegments, ...]:
    """Return the segments that are not cleaned, and why."""
    left = []
    numbers = range(len(view.segments))
    after = [
        each for each in numbers if view.segments[each].base_offset >= cleanable.first_uncleanable
    ]
    before = [each for each in numbers if each not in after]
    if before and not has_groups:
        left.append(
            _segments_left(view, before, "clean: nothing was written since the last cleaning")
        )
    if any(view.limit(each) for each in after):
        left.append(_segments_left(view, after, cleanable.blocked_by))
    return tuple(left)


def _segments_left(view: LogView, numbers: list[int], reason: str) -> LeftSegments:
    size = sum(view.limit(each) for each in numbers)
    return LeftSegments(view.segments[numbers[0]].base_offset, len(numbers), size, reason)
