"""Transactions over several partitions, and the journal that makes their end one decision.

The records of a transaction are in the logs before it ends; its end is a marker in each partition. The
decision is written to the journal before the first marker: after a crash the next opening writes the missing
markers of what was decided, and aborts the rest.
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
from stratalog.manager.append_gate import AppendGate
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
#: Errors that a log raises before it has changed anything.
_REFUSALS: Final = (InvalidRecordError, ProducerError, UsageError, CorruptionError)


class TransactionJournal:
    """The transactions that have not ended, in a file of one root that is replaced as a whole."""

    def __init__(self, file_system: FileSystem, root: str) -> None:
        self._file_system = file_system
        self._path = os.path.join(root, STRATALOG_TRANSACTIONS)
        self._lock = threading.Lock()
        self._idle: list[tuple[int, int]] = []
        self._entries: dict[int, JournalEntry] = {}
        self._is_stale = False

    def read(self) -> None:
        """Read the file; CorruptionError if it is damaged."""
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
        """Return an unused producer id and an epoch. The id of an ended transaction is used again with its
        next epoch, so that partitions do not collect more and more producers."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return secrets.randbits(62), 0

    def put(self, entry: JournalEntry) -> None:
        """Write the state of a transaction, before it enters it."""
        with self._lock:
            self._write({**self._entries, entry.producer_id: entry})

    def drop(self, producer_id: int) -> None:
        """Drop a transaction that has ended. The file may list it until it is next written: all its markers
        are there."""
        with self._lock:
            if self._entries.pop(producer_id, None) is not None:
                self._is_stale = True

    def tidy(self) -> None:
        """Rewrite the file if it lists transactions that have ended."""
        with self._lock:
            if self._is_stale:
                self._write(self._entries)

    def reuse(self, producer_id: int, epoch: int) -> None:
        """Let another transaction use the id of a producer that is done."""
        with self._lock:
            if epoch < EPOCH_MAX:
                self._idle.append((producer_id, epoch + 1))

    def _write(self, entries: dict[int, JournalEntry]) -> None:
        data = encode_transactions(entries.values())
        replace_file(self._file_system, self._path, self._path + TEMPORARY_SUFFIX, data)
        self._entries = entries
        self._is_stale = False

    def settle(self, log_of: Callable[[TopicPartition], PartitionLog | None], now_ms: int) -> None:
        """End the transactions of a process that died: as decided, or else by aborting them. Partitions that
        are not available now (``log_of`` returns None) or reject their marker stay in the file, for the next
        opening. They do not affect the others."""
        for entry in self.entries:
            is_commit = entry.state is TransactionState.COMMITTING
            left = [
                topic_partition
                for topic_partition in entry.topic_partitions
                if not _settle(log_of(topic_partition), entry, is_commit=is_commit, now_ms=now_ms)
            ]
            if not left:
                self.drop(entry.producer_id)
            elif tuple(left) != entry.topic_partitions:
                # Some partitions were aborted, or committed: the rest must end in the same way.
                state = entry.state if is_commit else TransactionState.ABORTING
                self.put(replace(entry, state=state, topic_partitions=tuple(left)))
        self.tidy()


def _settle(log: PartitionLog | None, entry: JournalEntry, *, is_commit: bool, now_ms: int) -> bool:
    """End a transaction in one partition; return whether that succeeded. StorageError if the disk fails."""
    if log is None:
        return False
    try:
        _end(log, entry, AppendGate(), is_commit=is_commit, now_ms=now_ms)  # none commits yet
    except StorageError:
        raise
    except StratalogError:
        return False
    return True


def _end(
    log: PartitionLog, entry: JournalEntry, gate: AppendGate, *, is_commit: bool, now_ms: int
) -> None:
    """Write the marker, unless it is there already, and wait until it is on the disk.

    The log knows whether it is missing: an append may have succeeded although its caller got an error."""
    if any(
        each.producer_id == entry.producer_id and each.txn_first_offset is not None
        for each in log.producers
    ):
        with gate:
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

    If its end is decided and cannot be finished (a disk that is full or fails), call ``commit`` or ``abort``
    again; opening the logs again finishes it, too.
    """

    def __init__(
        self, logs: TransactionalLogs, journal: TransactionJournal, gate: AppendGate
    ) -> None:
        """``gate`` is entered for each marker, which is an append."""
        self._logs = logs
        self._journal = journal
        self._gate = gate
        self._lock = threading.RLock()
        self._sequences: dict[TopicPartition, int] = {}
        self._topic_partitions: set[TopicPartition] = set()
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
        """Append within the transaction; see ``Logs.append``. After an error that left records in a log it
        can only be aborted."""
        self._check_process()
        with self._lock:
            self._check_open()
            self._is_writing = False
            return self._logs.append_within(
                self, topic, data, partition=partition, codec=codec, level=level,
                batch_bytes=batch_bytes,
            )  # fmt: skip

    def join(self, topic_partition: TopicPartition) -> None:
        """Write into the journal that a partition takes part, before it gets a record."""
        if topic_partition not in self._topic_partitions:
            self._journal.put(
                self._entry(TransactionState.OPEN, {*self._topic_partitions, topic_partition})
            )
            self._topic_partitions.add(topic_partition)

    def options(self, topic_partition: TopicPartition, options: BatchOptions) -> BatchOptions:
        """Return the options of the next batches for one partition: their sequences follow the last ones."""
        return replace(
            options,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self._sequences.get(topic_partition, 0),
            is_transactional=True,
        )

    def begin_write(self) -> None:
        """Note that batches of this append may be in a log from here on, even if it raises."""
        self._is_writing = True

    def advance(self, topic_partition: TopicPartition, next_sequence: int) -> None:
        """Note that batches up to this sequence are in the log."""
        self._sequences[topic_partition] = next_sequence

    def fail_append(self, error: BaseException, *, has_written: bool) -> None:
        """Note that an append failed: if it may have left records in a log, the transaction must be aborted.
        A log rejects batches before it writes any of them; after any other error they may be there."""
        if has_written or (self._is_writing and not isinstance(error, _REFUSALS)):
            self._is_spoiled = True

    def commit(self) -> None:
        """Make all records visible. When this returns, the decision is on the disk."""
        self._check_process()
        with self._lock:
            if self._is_spoiled and self.state is TransactionState.OPEN:
                raise TransactionStateError("an append of this transaction failed: abort it")
            self._finish(TransactionState.COMMITTING, TransactionState.COMMITTED)

    def abort(self) -> None:
        """Make all records invisible, for good."""
        self._check_process()
        with self._lock:
            self._finish(TransactionState.ABORTING, TransactionState.ABORTED)

    def end(self) -> None:
        """End the transaction because the logs are closed: finish what is decided, abort the rest."""
        with self._lock:
            if self.state is TransactionState.COMMITTING:
                self.commit()
            elif self.state in (TransactionState.OPEN, TransactionState.ABORTING):
                self._is_cut_short = self.state is TransactionState.OPEN
                self.abort()

    def _finish(self, decision: TransactionState, done: TransactionState) -> None:
        if self.state is not decision:
            self._check_open()
        if self._topic_partitions:
            logs = {
                topic_partition: self._logs.partition(*topic_partition)
                for topic_partition in sorted(self._topic_partitions)
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
                log.sync()  # a decision covers only what is on the disk
        self._journal.put(self._entry(decision, self._topic_partitions))
        self.state = decision

    def _mark(self, logs: Mapping[TopicPartition, PartitionLog]) -> list[StratalogError]:
        """Write the missing markers, and return the errors of those that cannot be written."""
        entry = self._entry(self.state, self._topic_partitions)
        is_commit = self.state is TransactionState.COMMITTING
        failures = []
        for log in logs.values():
            try:
                _end(log, entry, self._gate, is_commit=is_commit, now_ms=self._logs.now_ms())
            except StratalogError as error:
                failures.append(error)
        return failures

    def _entry(
        self, state: TransactionState, topic_partitions: Iterable[TopicPartition]
    ) -> JournalEntry:
        return JournalEntry(
            self.producer_id, self.producer_epoch, state, tuple(sorted(topic_partitions))
        )

    def _check_open(self) -> None:
        if self.state is not TransactionState.OPEN:
            raise TransactionStateError(f"the transaction is {self.state}: start a new one")

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
            # The first error is the one that the caller needs; the abort is finished later.
            error.add_note(f"and the transaction could not be aborted: {second}")
