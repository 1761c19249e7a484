"""Maintain an open log: flush, roll, retain, replace and truncate segments, expire producers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from stratalog.clock import Clock
from stratalog.errors import CorruptionError, StorageError, UsageError
from stratalog.records.layout import INT64_MAX
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.log import flushing, truncation
from stratalog.storage.log.reindexing import replace_index_files
from stratalog.storage.log.replacement import remove_cleaned, replace_sealed
from stratalog.storage.log.retention import (
    RetentionPlan,
    RetentionPolicy,
    SegmentFacts,
    plan_retention,
    policies_for,
)
from stratalog.storage.log.retention_facts import retention_facts
from stratalog.storage.log.rolling import roll
from stratalog.storage.log.state import LogSettings
from stratalog.storage.log_config import LogConfig
from stratalog.storage.log_roles.open_log import OpenLog
from stratalog.storage.names import FileKind
from stratalog.storage.segment.segment import Segment
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.types import Bytes

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

    # Rewriting.

    @property
    def file_system(self) -> FileSystem:
        return self._state.file_system

    @property
    def clock(self) -> Clock:
        return self._state.clock

    @property
    def index_limits(self) -> IndexLimits:
        """How dense and how large the indexes of new segments are."""
        return self._state.settings.limits

    @contextmanager
    def rewriting(self) -> Iterator[None]:
        """Hold the right to rewrite segments of this log: one rewrite at a time. Waits for another one, and
        removes the ``.cleaned`` files that an earlier one left. UsageError if the log is closed meanwhile."""
        guard = self._state.guard
        with self._state.rewrite_lock:
            guard.check()
            remove_cleaned(self._state)
            try:
                yield
            except (CorruptionError, StorageError):
                if (
                    guard.is_closed
                ):  # its files were closed under the rewrite, or deleted with the topic
                    guard.check_open()
                raise

    def replace_segments(
        self, old: Sequence[Segment], new: Sequence[int], *, records: int | None = None
    ) -> bool:
        """Put rewritten segments in the place of sealed ones, which are neighbours, while others append and
        read. Return False, and change nothing, if the log does not have all of the old ones any more:
        retention or a truncation was first.

        The new segments lie in the folder as ``.cleaned``, with their indexes and the time of change that
        they are to have. ``new`` are their base offsets; the first is that of the first old one. Their
        batches lie within the offsets of the old ones, and are checked here to the last CRC; with
        ``records``, they must hold as many. If the old ones had records above the end of all new ones, an
        empty segment is added there. Prepare one replacement at a time (see :meth:`rewriting`): UsageError
        names a ``.cleaned`` file in the folder that is of another one.

        After a crash the log has the old or the new segments. After an error, or False, the log has the old
        ones: delete the ``.cleaned`` files. If the error came after the point of no return, the log has also
        failed and must be opened again. Readers of earlier views finish on the old files, which are removed
        after ``file.delete.delay.ms``.
        """
        return replace_sealed(self._state, old, new, records)

    def replace_indexes(self, segment: Segment, contents: Mapping[FileKind, Bytes]) -> bool:
        """Put other index files in the place of a sealed segment's, each in one step. Return False, and
        change nothing, if the log does not have the segment any more. Hold :meth:`rewriting`."""
        return replace_index_files(self._state, segment, contents)

    def remove_due(self, *, all_of_them: bool = False) -> int:
        """Remove the files that were set aside for long enough; return how many."""
        self._state.guard.check_process()
        return self._state.removals.remove_due(all_of_them=all_of_them)

    # Retention.

    def facts(self) -> list[SegmentFacts]:
        """Return what retention policies look at."""
        return retention_facts(self._state.view)

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
        if offset < self._state.view.log_end:
            self._announce_truncation(offset)
        return truncation.truncate(self._state, offset)

    def before_truncation(self, call: Callable[[int], None]) -> None:
        """Have a function called with the offset before records from there on are removed. It stores that
        what was known of them does not hold for those that take their offsets. If it raises, nothing is
        removed."""
        self._state.before_truncation = call

    def _announce_truncation(self, offset: int) -> None:
        self._state.guard.check()
        if self._state.before_truncation is not None:
            self._state.before_truncation(offset)

    def restart(self, offset: int, log_start: int | None = None) -> None:
        """Remove everything and continue at ``offset``, as a follower does that has fallen too far behind
        its leader."""
        log_start = offset if log_start is None else log_start
        for each in (offset, log_start):
            if not 0 <= each <= INT64_MAX:
                raise UsageError(f"a log cannot start at offset {each}")
        self._announce_truncation(min(offset, log_start))
        truncation.restart(self._state, offset, log_start)
