"""Transactions over several partitions, and the small journal that makes their end one decision.

A transaction's records are in the logs before it ends, marked as its own; its end is a marker in each
partition. The decision is written to the journal before the first marker: after a crash whoever opens the
logs finishes the markers of what was decided, and aborts what was not.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from stratalog.errors import CorruptionError, TransactionStateError
from stratalog.manager.directory import read_small_file
from stratalog.records.builder import BatchOptions
from stratalog.records.control import ControlType, build_marker
from stratalog.storage.filesystem import FileSystem, replace_file
from stratalog.storage.names import STRATALOG_TRANSACTIONS, TEMPORARY_SUFFIX, check_topic
from stratalog.storage.partition_log import AppendResult, PartitionLog
from stratalog.storage.producers import Origin
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    from stratalog.manager.logs import Logs

__all__ = ["Transaction", "TransactionJournal", "TransactionState"]

_VERSION: Final = 1
_EPOCH: Final = 0
_COORDINATOR_EPOCH: Final = 0


class TransactionState(StrEnum):
    """How far a transaction has come."""

    OPEN = "open"
    COMMITTING = "committing"
    ABORTING = "aborting"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class _Entry:
    producer_id: int
    state: TransactionState
    places: tuple[TopicPartition, ...]


class TransactionJournal:
    """The transactions that are not over, in a file that is replaced as a whole."""

    def __init__(self, file_system: FileSystem, root: str) -> None:
        self._file_system = file_system
        self._path = os.path.join(root, STRATALOG_TRANSACTIONS)
        self._entries = {entry.producer_id: entry for entry in self._read()}

    def _read(self) -> list[_Entry]:
        data = read_small_file(self._file_system, self._path)
        if data is None:
            return []
        try:
            document = json.loads(data)
            if document["version"] != _VERSION:
                raise ValueError(f"version {document['version']}")
            return [_decode(entry) for entry in document["transactions"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptionError(
                "transactions_file", f"not what it must be: {error}", path=self._path,
                advice="remove it to go on; transactions that it named stay open in their partitions",
            ) from None  # fmt: skip

    def put(
        self, producer_id: int, state: TransactionState, places: Iterable[TopicPartition]
    ) -> None:
        """Write down where a transaction is, before it goes there."""
        self._entries[producer_id] = _Entry(producer_id, state, tuple(sorted(places)))
        self._write()

    def remove(self, producer_id: int) -> None:
        if self._entries.pop(producer_id, None) is not None:
            self._write()

    def _write(self) -> None:
        document = {
            "version": _VERSION,
            "transactions": [
                {
                    "producer_id": entry.producer_id,
                    "state": entry.state.value,
                    "partitions": [list(place) for place in entry.places],
                }
                for entry in self._entries.values()
            ],
        }
        data = json.dumps(document).encode()
        replace_file(self._file_system, self._path, self._path + TEMPORARY_SUFFIX, data)

    def settle(self, logs: Logs) -> None:
        """End what a dead process left: as it was decided, or else by aborting it."""
        for entry in list(self._entries.values()):
            is_commit = entry.state is TransactionState.COMMITTING
            for place in entry.places:
                log = logs.partition(*place)
                is_open = any(
                    each.producer_id == entry.producer_id and each.txn_first_offset is not None
                    for each in log.producers
                )
                if is_open:
                    _end(log, entry.producer_id, is_commit=is_commit, now_ms=logs.now_ms())
                log.sync()
            self.remove(entry.producer_id)


def _decode(entry: dict[str, Any]) -> _Entry:
    return _Entry(
        int(entry["producer_id"]),
        TransactionState(entry["state"]),
        tuple(
            TopicPartition(check_topic(topic), int(partition))
            for topic, partition in entry["partitions"]
        ),
    )


def _end(log: PartitionLog, producer_id: int, *, is_commit: bool, now_ms: int) -> None:
    marker = build_marker(
        ControlType.COMMIT if is_commit else ControlType.ABORT,
        offset=0,
        timestamp=now_ms,
        producer_id=producer_id,
        producer_epoch=_EPOCH,
        coordinator_epoch=_COORDINATOR_EPOCH,
    )
    log.append(marker, origin=Origin.COORDINATOR)


class Transaction:
    """Appends that become visible together. Commits at the end of its block, aborts on an error.

    Its producer id is its own and never comes again: no other process can go on with it.
    """

    def __init__(self, logs: Logs, journal: TransactionJournal) -> None:
        self._logs = logs
        self._journal = journal
        self._sequences: dict[str, int] = {}
        self._places: set[TopicPartition] = set()
        self.producer_id = secrets.randbits(62)
        self.state = TransactionState.OPEN

    def append(self, topic: str, data: Any, *, partition: int | None = None) -> list[AppendResult]:
        """Append within the transaction; see ``Logs.append``."""
        self._check_open()
        options = BatchOptions(batch_bytes=128 << 10)
        return self._logs.append_within(self, topic, data, partition, options)

    def join(self, place: TopicPartition) -> None:
        """Write down that a partition takes part, before it does."""
        if place not in self._places:
            self._places.add(place)
            self._journal.put(self.producer_id, TransactionState.OPEN, self._places)

    def options(self, log: PartitionLog, options: BatchOptions) -> BatchOptions:
        """Of the next batches for one partition: they follow on the last ones."""
        return replace(
            options,
            producer_id=self.producer_id,
            producer_epoch=_EPOCH,
            base_sequence=self._sequences.get(log.folder, 0),
            is_transactional=True,
        )

    def advance(self, log: PartitionLog, next_sequence: int) -> None:
        self._sequences[log.folder] = next_sequence

    def commit(self) -> None:
        """Make everything visible."""
        self._finish(TransactionState.COMMITTING, TransactionState.COMMITTED)

    def abort(self) -> None:
        """Make everything invisible, for ever."""
        self._finish(TransactionState.ABORTING, TransactionState.ABORTED)

    def _finish(self, decision: TransactionState, done: TransactionState) -> None:
        self._check_open()
        if self._places:
            logs = [self._logs.partition(*place) for place in sorted(self._places)]
            if decision is TransactionState.COMMITTING:
                for log in logs:
                    log.sync()  # what is decided must be there
            self._journal.put(self.producer_id, decision, self._places)
            self.state = decision
            for log in logs:
                _end(
                    log,
                    self.producer_id,
                    is_commit=decision is TransactionState.COMMITTING,
                    now_ms=self._logs.now_ms(),
                )
                log.sync()
            self._journal.remove(self.producer_id)
        self.state = done

    def _check_open(self) -> None:
        if self.state is not TransactionState.OPEN:
            raise TransactionStateError(f"the transaction is {self.state}: begin another")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.state is TransactionState.OPEN:
            if kind is None:
                self.commit()
            else:
                self.abort()
