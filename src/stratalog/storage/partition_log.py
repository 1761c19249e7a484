"""One partition on disk: the facade that applies what the other modules decide.

One lock guards everything that changes the log. Nothing that depends only on bytes happens under it: appends
are admitted before, reads work on a :class:`LogView`, syncs wait outside. What the log is made of is in
``log_state``; what changes it in ``appending``, ``rolling``, ``flushing`` and ``cutting``; whether it may be
changed in ``log_guard``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, TypeVarTuple

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.errors import CorruptionError, StorageError, UsageError
from stratalog.records.layout import INT64_MAX, INT64_MIN
from stratalog.storage.epochs.leader_epochs import EpochEnd, EpochEntry
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.log import flushing, truncation
from stratalog.storage.log.adoption import StagedFile
from stratalog.storage.log.appending import (
    AppendResult,
    adopt,
    append_as_follower,
    append_as_leader,
    check_leader_epoch,
)
from stratalog.storage.log.joint_append import Answer, append_jointly
from stratalog.storage.log.replacement import replace_sealed
from stratalog.storage.log.retention import (
    RetentionPlan,
    RetentionPolicy,
    SegmentFacts,
    plan_retention,
    policies_for,
)
from stratalog.storage.log.rolling import roll
from stratalog.storage.log.state import LogSettings, LogState, Watermark
from stratalog.storage.log.sync_queue import OnSynced, SyncQueue
from stratalog.storage.log_config import LogConfig
from stratalog.storage.producers.states import Origin, ProducerEntry
from stratalog.storage.recovery.load import load_log
from stratalog.storage.recovery.report import LoadOptions, LoadReport
from stratalog.storage.segment.segment import Segment
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.storage.segment.tail_verdict import OnDamage
from stratalog.storage.views.log_view import Isolation, LogRead, LogView
from stratalog.storage.views.time_lookup import TimedOffset, find_largest_time, find_time
from stratalog.types import Bytes

__all__ = ["AppendResult", "PartitionLog", "Watermark"]

T = TypeVar("T")
Given = TypeVarTuple("Given")


class PartitionLog:
    """One partition's log, open for writing. Made by :meth:`open`."""

    def __init__(
        self, folder: str, config: LogConfig, options: LoadOptions, watermark: Watermark
    ) -> None:
        loaded = load_log(folder, options)
        self.folder = folder
        #: What loading found and did.
        self.report: LoadReport = loaded.report
        self._state = LogState(folder, config, options, watermark, loaded)
        self._sync_queue = SyncQueue(self._reach)
        # What recovery has checked may still be in the page cache only: nothing is shown before it is
        # on the disk.
        if watermark is Watermark.SYNCED:
            self.sync()
        if watermark is not Watermark.CALLER:
            self.advance_high_watermark(loaded.next_offset)

    @classmethod
    def open(
        cls,
        folder: str,
        config: LogConfig | None = None,
        *,
        file_system: FileSystem | None = None,
        clock: Clock = SYSTEM_CLOCK,
        recovery_point: int = 0,
        log_start: int = 0,
        high_watermark: int | None = None,
        is_clean: bool = False,
        clean_end: int | None = None,
        on_damage: OnDamage | str = OnDamage.REFUSE,
        producer_ttl_ms: int = 86_400_000,
        watermark: Watermark | str = Watermark.CALLER,
    ) -> PartitionLog:
        """Open a folder that is there, through recovery unless it was closed in order (``is_clean``).

        ``recovery_point`` and ``log_start`` are what the checkpoints of the log directory say, ``clean_end``
        is the log end offset that a clean shutdown left: a log that goes on beyond it is damaged. Nobody
        else may write here meanwhile: the lock is the log directory's.
        """
        config = config or LogConfig()
        options = LoadOptions(
            file_system=file_system or OsFileSystem(),
            clock=clock,
            limits=IndexLimits(config.index_interval_bytes, config.segment_index_bytes),
            recovery_point=recovery_point,
            log_start=log_start,
            is_clean=is_clean,
            clean_end=clean_end,
            on_damage=OnDamage(on_damage),
            producer_ttl_ms=producer_ttl_ms,
        )
        log = cls(folder, config, options, Watermark(watermark))
        if high_watermark is not None:
            log.advance_high_watermark(min(max(high_watermark, log.log_start), log.log_end))
        return log

    # What there is.

    @property
    def config(self) -> LogConfig:
        return self._state.settings.config

    def reconfigure(self, config: LogConfig) -> None:
        """Take new configs. What a segment was created with (its indexes, its jitter) it keeps."""
        with self._state.guard.changing():
            self._state.settings = LogSettings.of(config)

    @property
    def view(self) -> LogView:
        """The log at this moment, for reading."""
        return self._state.view

    @property
    def log_start(self) -> int:
        return self._state.view.log_start

    @property
    def log_end(self) -> int:
        """The offset that the next record gets."""
        return self._state.view.log_end

    @property
    def high_watermark(self) -> int:
        return self._state.view.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self._state.view.last_stable_offset

    @property
    def synced_offset(self) -> int:
        """Everything below it survives a power cut."""
        return self._state.commit.synced_offset

    @property
    def recovery_point(self) -> int:
        """Recovery need not look at what lies below it."""
        return self._state.recovery_point

    @property
    def size_bytes(self) -> int:
        view = self._state.view
        return sum(view.limit(number) for number in range(len(view.segments)))

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._state.view.segments.segments

    @property
    def failure(self) -> StorageError | None:
        """Why the log cannot be written any more; None while it can."""
        return self._state.guard.failure

    @property
    def is_closed(self) -> bool:
        return self._state.guard.is_closed

    @property
    def producers(self) -> list[ProducerEntry]:
        with self._state.guard.lock:
            return list(self._state.producers.entries.values())

    # Appending.

    def append(
        self,
        data: Bytes,
        *,
        leader_epoch: int = 0,
        origin: Origin = Origin.CLIENT,
        sync: bool = False,
        strict_markers: bool = False,
    ) -> AppendResult:
        """Append batches as the leader: they get their offsets here. With ``sync`` the answer comes
        when they are on the disk. A ``bytearray`` is stamped in place; one that was refused may be brought
        again as it is."""
        state = self._state
        result = append_as_leader(state, data, leader_epoch, origin, strict_markers)
        settings = state.settings
        if (
            sync
            or result.last_offset - state.recovery_point >= settings.flush_messages
            or settings.flush_ms is not None
        ):
            self._settle(result, sync=sync)
        return result

    def append_each(
        self, appends: Iterable[Bytes], *, leader_epoch: int = 0, sync: bool = False
    ) -> list[Answer]:
        """Append what several callers bring, in this order, with one write and one sync for as many as
        can be: an AppendResult for each, or the error that it is refused with, which is no matter of the
        others. With ``sync`` the answer comes when all are on the disk."""
        check_leader_epoch(leader_epoch)
        answers = append_jointly(self._state, appends, leader_epoch)
        for answer in reversed(answers):
            if isinstance(answer, AppendResult):
                self._settle(answer, sync=sync)
                break
        return answers

    def append_as_follower(
        self, data: Bytes, *, epoch_max: int | None = None, sync: bool = False
    ) -> AppendResult | None:
        """Append batches that bring their offsets; None where there is nothing to append."""
        result = append_as_follower(self._state, data, epoch_max)
        if result is not None:
            self._settle(result, sync=sync)
        return result

    def adopt(self, staged: StagedFile, *, leader_epoch: int) -> AppendResult | None:
        """Append a file of finished batches as a segment of its own, to which later appends go. Nothing of
        it is copied; its batches get their offsets in place. None where it cannot be one: append them.
        """
        check_leader_epoch(leader_epoch)
        return adopt(self._state, staged, leader_epoch)

    def _settle(self, result: AppendResult, *, sync: bool) -> None:
        """What an append waits for, when others may append again: who syncs needs the lock too."""
        state = self._state
        if result.last_offset - state.recovery_point >= state.settings.flush_messages:
            flushing.flush(state)
        else:
            flushing.flush_if_due(state)
        if sync:
            flushing.reach(state, result.next_offset)

    def roll(self) -> bool:
        """Start a new segment now; False where the active one is empty, and nothing is to be done."""
        state = self._state
        with state.guard.changing():
            if state.active.size_bytes == 0:
                return False
            roll(state, state.view.log_end)
            return True

    # Onto the disk.

    def begin_sync(self) -> None:
        """Have the disk begin with what was appended: a sync later waits for less."""
        self._state.active.begin_sync()

    def sync(self) -> int:
        """Wait until all that is written now is on the disk; up to which offset that is. One sync
        serves everyone who waits."""
        state = self._state
        state.guard.check()
        flushing.reach(state, state.view.log_end)
        return state.commit.synced_offset

    def _reach(self, offset: int) -> None:
        flushing.reach(self._state, offset)

    def when_synced(self, offset: int, done: OnSynced) -> None:
        """Call ``done`` from another thread when everything below ``offset`` is on the disk, or with
        the error that keeps it from getting there. For those who must not wait."""
        self._state.guard.check()
        self._sync_queue.put(offset, done)

    def flush(self) -> int:
        """Sync the log and what points into it. From here on recovery need not look at it: the
        recovery point moves to the end, and is answered."""
        return flushing.flush(self._state)

    def flush_if_due(self) -> bool:
        """Flush where ``flush.ms`` have passed since the last time, and there is something to flush.
        Appends ask; for a log that nobody appends to any more, a scheduler does."""
        return flushing.flush_if_due(self._state)

    def advance_high_watermark(self, offset: int) -> int:
        """Move the high watermark forward to ``offset``, never beyond the end; where it is now."""
        return self._state.advance_high_watermark(offset)

    # Reading.

    def read(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        isolation: Isolation | str = Isolation.LOG_END,
        *,
        at_least_one: bool = True,
        max_batch_bytes: int = 256 << 20,
    ) -> LogRead:
        """A region of the log from the batch that holds ``offset`` on; see :meth:`LogView.read`."""
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
            with self._state.guard.lock:  # as in _seen()
                self._state.guard.check_open()
                return self._state.view.read(
                    offset,
                    max_bytes,
                    isolation,
                    at_least_one=at_least_one,
                    max_batch_bytes=max_batch_bytes,
                )

    def offset_for_time(self, timestamp: int) -> TimedOffset | None:
        """The first record of this time or later."""
        if timestamp < INT64_MIN:
            raise UsageError(f"no time: {timestamp} does not fit 64 bits")
        return self._seen(find_time, timestamp)

    def offset_of_largest_time(self) -> TimedOffset | None:
        """The first record with the largest timestamp."""
        return self._seen(find_largest_time)

    def _seen(self, look: Callable[[LogView, *Given], T], *given: *Given) -> T:
        """Ask the view of this moment. What fails may have been cut or deleted under it: then once
        more, while nothing moves. UsageError where the log was closed."""
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
        """Wait until a reader at ``offset`` has ``min_bytes`` to read; False when the time is over,
        or the log was closed."""
        state, guard = self._state, self._state.guard
        isolation = _isolation(isolation)

        def is_there() -> bool:
            return guard.is_closed or state.view.bytes_behind(offset, isolation) >= min_bytes

        state.waiters.wait_for(is_there, timeout_s)
        return not guard.is_closed and state.view.bytes_behind(offset, isolation) >= min_bytes

    # Leader epochs.

    @property
    def epochs(self) -> tuple[EpochEntry, ...]:
        return self._state.epochs.entries

    @property
    def latest_epoch(self) -> int:
        """The leader epoch that further appends carry: that of the last leader, 0 if there was none."""
        entries = self._state.epochs.entries
        return entries[-1].epoch if entries else 0

    def assign_epoch(self, epoch: int, start_offset: int | None = None) -> None:
        """Become the leader of an epoch: it writes from the end on, or from ``start_offset``."""
        with self._state.guard.changing():
            end = self._state.view.log_end
            self._state.epochs.assign(epoch, end if start_offset is None else start_offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        return self._state.epochs.end_offset_for(epoch, self._state.view.log_end)

    # Cutting.

    def truncate(self, offset: int) -> bool:
        """Cut the log so that it ends at ``offset``; False where it ends there or before already.

        Whole batches go: the one that holds ``offset`` too. Who keeps the recovery point of this log
        writes it down before the next append: it may be lower now.
        """
        if offset < 0:
            raise UsageError(f"a log cannot be cut at offset {offset}")
        return truncation.truncate(self._state, offset)

    def restart(self, offset: int, log_start: int | None = None) -> None:
        """Throw everything away and go on at ``offset``, as a follower does that is too far behind."""
        log_start = offset if log_start is None else log_start
        for each in (offset, log_start):
            if not 0 <= each <= INT64_MAX:
                raise UsageError(f"a log cannot start at offset {each}")
        truncation.restart(self._state, offset, log_start)

    def advance_start(self, offset: int) -> bool:
        """Raise the log's start (delete-records): records below it are not shown any more; segments
        that lie wholly below it go with the next retention. False where it is there already."""
        return truncation.advance_start(self._state, offset)

    # Retention.

    def facts(self) -> list[SegmentFacts]:
        """What retention goes by."""
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
        """What retention would delete now, and why."""
        if policies is None:
            policies = policies_for(self.config, self._state.clock.now_ms(), self.log_start)
        return plan_retention(self.facts(), policies, high_watermark=self.high_watermark)

    def retain(self, policies: tuple[RetentionPolicy, ...] | None = None) -> RetentionPlan:
        """Delete the segments that the topic's configs (or ``policies``) let go. The files stay, under
        another name, for ``file.delete.delay.ms``; then :meth:`remove_due` removes them."""
        with self._state.guard.changing():
            plan = self.plan_retention(policies)
            truncation.delete_segments(self._state, plan)
            return plan

    def replace_segments(self, old: Sequence[Segment], new: Sequence[int]) -> bool:
        """Put rewritten segments in the place of sealed ones, which are neighbours, while others append and
        read. Return False, and change nothing, if the log does not have all of the old ones any more:
        retention or a truncation was first.

        The new segments lie in the folder as ``.cleaned``, with their indexes and the time of change that
        they are to have. ``new`` are their base offsets; the first is that of the first old one. Their
        batches lie within the offsets of the old ones, and are checked here to the last CRC. If the old ones
        had records above the end of all new ones, an empty segment is added there.

        After a crash the log has the old or the new segments. After an error, or False, the log has the old
        ones: delete the ``.cleaned`` files. If the error came after the point of no return, the log has also
        failed and must be opened again. Readers of earlier views finish on the old files, which are removed
        after ``file.delete.delay.ms``.
        """
        return replace_sealed(self._state, old, new)

    def remove_due(self, *, all_of_them: bool = False) -> int:
        """Remove the files that were set aside for long enough; how many."""
        self._state.guard.check_process()
        return self._state.removals.remove_due(all_of_them=all_of_them)

    def expire_producers(self) -> int:
        """Forget producers that were silent for too long; how many."""
        state = self._state
        with state.guard.changing():
            return state.producers.expire(state.clock.now_ms(), state.producer_ttl_ms)

    # The end.

    def close(self) -> None:
        """Bring everything to the disk and let go of the files. Afterwards the log may be opened with
        ``is_clean``. After a failure only the files are let go. Who holds a region of the log may read
        it to the end; whoever asks for another is told that the log is closed."""
        if self._state.guard.is_inherited:
            self.abandon()
            return
        self._sync_queue.close()
        state, guard = self._state, self._state.guard
        with state.flush_lock, guard.lock:
            if guard.is_closed:
                return
            try:
                if guard.failure is None:
                    flushing.finish(state)
            finally:
                self._let_go()

    def abandon(self) -> None:
        """Let go of the files as they are, as a process does that dies."""
        with self._state.guard.lock:
            self._let_go()
        self._sync_queue.close()

    def _let_go(self) -> None:
        self._state.guard.is_closed = True
        for segment in self._state.view.segments.segments:
            segment.close()
        self._state.waiters.wake()


def _isolation(named: Isolation | str) -> Isolation:
    try:
        return Isolation(named)
    except ValueError:
        raise UsageError(f"no isolation {named!r}: there are {', '.join(Isolation)}") from None
