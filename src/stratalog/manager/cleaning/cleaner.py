"""Compact the logs of open directories: which log first, what came of it, and what keeps one from it.

As in Kafka, the log with the highest dirty ratio is cleaned first, and where a cleaning ended is stored in
``cleaner-offset-checkpoint``. A log whose cleaning fails is left alone until its segments change.

A topic may be deleted while one of its logs is cleaned, and another one of the same name created. So what is
remembered of a log, and its checkpoint, belong to the open log and not to the name.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

from stratalog.clock import Clock
from stratalog.errors import StratalogError, UnknownPartitionError
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


class _Candidate(NamedTuple):
    """A log that needs cleaning, and how dirty it is."""

    topic_partition: TopicPartition
    log: PartitionLog
    cleanable: CleanableLog


@dataclass(slots=True)
class _Memory:
    """What is remembered of one open log. ``cleanings`` is how many are in progress or wait for their turn;
    ``failed`` has the segments that could not be cleaned, and why."""

    cleanings: int = 0
    last_run: CleanerRun | None = None
    failed: tuple[_Trace, str] | None = None


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
        self._memories: WeakKeyDictionary[PartitionLog, _Memory] = WeakKeyDictionary()

    def _memory(self, log: PartitionLog | None) -> _Memory:
        """Return what is remembered of a log; nothing, if it is not open for writing. The caller holds the
        lock."""
        return _Memory() if log is None else self._memories.setdefault(log, _Memory())

    # What there is to do.

    def status(self, topic_partition: TopicPartition) -> CleanerStatus:
        """Return what is known of a partition."""
        view, log = self._look(topic_partition)
        config = self._catalogue.config(topic_partition.topic)
        cleanable = self._cleanable(topic_partition, view, config)
        with self._lock:
            memory = self._memory(log)
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
                is_in_progress=memory.cleanings > 0,
                last_run=memory.last_run,
                uncleanable=None if memory.failed is None else memory.failed[1],
            )

    def _look(self, topic_partition: TopicPartition) -> tuple[LogView, PartitionLog | None]:
        """Return a partition as readers see it, without commits that are not finished, and its log, if it is
        open for writing."""
        (found,) = self._views.look([topic_partition])
        return found.view, found.log

    def _look_to_clean(self, topic_partition: TopicPartition) -> tuple[LogView, PartitionLog]:
        """Return a partition as readers see it, and the log that the view was taken of."""
        view, log = self._look(topic_partition)
        assert log is not None, "only logs that are open for writing are cleaned"
        return view, log

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

    def dirtiest(self) -> _Candidate | None:
        """Return the compacted log that needs cleaning most; None if none does."""
        found: list[_Candidate] = []
        for topic_partition in sorted(self._catalogue.directory_of):
            try:
                candidate = self._candidate(topic_partition)
            except StratalogError:
                continue  # deleted meanwhile, or damaged: using it says so
            if candidate is not None:
                found.append(candidate)
        return max(found, key=lambda each: each.cleanable.dirty_ratio, default=None)

    def _candidate(self, topic_partition: TopicPartition) -> _Candidate | None:
        config = self._catalogue.config(topic_partition.topic)
        if not config.compacts:
            return None
        view, log = self._look_to_clean(topic_partition)
        with self._lock:
            memory = self._memory(log)
            if memory.cleanings or (memory.failed is not None and memory.failed[0] == _trace(view)):
                return None
        cleanable = self._cleanable(topic_partition, view, config)
        if cleanable.needs_cleaning is None:
            return None
        return _Candidate(topic_partition, log, cleanable)

    # Doing it.

    def clean_dirtiest(self, limits: RewriteLimits) -> bool:
        """Clean the log that needs it most, one round of it; return whether there was one."""
        found = self.dirtiest()
        if found is None:
            return False
        topic_partition, log, cleanable = found
        try:
            with self._attempt(topic_partition, log):
                result = self._record(
                    log,
                    lambda: clean_log(
                        log, cleanable, self._settings, limits, now_ms=self._clock.now_ms()
                    ),
                )
                self._finish(log, result)
        except UnknownPartitionError:
            pass  # its topic was deleted: others have their turn
        return True

    def clean(
        self, topic_partition: TopicPartition, limits: RewriteLimits, *, roll: bool = False
    ) -> list[CleaningResult]:
        """Clean a log now, whatever its policy and ratio, up to the active segment; with ``roll``, begin a
        new segment first, so that everything before is cleaned."""
        if roll:
            self._partitions.get(topic_partition).roll()
        view, log = self._look_to_clean(topic_partition)
        config = self._catalogue.config(topic_partition.topic)
        results: list[CleaningResult] = []
        with self._attempt(topic_partition, log):
            cleanable = self._cleanable(topic_partition, view, config)
            rounds = clean_to_end(
                log, cleanable, self._settings, limits, now_ms=self._clock.now_ms()
            )
            while (result := self._record(log, lambda: next(rounds, None))) is not None:
                self._finish(log, result)
                results.append(result)
        return results

    @contextmanager
    def _attempt(self, topic_partition: TopicPartition, log: PartitionLog) -> Iterator[None]:
        """Mark a log as being cleaned; remember why the attempt failed. Raise UnknownPartitionError if that
        is because its topic was deleted."""
        with self._lock:
            self._memory(log).cleanings += 1
        try:
            yield
        except RewriteStoppedError:
            raise
        except StratalogError as error:
            self._partitions.check_not_deleted(topic_partition, log, error)
            self._give_up(topic_partition, log, error)
            raise
        finally:
            with self._lock:
                self._memory(log).cleanings -= 1

    def _give_up(
        self, topic_partition: TopicPartition, log: PartitionLog, error: StratalogError
    ) -> None:
        try:
            trace = _trace(self._look(topic_partition)[0])
        except StratalogError:
            trace = ()
        with self._lock:
            self._memory(log).failed = trace, str(error)

    def _record(
        self, log: PartitionLog, run: Callable[[], CleaningResult | None]
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
                ended_ms = self._clock.now_ms()
                with self._lock:
                    self._memory(log).last_run = CleanerRun(started_ms, ended_ms, result, error)
        return result

    def _finish(self, log: PartitionLog, result: CleaningResult | None) -> None:
        """Store where a cleaning ended, and have the old files removed when their time has come."""
        if result is None:
            return
        with self._lock:
            self._memory(log).failed = None
        self._store(log, result.end_offset)
        self._partitions.remove_later(log)

    def _store(self, log: PartitionLog, end_offset: int) -> None:
        self._partitions.store_cleaned(_topic_partition_of(log.folder), log, end_offset)


def _topic_partition_of(folder: str) -> TopicPartition:
    found = parse_partition_dir(os.path.basename(folder))
    assert found is not None, f"{folder} is the folder of a partition"
    return found


def _trace(view: LogView) -> _Trace:
    segments = view.segments.segments[:-1]
    return tuple((segment.base_offset, segment.size_bytes) for segment in segments)
