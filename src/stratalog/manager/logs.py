"""``stratalog.open``: the facade of one or several log directories, to write and read their partitions.

A partition's log is opened at its first use. Closing syncs everything and writes the checkpoints and the
clean-shutdown marker; a crash before costs a recovery, and nothing that was acknowledged.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.errors import (
    CorruptionError,
    OffsetOutOfRangeError,
    StorageError,
    StratalogError,
    UsageError,
)
from stratalog.manager.append_gate import AppendGate
from stratalog.manager.appender import Appender
from stratalog.manager.attempt import attempt, attempt_each, raise_first
from stratalog.manager.background import Background
from stratalog.manager.cleaning.cleaner import Cleaner, CleanerStatus, cleaner_settings
from stratalog.manager.cleaning.retention import PartitionRetention, TopicRetention
from stratalog.manager.cleaning.threads import CleanerThreads
from stratalog.manager.commits.commits import (
    CommitResult,
    DirectoryCommits,
    ReplaceResult,
    TopicPlan,
)
from stratalog.manager.open_partitions import OpenPartitions, closed_error
from stratalog.manager.partition_views import PartitionViews
from stratalog.manager.read.reading import LogRows, StoredRecord, isolation_of
from stratalog.manager.rewrites import Rewrites
from stratalog.manager.rewriting import RewritingLogs
from stratalog.manager.root.catalogue import Catalogue
from stratalog.manager.root.directory import LogDirectory, identity_of
from stratalog.manager.root.recoveries import OnRecovery, log_report
from stratalog.manager.root.topic_file import Topic
from stratalog.manager.scheduler import JobStatus
from stratalog.manager.topic_changes import TopicChanges
from stratalog.manager.write.batches import batch_options
from stratalog.manager.write.records import whole_number
from stratalog.manager.write.transactions import Transaction, TransactionJournal
from stratalog.records.builder import BATCH_BYTES
from stratalog.records.layout import Codec
from stratalog.rewrite.compact.clean import CleaningResult
from stratalog.rewrite.compact.compact import Compact
from stratalog.rewrite.limits import RewriteLimits
from stratalog.storage.broker_config import BrokerConfig, ConfigEntry, describe_topic
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.piece import Piece
from stratalog.storage.commits.segment_groups import PartitionGroups
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import check_topic_type, is_path
from stratalog.storage.partition_log import AppendResult, PartitionLog, Watermark
from stratalog.storage.recovery.report import LoadReport
from stratalog.storage.segment.tail_verdict import OnDamage
from stratalog.storage.server_properties import read_server_properties
from stratalog.storage.views.log_view import Isolation
from stratalog.types import TopicPartition

__all__ = ["BrokerConfigs", "Logs", "Paths", "open_logs"]

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
#: Kafka's broker configs: by name, checked already, or the path of a ``server.properties``.
BrokerConfigs = Mapping[str, object] | BrokerConfig | str | os.PathLike[str]


def open_logs(
    directories: Paths | None = None,
    *,
    config: BrokerConfigs | None = None,
    background: bool = False,
    read_only: bool = False,
    sync: bool = True,
    on_damage: OnDamage | str = OnDamage.REFUSE,
    on_recovery: OnRecovery = log_report,
    file_system: FileSystem | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Logs:
    """Open one or several log directories: Kafka's ``log.dirs``. A folder that is empty, or not there,
    becomes a log directory.

    ``config`` has Kafka's broker configs, as a mapping or as the path of a ``server.properties``: defaults
    for all topics, such as ``log.retention.hours``, and the ``log.dirs`` to open if ``directories`` is not
    given. They are not stored: a topic's own configs come first.

    With ``background``, jobs do what Kafka's log manager does: retention, compaction, checkpoints, and
    expiring idle producers, at the intervals of ``config``. ``Logs.jobs`` lists them.

    With ``sync`` an append is acknowledged when it is on the disk, and readers see it then; without, when
    the operating system has it. ``read_only`` needs no lock and changes nothing, also next to a writer.
    ``on_damage`` says what recovery does where intact records follow damaged ones: ``"refuse"`` leaves the
    partition unopened and unchanged, ``"cut"`` truncates it there and keeps what it truncates in ``*.cut``
    files. ``Logs.recovery`` and ``Logs.damage`` list what was done; ``on_recovery`` is called for each
    partition that was recovered, and by default logs it to ``stratalog.recovery``.
    """
    broker = _broker_config(config)
    if directories is None:
        directories = _directories_of(broker)
    listed: tuple[object, ...] = (directories,)
    if isinstance(directories, Iterable) and not isinstance(directories, str | os.PathLike):
        listed = tuple(directories)
    paths = [os.fspath(path) for path in listed if isinstance(path, str | os.PathLike)]
    if not paths or len(paths) < len(listed) or not all(map(is_path, paths)):
        raise UsageError(f"no log directory given: {directories!r}")
    return Logs(
        paths,
        broker=broker,
        background=background,
        read_only=read_only,
        sync=sync,
        on_damage=_on_damage(on_damage),
        on_recovery=on_recovery,
        file_system=file_system or OsFileSystem(),
        clock=clock,
    )


def _broker_config(config: object) -> BrokerConfig:
    if isinstance(config, BrokerConfig):
        return config
    if isinstance(config, str | os.PathLike):
        return read_server_properties(config)
    if config is None or isinstance(config, Mapping):
        return BrokerConfig.of(config)
    raise UsageError(f"config is a mapping of names to values, or a path, not {config!r}")


def _directories_of(broker: BrokerConfig) -> tuple[str, ...]:
    if not broker.directories:
        raise UsageError("no log directory given: name one, or set log.dirs in the config")
    return broker.directories


def _on_damage(on_damage: OnDamage | str) -> OnDamage:
    try:
        return OnDamage(on_damage)
    except ValueError:
        names = ", ".join(each.value for each in OnDamage)
        raise UsageError(f"on_damage is one of {names}, not {on_damage!r}") from None


def _config_mapping(configs: object) -> Mapping[str, object] | None:
    if configs is not None and not isinstance(configs, Mapping):
        raise UsageError(f"configs are a mapping of names to values, not {configs!r}")
    return configs


def _partition_number(partition: object) -> int:
    if type(partition) is int:
        return partition
    number = whole_number(partition)
    if number is None:
        raise UsageError(f"a partition is a whole number, not {partition!r}")
    return number


def _is_duration(seconds: object) -> bool:
    return isinstance(seconds, int | float) and seconds >= 0


class Logs(RewritingLogs):
    """Open log directories; see :func:`open_logs`. A context manager. Threads may share it.

    A forked process may read through it, as next to any other writer. Changes are refused there, and closing
    it there changes nothing.
    """

    def __init__(
        self,
        roots: Sequence[str],
        *,
        broker: BrokerConfig,
        background: bool,
        read_only: bool,
        sync: bool,
        on_damage: OnDamage,
        on_recovery: OnRecovery,
        file_system: FileSystem,
        clock: Clock,
    ) -> None:
        if background and read_only:
            raise UsageError("background jobs change the logs: open them without read_only")
        self._file_system = file_system
        self._clock = clock
        self._read_only = read_only
        self._sync = sync
        self._transactions: set[Transaction] = set()
        with ExitStack() as opened:
            # Everything is looked at before anything is changed: what cannot be opened stays as it is.
            self._directories: list[LogDirectory] = []
            for root in roots:
                directory = LogDirectory(root, file_system, read_only=read_only)
                opened.callback(directory.release)
                self._directories.append(directory)
            self._catalogue = Catalogue(self._directories, file_system, broker, read_only=read_only)
            self._partitions = OpenPartitions(
                self._directories, self._catalogue, file_system, clock,
                watermark=Watermark.SYNCED if sync else Watermark.WRITTEN, on_damage=on_damage,
                on_recovery=on_recovery,
            )  # fmt: skip
            self._lock = self._partitions.lock
            self._journals = [TransactionJournal(file_system, root) for root in roots]
            self._gate = AppendGate()
            self._commits = [
                DirectoryCommits(
                    each, self._catalogue, file_system, clock, self._partitions.get, self._gate,
                    on_replaced=self._partitions.remove_later,
                    store_cleaned=self._partitions.store_cleaned,
                )
                for each in self._directories
            ]  # fmt: skip
            self._appender = Appender(self._catalogue, self._partitions, clock, self._gate)
            self._changes = TopicChanges(
                self._catalogue, self._partitions, self._journals, self._commits,
                self._appender.joining,
            )  # fmt: skip
            self._views = PartitionViews(
                self._catalogue,
                self._partitions,
                self._commits,
                file_system,
                read_only=read_only,
            )
            self._rewrites = Rewrites(
                self._catalogue, self._partitions, self._views, self._gate, file_system, clock
            )
            self._retention = TopicRetention(
                self._partitions, self._views, self._rewrites, self._gate, clock
            )
            self._cleaner = Cleaner(
                self._catalogue, self._partitions, self._views, clock, cleaner_settings(broker)
            )
            self._background = Background(
                self._catalogue, self._partitions, self._gate, file_system, clock
            )
            if not read_only:
                opened.callback(self._partitions.abandon)
                self._begin()
            self._cleaner_threads = CleanerThreads(self._cleaner, broker, clock)
            if background:
                self._background.start()
                self._cleaner_threads.start()
            opened.pop_all()

    def _begin(self) -> None:
        for journal in self._journals:
            journal.read()
        for commits in self._commits:
            commits.read()
        cluster_id, node_id = identity_of(self._directories)
        for directory in self._directories:
            directory.begin(cluster_id, node_id, self._clock.now_ms())
        self._catalogue.complete()
        for journal in self._journals:
            journal.settle(self._log_to_settle, self._clock.now_ms())
        for commits in self._commits:
            commits.settle()

    def _log_to_settle(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Return the log of a partition; None if it is not here, or damaged: using it says why."""
        if topic_partition not in self._catalogue.directory_of:
            return None
        try:
            return self._partitions.get(topic_partition)
        except CorruptionError:
            return None

    @property
    def damage(self) -> tuple[CorruptionError, ...]:
        """Everything damaged that was found so far:

        - files of the directories that could not be read and are ignored. A damaged checkpoint counts as an
          empty one, as in Kafka: recovery then takes longer, and records deleted by ``delete_records`` may
          be back. Without the journal of commits, parts of a commit under way may be visible;
        - partitions that could not be opened;
        - what recovery truncated although it may hold intact records (``on_damage="cut"``), and the name of
          the file in which it is kept.

        Partitions are opened when they are first used: ``recover`` opens all.
        """
        found = [*self._catalogue.damage, *self._views.damage]
        for directory in self._directories:
            found += directory.damage
        return (*found, *self._partitions.recoveries.damage())

    @property
    def recovery(self) -> Mapping[TopicPartition, LoadReport]:
        """What recovery did to the partitions opened so far: segments checked, bytes truncated and where they
        are kept, files deleted and renamed. Partitions that needed no recovery are not listed. The same is
        logged to the logger ``stratalog.recovery``."""
        return self._partitions.recoveries.reports

    def recover(self) -> Mapping[TopicPartition, LoadReport]:
        """Open every partition now instead of at its first use, and return ``recovery``.

        A partition that cannot be opened does not keep the others from being opened. The first such error is
        raised at the end, and all of them are in ``damage``.
        """
        self._check_writable()
        failures: list[StratalogError] = []
        self._partitions.open_all(failures)
        raise_first(failures)
        return self.recovery

    # Topics.

    def topics(self) -> dict[str, Topic]:
        """Return every topic by its name."""
        self._views.refresh()
        return self._catalogue.topics()

    def topic(self, name: str) -> Topic:
        """Return one topic; UnknownPartitionError if there is none of this name."""
        self._views.refresh()
        return self._catalogue.topic(name)

    def topic_id(self, topic: str) -> bytes | None:
        """Return the topic's id, from its file or a partition's; None if it has none."""
        self._views.refresh()
        return self._catalogue.topic_id(topic)

    def create(
        self,
        topic: str,
        partitions: int | None = None,
        configs: Mapping[str, object] | None = None,
        /,
        *,
        exist_ok: bool = False,
        **names: object,
    ) -> Topic:
        """Create a topic. Configs go by Kafka's names, in a mapping (``{"retention.ms": 60000}``) or as
        keywords (``retention_ms=60000``). Without ``partitions`` it gets ``num.partitions`` of the broker
        config, which is 1 by default. Each partition goes to the directory with fewest.

        With ``exist_ok`` a topic that exists is returned as it is; UsageError if the number of partitions or
        a config that is given differs from its own.
        """
        self._check_writable()
        config = LogConfig.of(_config_mapping(configs), **names)
        return self._changes.create(topic, partitions, config, exist_ok=exist_ok)

    def alter_configs(self, topic: str, configs: Mapping[str, object | None]) -> Topic:
        """Change configs of a topic, by Kafka's names; None resets one to the broker's default. Open logs,
        and the flushes by ``flush.ms``, follow at once. If the topic is not compacted any more, a background
        cleaning of it is stopped, and no record of it is removed after this returns."""
        self._check_writable()
        given = _config_mapping(configs)
        if given is None:
            raise UsageError("configs are a mapping of names to values, not None")
        altered = self._changes.alter_configs(topic, given)
        if not altered.config.compacts:
            self._cleaner.wait_until_stopped(topic)
        return altered

    @property
    def broker_config(self) -> BrokerConfig:
        """The broker configs that the logs were opened with."""
        return self._catalogue.broker

    def describe_configs(self, topic: str) -> dict[str, ConfigEntry]:
        """Return every config of a topic by name: its value, where that comes from (``topic``, ``broker`` or
        ``default``), and all places that have a value, the one that counts first."""
        self._views.refresh()
        return describe_topic(self._catalogue.broker, self._catalogue.own_config(topic))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and all its records, in every open directory. When this returns the topic is gone,
        also after a crash; its files are removed after ``file.delete.delay.ms``, or when the logs are closed
        or next opened. Open readers of the topic get an UnknownPartitionError, and tails end.

        UsageError if the topic is one of Kafka's internal topics, or takes part in an open transaction or
        an unfinished commit. An error of the disk says whether the topic is still there.
        """
        self._check_writable()
        self._changes.delete(topic)

    def add_partitions(self, topic: str, partitions: int) -> Topic:
        """Give a topic at least ``partitions`` partitions. Keys may go to other partitions from then on."""
        self._check_writable()
        return self._changes.add_partitions(topic, partitions)

    # Partitions.

    def partition(self, topic: str, partition: int = 0) -> PartitionLog:
        """Return the log of one partition, open for writing."""
        self._check_writable()
        check_topic_type(topic)
        return self._partitions.get(TopicPartition(topic, _partition_number(partition)))

    def topic_partitions(
        self, topic: str, partitions: int | Iterable[int] | None
    ) -> list[TopicPartition]:
        """Return the partitions that a reader names: all, one, or several."""
        self._views.refresh()
        if type(partitions) is int:  # nearly always
            named = [TopicPartition(topic, partitions)]
            self._catalogue.directory(named[0])
            return named
        if partitions is None:
            partitions = self._catalogue.partitions(topic)
        listed = partitions if isinstance(partitions, Iterable) else (partitions,)
        numbers = dict.fromkeys(map(_partition_number, listed))
        named = [TopicPartition(topic, each) for each in numbers]
        for topic_partition in named:
            self._catalogue.directory(topic_partition)
        if not named:
            raise UsageError(f"no partition of {topic!r} is named")
        return named

    def places(self, topic: str, partitions: int | Iterable[int] | None) -> list[TopicPartition]:
        """Return ``topic_partitions(topic, partitions)``. Deprecated: use that name."""
        text = "Logs.places is deprecated: use Logs.topic_partitions"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return self.topic_partitions(topic, partitions)

    # Writing.

    def append(
        self,
        topic: str,
        data: Any,
        *,
        partition: int | None = None,
        codec: Codec | str = Codec.NONE,
        level: int | None = None,
        batch_bytes: int = BATCH_BYTES,
        sync: bool | None = None,
    ) -> list[AppendResult]:
        """Append records: Records, mappings, (key, value) pairs, bytes or text, or anything that speaks
        Arrow (``key``, ``value``, ``timestamp``, ``headers``, ``partition``). Without ``partition`` a
        record's own counts, then the hash of its key, then each call takes the next in turn.

        Returns one result for each partition that got records: its first and last offset. Records go in
        some thousands at a time: an error leaves in the logs what went in before (a ``transaction`` is
        all or nothing).
        """
        written = self.append_by_partition(
            topic, data, partition=partition, codec=codec, level=level,
            batch_bytes=batch_bytes, sync=sync,
        )  # fmt: skip
        return [written[number] for number in sorted(written)]

    def append_by_partition(
        self,
        topic: str,
        data: Any,
        *,
        partition: int | None = None,
        codec: Codec | str = Codec.NONE,
        level: int | None = None,
        batch_bytes: int = BATCH_BYTES,
        sync: bool | None = None,
    ) -> dict[int, AppendResult]:
        """Append records as ``append`` does; return the results by partition."""
        self._check_writable()
        options = batch_options(codec, level, batch_bytes)
        wants_sync = self._sync if sync is None else sync
        return self._appender.append(topic, data, partition, options, sync=wants_sync)

    def append_within(
        self,
        transaction: Transaction,
        topic: str,
        data: Any,
        *,
        partition: int | None,
        codec: Codec | str,
        level: int | None,
        batch_bytes: int,
    ) -> list[AppendResult]:
        """Append records within a transaction, which syncs when it ends."""
        self._check_writable()
        options = batch_options(codec, level, batch_bytes)
        written = self._appender.append_within(transaction, topic, data, partition, options)
        return [written[number] for number in sorted(written)]

    def commit(
        self,
        key: CommitKey,
        pieces: Iterable[Piece],
        topics: Mapping[str, TopicPlan] | None = None,
        *,
        threads: int = 1,
    ) -> CommitResult:
        """Commit pieces that tasks have staged, all of them once; see ``manager.commit_pieces``, which opens
        a directory for just that. Only the first directory takes commits: the pieces are staged there, and
        all partitions of a commit, new topics included, are in it."""
        self._check_writable()
        with self._changes.lock:
            self._check_writable()
            return self._commits[0].commit(key, pieces, topics, threads=threads)

    def replace_segments(
        self, key: CommitKey, partitions: Iterable[PartitionGroups], *, threads: int = 1
    ) -> ReplaceResult:
        """Put segments that tasks have staged in the place of others, all of them once; see
        ``manager.commit_segments``, which opens a directory for just that. Others may append and read
        meanwhile. All partitions are in one directory, and so is what was staged for them."""
        self._check_writable()
        listed = list(partitions)
        with self._changes.lock:
            self._check_writable()
            directory_of = self._catalogue.directory_of
            named = {each.topic_partition for each in listed} & directory_of.keys()
            numbers = {directory_of[each] for each in named}
            if len(numbers) > 1:
                raise UsageError("segments of several log directories: commit those of each alone")
            commits = self._commits[min(numbers, default=0)]
            return commits.replace(key, listed, threads=threads)

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def transaction(self) -> Transaction:
        """Begin a transaction: records of several partitions that become visible together, or never:

        with logs.transaction() as txn:
            txn.append("orders", ...)
            txn.append("payments", ...)
        """
        self._check_writable()
        with self._lock:
            self._check_writable()
            transaction = Transaction(self, self._journals[0], self._gate)
            self._transactions.add(transaction)
            return transaction

    def forget(self, transaction: Transaction) -> None:
        """Drop a transaction that has ended."""
        with self._lock:
            self._transactions.discard(transaction)

    # Reading.

    def read(
        self,
        topic: str,
        partitions: int | Iterable[int] | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        start_time: int | None = None,
        end_time: int | None = None,
        columns: Sequence[str] | None = None,
        isolation: Isolation | str = Isolation.COMMITTED,
        batch_rows: int = 65536,
    ) -> LogRows:
        """Read the records that are there now, from ``start`` up to ``end`` (offsets) and between two times
        (milliseconds). Iterate for Arrow record batches, or take ``records()`` or ``to_table()``.

        Records of aborted transactions are left out, and so is everything from the first open transaction
        on; with ``isolation="read_uncommitted"`` both are read. Raises OffsetOutOfRangeError if ``start``
        lies outside a partition.
        """
        self._check_open()
        return LogRows(
            self._views.look(self.topic_partitions(topic, partitions)),
            start=start,
            end=end,
            start_time=start_time,
            end_time=end_time,
            columns=columns,
            isolation=isolation_of(isolation),
            batch_rows=batch_rows,
            is_closed=lambda: self._partitions.is_closed,
        )

    def tail(
        self,
        topic: str,
        partitions: int | Iterable[int] | None = None,
        *,
        start: int | None = None,
        isolation: Isolation | str = Isolation.COMMITTED,
        timeout_s: float | None = None,
    ) -> Iterator[StoredRecord]:
        """Yield records as they arrive, from now on or from offset ``start``, those of transactions once they
        are committed (``isolation`` as in ``read``). Ends when none arrived for ``timeout_s``; without it,
        only when the logs are closed."""
        self._check_open()
        if start is not None and type(start) is not int:
            raise UsageError(f"start is a whole number, not {start!r}")
        if timeout_s is not None and not _is_duration(timeout_s):
            raise UsageError(f"timeout_s is a number of seconds, not {timeout_s!r}")
        return self._views.tail(
            self.topic_partitions(topic, partitions), start, isolation_of(isolation), timeout_s
        )

    def earliest(self, topic: str, partition: int = 0) -> int:
        """Return the first offset of a partition."""
        self._check_open()
        return self._views.look(self.topic_partitions(topic, partition))[0].view.log_start

    def latest(self, topic: str, partition: int = 0) -> int:
        """Return the offset that the next record will get."""
        self._check_open()
        return self._views.look(self.topic_partitions(topic, partition))[0].view.log_end

    # Looking after.

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Raise a partition's log start offset to ``offset``, for good, and return it. -1 means the end.
        Refused, as by Kafka, if the topic is compacted and its ``cleanup.policy`` lacks ``delete``."""
        self._check_writable()
        wanted = self.plan_delete_records(topic, partition, offset)
        log = self.partition(topic, partition)
        log.advance_start(wanted)
        self.checkpoint()
        return log.log_start

    def plan_delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Return the log start offset that a partition would have after ``delete_records``, or raise what
        that would raise. Changes nothing, and works on logs that are open read-only."""
        if type(offset) is not int:
            raise UsageError(f"an offset is a whole number, not {offset!r}")
        self._check_open()
        view = self._views.look(self.topic_partitions(topic, partition))[0].view
        config = self._catalogue.config(topic)
        if config.compacts and not config.deletes:
            raise UsageError(
                f"topic {topic!r} has cleanup.policy=compact: as in Kafka, records are deleted only if the "
                "policy includes delete; change it to compact,delete, or erase by key"
            )
        wanted = view.high_watermark if offset == -1 else offset
        if not 0 <= wanted <= view.high_watermark:
            raise OffsetOutOfRangeError(wanted, view.log_start, view.high_watermark)
        return max(wanted, view.log_start)

    def retain(self) -> int:
        """Apply retention to every partition; return how many segments were deleted. The first error is
        raised after all were tried.

        If Kafka created a topic, its configs are not known, and only segments below its log start offset are
        deleted: see ``retain_partitions``."""
        self._check_writable()
        failures: list[StratalogError] = []
        gone = self._retention.apply_to_all(failures)
        attempt(self.checkpoint, failures)
        raise_first(failures)
        return gone

    def clean(
        self,
        topic: str,
        partitions: int | Iterable[int] | None = None,
        *,
        roll: bool = False,
        limits: RewriteLimits | None = None,
    ) -> dict[TopicPartition, list[CleaningResult]]:
        """Compact a topic now, whatever its ``cleanup.policy`` and dirty ratio: of each key only the newest
        record stays, at its offset. The active segment is left out; with ``roll``, a new one is begun first,
        so that everything written so far is compacted. Others may append and read meanwhile.

        Returns the rounds of each partition, one for each map of keys that was needed.
        """
        self._check_writable()
        limits = limits or RewriteLimits(clock=self._clock)
        return {
            each: self._cleaner.clean(each, limits, roll=roll)
            for each in self.topic_partitions(topic, partitions)
        }

    def compaction(self) -> Compact:
        """Return the rewrite that compacts logs, whatever their policy and dirty ratio, for ``plan_rewrite``
        and ``begin_rewrite``. ``clean`` does the same without a manifest."""
        return self._cleaner.compact()

    def plan_retention(
        self,
        topic_partitions: Sequence[TopicPartition],
        configs: Mapping[str, object] | None = None,
    ) -> Iterator[PartitionRetention]:
        """Return what retention would delete of partitions now, and why. ``configs`` replace those of the
        topics. If the configs of a topic are not known, because Kafka created it, only the limits in
        ``configs`` count. Changes nothing, and works on logs that are open read-only."""
        self._check_open()
        return self._retention.plan(topic_partitions, configs or {})

    def retain_partitions(
        self,
        topic_partitions: Sequence[TopicPartition],
        configs: Mapping[str, object] | None = None,
    ) -> list[PartitionRetention]:
        """Apply retention to partitions, and return what was deleted of each, and why. ``configs`` replace
        those of the topics. If the configs of a topic are not known, because Kafka created it, only the
        limits in ``configs`` count."""
        self._check_writable()
        done = list(self._retention.apply(topic_partitions, configs or {}))
        self.checkpoint()
        return done

    def cleaner_status(self, topic: str | None = None) -> dict[TopicPartition, CleanerStatus]:
        """Return what the cleaner knows of the partitions of a topic, or of all compacted topics: how dirty
        each is, what keeps it from being compacted, and how the last cleaning went."""
        self._check_open()
        names = [name for name, found in self.topics().items() if found.config.compacts]
        return {
            each: self._cleaner.status(each)
            for name in (names if topic is None else [topic])
            for each in self.topic_partitions(name, None)
        }

    def flush(self) -> None:
        """Sync everything, and checkpoint that recovery need not scan it. The first error is raised after
        all were tried."""
        self._check_writable()
        failures: list[StratalogError] = []
        self._partitions.flush(failures)
        attempt(self.checkpoint, failures)
        raise_first(failures)

    def checkpoint(self) -> None:
        """Write recovery points, log starts and high watermarks into the roots."""
        self._check_writable()
        with self._lock:
            attempt_each(
                partial(self._partitions.checkpoint, number)
                for number in range(len(self._directories))
            )

    @property
    def jobs(self) -> tuple[JobStatus, ...]:
        """The background jobs of these logs: when each last ran, is next due, and how it last failed."""
        return (*self._partitions.scheduler.jobs(), *self._cleaner_threads.jobs())

    def run_due_jobs(self) -> list[str]:
        """Run the background jobs whose time has come, and return their names. Under the system clock a
        thread does this; under a manual clock the test does."""
        self._check_writable()
        return [*self._partitions.scheduler.run_due(), *self._cleaner_threads.run_due()]

    # The end.

    def close(self) -> None:
        """Abort open transactions, close every log, write the checkpoints and the clean-shutdown marker, and
        release the locks. The first error is raised after everything that can be done is done."""
        if self._partitions.is_inherited:
            self._leave_to_parent()
            return
        failures: list[StratalogError] = []
        for transaction in list(self._transactions):
            attempt(transaction.end, failures)
        self._cleaner_threads.stop()
        self._partitions.scheduler.stop()
        with self._changes.lock, self._lock:
            if self._partitions.is_closed:
                return
            self._partitions.is_closed = True
            try:
                if not self._read_only:
                    with suppress(StorageError):  # they do no harm as they are
                        for journal in self._journals:
                            journal.tidy()
                    self._partitions.close(failures)
            finally:
                for directory in self._directories:
                    directory.release()
        if failures:
            raise failures[0]

    def _leave_to_parent(self) -> None:
        """Close the files, in a forked process. No lock is taken: the thread that holds it may exist only in
        the parent."""
        if not self._partitions.is_closed:
            self._partitions.is_closed = True
            self._partitions.abandon()
            for directory in self._directories:
                directory.release()

    def _check_open(self) -> None:
        if self._partitions.is_closed:
            raise closed_error()

    def _check_writable(self) -> None:
        self._check_open()
        if self._read_only:
            raise UsageError("the logs are open read-only: reopen without read_only to write")
        self._partitions.check_process()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
