"""Compact the logs of open directories: which log first, what came of it, and what keeps one from it.

As in Kafka, the log with the highest dirty ratio is cleaned first, and where a cleaning ended is stored in
``cleaner-offset-checkpoint``. A log whose cleaning fails is left alone until its segments change.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from stratalog.clock import Clock
from stratalog.errors import StratalogError
from stratalog.manager.open_partitions import OpenPartitions
from stratalog.manager.partition_views import PartitionViews
from stratalog.manager.root.catalogue import Catalogue
from stratalog.manager.root.directory import LogDirectory
from stratalog.rewrite.compact.clean import (
    CleanerSettings,
    CleaningResult,
    clean_log,
    clean_to_end,
    find_cleanable,
)
from stratalog.rewrite.compact.compact import Compact
from stratalog.rewrite.compact.sections import CleanableLog
from stratalog.rewrite.limits import RewriteLimits, RewriteStoppedError
from stratalog.storage.broker_config import BrokerConfig
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import parse_partition_dir
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.views.log_view import LogView
from stratalog.types import TopicPartition

__all__ = ["Cleaner", "CleanerRun", "CleanerStatus", "cleaner_settings"]

#: Identifies the segments of a log: base offsets and sizes of the sealed ones.
_Trace = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class CleanerRun:
    """The last cleaning of a partition. Times are milliseconds since 1970. ``error`` says why it failed."""

    started_ms: int
    ended_ms: int
    result: CleaningResult | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CleanerStatus:
    """What the cleaner knows of a partition.

    ``blocked_by`` says what keeps records from being compacted now. ``needs_cleaning`` says why a cleaning is
    due, None if none is. ``uncleanable`` says why the last attempt failed: the partition is tried again when
    its segments change.
    """

    topic_partition: TopicPartition
    is_compacted: bool
    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    dirty_ratio: float
    blocked_by: str
    needs_cleaning: str | None
    is_in_progress: bool
    last_run: CleanerRun | None
    uncleanable: str | None


def cleaner_settings(broker: BrokerConfig) -> CleanerSettings:
    """Return the settings of one cleaner thread: all of them share the dedupe buffer."""
    return CleanerSettings(
        dedupe_bytes=broker.log_cleaner_dedupe_buffer_size // max(broker.log_cleaner_threads, 1),
        load_factor=broker.log_cleaner_io_buffer_load_factor,
    )


class Cleaner:
    """Cleans the logs of some directories. Threads may share it."""

    def __init__(
        self,
        catalogue: Catalogue,
        partitions: OpenPartitions,
        views: PartitionViews,
        clock: Clock,
        settings: CleanerSettings,
    ) -> None:
        self._catalogue = catalogue
        self._partitions = partitions
        self._views = views
        self._clock = clock
        self._settings = settings
        self._lock = threading.Lock()
        self._in_progress: set[TopicPartition] = set()
        self._runs: dict[TopicPartition, CleanerRun] = {}
        self._uncleanable: dict[TopicPartition, tuple[_Trace, str]] = {}

    # What there is to do.

    def status(self, topic_partition: TopicPartition) -> CleanerStatus:
        """Return what is known of a partition."""
        view, config = self._look(topic_partition)
        cleanable = self._cleanable(topic_partition, view, config)
        with self._lock:
            uncleanable = self._uncleanable.get(topic_partition)
            return CleanerStatus(
                topic_partition=topic_partition,
                is_compacted=config.compacts,
                first_dirty=cleanable.first_dirty,
                first_uncleanable=cleanable.first_uncleanable,
                clean_bytes=cleanable.clean_bytes,
                cleanable_bytes=cleanable.cleanable_bytes,
                dirty_ratio=cleanable.dirty_ratio,
                blocked_by=cleanable.blocked_by,
                needs_cleaning=cleanable.needs_cleaning if config.compacts else None,
                is_in_progress=topic_partition in self._in_progress,
                last_run=self._runs.get(topic_partition),
                uncleanable=None if uncleanable is None else uncleanable[1],
            )

    def _look(self, topic_partition: TopicPartition) -> tuple[LogView, LogConfig]:
        """Return a partition as readers see it, without commits that are not finished."""
        (found,) = self._views.look([topic_partition])
        return found.view, self._catalogue.config(topic_partition.topic)

    def _cleanable(
        self, topic_partition: TopicPartition, view: LogView, config: LogConfig
    ) -> CleanableLog:
        checkpoint = self._directory(topic_partition).cleaned_offsets.offsets.get(topic_partition)
        return find_cleanable(view, config, checkpoint=checkpoint, now_ms=self._clock.now_ms())

    def _directory(self, topic_partition: TopicPartition) -> LogDirectory:
        return self._catalogue.directory(topic_partition)

    def compact(self) -> Compact:
        """Return the rewrite that compacts logs whatever their policy and ratio, and stores how far it came
        as the cleaner does."""
        return Compact(self._settings, self._clock.now_ms(), self._checkpoint_of, self._store)

    def _checkpoint_of(self, folder: str) -> int | None:
        topic_partition = _topic_partition_of(folder)
        return self._directory(topic_partition).cleaned_offsets.offsets.get(topic_partition)

    def dirtiest(self) -> tuple[TopicPartition, CleanableLog] | None:
        """Return the compacted log that needs cleaning most; None if none does."""
        found: list[tuple[float, TopicPartition, CleanableLog]] = []
        for topic_partition in sorted(self._catalogue.directory_of):
            try:
                cleanable = self._candidate(topic_partition)
            except StratalogError:
                continue  # deleted meanwhile, or damaged: using it says so
            if cleanable is not None:
                found.append((cleanable.dirty_ratio, topic_partition, cleanable))
        if not found:
            return None
        _, topic_partition, cleanable = max(found, key=lambda each: each[0])
        return topic_partition, cleanable

    def _candidate(self, topic_partition: TopicPartition) -> CleanableLog | None:
        if not self._catalogue.config(topic_partition.topic).compacts:
            return None
        with self._lock:
            if topic_partition in self._in_progress:
                return None
        view, config = self._look(topic_partition)
        with self._lock:
            failed = self._uncleanable.get(topic_partition)
            if failed is not None and failed[0] == _trace(view):
                return None
        cleanable = self._cleanable(topic_partition, view, config)
        return None if cleanable.needs_cleaning is None else cleanable

    # Doing it.

    def clean_dirtiest(self, limits: RewriteLimits) -> bool:
        """Clean the log that needs it most, one round of it; return whether there was one."""
        found = self.dirtiest()
        if found is None:
            return False
        topic_partition, cleanable = found
        with self._attempt(topic_partition):
            log = self._partitions.get(topic_partition)
            result = self._record(
                topic_partition,
                lambda: clean_log(
                    log, cleanable, self._settings, limits, now_ms=self._clock.now_ms()
                ),
            )
            self._finish(topic_partition, log, result)
        return True

    def clean(
        self, topic_partition: TopicPartition, limits: RewriteLimits, *, roll: bool = False
    ) -> list[CleaningResult]:
        """Clean a log now, whatever its policy and ratio, up to the active segment; with ``roll``, begin a
        new segment first, so that everything before is cleaned."""
        log = self._partitions.get(topic_partition)
        results: list[CleaningResult] = []
        with self._attempt(topic_partition):
            if roll:
                log.roll()
            view, config = self._look(topic_partition)
            cleanable = self._cleanable(topic_partition, view, config)
            rounds = clean_to_end(
                log, cleanable, self._settings, limits, now_ms=self._clock.now_ms()
            )
            while (result := self._record(topic_partition, lambda: next(rounds, None))) is not None:
                self._finish(topic_partition, log, result)
                results.append(result)
        return results

    @contextmanager
    def _attempt(self, topic_partition: TopicPartition) -> Iterator[None]:
        """Mark a log as being cleaned; remember why the attempt failed."""
        with self._lock:
            self._in_progress.add(topic_partition)
        try:
            yield
        except RewriteStoppedError:
            raise
        except StratalogError as error:
            self._give_up(topic_partition, error)
            raise
        finally:
            with self._lock:
                self._in_progress.discard(topic_partition)

    def _give_up(self, topic_partition: TopicPartition, error: StratalogError) -> None:
        try:
            trace = _trace(self._look(topic_partition)[0])
        except StratalogError:
            trace = ()
        with self._lock:
            self._uncleanable[topic_partition] = trace, str(error)

    def _record(
        self, topic_partition: TopicPartition, run: Callable[[], CleaningResult | None]
    ) -> CleaningResult | None:
        """Run a cleaning, and remember when and with which result."""
        started_ms = self._clock.now_ms()
        result, error = None, None
        try:
            result = run()
        except StratalogError as failure:
            error = str(failure)
            raise
        finally:
            if result is not None or error is not None:
                with self._lock:
                    self._runs[topic_partition] = CleanerRun(
                        started_ms, self._clock.now_ms(), result, error
                    )
        return result

    def _finish(
        self, topic_partition: TopicPartition, log: PartitionLog, result: CleaningResult | None
    ) -> None:
        """Store where a cleaning ended, and have the old files removed when their time has come."""
        if result is None:
            return
        with self._lock:
            self._uncleanable.pop(topic_partition, None)
        self._store(log.folder, result.end_offset)
        self._partitions.remove_later(log)

    def _store(self, folder: str, end_offset: int) -> None:
        self._partitions.store_cleaned(_topic_partition_of(folder), end_offset)


def _topic_partition_of(folder: str) -> TopicPartition:
    found = parse_partition_dir(os.path.basename(folder))
    assert found is not None, f"{folder} is the folder of a partition"
    return found


def _trace(view: LogView) -> _Trace:
    segments = view.segments.segments[:-1]
    return tuple((segment.base_offset, segment.size_bytes) for segment in segments)
