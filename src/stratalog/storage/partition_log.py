"""One partition on disk: the facade that applies what the other modules decide.

One lock guards everything that changes the log. Nothing that depends only on bytes happens under it: appends
are admitted before, reads work on a :class:`LogView`, syncs wait outside. Every sealed segment is on the disk
before the next one begins, so a power cut can only have torn the end of the last one.

After a failed write or sync nobody knows what the disk holds. The log then refuses to be written until it is
opened again, through recovery; what it has acknowledged as synced is there.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.errors import (
    BatchTooLargeError,
    CorruptionError,
    LogFailedError,
    OffsetOrderError,
    OffsetOutOfRangeError,
    StorageError,
    UsageError,
)
from stratalog.records.layout import INT32_MAX, INT64_MAX, ROW_WIDTH, Row
from stratalog.storage.activation import activate
from stratalog.storage.admission import Admitted, AppendRules, admit_follower, admit_leader
from stratalog.storage.damage import OnDamage
from stratalog.storage.failed_sync import note_failed_sync
from stratalog.storage.filesystem import FileSystem, OsFileSystem
from stratalog.storage.group_commit import GroupCommit
from stratalog.storage.leader_epochs import EpochEnd, EpochEntry
from stratalog.storage.loading import LoadOptions, LoadReport, load_log
from stratalog.storage.log_config import LogConfig
from stratalog.storage.log_view import Isolation, LogRead, LogView, SegmentList
from stratalog.storage.names import FileKind
from stratalog.storage.producers import Admission, Origin, ProducerEntry, ProducerStates
from stratalog.storage.removal import rename_deleted
from stratalog.storage.replay import marker_in, rebuild_producers
from stratalog.storage.retention import (
    RetentionPlan,
    RetentionPolicy,
    SegmentFacts,
    plan_retention,
    policies_for,
)
from stratalog.storage.roll import draw_jitter, max_segment_ms, new_base_offset, plan_roll
from stratalog.storage.segment import ActiveSegment, SealedSegment, Segment
from stratalog.storage.snapshot_files import SnapshotFiles
from stratalog.storage.sparse_index import IndexLimits
from stratalog.storage.sync_queue import Done, SyncQueue
from stratalog.storage.time_lookup import TimedOffset, find_largest_time, find_time
from stratalog.types import NO_TIMESTAMP

__all__ = ["AppendResult", "PartitionLog", "Watermark"]

Bytes = bytes | bytearray | memoryview
T = TypeVar("T")

_LEADER_EPOCH: Final = int(Row.LEADER_EPOCH)
_BASE_OFFSET: Final = int(Row.BASE_OFFSET)
_MAGIC: Final = int(Row.MAGIC)
_NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})
_NO_ROOM: Final = _NO_FILES | {errno.ENOSPC, errno.EDQUOT}


class Watermark(StrEnum):
    """Who moves the high watermark."""

    CALLER = "caller"  # as in Kafka: whoever knows the replicas
    WRITTEN = "written"  # every append, when it is written
    SYNCED = "synced"  # every sync: readers never see what a power cut could still take away


class AppendResult(NamedTuple):
    """Where an append went. ``is_duplicate``: it was there already, and this is where."""

    first_offset: int
    last_offset: int
    append_time: int
    log_start: int
    is_duplicate: bool = False

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1


class PartitionLog:
    """One partition's log, open for writing. Made by :meth:`open`."""

    def __init__(
        self, folder: str, config: LogConfig, options: LoadOptions, watermark: Watermark
    ) -> None:
        loaded = load_log(folder, options)
        self.folder = folder
        self._file_system = options.file_system
        self._clock = options.clock
        self._options = options
        self._watermark = watermark
        self._random = random.Random()  # noqa: S311  # only spreads rolls over time
        self._lock = threading.RLock()
        self._flush_lock = threading.Lock()
        self._moved = threading.Condition(threading.Lock())
        self._waiting = 0
        self._failure: StorageError | None = None
        self._is_closed = False
        self._flushed_ms = options.clock.monotonic_ms()
        self._producers: ProducerStates = loaded.producers
        self._snapshots: SnapshotFiles = loaded.snapshots
        self._epochs = loaded.epochs
        self._active: ActiveSegment = loaded.active
        self._take_config(config)
        self._active.jitter_ms = draw_jitter(config, self._random)
        self._removals: list[tuple[int, list[str]]] = []
        self._set_aside(loaded.set_aside)
        #: What loading found and did.
        self.report: LoadReport = loaded.report
        self.recovery_point = loaded.recovery_point
        self._commit = GroupCommit(self._sync_active, loaded.recovery_point)
        self._sync_queue = SyncQueue(self._reach)
        self._view = LogView(
            SegmentList([*loaded.sealed, loaded.active]),
            loaded.log_start,
            loaded.next_offset,
            loaded.active.size_bytes,
            loaded.log_start,
            loaded.log_start,
        )
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
        on_damage: OnDamage | str = OnDamage.REFUSE,
        producer_ttl_ms: int = 86_400_000,
        watermark: Watermark | str = Watermark.CALLER,
    ) -> PartitionLog:
        """Open a folder that is there, through recovery unless it was closed in order (``is_clean``).

        ``recovery_point`` and ``log_start`` are what the checkpoints of the log directory say. Nobody
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
            on_damage=OnDamage(on_damage),
            producer_ttl_ms=producer_ttl_ms,
        )
        log = cls(folder, config, options, Watermark(watermark))
        if high_watermark is not None:
            log.advance_high_watermark(min(max(high_watermark, log.log_start), log.log_end))
        return log

    def _take_config(self, config: LogConfig) -> None:
        self._config = config
        self._rules = AppendRules.of(config)
        self._segment_bytes = config.effective_segment_bytes
        self._max_segment_ms = max_segment_ms(config)
        self._flush_messages = config.flush_messages - 1  # compared with the last offset
        self._flush_ms = config.flush_ms if config.flush_ms < INT64_MAX else None
        self._limits = IndexLimits(config.index_interval_bytes, config.segment_index_bytes)

    # What there is.

    @property
    def config(self) -> LogConfig:
        return self._config

    def reconfigure(self, config: LogConfig) -> None:
        """Take new configs. What a segment was created with (its indexes, its jitter) it keeps."""
        with self._changing():
            self._take_config(config)

    @property
    def view(self) -> LogView:
        """The log at this moment, for reading."""
        return self._view

    @property
    def log_start(self) -> int:
        return self._view.log_start

    @property
    def log_end(self) -> int:
        """The offset that the next record gets."""
        return self._view.log_end

    @property
    def high_watermark(self) -> int:
        return self._view.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self._view.last_stable_offset

    @property
    def synced_offset(self) -> int:
        """Everything below it survives a power cut."""
        return self._commit.synced_offset

    @property
    def size_bytes(self) -> int:
        view = self._view
        return sum(view.limit(number) for number in range(len(view.segments)))

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._view.segments.segments

    @property
    def failure(self) -> StorageError | None:
        """Why the log cannot be written any more; None while it can."""
        return self._failure

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def producers(self) -> list[ProducerEntry]:
        with self._lock:
            return list(self._producers.entries.values())

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
        when they are on the disk. A ``bytearray`` is stamped in place."""
        admitted = admit_leader(data, self._rules, self._clock.now_ms(), origin)
        if len(admitted.data) > self._segment_bytes:
            raise self._too_large(admitted)
        with self._lock:
            if self._failure is not None or self._is_closed:
                self._check_usable()
            end = self._view.log_end
            admitted.assign(end, leader_epoch)
            try:
                result = self._append(admitted, origin, end, strict_markers)
            except StorageError as error:
                self._fail_unless_full(error)
                raise
        if (
            sync
            or result.last_offset - self.recovery_point >= self._flush_messages
            or self._flush_ms is not None
        ):
            self._settle(result, sync=sync)
        return result

    def append_as_follower(
        self, data: Bytes, *, epoch_max: int | None = None, sync: bool = False
    ) -> AppendResult | None:
        """Append batches that bring their offsets; None where there is nothing to append."""
        self._check_usable()
        admitted = admit_follower(data, epoch_max=epoch_max)
        if admitted is None:
            return None
        with self._changing():
            end = self._view.log_end
            first = admitted.first_offset
            lowest = admitted.first_batch_last_offset if first is None else first
            if lowest < end:
                raise OffsetOrderError(
                    f"the log ends at {end}: an append from offset {lowest} on does not follow it"
                )
            if admitted.last_offset - lowest > INT32_MAX:
                raise OffsetOrderError(
                    f"an append from {lowest} to {admitted.last_offset}: a segment spans {INT32_MAX}"
                )
            result = self._append(admitted, Origin.REPLICATION, lowest, strict_markers=False)
        self._settle(result, sync=sync)
        return result

    def _settle(self, result: AppendResult, *, sync: bool) -> None:
        """What an append waits for, when others may append again: who syncs needs the lock too."""
        if result.last_offset - self.recovery_point >= self._flush_messages:
            self.flush()
        else:
            self.flush_if_due()
        if sync:
            self._reach(result.next_offset)

    def _reach(self, offset: int) -> None:
        """Wait for the disk; then readers may see it."""
        self._commit.reach(offset)
        if self._watermark is Watermark.SYNCED and offset > self.high_watermark:
            self.advance_high_watermark(min(self._commit.synced_offset, self.log_end))

    def _too_large(self, admitted: Admitted) -> BatchTooLargeError:
        return BatchTooLargeError(
            f"an append of {len(admitted.data)} bytes is above segment.bytes={self._segment_bytes}"
        )

    def _append(
        self, admitted: Admitted, origin: Origin, first_offset: int, strict_markers: bool
    ) -> AppendResult:
        admission = None
        if admitted.has_producer:
            admission = self._admit_producers(admitted, origin, strict_markers)
            duplicate = admission.duplicate
            if duplicate is not None:
                return AppendResult(
                    duplicate.first_offset, duplicate.last_offset, duplicate.timestamp,
                    self._view.log_start, is_duplicate=True,
                )  # fmt: skip
        last_offset = admitted.last_offset
        self._roll_if_needed(admitted, last_offset)
        self._note_epochs(admitted)
        active = self._active
        position = active.size_bytes
        try:
            active.append(admitted.data, admitted.rows, admitted.count)
            if admission is not None:
                self._apply_producers(admission)
            self._publish_append(last_offset + 1, moves_stable=admission is not None)
        except BaseException as error:
            self._undo_write(position, error)
            raise
        return AppendResult(first_offset, last_offset, admitted.append_time, self._view.log_start)

    def _admit_producers(
        self, admitted: Admitted, origin: Origin, strict_markers: bool
    ) -> Admission:
        headers = admitted.headers()
        markers = {}
        for header in headers:
            if header.is_control and header.record_count:
                batch = memoryview(admitted.data)[header.position : header.end_position]
                marker = marker_in(batch)
                if marker is not None:
                    markers[header.base_offset] = marker
        return self._producers.admit(headers, origin, markers, strict_markers=strict_markers)

    def _apply_producers(self, admission: Admission) -> None:
        self._producers.apply(admission)
        for txn in admission.completed:
            aborted = self._producers.complete(txn)
            if aborted is not None:
                self._active.note_aborted(aborted)

    def _note_epochs(self, admitted: Admitted) -> None:
        rows, epochs = admitted.rows, self._epochs
        for at in range(0, admitted.count * ROW_WIDTH, ROW_WIDTH):
            epoch, base_offset = rows[at + _LEADER_EPOCH], rows[at + _BASE_OFFSET]
            if admitted.is_legacy and rows[at + _MAGIC] < 2:
                epochs.clear()  # messages of the old formats carry none
            # An append with a gap may have been noted, and then refused for want of room.
            elif epoch >= 0 and (epoch != epochs.latest_epoch or base_offset < epochs.latest_start):
                epochs.assign(epoch, base_offset)

    def _undo_write(self, position: int, error: BaseException) -> None:
        """Take back a write that was refused for want of room, or that a signal came upon; anything
        else fails the log."""
        is_interrupt = not isinstance(error, Exception) and self._active.size_bytes == position
        if is_interrupt or (isinstance(error, StorageError) and error.errno in _NO_ROOM):
            try:
                self._active.log.truncate(position)
            except StorageError as second:
                self._fail(second)
            return
        if isinstance(error, StorageError):
            self._fail(error)
        else:
            self._fail(StorageError(f"an append was interrupted: {error!r}", path=self.folder))

    def _publish_append(self, log_end: int, *, moves_stable: bool) -> None:
        view = self._view
        high_watermark, stable = view.high_watermark, view.last_stable_offset
        if self._watermark is Watermark.WRITTEN:
            high_watermark = log_end
            self._producers.on_high_watermark(log_end)
            stable = self._stable_offset(log_end, view.log_start)
        elif moves_stable:
            stable = self._stable_offset(high_watermark, view.log_start)
        self._producers.map_end_offset = log_end
        self._view = LogView(
            view.segments, view.log_start, log_end, self._active.size_bytes, high_watermark, stable
        )
        if self._waiting:
            self._wake()

    def _stable_offset(self, high_watermark: int, log_start: int) -> int:
        if not self._producers.has_transactions:
            return high_watermark
        unstable = self._producers.first_unstable_offset(high_watermark)
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        return max(unstable, log_start)

    # Rolling.

    def _roll_if_needed(self, admitted: Admitted, last_offset: int) -> None:
        active = self._active
        first_timestamp = active.first_timestamp
        index = active.index
        reason = plan_roll(
            active.size_bytes,
            self._segment_bytes,
            len(admitted.data),
            admitted.max_timestamp,
            NO_TIMESTAMP if first_timestamp is None else first_timestamp,
            self._clock.now_ms() if (first_timestamp or 0) < 0 else 0,
            active.created_ms,
            self._max_segment_ms,
            active.jitter_ms,
            index.is_offset_full,
            index.is_time_full,
            active.base_offset,
            last_offset,
        )
        if reason is not None:
            base = new_base_offset(admitted.first_offset, last_offset, self._view.log_end)
            self._roll(base)

    def roll(self) -> bool:
        """Start a new segment now; False where the active one is empty, and nothing is to be done."""
        with self._changing():
            if self._active.size_bytes == 0:
                return False
            self._roll(self._view.log_end)
            return True

    def _roll(self, base_offset: int) -> None:
        """Seal the active segment and open the next. The sealed one is on the disk before."""
        active, view = self._active, self._view
        if active.base_offset == base_offset and active.size_bytes == 0:
            return  # the empty one does as well
        if base_offset < active.base_offset and active.size_bytes == 0:
            self._replace_empty(base_offset)
            return
        if base_offset <= active.base_offset:
            raise StorageError(
                f"a segment at {base_offset} cannot follow one at {active.base_offset}",
                path=self.folder,
            )
        active.finish()
        self._synced(active.sync_log)
        self._synced(active.sync_indexes)
        if active.is_new:
            self._synced(lambda: self._file_system.sync_dir(self.folder))
        if base_offset > self._producers.snapshot_offset:
            self._producers.map_end_offset = base_offset
            self._snapshots.write(self._producers, base_offset)
            self._synced(self._snapshots.sync)
        fresh = ActiveSegment.create(
            self._file_system,
            self.folder,
            base_offset,
            self._limits,
            created_ms=self._clock.now_ms(),
            jitter_ms=draw_jitter(self._config, self._random),
            preallocated_bytes=self._segment_bytes if self._config.preallocate else 0,
        )
        sealed = active.seal()
        self._active = fresh
        segments = SegmentList([*view.segments.segments[:-1], sealed, fresh])
        self._view = view._replace(segments=segments, end_position=0)
        self.recovery_point = max(self.recovery_point, view.log_end)
        self._commit.raise_to(view.log_end)

    def _replace_empty(self, base_offset: int) -> None:
        """Begin the active segment further down: an append with a gap was to begin it, and did not."""
        view = self._view
        with self._unbroken():
            self._remove([self._active])
            self._producers.snapshot_offset = max(self._snapshots.offsets, default=0)
            self._active = ActiveSegment.create(
                self._file_system,
                self.folder,
                base_offset,
                self._limits,
                created_ms=self._clock.now_ms(),
                jitter_ms=self._active.jitter_ms,
            )
        segments = SegmentList([*view.segments.segments[:-1], self._active])
        self._view = view._replace(segments=segments, end_position=0)

    # Onto the disk.

    def sync(self) -> int:
        """Wait until all that is written now is on the disk; up to which offset that is. One sync
        serves everyone who waits."""
        self._check_usable()
        self._reach(self._view.log_end)
        return self._commit.synced_offset

    def when_synced(self, offset: int, done: Done) -> None:
        """Call ``done`` from another thread when everything below ``offset`` is on the disk, or with
        the error that keeps it from getting there. For those who must not wait."""
        self._check_usable()
        self._sync_queue.put(offset, done)

    def _sync_active(self) -> int:
        with self._lock:
            self._check_usable()
            active, end = self._active, self._view.log_end
        self._synced(active.sync_log)
        if active.is_new:
            self._synced(lambda: self._file_system.sync_dir(self.folder))
            with self._lock:
                active.is_new = False
        return end

    def flush(self) -> int:
        """Sync the log and what points into it. From here on recovery need not look at it: the
        recovery point moves to the end, and is answered."""
        with self._flush_lock:
            self._reach(self._view.log_end)
            with self._changing():
                active, end = self._active, self._commit.synced_offset
                active.write_indexes()
            self._synced(active.sync_indexes)
            self._synced(self._snapshots.sync)
            self._synced(lambda: self._file_system.sync_dir(self.folder))
            self.recovery_point = max(self.recovery_point, min(end, self._view.log_end))
            self._flushed_ms = self._clock.monotonic_ms()
            return self.recovery_point

    def flush_if_due(self) -> bool:
        """Flush where ``flush.ms`` have passed since the last time, and there is something to flush.
        Appends ask; for a log that nobody appends to any more, a scheduler does."""
        if self._flush_ms is None or self._view.log_end <= self.recovery_point:
            return False
        if self._clock.monotonic_ms() - self._flushed_ms < self._flush_ms:
            return False
        self.flush()
        return True

    def _synced(self, call: Callable[[], object]) -> None:
        """Run something that syncs. A sync that failed is never tried again: the kernel may have
        dropped what it could not write, and would call the rest clean. Where nothing was synced
        because no file could be opened for it, nothing is lost either."""
        try:
            call()
        except StorageError as error:
            if error.errno not in _NO_FILES:
                self._fail(error)
                note_failed_sync(self._file_system, self._active.path(FileKind.TIME_INDEX))
            raise

    # The high watermark.

    def advance_high_watermark(self, offset: int) -> int:
        """Move the high watermark forward to ``offset``, never beyond the end; where it is now."""
        with self._lock:
            view = self._view
            offset = min(max(offset, view.high_watermark, view.log_start), view.log_end)
            self._producers.on_high_watermark(offset)
            stable = self._stable_offset(offset, view.log_start)
            if (offset, stable) != (view.high_watermark, view.last_stable_offset):
                assert view.log_start <= stable <= offset <= view.log_end
                self._view = view._replace(high_watermark=offset, last_stable_offset=stable)
                if self._waiting:
                    self._wake()
            return offset

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
        isolation = Isolation(isolation)
        return self._seen(
            lambda view: view.read(
                offset,
                max_bytes,
                isolation,
                at_least_one=at_least_one,
                max_batch_bytes=max_batch_bytes,
            )
        )

    def offset_for_time(self, timestamp: int) -> TimedOffset | None:
        """The first record of this time or later."""
        return self._seen(lambda view: find_time(view, timestamp))

    def offset_of_largest_time(self) -> TimedOffset | None:
        """The first record with the largest timestamp."""
        return self._seen(find_largest_time)

    def _seen(self, look: Callable[[LogView], T]) -> T:
        """Ask the view of this moment. What fails may have been cut or deleted under it: then once
        more, while nothing moves."""
        try:
            return look(self._view)
        except (CorruptionError, StorageError):
            with self._lock:
                return look(self._view)

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
        isolation = Isolation(isolation)

        def is_there() -> bool:
            return self._is_closed or self._view.bytes_behind(offset, isolation) >= min_bytes

        with self._moved:
            self._waiting += 1
            try:
                self._moved.wait_for(is_there, timeout_s)
            finally:
                self._waiting -= 1
        return not self._is_closed and self._view.bytes_behind(offset, isolation) >= min_bytes

    def _wake(self) -> None:
        with self._moved:
            self._moved.notify_all()

    # Leader epochs.

    @property
    def epochs(self) -> tuple[EpochEntry, ...]:
        return self._epochs.entries

    def assign_epoch(self, epoch: int, start_offset: int | None = None) -> None:
        """Become the leader of an epoch: it writes from the end on, or from ``start_offset``."""
        with self._changing():
            self._epochs.assign(epoch, self._view.log_end if start_offset is None else start_offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        return self._epochs.end_offset_for(epoch, self._view.log_end)

    # Cutting.

    def truncate(self, offset: int) -> bool:
        """Cut the log so that it ends at ``offset``; False where it ends there or before already.

        Whole batches go: the one that holds ``offset`` too. Who keeps the recovery point of this log
        writes it down before the next append: it may be lower now.
        """
        if offset < 0:
            raise UsageError(f"a log cannot be cut at offset {offset}")
        with self._flush_lock, self._changing():
            view = self._view
            if offset >= view.log_end:
                self._epochs.truncate_from_end(view.log_end)
                return False
            with self._unbroken():
                if view.segments[0].base_offset > offset:
                    self._start_over(offset, offset)
                else:
                    self._cut(offset)
            return True

    def _cut(self, offset: int) -> None:
        view = self._view
        keep = view.segments.floor(offset) + 1
        gone = view.segments.segments[keep:]
        kept = list(view.segments.segments[:keep])
        if gone:
            self._active.finish()
            self._remove(
                list(reversed(gone))
            )  # the newest first: no hole, should it be interrupted
            last = kept.pop()
            assert isinstance(last, SealedSegment)
            self._active = activate(self._file_system, self._clock, last)
            kept.append(self._active)
        self._active.truncate(offset)
        self._synced(self._active.sync_log)
        self._epochs.truncate_from_end(offset)
        self.recovery_point = min(self.recovery_point, offset)
        self._commit.lower(offset)
        log_start = min(offset, view.log_start)
        high_watermark = min(view.high_watermark, offset)
        self._rebuild_producers(kept, log_start, offset)
        self._view = LogView(
            SegmentList(kept),
            log_start,
            offset,
            self._active.size_bytes,
            high_watermark,
            min(self._stable_offset(high_watermark, log_start), high_watermark),
        )

    def _rebuild_producers(self, segments: list[Segment], log_start: int, end: int) -> None:
        for each in self._snapshots.offsets:
            if each > end:
                self._snapshots.delete(each)
        rebuild_producers(
            self._producers, self._snapshots, segments, log_start, end,
            now_ms=self._clock.now_ms(), ttl_ms=self._options.producer_ttl_ms,
        )  # fmt: skip
        self._producers.on_high_watermark(min(self._view.high_watermark, end))
        if end > 0 and end not in self._snapshots.offsets:
            self._snapshots.write(self._producers, end)

    def restart(self, offset: int, log_start: int | None = None) -> None:
        """Throw everything away and go on at ``offset``, as a follower does that is too far behind."""
        if offset < 0:
            raise UsageError(f"a log cannot start at offset {offset}")
        with self._flush_lock, self._changing(), self._unbroken():
            self._start_over(offset, offset if log_start is None else log_start)

    def _start_over(self, offset: int, log_start: int) -> None:
        segments = list(self._view.segments.segments)
        self._active.finish()
        self._remove(segments)
        self._epochs.clear()
        self._producers.clear()
        for each in self._snapshots.offsets:
            self._snapshots.delete(each)
        self._producers.map_end_offset = offset
        self._active = ActiveSegment.create(
            self._file_system,
            self.folder,
            offset,
            self._limits,
            created_ms=self._clock.now_ms(),
            jitter_ms=draw_jitter(self._config, self._random),
        )
        self._synced(lambda: self._file_system.sync_dir(self.folder))
        self.recovery_point = min(self.recovery_point, offset)
        self._commit.lower(offset)
        self._commit.raise_to(offset)  # there is nothing below it
        self._view = LogView(SegmentList([self._active]), log_start, offset, 0, offset, offset)

    def advance_start(self, offset: int) -> bool:
        """Raise the log's start (delete-records): records below it are not shown any more; segments
        that lie wholly below it go with the next retention. False where it is there already."""
        with self._changing():
            view = self._view
            if offset > view.high_watermark or offset < 0:
                raise OffsetOutOfRangeError(offset, view.log_start, view.high_watermark)
            return self._raise_start(offset)

    def _raise_start(self, offset: int) -> bool:
        view = self._view
        if offset <= view.log_start:
            return False
        self._epochs.truncate_from_start(offset)
        # Only up to what is on the disk: behind it recovery must be free to cut.
        self.recovery_point = max(self.recovery_point, min(offset, self._commit.synced_offset))
        high_watermark = max(view.high_watermark, offset)
        stable = max(view.last_stable_offset, offset)
        self._view = view._replace(
            log_start=offset, high_watermark=high_watermark, last_stable_offset=stable
        )
        return True

    # Retention.

    def facts(self) -> list[SegmentFacts]:
        """What retention goes by."""
        view = self._view
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
            policies = policies_for(self._config, self._clock.now_ms(), self.log_start)
        return plan_retention(self.facts(), policies, high_watermark=self.high_watermark)

    def retain(self, policies: tuple[RetentionPolicy, ...] | None = None) -> RetentionPlan:
        """Delete the segments that the topic's configs (or ``policies``) let go. The files stay, under
        another name, for ``file.delete.delay.ms``; then :meth:`remove_due` removes them."""
        with self._changing():
            plan = self.plan_retention(policies)
            if not plan.deletions:
                return plan
            if plan.needs_roll:
                self._roll(self._view.log_end)
            assert plan.new_log_start is not None
            self._raise_start(plan.new_log_start)
            view = self._view
            count = len(plan.deletions)
            gone, kept = view.segments.segments[:count], view.segments.segments[count:]
            self._view = view._replace(segments=SegmentList(kept))
            self._remove(list(gone))
            return plan

    def _remove(self, segments: list[Segment]) -> None:
        """Set segments aside, in this order. Who reads them still can."""
        paths: list[str] = []
        for segment in segments:
            paths += rename_deleted(self._file_system, self.folder, segment.base_offset)
            snapshot = self._snapshots.rename_deleted(segment.base_offset)
            if snapshot is not None:
                paths.append(snapshot)
        self._synced(lambda: self._file_system.sync_dir(self.folder))
        self._set_aside(paths)

    def _set_aside(self, paths: list[str]) -> None:
        if paths:
            due = self._clock.monotonic_ms() + self._config.file_delete_delay_ms
            self._removals.append((due, paths))

    def remove_due(self, *, all_of_them: bool = False) -> int:
        """Remove the files that were set aside for long enough; how many."""
        now = self._clock.monotonic_ms()
        with self._lock:
            due = [paths for at, paths in self._removals if all_of_them or at <= now]
            self._removals = [each for each in self._removals if not all_of_them and each[0] > now]
        for paths in due:
            for path in paths:
                self._file_system.unlink(path)
        return sum(map(len, due))

    def expire_producers(self) -> int:
        """Forget producers that were silent for too long; how many."""
        with self._changing():
            return self._producers.expire(self._clock.now_ms(), self._options.producer_ttl_ms)

    # The end.

    def close(self) -> None:
        """Bring everything to the disk and let go of the files. Afterwards the log may be opened with
        ``is_clean``. After a failure only the files are let go."""
        self._sync_queue.close()
        with self._flush_lock, self._lock:
            if self._is_closed:
                return
            try:
                if self._failure is None:
                    self._finish()
            finally:
                self._is_closed = True
                for segment in self._view.segments.segments:
                    segment.close()
                self._wake()

    def _finish(self) -> None:
        active, end = self._active, self._view.log_end
        if end > self._producers.snapshot_offset:
            self._snapshots.write(self._producers, end)
        active.finish()
        self._synced(active.sync_log)
        self._synced(active.sync_indexes)
        self._synced(self._snapshots.sync)
        self._synced(lambda: self._file_system.sync_dir(self.folder))
        self.recovery_point = end
        self._commit.raise_to(end)

    def abandon(self) -> None:
        """Let go of the files as they are, as a process does that dies."""
        with self._lock:
            self._is_closed = True
            for segment in self._view.segments.segments:
                segment.close()
        self._sync_queue.close()
        self._wake()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock:
            self._check_usable()
            try:
                yield
            except StorageError as error:
                self._fail_unless_full(error)
                raise

    @contextmanager
    def _unbroken(self) -> Iterator[None]:
        """Steps that only mean something together: where one fails, so does the log."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, StorageError):
                error = StorageError(f"interrupted: {error!r}", path=self.folder)
            self._fail(error)
            raise

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise LogFailedError(
                f"an earlier write failed ({self._failure.detail}): open the log again to recover it",
                path=self.folder,
                errno=self._failure.errno,
            )
        if self._is_closed:
            raise UsageError(f"{os.path.basename(self.folder)} is closed")

    def _fail_unless_full(self, error: StorageError) -> None:
        """A disk that is full, or a process with too many files, can be helped; what else the system
        refuses tells that something is wrong with the disk."""
        if error.errno is not None and error.errno not in _NO_ROOM:
            self._fail(error)

    def _fail(self, error: StorageError) -> None:
        if self._failure is None:
            self._failure = error
