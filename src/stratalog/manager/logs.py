"""``stratalog.open``: the partitions of one or several log directories, to be written and read.

A partition's log is opened when it is first used. Closing brings everything to the disk, writes the
checkpoints and the marker of an orderly stop; a crash before costs a recovery, and nothing that was
acknowledged.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.errors import CorruptionError, StorageError, StratalogError, UsageError
from stratalog.manager.attempt import attempt
from stratalog.manager.commits.commits import CommitResult, DirectoryCommits, TopicPlan
from stratalog.manager.open_partitions import OpenPartitions, closed_error
from stratalog.manager.partition_views import PartitionViews
from stratalog.manager.read.reading import LogRows, StoredRecord, isolation_of
from stratalog.manager.root.catalogue import Catalogue
from stratalog.manager.root.directory import LogDirectory, identity_of
from stratalog.manager.root.recoveries import OnRecovery, log_report
from stratalog.manager.root.topic_configs import altered_config, check_same_topic
from stratalog.manager.root.topic_file import Topic
from stratalog.manager.scheduler import JobStatus
from stratalog.manager.write.batches import append_rows, batch_options
from stratalog.manager.write.records import PartitionChoice, partition_rows, whole_number
from stratalog.manager.write.transactions import Transaction, TransactionJournal
from stratalog.records.builder import BATCH_BYTES, BatchOptions
from stratalog.records.layout import Codec
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.piece import Piece
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import INTERNAL_TOPICS, check_topic_type, is_path
from stratalog.storage.partition_log import AppendResult, PartitionLog, Watermark
from stratalog.storage.recovery.report import LoadReport
from stratalog.storage.segment.tail_verdict import OnDamage
from stratalog.storage.views.log_view import Isolation
from stratalog.types import TopicPartition

__all__ = ["Logs", "open_logs"]

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def open_logs(
    directories: Paths,
    *,
    read_only: bool = False,
    sync: bool = True,
    on_damage: OnDamage | str = OnDamage.REFUSE,
    on_recovery: OnRecovery = log_report,
    file_system: FileSystem | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Logs:
    """Open one or several log directories: Kafka's ``log.dirs``. A folder that is empty, or not there,
    becomes a log directory.

    With ``sync`` an append is acknowledged when it is on the disk, and readers see it then; without, when
    the operating system has it. ``read_only`` needs no lock and changes nothing, also beside a writer.
    ``on_damage`` says what recovery does where intact records follow damaged ones: ``"refuse"`` leaves the
    partition unopened and unchanged, ``"cut"`` truncates it there and keeps what it truncates in ``*.cut``
    files. ``Logs.recovery`` and ``Logs.damage`` list what was done; ``on_recovery`` is called for each
    partition that was recovered, and by default logs it to ``stratalog.recovery``.
    """
    listed: tuple[object, ...] = (directories,)
    if isinstance(directories, Iterable) and not isinstance(directories, str | os.PathLike):
        listed = tuple(directories)
    paths = [os.fspath(path) for path in listed if isinstance(path, str | os.PathLike)]
    if not paths or len(paths) < len(listed) or not all(map(is_path, paths)):
        raise UsageError(f"no log directory to open: {directories!r}")
    return Logs(
        paths,
        read_only=read_only,
        sync=sync,
        on_damage=_on_damage(on_damage),
        on_recovery=on_recovery,
        file_system=file_system or OsFileSystem(),
        clock=clock,
    )


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


class Logs:
    """Open log directories; see :func:`open_logs`. A context manager. Threads may share it.

    A process that is forked off may read through it, as beside any other writer; changes are refused there,
    and closing it there changes nothing.
    """

    def __init__(
        self,
        roots: Sequence[str],
        *,
        read_only: bool,
        sync: bool,
        on_damage: OnDamage,
        on_recovery: OnRecovery,
        file_system: FileSystem,
        clock: Clock,
    ) -> None:
        self._file_system = file_system
        self._clock = clock
        self._read_only = read_only
        self._sync = sync
        self._turn = 0
        self._transactions: set[Transaction] = set()
        with ExitStack() as opened:
            # Everything is looked at before anything is changed: what cannot be opened stays as it is.
            self._directories: list[LogDirectory] = []
            for root in roots:
                directory = LogDirectory(root, file_system, read_only=read_only)
                opened.callback(directory.release)
                self._directories.append(directory)
            self._catalogue = Catalogue(self._directories, file_system, read_only=read_only)
            self._partitions = OpenPartitions(
                self._directories, self._catalogue, file_system, clock,
                watermark=Watermark.SYNCED if sync else Watermark.WRITTEN, on_damage=on_damage,
                on_recovery=on_recovery,
            )  # fmt: skip
            self._lock = self._partitions.lock
            #: Held while topics or commits change; taken before ``_lock``, which readers may need.
            self._changes = threading.RLock()
            #: Held while a transaction joins a partition, which must not be deleted meanwhile.
            self._joining = threading.Lock()
            self._journals = [TransactionJournal(file_system, root) for root in roots]
            self._commits = [
                DirectoryCommits(each, self._catalogue, file_system, clock, self._partitions.get)
                for each in self._directories
            ]
            self._views = PartitionViews(
                self._catalogue, self._partitions, self._commits, file_system, clock,
                read_only=read_only,
            )  # fmt: skip
            if not read_only:
                opened.callback(self._partitions.abandon)
                self._begin()
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

    def _log_to_settle(self, place: TopicPartition) -> PartitionLog | None:
        """None where it is not here, or damaged: who asks for it gets to know why."""
        if place not in self._catalogue.directory_of:
            return None
        try:
            return self._partitions.get(place)
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
        for place in sorted(self._catalogue.directory_of):
            attempt(partial(self._partitions.get, place), failures)
        if failures:
            raise failures[0]
        return self.recovery

    # Topics.

    def topics(self) -> dict[str, Topic]:
        """Every topic, by its name."""
        self._views.refresh()
        return self._catalogue.topics()

    def topic(self, name: str) -> Topic:
        self._views.refresh()
        return self._catalogue.topic(name)

    def topic_id(self, topic: str) -> bytes | None:
        """The topic's id, from its file or a partition's; None where it has none."""
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
        """Create a topic, with one partition by default. Configs go by Kafka's names, in a mapping
        (``{"retention.ms": 60000}``) or as keywords (``retention_ms=60000``). Each partition goes to the
        directory with fewest.

        With ``exist_ok`` a topic that exists is returned as it is; UsageError if the number of partitions or
        a config that is given differs from its own.
        """
        self._check_writable()
        config = LogConfig.of(_config_mapping(configs), **names)
        check_topic_type(topic)
        with self._changes:
            known = self._catalogue.topics().get(topic) if exist_ok else None
            if known is None:
                count = 1 if partitions is None else partitions
                return self._catalogue.create(topic, count, config)
            check_same_topic(known, self._catalogue.missing(topic), partitions, config)
            return known

    def alter_configs(self, topic: str, configs: Mapping[str, object | None]) -> Topic:
        """Change configs of a topic, by Kafka's names; None resets one to its default. Open logs, and the
        flushes by ``flush.ms``, follow at once."""
        self._check_writable()
        given = _config_mapping(configs)
        if given is None:
            raise UsageError("configs are a mapping of names to values, not None")
        with self._changes:
            config = altered_config(self._catalogue.topic(topic).config, given)
            altered = self._catalogue.alter(topic, config)
            self._partitions.reconfigure(topic)
            return altered

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and all its records, in every open directory. When this returns the topic is gone,
        also after a crash; its files are removed after ``file.delete.delay.ms``, or when the logs are closed
        or next opened. Open readers of the topic get an UnknownPartitionError, and tails end.

        UsageError if the topic is one of Kafka's internal topics, or takes part in an open transaction or
        an unfinished commit. An error of the disk says whether the topic is still there.
        """
        self._check_writable()
        check_topic_type(topic)
        with self._changes:
            delay_ms = self._catalogue.topic(topic).config.file_delete_delay_ms
            try:
                with self._lock, self._joining:
                    self._check_deletable(topic)
                    self._catalogue.begin_delete(topic)
            finally:
                if topic not in self._catalogue.topics():
                    self._partitions.drop(topic)
            try:
                folders = self._catalogue.finish_delete(topic)
            except StorageError as error:
                error.add_note(
                    f"topic {topic!r} is deleted: opening the log directory again removes its files"
                )
                raise
            self._partitions.remove_folders_later(folders, delay_ms)

    def _check_deletable(self, topic: str) -> None:
        if topic in INTERNAL_TOPICS:
            raise UsageError(f"{topic!r} is one of Kafka's internal topics: it cannot be deleted")
        for journal in self._journals:
            for entry in journal.entries:
                if any(each.topic == topic for each in entry.places):
                    raise UsageError(
                        f"topic {topic!r} takes part in a transaction that is {entry.state}: end it first"
                    )
        for commits in self._commits:
            if topic in commits.open_topics():
                raise UsageError(
                    f"topic {topic!r} takes part in a commit that is not finished: the next commit, or "
                    "opening the log directory again, finishes it"
                )

    def add_partitions(self, topic: str, partitions: int) -> Topic:
        """Let a topic have at least so many partitions. Keys may go elsewhere from then on."""
        self._check_writable()
        with self._changes:
            return self._catalogue.add_partitions(topic, partitions)

    # Partitions.

    def partition(self, topic: str, partition: int = 0) -> PartitionLog:
        """The log of one partition, open for writing."""
        self._check_writable()
        check_topic_type(topic)
        return self._partitions.get(TopicPartition(topic, _partition_number(partition)))

    def places(self, topic: str, partitions: int | Iterable[int] | None) -> list[TopicPartition]:
        """The partitions that are meant: all, one, or those listed."""
        self._views.refresh()
        if partitions is None:
            partitions = self._catalogue.partitions(topic)
        listed = partitions if isinstance(partitions, Iterable) else (partitions,)
        numbers = dict.fromkeys(map(_partition_number, listed))
        places = [TopicPartition(topic, each) for each in numbers]
        for place in places:
            self._catalogue.directory(place)
        if not places:
            raise UsageError(f"no partition of {topic!r} is named")
        return places

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

        Answers one result for each partition that got records: its first and last offset. Records go in
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
        """The same, with the results by partition."""
        options = batch_options(codec, level, batch_bytes)
        written: dict[int, AppendResult] = {}
        wants_sync = self._sync if sync is None else sync
        try:
            self._append(topic, data, partition, options, None, written)
        except BaseException:
            with suppress(StratalogError):  # the first error is the one to tell
                self._sync_written(topic, written, wants_sync=wants_sync)
            raise
        self._sync_written(topic, written, wants_sync=wants_sync)
        return written

    def _sync_written(self, topic: str, written: Iterable[int], *, wants_sync: bool) -> None:
        if wants_sync:
            for number in written:
                self.partition(topic, number).sync()

    def _append(
        self,
        topic: str,
        data: Any,
        partition: int | None,
        options: BatchOptions,
        transaction: Transaction | None,
        written: dict[int, AppendResult],
    ) -> None:
        self._check_writable()
        self._turn += 1
        choice = PartitionChoice(
            self._catalogue.partitions(topic), partition, self._turn,
            missing=self._catalogue.missing(topic),
        )  # fmt: skip
        for number, rows in partition_rows(data, choice, self._clock.now_ms):
            place = TopicPartition(topic, number)
            log = self.partition(topic, number)
            if transaction is not None:
                with self._joining:
                    self._catalogue.directory(place)
                    transaction.join(place)

            def note(result: AppendResult, number: int = number) -> None:
                first = written.get(number, result).first_offset
                written[number] = result._replace(first_offset=first)

            append_rows(log, place, rows, options, transaction, note)

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
        """The same within a transaction, which syncs when it ends."""
        written: dict[int, AppendResult] = {}
        options = batch_options(codec, level, batch_bytes)
        try:
            self._append(topic, data, partition, options, transaction, written)
        except BaseException as error:
            transaction.fail_append(error, has_written=bool(written))
            raise
        return [written[number] for number in sorted(written)]

    def commit(
        self,
        key: CommitKey,
        pieces: Iterable[Piece],
        topics: Mapping[str, TopicPlan] | None = None,
        *,
        threads: int = 1,
    ) -> CommitResult:
        """Put pieces that tasks have staged in the first directory into its logs, all of them once; see
        ``manager.commit_pieces``, which opens the directory for just that."""
        self._check_writable()
        with self._changes:
            self._check_writable()
            return self._commits[0].commit(key, pieces, topics, threads=threads)

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def transaction(self) -> Transaction:
        """Records in several topics and partitions that become visible together, or never:

        with logs.transaction() as txn:
            txn.append("orders", ...)
            txn.append("payments", ...)
        """
        self._check_writable()
        with self._lock:
            self._check_writable()
            transaction = Transaction(self, self._journals[0])
            self._transactions.add(transaction)
            return transaction

    def forget(self, transaction: Transaction) -> None:
        """A transaction is over."""
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
            self._views.look(self.places(topic, partitions)),
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
            self.places(topic, partitions), start, isolation_of(isolation), timeout_s
        )

    def earliest(self, topic: str, partition: int = 0) -> int:
        """The first offset that is there."""
        self._check_open()
        return self._views.look(self.places(topic, partition))[0].view.log_start

    def latest(self, topic: str, partition: int = 0) -> int:
        """The offset that the next record will get."""
        self._check_open()
        return self._views.look(self.places(topic, partition))[0].view.log_end

    # Looking after.

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Raise a partition's start to ``offset``, for good; where it is now. -1 means the end."""
        if type(offset) is not int:
            raise UsageError(f"an offset is a whole number, not {offset!r}")
        log = self.partition(topic, partition)
        log.advance_start(log.high_watermark if offset == -1 else offset)
        self.checkpoint()
        return log.log_start

    def retain(self) -> int:
        """Apply retention to every partition; how many segments went."""
        self._check_writable()
        gone = 0
        for place in self._catalogue.directory_of:
            log = self.partition(*place)
            deletions = log.retain().deletions
            if deletions:
                self._partitions.remove_later(log)
            gone += len(deletions)
            log.remove_due()
            log.expire_producers()
        self.checkpoint()
        return gone

    def flush(self) -> None:
        """Bring all to the disk, and write down that recovery need not look at it."""
        self._check_writable()
        self._partitions.flush()
        self.checkpoint()

    def checkpoint(self) -> None:
        """Write recovery points, log starts and high watermarks into the roots."""
        self._check_writable()
        with self._lock:
            for number in range(len(self._directories)):
                self._partitions.checkpoint(number)

    @property
    def jobs(self) -> tuple[JobStatus, ...]:
        """The background jobs of these logs: when each last ran, is next due, and how it last failed."""
        return self._partitions.scheduler.jobs()

    def run_due_jobs(self) -> list[str]:
        """Run the background jobs whose time has come, and return their names. Under the system clock a
        thread does this; under a manual clock the test does."""
        self._check_writable()
        return self._partitions.scheduler.run_due()

    # The end.

    def close(self) -> None:
        """End every transaction that is open by aborting it, close every log, write the checkpoints,
        mark the stop as orderly, let go of the locks. The first error is raised when all that can be
        done is done."""
        if self._partitions.is_inherited:
            self._leave_to_parent()
            return
        failures: list[StratalogError] = []
        for transaction in list(self._transactions):
            attempt(transaction.end, failures)
        self._partitions.scheduler.stop()
        with self._changes, self._lock:
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
        """In a forked process: only files are closed. No lock is waited for: the thread that holds it may
        be one that is not here."""
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
            raise UsageError("opened to be read only: open without read_only to write")
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
