"""Do in the background what Kafka's log manager does: retention, checkpoints, expiring producers.

Each of these is a job of the scheduler, which also flushes by ``flush.ms`` and removes deleted files. A job
that goes over all partitions does so in steps of a few, so that other jobs have their turn, and closing the
logs waits for one partition at most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final

from stratalog.clock import Clock
from stratalog.errors import StratalogError
from stratalog.manager.append_gate import AppendGate
from stratalog.manager.attempt import attempt_each, raise_first
from stratalog.manager.open_partitions import OpenPartitions
from stratalog.manager.root.catalogue import Catalogue
from stratalog.manager.scheduler import Interval
from stratalog.manager.unopened import may_retain
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.log.retention import BreachedStart, RetentionPolicy, policies_for
from stratalog.storage.partition_log import PartitionLog
from stratalog.types import TopicPartition

__all__ = [
    "CHECKPOINT_LOG_STARTS",
    "CHECKPOINT_RECOVERY",
    "EXPIRE_PRODUCERS",
    "RETENTION",
    "Background",
]

RETENTION: Final = "retention"
CHECKPOINT_RECOVERY: Final = "checkpoint-recovery-points"
CHECKPOINT_LOG_STARTS: Final = "checkpoint-log-starts"
EXPIRE_PRODUCERS: Final = "expire-producers"

#: How many partitions a job visits before others have their turn.
_STEP: Final = 32
#: When retention is tried again that found a commit under way.
_COMMIT_PAUSE_MS: Final = 100


class Background:
    """The jobs of some open log directories. The scheduler holds them weakly: they end with this object."""

    def __init__(
        self,
        catalogue: Catalogue,
        partitions: OpenPartitions,
        gate: AppendGate,
        file_system: FileSystem,
        clock: Clock,
    ) -> None:
        """``gate`` is entered while a log is retained: a commit counts on what it found in its logs."""
        self._catalogue = catalogue
        self._partitions = partitions
        self._gate = gate
        self._file_system = file_system
        self._clock = clock
        self._broker = catalogue.broker
        self._retention_round: deque[TopicPartition] = deque()
        self._waits_for_commit = False
        self._expiry_round: deque[TopicPartition] = deque()

    def start(self) -> None:
        """Schedule the jobs of Kafka's log manager."""
        broker = self._broker
        self.add(RETENTION, self.retain, self.retention_pause_ms)
        self.add(
            CHECKPOINT_RECOVERY,
            self.checkpoint_recovery,
            broker.log_flush_offset_checkpoint_interval_ms or None,
        )
        self.add(
            CHECKPOINT_LOG_STARTS,
            self.checkpoint_log_starts,
            broker.log_flush_start_offset_checkpoint_interval_ms or None,
        )
        self.add(EXPIRE_PRODUCERS, self.expire_producers, self.expiry_pause_ms)

    def add(
        self,
        name: str,
        run: Callable[[], object],
        interval: Interval,
        *,
        delay_ms: int | None = None,
    ) -> None:
        """Schedule a job, first after ``delay_ms``, which is ``log.initial.task.delay.ms`` if not given.

        Jobs run one after the other: a long one does its work in steps and looks at ``is_stopping``. A
        method is held weakly, and its object must be kept elsewhere.
        """
        if delay_ms is None:
            delay_ms = self._broker.log_initial_task_delay_ms
        self._partitions.scheduler.add(name, run, interval, delay_ms=delay_ms)

    @property
    def is_stopping(self) -> bool:
        """Whether the logs are being closed, which waits for the job that runs."""
        return self._partitions.scheduler.is_stopping

    # Retention.

    def retain(self) -> None:
        """Apply retention to the next partitions of a round over all; later, if a commit is under way."""
        self._waits_for_commit = self._gate.is_closed
        if not self._waits_for_commit:
            self._visit(self._retention_round, self._catalogue.directory_of, self._retain)

    def retention_pause_ms(self) -> int:
        """Return the pause after a step: none before the end of a round."""
        if self._waits_for_commit:
            return _COMMIT_PAUSE_MS
        return 0 if self._retention_round else self._broker.log_retention_check_interval_ms

    def _retain(self, topic_partition: TopicPartition, failures: list[StratalogError]) -> None:
        log = self._partitions.find(topic_partition)
        if log is None and not self._may_retain(topic_partition, failures):
            return
        if log is not None and log.failure is not None:
            return  # its next append says why
        self._partitions.attempt(
            topic_partition, partial(self._retain_log, topic_partition.topic), failures
        )

    def _retain_log(self, topic: str, log: PartitionLog) -> None:
        with self._gate:
            self._partitions.retain_log(log, self._policies(topic, log.log_start))

    def _may_retain(self, topic_partition: TopicPartition, failures: list[StratalogError]) -> bool:
        """Return whether a log must be opened to know what retention does. One that could not be opened is
        not tried again: using it says why."""
        if topic_partition not in self._catalogue.directory_of:
            return False
        if self._partitions.recoveries.is_refused(topic_partition):
            return False
        directory = self._catalogue.directory(topic_partition)
        log_start = directory.log_starts.of(topic_partition)
        policies = self._policies(topic_partition.topic, log_start)
        try:
            folder = directory.folder(topic_partition)
            return may_retain(self._file_system, folder, policies, self._clock.now_ms())
        except StratalogError as error:
            if topic_partition in self._catalogue.directory_of:  # else it was deleted meanwhile
                failures.append(error)
            return False

    def _policies(self, topic: str, log_start: int) -> tuple[RetentionPolicy, ...]:
        """Return the policies for a topic. If Kafka created it, its configs are not known, and nothing is
        deleted by size or age: it may be meant to be kept."""
        if not self._catalogue.has_configs(topic):
            return (BreachedStart(log_start),)
        return policies_for(self._catalogue.config(topic), self._clock.now_ms(), log_start)

    # Producers.

    def expire_producers(self) -> None:
        """Forget idle producers of the next open logs of a round over all."""
        self._visit(self._expiry_round, self._partitions.open_now(), self._expire)

    def expiry_pause_ms(self) -> int:
        """Return the pause after a step: none before the end of a round."""
        return 0 if self._expiry_round else self._broker.producer_id_expiration_check_interval_ms

    def _expire(self, topic_partition: TopicPartition, failures: list[StratalogError]) -> None:
        log = self._partitions.find(topic_partition)
        if log is not None and log.failure is None:
            self._partitions.attempt(topic_partition, _expire_producers, failures)

    def _visit(
        self,
        left: deque[TopicPartition],
        partitions: Iterable[TopicPartition],
        visit: Callable[[TopicPartition, list[StratalogError]], None],
    ) -> None:
        """Visit the next partitions of a round, and begin one with all ``partitions`` if there is none.
        Errors stop nothing else; the first is raised after the step."""
        if not left:
            left.extend(sorted(partitions))
        failures: list[StratalogError] = []
        for _ in range(min(_STEP, len(left))):
            if self.is_stopping:
                break
            visit(left.popleft(), failures)
        raise_first(failures)

    # Checkpoints.

    def checkpoint_recovery(self) -> None:
        """Write the recovery points and high watermarks of all directories."""
        self._checkpoint(("recovery_points", "high_watermarks"))

    def checkpoint_log_starts(self) -> None:
        """Write the log start offsets of all directories."""
        self._checkpoint(("log_starts",))

    def _checkpoint(self, names: Collection[str]) -> None:
        with self._partitions.lock:
            attempt_each(
                partial(self._partitions.checkpoint, number, names)
                for number in range(self._partitions.directory_count)
            )


def _expire_producers(log: PartitionLog) -> None:
    log.expire_producers()
