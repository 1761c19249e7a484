"""The logs that are in use: opened at their first use, kept up by scheduled jobs, closed in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from stratalog.clock import Clock
from stratalog.errors import (
    CorruptionError,
    StorageError,
    StratalogError,
    UnknownPartitionError,
    UsageError,
)
from stratalog.manager.attempt import attempt
from stratalog.manager.root.catalogue import Catalogue
from stratalog.manager.root.checkpointing import ALL_FILES, write_checkpoints
from stratalog.manager.root.directory import LogDirectory
from stratalog.manager.root.recoveries import OnRecovery, Recoveries
from stratalog.manager.scheduler import Scheduler
from stratalog.manager.upkeep import DueFlushes, DueRemovals
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.files.forks import check_forks, fork_count
from stratalog.storage.log.retention import RetentionPlan, RetentionPolicy
from stratalog.storage.names import parse_partition_dir
from stratalog.storage.partition_log import PartitionLog, Watermark
from stratalog.storage.segment.tail_verdict import OnDamage
from stratalog.storage.views.read_only import check_format
from stratalog.types import TopicPartition

__all__ = ["OpenPartitions", "closed_error"]

_FLUSH: Final = "flush"
_DELETE_FILES: Final = "delete-files"


class OpenPartitions:
    """The partitions of some log directories that are open for writing. Threads may share it."""

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        catalogue: Catalogue,
        file_system: FileSystem,
        clock: Clock,
        *,
        watermark: Watermark,
        on_damage: OnDamage,
        on_recovery: OnRecovery,
    ) -> None:
        self._directories = directories
        self._catalogue = catalogue
        self._file_system = file_system
        self._clock = clock
        self._watermark = watermark
        self._on_damage = on_damage
        self._logs: dict[TopicPartition, PartitionLog] = {}
        #: Topics that were deleted, or whose deletion has failed.
        self._dropped: set[str] = set()
        self.recoveries = Recoveries(on_recovery)
        self.scheduler = Scheduler(clock)
        self._flushes = DueFlushes()
        self._removals = DueRemovals(clock)
        self.scheduler.add(_FLUSH, self._flushes.run, self._flushes.interval_ms)
        self.scheduler.add(_DELETE_FILES, self._removals.run, self._removals.interval_ms)
        self.lock = catalogue.lock
        self.is_closed = False
        self._forks = fork_count()

    @property
    def directory_count(self) -> int:
        """How many directories there are: they are numbered from 0 on."""
        return len(self._directories)

    @property
    def is_inherited(self) -> bool:
        """Whether another process opened them: the one that this process was forked from."""
        return self._forks != fork_count()

    def check_process(self) -> None:
        """Raise UsageError if they are inherited."""
        check_forks(self._forks, "this log directory")

    def get(self, topic_partition: TopicPartition) -> PartitionLog:
        """Return the log of a partition; open and recover it at its first use."""
        log = self._logs.get(topic_partition)
        return self._open(topic_partition) if log is None else log

    def is_open(self, topic_partition: TopicPartition) -> bool:
        """Return whether the log of a partition was opened already."""
        return topic_partition in self._logs

    def _open(self, topic_partition: TopicPartition) -> PartitionLog:
        with self.lock:
            if self.is_closed:
                raise closed_error()
            log = self._logs.get(topic_partition)
            if log is not None:
                return log
            directory = self._catalogue.directory(topic_partition)
            log = self._load(topic_partition, directory)
            log.before_truncation(partial(self.lower_cleaned, topic_partition))
            self.lower_cleaned(topic_partition, log.log_end)  # recovery may have truncated it
            self._logs[topic_partition] = log
            self.flush_by_time(log)
            if log.report:
                self.remove_later(log)  # recovery may have set files aside
            if log.recovery_point < directory.recovery_points.of(topic_partition):
                # The log is shorter than its recovery point. After a crash, what is appended now must not
                # be taken for what was flushed before.
                self.checkpoint(self._catalogue.directory_of[topic_partition])
            return log

    def _load(self, topic_partition: TopicPartition, directory: LogDirectory) -> PartitionLog:
        folder = directory.folder(topic_partition)
        try:
            check_format(folder, self._file_system)
            log = PartitionLog.open(
                folder,
                self._catalogue.config(topic_partition.topic),
                file_system=self._file_system,
                clock=self._clock,
                recovery_point=directory.recovery_points.of(topic_partition),
                log_start=directory.log_starts.of(topic_partition),
                is_clean=directory.was_clean and topic_partition.topic not in self._dropped,
                clean_end=directory.clean_end(topic_partition),
                on_damage=self._on_damage,
                producer_ttl_ms=self._catalogue.broker.producer_id_expiration_ms,
                watermark=self._watermark,
            )
        except CorruptionError as error:
            self.recoveries.refused(topic_partition, error)
            raise
        self.recoveries.opened(topic_partition, folder, log.report)
        return log

    def flush_by_time(self, log: PartitionLog) -> None:
        """Schedule the flushes of a log by its ``flush.ms``, which may have changed."""
        if self._flushes.watch(log):
            self.scheduler.reschedule(_FLUSH)

    def remove_later(self, log: PartitionLog) -> None:
        """Schedule the removal of files that a log has set aside."""
        self._removals.watch(log)
        self.scheduler.reschedule(_DELETE_FILES)

    def store_cleaned(
        self, topic_partition: TopicPartition, log: PartitionLog, offset: int
    ) -> None:
        """Store up to which offset a log is compacted, unless its topic was deleted: the log that has its
        name now may be of another topic, which is not compacted."""
        with self.lock:
            if self.is_closed or self._logs.get(topic_partition) is not log:
                return
            known = self._catalogue.directory_of
            checkpoint = self._catalogue.directory(topic_partition).cleaned_offsets
            offsets = {each: at for each, at in checkpoint.offsets.items() if each in known}
            checkpoint.write({**offsets, topic_partition: offset})

    def lower_cleaned(self, topic_partition: TopicPartition, offset: int) -> None:
        """Store that a log is compacted up to ``offset`` at most: what is appended there is new."""
        with self.lock:
            checkpoint = self._catalogue.directory(topic_partition).cleaned_offsets
            if checkpoint.offsets.get(topic_partition, 0) > offset:
                checkpoint.write({**checkpoint.offsets, topic_partition: offset})

    def reconfigure(self, topic: str) -> None:
        """Apply the present configs of a topic to its open logs. A log that failed takes them when it is
        opened again."""
        config = self._catalogue.config(topic)
        for topic_partition, log in list(self._logs.items()):
            if topic_partition.topic == topic and log.failure is None:
                log.reconfigure(config)
                self.flush_by_time(log)

    def drop(self, topic: str) -> None:
        """Release the logs of a topic that was deleted, without writing anything, and wake their readers."""
        with self.lock:
            self._dropped.add(topic)
            gone = {
                topic_partition: log
                for topic_partition, log in self._logs.items()
                if topic_partition.topic == topic
            }
            self._logs = {
                topic_partition: log
                for topic_partition, log in self._logs.items()
                if topic_partition not in gone
            }
            self.recoveries.forget(topic)
        for log in gone.values():
            log.abandon()

    def check_not_deleted(
        self, topic_partition: TopicPartition, log: PartitionLog, error: StratalogError
    ) -> None:
        """Raise UnknownPartitionError if the topic of a log was deleted while the log was used: whatever the
        ``error`` says, that is why."""
        if self._logs.get(topic_partition) is not log:
            topic = topic_partition.topic
            raise UnknownPartitionError(f"topic {topic!r} was deleted in the meantime") from error

    def remove_folders_later(self, folders: Collection[tuple[int, str]], delay_ms: int) -> None:
        """Schedule the removal of the folders of a deleted topic."""
        self._removals.add(delay_ms, partial(self._catalogue.remove_folders, folders))
        self.scheduler.reschedule(_DELETE_FILES)

    def open_all(self, failures: list[StratalogError]) -> None:
        """Open every partition. Errors are added to ``failures`` and stop nothing else."""
        for topic_partition in sorted(self._catalogue.directory_of):
            self.attempt(topic_partition, None, failures)

    def flush(self, failures: list[StratalogError]) -> None:
        """Flush and sync every open log. Errors are added to ``failures`` and stop nothing else."""
        for topic_partition in self.open_now():
            self.attempt(topic_partition, _flush, failures)

    def retain_log(
        self, log: PartitionLog, policies: tuple[RetentionPolicy, ...] | None = None
    ) -> RetentionPlan:
        """Apply retention to an open log, by its configs or by ``policies``, and schedule the removal of its
        files; return what was deleted, and why."""
        plan = log.retain(policies)
        if plan.deletions:
            self.remove_later(log)
        return plan

    def find(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Return the log of a partition if it is open."""
        return self._logs.get(topic_partition)

    def open_now(self) -> list[TopicPartition]:
        """Return the partitions whose logs are open."""
        with self.lock:
            return list(self._logs)

    def attempt(
        self,
        topic_partition: TopicPartition,
        call: Callable[[PartitionLog], None] | None,
        failures: list[StratalogError],
    ) -> None:
        """Open a log, call a function with it if one is given, and keep the error; unless the topic was
        deleted meanwhile, which is then why it failed."""
        log = None
        try:
            log = self.get(topic_partition)
            if call is not None:
                call(log)
        except StratalogError as error:
            is_known = topic_partition in self._catalogue.directory_of
            if is_known and (log is None or self._logs.get(topic_partition) is log):
                failures.append(error)

    def checkpoint(self, number: int, names: Collection[str] = ALL_FILES) -> None:
        """Write the checkpoint files of a directory, or only those that are named."""
        directory_of = self._catalogue.directory_of
        logs = {
            topic_partition: log
            for topic_partition, log in self._logs.items()
            if directory_of.get(topic_partition) == number  # it may have been deleted
        }
        write_checkpoints(self._directories[number], logs, directory_of, number, names)

    def abandon(self) -> None:
        """Release every log as it is, without writing anything."""
        if not self.is_inherited:  # the thread is the parent's
            self.scheduler.stop()
        for log in self._logs.values():
            log.abandon()

    def close(self, failures: list[StratalogError]) -> None:
        """Close every log, write the checkpoints and the clean-shutdown markers. Errors are added to
        ``failures`` and stop nothing else."""
        directory_of = self._catalogue.directory_of
        failed: set[int] = set()
        for topic_partition, log in self._logs.items():
            if not attempt(log.close, failures) or log.failure is not None:
                failed.add(directory_of[topic_partition])
            attempt(partial(log.remove_due, all_of_them=True), failures)
        attempt(self._catalogue.remove_folders, failures)
        for number, directory in enumerate(self._directories):
            if number in failed:
                continue  # no checkpoint may claim what its logs could not write
            # Logs that were not opened are as they were: in order, if the last shutdown was clean.
            is_clean = directory.was_clean or all(
                topic_partition in self._logs
                for topic_partition, at in directory_of.items()
                if at == number
            )
            if not attempt(partial(self.checkpoint, number), failures):
                continue
            if is_clean and not self._has_abandoned(directory):
                attempt(directory.mark_clean, failures)

    def _has_abandoned(self, directory: LogDirectory) -> bool:
        """Return whether a directory holds a partition whose deletion has failed: its log was released
        without writing anything, and the next opening may find that the topic is not deleted."""
        if not self._dropped:
            return False
        try:
            entries = self._file_system.list_dir(directory.root)
        except StorageError:
            return True
        there = (parse_partition_dir(entry.name) for entry in entries)
        return any(
            each is not None and each.topic in self._dropped and each not in self._logs
            for each in there
        )


def _flush(log: PartitionLog) -> None:
    log.flush()
    log.sync()


def closed_error() -> UsageError:
    return UsageError("these logs are closed")
