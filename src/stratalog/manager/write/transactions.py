"""Transactions over several partitions, and the small journal that makes their end one decision.

A transaction's records are in the logs before it ends, marked as its own; its end is a marker in each
partition. The decision is written to the journal before the first marker: after a crash whoever opens the
logs finishes the markers of what was decided, and aborts what was not.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Protocol, Self

from stratalog.errors import (
    CorruptionError,
    InvalidRecordError,
    ProducerError,
    StorageError,
    StratalogError,
    TransactionStateError,
    UsageError,
)
from stratalog.records.builder import BATCH_BYTES, BatchOptions
from stratalog.records.control import ControlType, build_marker
from stratalog.records.layout import Codec
from stratalog.storage.files.filesystem import FileSystem, replace_file
from stratalog.storage.files.forks import check_forks, fork_count
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.formats.transaction_entries import (
    EPOCH_MAX,
    JournalEntry,
    TransactionState,
    decode_transactions,
    encode_transactions,
)
from stratalog.storage.names import STRATALOG_TRANSACTIONS, TEMPORARY_SUFFIX
from stratalog.storage.partition_log import AppendResult, PartitionLog
from stratalog.storage.producers.states import Origin
from stratalog.types import TopicPartition

__all__ = [
    "JournalEntry",
    "Transaction",
    "TransactionJournal",
    "TransactionState",
    "TransactionalLogs",
]

_COORDINATOR_EPOCH: Final = 0
#: What a log answers with before it has changed.
_REFUSALS: Final = (InvalidRecordError, ProducerError, UsageError, CorruptionError)


class TransactionJournal:
    """The transactions that are not over, in a file of one root that is replaced as a whole."""

    def __init__(self, file_system: FileSystem, root: str) -> None:
        self._file_system = file_system
        self._path = os.path.join(root, STRATALOG_TRANSACTIONS)
        self._lock = threading.Lock()
        self._idle: list[tuple[int, int]] = []
        self._entries: dict[int, JournalEntry] = {}
        self._is_stale = False

    def read(self) -> None:
        """Take what the file says; CorruptionError where it is damaged."""
        data = read_small_file(self._file_system, self._path)
        if data is None:
            return
        try:
            entries = decode_transactions(data)
        except CorruptionError as error:
            raise error.located(path=self._path) from None
        self._entries = {entry.producer_id: entry for entry in entries}

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        with self._lock:
            return tuple(self._entries.values())

    def new_producer(self) -> tuple[int, int]:
        """An id that nobody has, with an epoch: one whose transaction is over, with its next epoch, so
        that partitions need not remember ever more of them."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return secrets.randbits(62), 0

    def put(self, entry: JournalEntry) -> None:
        """Write down where a transaction is, before it goes there."""
        with self._lock:
            self._write({**self._entries, entry.producer_id: entry})

    def drop(self, producer_id: int) -> None:
        """A transaction is over. The file may go on naming it until it is next written: whoever reads
        of it finds all its markers in place."""
        with self._lock:
            if self._entries.pop(producer_id, None) is not None:
                self._is_stale = True

    def tidy(self) -> None:
        """Let the file name nobody who is over."""
        with self._lock:
            if self._is_stale:
                self._write(self._entries)

    def reuse(self, producer_id: int, epoch: int) -> None:
        """A producer is done: another transaction may have its id."""
        with self._lock:
            if epoch < EPOCH_MAX:
                self._idle.append((producer_id, epoch + 1))

    def _write(self, entries: dict[int, JournalEntry]) -> None:
        data = encode_transactions(entries.values())
        replace_file(self._file_system, self._path, self._path + TEMPORARY_SUFFIX, data)
        self._entries = entries
        self._is_stale = False

    def settle(self, log_of: Callable[[TopicPartition], PartitionLog | None], now_ms: int) -> None:
        """End what a dead process left: as it was decided, or else by aborting it. Partitions that
        cannot be had now (``log_of`` answers None) or refuse their marker stay written down, for when
        that is over: they are no matter of all the others."""
        for entry in self.entries:
            is_commit = entry.state is TransactionState.COMMITTING
            left = [
                topic_partition
                for topic_partition in entry.places
                if not _settle(log_of(topic_partition), entry, is_commit=is_commit, now_ms=now_ms)
            ]
            if not left:
                self.drop(entry.producer_id)
            elif tuple(left) != entry.places:
                # What is there was aborted, or committed: the rest must go the same way.
                state = entry.state if is_commit else TransactionState.ABORTING
                self.put(replace(entry, state=state, places=tuple(left)))
        self.tidy()


def _settle(log: PartitionLog | None, entry: JournalEntry, *, is_commit: bool, now_ms: int) -> bool:
    """Whether a transaction is over in one partition. What the disk refuses is for the caller."""
    if log is None:
        return False
    try:
        _end(log, entry, is_commit=is_commit, now_ms=now_ms)
    except StorageError:
        raise
    except StratalogError:
        return False
    return True


def _end(log: PartitionLog, entry: JournalEntry, *, is_commit: bool, now_ms: int) -> None:
    """Write the marker, unless it is there already, and wait until it is on the disk.

    The log says whether one is missing: an append may have got there, and its caller an error."""
    if any(
        each.producer_id == entry.producer_id and each.txn_first_offset is not None
        for each in log.producers
    ):
        _append_marker(log, entry, is_commit=is_commit, now_ms=now_ms)
    log.sync()


def _append_marker(log: PartitionLog, entry: JournalEntry, *, is_commit: bool, now_ms: int) -> None:
    marker = build_marker(
        ControlType.COMMIT if is_commit else ControlType.ABORT,
        offset=0,
        timestamp=now_ms,
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        coordinator_epoch=_COORDINATOR_EPOCH,
    )
    log.append(marker, leader_epoch=log.latest_epoch, origin=Origin.COORDINATOR)


class TransactionalLogs(Protocol):
    """What a transaction asks of the logs that it writes to."""

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
        """Append records as part of the transaction."""

    def partition(self, topic: str, partition: int = 0) -> PartitionLog:
        """Return the log of one partition."""

    def now_ms(self) -> int:
        """Return the time of the logs' clock."""

    def forget(self, transaction: Transaction) -> None:
        """Drop a transaction that has ended."""


class Transaction:
    """Appends that become visible together, to readers under read_committed. Commits at the end of its
    block, aborts on an error.

    Where its end is decided and cannot be finished (a disk that is full or fails), ``commit`` or
    ``abort`` may be called again; opening the logs anew finishes it, too.
    """

    def __init__(self, logs: TransactionalLogs, journal: TransactionJournal) -> None:
        self._logs = logs
        self._journal = journal
        self._lock = threading.RLock()
        self._sequences: dict[TopicPartition, int] = {}
        self._places: set[TopicPartition] = set()
        self._is_writing = False
        self._is_spoiled = False
        self._is_cut_short = False
        self._forks = fork_count()
        self.producer_id, self.producer_epoch = journal.new_producer()
        self.state = TransactionState.OPEN

    def append(
        self,
        topic: str,
        data: Any,
        *,
        partition: int | None = None,
        codec: Codec | str = Codec.NONE,
        level: int | None = None,
        batch_bytes: int = BATCH_BYTES,
    ) -> list[AppendResult]:
        """Append within the transaction; see ``Logs.append``. After an error that left records behind
        it can only be aborted."""
        self._check_process()
        with self._lock:
            self._check_open()
            self._is_writing = False
            return self._logs.append_within(
                self, topic, data, partition=partition, codec=codec, level=level,
                batch_bytes=batch_bytes,
            )  # fmt: skip

    def join(self, topic_partition: TopicPartition) -> None:
        """Write down that a partition takes part, before it does."""
        if topic_partition not in self._places:
            self._journal.put(self._entry(TransactionState.OPEN, {*self._places, topic_partition}))
            self._places.add(topic_partition)

    def options(self, topic_partition: TopicPartition, options: BatchOptions) -> BatchOptions:
        """Of the next batches for one partition: they follow on the last ones."""
        return replace(
            options,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self._sequences.get(topic_partition, 0),
            is_transactional=True,
        )

    def begin_write(self) -> None:
        """From here on batches of this append may be in a log, also where that does not say so."""
        self._is_writing = True

    def advance(self, topic_partition: TopicPartition, next_sequence: int) -> None:
        """Batches up to this sequence are in the log."""
        self._sequences[topic_partition] = next_sequence

    def fail_append(self, error: BaseException, *, has_written: bool) -> None:
        """An append has ended with an error: what it left behind, if anything, spoils the transaction.
        A log refuses batches before it writes any of them; behind any other error they may be there."""
        if has_written or (self._is_writing and not isinstance(error, _REFUSALS)):
            self._is_spoiled = True

    def commit(self) -> None:
        """Make everything visible. When it returns, that is on the disk."""
        self._check_process()
        with self._lock:
            if self._is_spoiled and self.state is TransactionState.OPEN:
                raise TransactionStateError("an append of this transaction failed: abort it")
            self._finish(TransactionState.COMMITTING, TransactionState.COMMITTED)

    def abort(self) -> None:
        """Make everything invisible, for ever."""
        self._check_process()
        with self._lock:
            self._finish(TransactionState.ABORTING, TransactionState.ABORTED)

    def end(self) -> None:
        """The logs are being closed: what is decided is finished, else it is aborted."""
        with self._lock:
            if self.state is TransactionState.COMMITTING:
                self.commit()
            elif self.state in (TransactionState.OPEN, TransactionState.ABORTING):
                self._is_cut_short = self.state is TransactionState.OPEN
                self.abort()

    def _finish(self, decision: TransactionState, done: TransactionState) -> None:
        if self.state is not decision:
            self._check_open()
        if self._places:
            logs = {
                topic_partition: self._logs.partition(*topic_partition)
                for topic_partition in sorted(self._places)
            }
            if self.state is TransactionState.OPEN:
                self._decide(decision, logs.values())
            failures = self._mark(logs)
            if failures:
                failures[0].add_note(f"the transaction is {decision}: another call finishes it, and so "
                                     "does opening the logs again")  # fmt: skip
                raise failures[0]
        self._journal.drop(self.producer_id)
        self.state = done
        self._journal.reuse(self.producer_id, self.producer_epoch)
        self._logs.forget(self)

    def _decide(self, decision: TransactionState, logs: Iterable[PartitionLog]) -> None:
        if decision is TransactionState.COMMITTING:
            for log in logs:
                log.sync()  # what is decided must be there
        self._journal.put(self._entry(decision, self._places))
        self.state = decision

    def _mark(self, logs: Mapping[TopicPartition, PartitionLog]) -> list[StratalogError]:
        """Write the markers that are missing, wherever that can be done."""
        entry = self._entry(self.state, self._places)
        is_commit = self.state is TransactionState.COMMITTING
        failures = []
        for log in logs.values():
            try:
                _end(log, entry, is_commit=is_commit, now_ms=self._logs.now_ms())
            except StratalogError as error:
                failures.append(error)
        return failures

    def _entry(self, state: TransactionState, places: Iterable[TopicPartition]) -> JournalEntry:
        return JournalEntry(self.producer_id, self.producer_epoch, state, tuple(sorted(places)))

    def _check_open(self) -> None:
        if self.state is not TransactionState.OPEN:
            raise TransactionStateError(f"the transaction is {self.state}: begin another")

    def _check_process(self) -> None:
        check_forks(self._forks, "this transaction")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_cut_short and error is None:
            raise TransactionStateError("the logs were closed: the transaction was aborted")
        if self.state is not TransactionState.OPEN:
            return
        if error is None and not self._is_spoiled:
            self.commit()
            return
        if error is None:
            self.abort()
            raise TransactionStateError("an append of this transaction failed: it was aborted")
        try:
            self.abort()
        except StratalogError as second:
            # What went wrong first is what the caller must know; the abort is finished later.
            error.add_note(f"and the transaction could not be aborted: {second}")
