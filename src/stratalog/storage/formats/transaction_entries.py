"""``stratalog-transactions.json``: the transactions of a log directory that are not over."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from stratalog.errors import CorruptionError
from stratalog.storage.names import check_topic
from stratalog.types import TopicPartition

__all__ = [
    "EPOCH_MAX",
    "JournalEntry",
    "TransactionState",
    "decode_transactions",
    "encode_transactions",
]

EPOCH_MAX: Final = 2**15 - 1
_VERSION: Final = 1
_NOT_AN_ENTRY: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


class TransactionState(StrEnum):
    """How far a transaction has come."""

    OPEN = "open"
    COMMITTING = "committing"
    ABORTING = "aborting"
    COMMITTED = "committed"
    ABORTED = "aborted"


_WRITTEN_DOWN: Final = (
    TransactionState.OPEN,
    TransactionState.COMMITTING,
    TransactionState.ABORTING,
)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A transaction that is not over: who, how far it has come, and where."""

    producer_id: int
    producer_epoch: int
    state: TransactionState
    topic_partitions: tuple[TopicPartition, ...]


def decode_transactions(data: bytes) -> list[JournalEntry]:
    """Read the file; CorruptionError where it is damaged."""
    try:
        document = json.loads(data)
        if document["version"] != _VERSION:
            raise ValueError(f"version {document['version']}")
        return [_decode(entry) for entry in document["transactions"]]
    except _NOT_AN_ENTRY as error:
        raise CorruptionError(
            "transactions_file", f"invalid content: {error}",
            advice="remove it to continue; transactions that it named stay open in their partitions",
        ) from None  # fmt: skip


def encode_transactions(entries: Iterable[JournalEntry]) -> bytes:
    """The file's text."""
    document = {"version": _VERSION, "transactions": [_encode(entry) for entry in entries]}
    return json.dumps(document).encode()


def _encode(entry: JournalEntry) -> dict[str, Any]:
    return {
        "producer_id": entry.producer_id,
        "producer_epoch": entry.producer_epoch,
        "state": entry.state.value,
        "partitions": [list(topic_partition) for topic_partition in entry.topic_partitions],
    }


def _decode(document: dict[str, Any]) -> JournalEntry:
    entry = JournalEntry(
        document["producer_id"],
        document["producer_epoch"],
        TransactionState(document["state"]),
        tuple(
            TopicPartition(check_topic(topic), partition)
            for topic, partition in document["partitions"]
        ),
    )
    numbers = (
        entry.producer_id,
        entry.producer_epoch,
        *(topic_partition.partition for topic_partition in entry.topic_partitions),
    )
    if not all(type(each) is int and each >= 0 for each in numbers):
        raise ValueError(f"numbers that none can be: {numbers}")
    if entry.producer_id >= 2**63 or entry.producer_epoch > EPOCH_MAX:
        raise ValueError(f"producer {entry.producer_id}, epoch {entry.producer_epoch}")
    if entry.state not in _WRITTEN_DOWN:
        raise ValueError(f"a transaction that is {entry.state} is over")
    return entry
