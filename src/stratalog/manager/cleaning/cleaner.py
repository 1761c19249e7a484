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
from contextlib import ExitStack, contextmanager, suppress
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
    """What is remembered of one open log. ``cleanings`` is how many are in progress or wait for their turn,
    ``in_background`` how many of them no caller has asked for; ``failed`` has the segments that could not be
    cleaned, and why."""

    cleanings: int = 0
    in_background: int = 0
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
        self._ended = threading.Condition(self._lock)
        #: Held while a log is chosen and marked, so that no two threads choose the same one.
        self._choosing = threading.Lock()
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
        self,
        topic_partition: TopicPartition,
        view: LogView,
        config: LogConfig,
        limit: int | None = None,
    ) -> CleanableLog:
        checkpoint = self._directory(topic_partition).cleaned_offsets.offsets.get(topic_partition)
        return find_cleanable(
            view, config, checkpoint=checkpoint, now_ms=self._clock.now_ms(), limit=limit
        )

    def _directory(self, topic_partition: TopicPartition) -> LogDirectory:
        return self._catalogue.directory(topic_partition)

    def compact(self) -> Compact:
        """Return the rewrite that compacts logs whatever their policy and ratio, and stores how far it came
        as the cleaner does."""
        return Compact(self._settings, self._clock.now_ms(), self._checkpoint_of, self.store)

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
        with ExitStack() as attempt:
            with self._choosing:
                found = self.dirtiest()
                if found is None:
                    return False
                attempt.enter_context(suppress(UnknownPartitionError))  # others have their turn
                attempt.enter_context(
                    self._attempt(found.topic_partition, found.log, in_background=True)
                )
            checkpoint = self._checkpoint(found.topic_partition, found.log)
            self._record(
                found.log,
                lambda: clean_log(
                    found.log,
                    checkpoint,
                    self._settings,
                    limits.stopping(lambda: not self._compacts(found.topic_partition)),
                    now_ms=self._clock.now_ms(),
                ),
            )
        return True

    def clean(
        self, topic_partition: TopicPartition, limits: RewriteLimits, *, roll: bool = False
    ) -> list[CleaningResult]:
        """Clean a log now, whatever its policy and ratio, up to the active segment; with ``roll``, begin a
        new segment first, so that everything before is cleaned."""
        if roll:
            self._partitions.get(topic_partition).roll()
        _, log = self._look_to_clean(topic_partition)
        results: list[CleaningResult] = []
        with self._attempt(topic_partition, log):
            rounds = clean_to_end(
                log,
                self._checkpoint(topic_partition, log),
                self._settings,
                limits,
                now_ms=self._clock.now_ms(),
            )
            while (result := self._record(log, lambda: next(rounds, None))) is not None:
                results.append(result)
        return results

    def _compacts(self, topic_partition: TopicPartition) -> bool:
        """Return whether the topic of a log is still compacted."""
        try:
            return self._catalogue.config(topic_partition.topic).compacts
        except UnknownPartitionError:
            return False

    def wait_until_stopped(self, topic: str) -> None:
        """Wait until no log of a topic that is not compacted any more is cleaned in the background."""
        with self._lock:
            self._ended.wait_for(
                lambda: (
                    not any(
                        memory.in_background and _topic_partition_of(log.folder).topic == topic
                        for log, memory in self._memories.items()
                    )
                )
            )

    def _checkpoint(self, topic_partition: TopicPartition, log: PartitionLog) -> _StoredCheckpoint:
        return _StoredCheckpoint(self, topic_partition, log)

    def find(
        self, topic_partition: TopicPartition, log: PartitionLog, limit: int | None
    ) -> CleanableLog:
        """Return how dirty a log is. RewriteStoppedError if its topic was deleted, and another created."""
        view, now_open = self._look(topic_partition)
        if now_open is not log:
            raise RewriteStoppedError(f"the topic of {topic_partition} was deleted")
        config = self._catalogue.config(topic_partition.topic)
        return self._cleanable(topic_partition, view, config, limit)

    @contextmanager
    def _attempt(
        self, topic_partition: TopicPartition, log: PartitionLog, *, in_background: bool = False
    ) -> Iterator[None]:
        """Mark a log as being cleaned; remember why the attempt failed. Raise UnknownPartitionError if that
        is because its topic was deleted."""
        with self._lock:
            self._memory(log).cleanings += 1
            self._memory(log).in_background += in_background
        try:
            yield
        except RewriteStoppedError:
            raise
        except Exception as error:
            if isinstance(error, StratalogError):
                self._partitions.check_not_deleted(topic_partition, log, error)
            self._give_up(topic_partition, log, error)
            raise
        finally:
            with self._lock:
                self._memory(log).cleanings -= 1
                self._memory(log).in_background -= in_background
                self._ended.notify_all()

    def _give_up(
        self, topic_partition: TopicPartition, log: PartitionLog, error: Exception
    ) -> None:
        try:
            trace = _trace(self._look(topic_partition)[0])
        except StratalogError:
            trace = ()
        with self._lock:
            self._memory(log).failed = trace, _text_of(error)

    def _record(
        self, log: PartitionLog, run: Callable[[], CleaningResult | None]
    ) -> CleaningResult | None:
        """Run a cleaning, and remember when and with which result."""
        started_ms = self._clock.now_ms()
        result, error = None, None
        try:
            result = run()
        except Exception as failure:
            error = _text_of(failure)
            raise
        finally:
            if result is not None or error is not None:
                ended_ms = self._clock.now_ms()
                with self._lock:
                    self._memory(log).last_run = CleanerRun(started_ms, ended_ms, result, error)
        if result is not None:
            with self._lock:
                self._memory(log).failed = None
            self._partitions.remove_later(log)
        return result

    def store(self, log: PartitionLog, end_offset: int) -> None:
        """Store where a cleaning of a log ended."""
        self._partitions.store_cleaned(_topic_partition_of(log.folder), log, end_offset)


class _StoredCheckpoint:
    """The checkpoint of one log in ``cleaner-offset-checkpoint``."""

    def __init__(
        self, cleaner: Cleaner, topic_partition: TopicPartition, log: PartitionLog
    ) -> None:
        self._cleaner = cleaner
        self._topic_partition = topic_partition
        self._log = log

    def find(self, limit: int | None = None) -> CleanableLog:
        return self._cleaner.find(self._topic_partition, self._log, limit)

    def store(self, end_offset: int) -> None:
        self._cleaner.store(self._log, end_offset)


def _text_of(error: Exception) -> str:
    return str(error) if isinstance(error, StratalogError) else repr(error)


def _topic_partition_of(folder: str) -> TopicPartition:
    found = parse_partition_dir(os.path.basename(folder))
    assert found is not None, f"{folder} is the folder of a partition"
    return found


def _trace(view: LogView) -> _Trace:
    segments = view.segments.segments[:-1]
    return tuple((segment.base_offset, segment.size_bytes) for segment in segments)
