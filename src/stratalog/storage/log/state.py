"""What an open log is made of, and what a reader sees of it.

The values are here. Each kind of change has a module: ``appending``, ``rolling``, ``flushing``,
``truncation``, ``replacement``. All of them hold the guard's lock while they change something.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from stratalog.records.layout import INT64_MAX
from stratalog.storage.admission.rules import AppendRules
from stratalog.storage.files.failed_sync import note_failed_sync
from stratalog.storage.log.group_sync import GroupCommit
from stratalog.storage.log.guard import LogGuard
from stratalog.storage.log.removal import Removals
from stratalog.storage.log.roll_plan import draw_jitter, max_segment_ms
from stratalog.storage.log.sync_queue import SyncQueue
from stratalog.storage.log.waiters import Waiters
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import FileKind
from stratalog.storage.producers.snapshot_files import SnapshotFiles
from stratalog.storage.producers.states import ProducerStates
from stratalog.storage.recovery.load import LoadedLog
from stratalog.storage.recovery.report import LoadOptions
from stratalog.storage.segment.active import ActiveSegment
from stratalog.storage.segment.segment import Segment
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.storage.views.log_view import LogView, SegmentList

__all__ = ["LogSettings", "LogState", "Watermark"]

# What a named tuple's own function does, without that function: every append makes a view.
_new: Final = tuple.__new__


class Watermark(StrEnum):
    """What moves the high watermark."""

    CALLER = "caller"  # as in Kafka: the caller, which knows the replicas
    WRITTEN = "written"  # every append, when it is written
    SYNCED = "synced"  # every sync: readers never see what a power cut could still take away


@dataclass(frozen=True, slots=True)
class LogSettings:
    """A topic's configs as a log needs them, computed once and not for every append."""

    config: LogConfig
    rules: AppendRules
    segment_bytes: int
    max_segment_ms: int
    flush_messages: int  # is compared with the last offset
    flush_ms: int | None
    limits: IndexLimits

    @classmethod
    def of(cls, config: LogConfig) -> LogSettings:
        return cls(
            config=config,
            rules=AppendRules.of(config),
            segment_bytes=config.effective_segment_bytes,
            max_segment_ms=max_segment_ms(config),
            flush_messages=config.flush_messages - 1,
            flush_ms=config.flush_ms if config.flush_ms < INT64_MAX else None,
            limits=IndexLimits(config.index_interval_bytes, config.segment_index_bytes),
        )


class LogState:
    """One log, open for writing."""

    def __init__(
        self,
        folder: str,
        config: LogConfig,
        options: LoadOptions,
        watermark: Watermark,
        loaded: LoadedLog,
    ) -> None:
        self.folder = folder
        self.file_system = options.file_system
        self.clock = options.clock
        self.producer_ttl_ms = options.producer_ttl_ms
        self.watermark = watermark
        self.settings = LogSettings.of(config)
        self.guard = LogGuard(folder, self._note_failed_sync)
        self.waiters = Waiters()
        self.producers: ProducerStates = loaded.producers
        self.snapshots: SnapshotFiles = loaded.snapshots
        self.epochs = loaded.epochs
        self.active: ActiveSegment = loaded.active
        self._random = random.Random()  # noqa: S311  # only spreads rolls over time
        self.active.jitter_ms = draw_jitter(config, self._random)
        self.removals = Removals(
            folder, options.file_system, options.clock, self.guard, loaded.snapshots
        )
        self.removals.set_aside(loaded.set_aside, config.file_delete_delay_ms)
        #: Held while flushing, and while replacing what a flush touches.
        self.flush_lock = threading.Lock()
        #: Called with the offset before records from there on are removed; see LogMaintenance.truncate.
        self.before_truncation: Callable[[int], None] | None = None
        #: Held while new segments are written for old ones.
        self.rewrite_lock = threading.Lock()
        self.flushed_ms = options.clock.monotonic_ms()
        self.recovery_point = loaded.recovery_point
        self.commit = GroupCommit(self._sync_active, loaded.recovery_point)
        self.sync_queue = SyncQueue(self.reach)
        self.view = LogView(
            SegmentList([*loaded.sealed, loaded.active]),
            loaded.log_start,
            loaded.next_offset,
            loaded.active.size_bytes,
            loaded.log_start,
            loaded.log_start,
        )

    def _note_failed_sync(self) -> None:
        note_failed_sync(self.file_system, self.active.path(FileKind.TIME_INDEX))

    def _sync_active(self) -> int:
        """Sync everything that is written; return the offset up to which that is."""
        guard = self.guard
        with guard.lock:
            guard.check()
            active, end = self.active, self.view.log_end
        guard.synced(active.sync_log)
        if active.is_new:
            guard.synced(self.sync_folder)
            with guard.lock:
                active.is_new = False
        return end

    def reach(self, offset: int) -> None:
        """Wait until everything below ``offset`` is on the disk, and show it then. One sync serves all
        callers that wait."""
        self.commit.reach(offset)
        if self.watermark is _SYNCED and offset > self.view.high_watermark:
            self.advance_high_watermark(min(self.commit.synced_offset, self.view.log_end))

    def sync_folder(self) -> None:
        self.file_system.sync_dir(self.folder)

    def create_segment(self, base_offset: int, *, jitter_ms: int | None = None) -> ActiveSegment:
        """Create the files of a new segment, by the configs of this moment."""
        if jitter_ms is None:
            jitter_ms = draw_jitter(self.settings.config, self._random)
        return ActiveSegment.create(
            self.file_system,
            self.folder,
            base_offset,
            self.settings.limits,
            created_ms=self.clock.now_ms(),
            jitter_ms=jitter_ms,
            preallocated_bytes=(
                self.settings.segment_bytes if self.settings.config.preallocate else 0
            ),
        )

    # What a reader sees.

    def replace_segments(
        self, old: Sequence[Segment], new: Sequence[Segment], **limits: int
    ) -> None:
        """Publish a view in which ``new`` stand in the place of ``old``. If the last segment changes, the
        new last one is the active segment from now on. ``limits`` are fields of the view that change with
        the segments.

        This is the only place where the segments of an open log change. The caller holds the lock.
        """
        segments = self.view.segments.replacing(old, new)
        last = segments.last
        assert isinstance(last, ActiveSegment), "the last segment is the active one"
        if last is not self.active:
            self.active = last
            limits.setdefault("end_position", last.size_bytes)
        self.view = self.view._replace(segments=segments, **limits)

    def publish_append(self, log_end: int, moves_stable: bool) -> None:
        """Show what was written to the active segment."""
        view, producers = self.view, self.producers
        high_watermark, stable = view.high_watermark, view.last_stable_offset
        if self.watermark is _WRITTEN:
            high_watermark = log_end
            producers.on_high_watermark(log_end)
            stable = self.stable_offset(log_end, view.log_start)
        elif moves_stable:
            stable = self.stable_offset(high_watermark, view.log_start)
        producers.map_end_offset = log_end
        size_bytes = self.active.size_bytes
        self.view = _new(
            LogView, (view.segments, view.log_start, log_end, size_bytes, high_watermark, stable)
        )
        if self.waiters.count:
            self.waiters.wake()

    def stable_offset(self, high_watermark: int, log_start: int) -> int:
        """Return the offset below which no transaction is open."""
        if not self.producers.has_transactions:
            return high_watermark
        unstable = self.producers.first_unstable_offset(high_watermark)
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        return max(unstable, log_start)

    def advance_high_watermark(self, offset: int) -> int:
        """Move the high watermark forward to ``offset``, but not beyond the log end; return where it is."""
        with self.guard.lock:
            view = self.view
            offset = min(max(offset, view.high_watermark, view.log_start), view.log_end)
            self.producers.on_high_watermark(offset)
            stable = self.stable_offset(offset, view.log_start)
            if (offset, stable) != (view.high_watermark, view.last_stable_offset):
                assert view.log_start <= stable <= offset <= view.log_end
                self.view = view._replace(high_watermark=offset, last_stable_offset=stable)
                if self.waiters.count:
                    self.waiters.wake()
            return offset


_WRITTEN: Final = Watermark.WRITTEN
_SYNCED: Final = Watermark.SYNCED
