"""Maintain an open log: flush, roll, retain, replace and truncate segments, expire producers."""

from __future__ import annotations

from collections.abc import Sequence

from stratalog.errors import UsageError
from stratalog.records.layout import INT64_MAX
from stratalog.storage.log import flushing, truncation
from stratalog.storage.log.replacement import replace_sealed
from stratalog.storage.log.retention import (
    RetentionPlan,
    RetentionPolicy,
    SegmentFacts,
    plan_retention,
    policies_for,
)
from stratalog.storage.log.rolling import roll
from stratalog.storage.log.state import LogSettings
from stratalog.storage.log_config import LogConfig
from stratalog.storage.log_roles.open_log import OpenLog
from stratalog.storage.segment.segment import Segment

__all__ = ["LogMaintenance"]


class LogMaintenance(OpenLog):
    """What schedulers, the cleaner and administrators do with a log while others append and read."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._state.view.segments.segments

    def reconfigure(self, config: LogConfig) -> None:
        """Use other configs from now on. A segment keeps what it was created with: its index sizes and its
        jitter."""
        with self._state.guard.changing():
            self._state.settings = LogSettings.of(config)

    # Segments.

    def roll(self) -> bool:
        """Begin a new segment now. Return False if the active one is empty, and there is nothing to do."""
        state = self._state
        with state.guard.changing():
            if state.active.size_bytes == 0:
                return False
            roll(state, state.view.log_end)
            return True

    def flush(self) -> int:
        """Sync the log and what points into it; return the recovery point, which is the log end then:
        recovery need not check what lies below."""
        return flushing.flush(self._state)

    def flush_if_due(self) -> bool:
        """Flush if ``flush.ms`` have passed since the last time and there is something to flush. Appends
        call this; a scheduler does it for a log that gets no more appends."""
        return flushing.flush_if_due(self._state)

    def replace_segments(self, old: Sequence[Segment], new: Sequence[int]) -> bool:
        """Put rewritten segments in the place of sealed ones, which are neighbours, while others append and
        read. Return False, and change nothing, if the log does not have all of the old ones any more:
        retention or a truncation was first.

        The new segments lie in the folder as ``.cleaned``, with their indexes and the time of change that
        they are to have. ``new`` are their base offsets; the first is that of the first old one. Their
        batches lie within the offsets of the old ones, and are checked here to the last CRC. If the old ones
        had records above the end of all new ones, an empty segment is added there. Prepare one replacement at
        a time: UsageError names a ``.cleaned`` file in the folder that is of another one.

        After a crash the log has the old or the new segments. After an error, or False, the log has the old
        ones: delete the ``.cleaned`` files. If the error came after the point of no return, the log has also
        failed and must be opened again. Readers of earlier views finish on the old files, which are removed
        after ``file.delete.delay.ms``.
        """
        return replace_sealed(self._state, old, new)

    def remove_due(self, *, all_of_them: bool = False) -> int:
        """Remove the files that were set aside for long enough; return how many."""
        self._state.guard.check_process()
        return self._state.removals.remove_due(all_of_them=all_of_them)

    # Retention.

    def facts(self) -> list[SegmentFacts]:
        """Return what retention policies look at."""
        view = self._state.view
        return [
            SegmentFacts(
                base_offset=segment.base_offset,
                next_offset=view.segments.next_base(number, view.log_end),
                size_bytes=view.limit(number),
                largest_timestamp=segment.largest_timestamp,
                is_active=number + 1 == len(view.segments),
            )
            for number, segment in enumerate(view.segments.segments)
        ]

    def plan_retention(self, policies: tuple[RetentionPolicy, ...] | None = None) -> RetentionPlan:
        """Return what retention would delete now, and why."""
        if policies is None:
            policies = policies_for(self.config, self._state.clock.now_ms(), self.log_start)
        return plan_retention(self.facts(), policies, high_watermark=self.high_watermark)

    def retain(self, policies: tuple[RetentionPolicy, ...] | None = None) -> RetentionPlan:
        """Delete the segments that the topic's configs (or ``policies``) do not retain. The files stay, under
        another name, for ``file.delete.delay.ms``; then :meth:`remove_due` removes them."""
        with self._state.guard.changing():
            plan = self.plan_retention(policies)
            truncation.delete_segments(self._state, plan)
            return plan

    def advance_start(self, offset: int) -> bool:
        """Raise the log start offset, as delete-records does. Records below it are not shown any more, and
        the next retention deletes the segments that lie wholly below it. Return False if it is there
        already."""
        return truncation.advance_start(self._state, offset)

    def expire_producers(self) -> int:
        """Forget producers that have not written for too long; return how many."""
        state = self._state
        with state.guard.changing():
            return state.producers.expire(state.clock.now_ms(), state.producer_ttl_ms)

    # Truncation.

    def truncate(self, offset: int) -> bool:
        """Truncate the log so that it ends at ``offset``. Return False if it ends there or before already.

        Whole batches go, with the one that holds ``offset``. The recovery point may be lower afterwards: a
        caller that stores it does so before the next append.
        """
        if offset < 0:
            raise UsageError(f"a log cannot be truncated at offset {offset}: the lowest is 0")
        return truncation.truncate(self._state, offset)

    def restart(self, offset: int, log_start: int | None = None) -> None:
        """Remove everything and continue at ``offset``, as a follower does that has fallen too far behind
        its leader."""
        log_start = offset if log_start is None else log_start
        for each in (offset, log_start):
            if not 0 <= each <= INT64_MAX:
                raise UsageError(f"a log cannot start at offset {each}")
        truncation.restart(self._state, offset, log_start)
