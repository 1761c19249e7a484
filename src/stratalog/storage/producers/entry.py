"""What a partition remembers of one producer, and what the next batch makes of it.

Idempotent producers number their records. A batch is taken only where its first number follows the last
one, so that none is lost; the five latest batches are remembered, so that none is stored twice. An epoch
tells apart two lives of the same producer: what comes from the older one is refused.

Everything here is a value: a batch makes a new entry of the old one or raises, and changes nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from stratalog.errors import (
    FencedCoordinatorError,
    FencedProducerError,
    OutOfOrderSequenceError,
    TransactionStateError,
)
from stratalog.records.control import ControlRecord
from stratalog.records.layout import INT32_MAX, TRANSACTIONAL_MASK
from stratalog.records.model import BatchHeader
from stratalog.types import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP

__all__ = [
    "BATCHES_KEPT",
    "NO_COORDINATOR_EPOCH",
    "Origin",
    "ProducerBatch",
    "ProducerEntry",
    "after_data",
    "after_marker",
    "unknown_producer",
]

BATCHES_KEPT: Final = 5
NO_COORDINATOR_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**15 - 1
_KEPT_BEFORE: Final = 1 - BATCHES_KEPT  # as a slice: room for the new one


class Origin(Enum):
    """Who appends, and so how much is checked."""

    CLIENT = "client"  #: everything
    COORDINATOR = "coordinator"  #: epochs; coordinators number nothing
    REPLICATION = "replication"  #: nothing: the leader, or we ourselves, did it before


_CLIENT: Final = Origin.CLIENT
_REPLICATION: Final = Origin.REPLICATION


class ProducerBatch(NamedTuple):
    """A batch as it is remembered: enough to know it again, and to answer with where it went."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & INT32_MAX

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry(NamedTuple):
    """One producer. ``batches`` are the latest of its epoch, oldest first, five at most."""

    producer_id: int
    epoch: int
    batches: tuple[ProducerBatch, ...]
    coordinator_epoch: int
    last_timestamp: int
    txn_first_offset: int | None

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def is_unknown(self) -> bool:
        """Nothing is known of it yet, or any more: it may start with any sequence."""
        return self.epoch == NO_PRODUCER_EPOCH

    def find_duplicate(
        self, epoch: int, base_sequence: int, last_sequence: int
    ) -> ProducerBatch | None:
        """The remembered batch of the same sequences, which is then the same batch."""
        if epoch == self.epoch:
            for batch in self.batches:
                if batch[0] == last_sequence and batch.first_sequence == base_sequence:
                    return batch
        return None

    def is_expired(self, now_ms: int, ttl_ms: int) -> bool:
        """Silent for too long. An open transaction keeps a producer for ever."""
        return self.txn_first_offset is None and now_ms - self.last_timestamp >= ttl_ms


def unknown_producer(producer_id: int) -> ProducerEntry:
    """The entry of a producer that was never seen, or was forgotten."""
    return ProducerEntry(
        producer_id, NO_PRODUCER_EPOCH, (), NO_COORDINATOR_EPOCH, NO_TIMESTAMP, None
    )


def after_data(
    entry: ProducerEntry, header: BatchHeader, origin: Origin, *, any_sequence: bool
) -> ProducerEntry:
    """The entry with a batch of records behind it; raises where the batch may not be taken.

    ``any_sequence``: the producer was unknown when the append began, so there is nothing that its
    batches must follow.
    """
    _, epoch, batches, coordinator_epoch, _, txn_first_offset = entry
    is_transactional = header.attributes & TRANSACTIONAL_MASK
    base_offset, last_offset = header.base_offset, header.last_offset
    if origin is not _REPLICATION:
        if header.producer_epoch < epoch:
            raise _fenced(entry, header)
        if origin is _CLIENT:
            _check_sequence(entry, header, any_sequence=any_sequence)
        if txn_first_offset is not None and not is_transactional:
            raise TransactionStateError(
                f"producer {entry.producer_id} has a transaction open since offset {txn_first_offset}: "
                "a batch outside of it must wait for its end"
            )
    batch = ProducerBatch(
        header.last_sequence, last_offset, last_offset - base_offset, header.max_timestamp
    )
    if header.producer_epoch == epoch:
        batches = (*batches[_KEPT_BEFORE:], batch)
    else:
        epoch, batches = header.producer_epoch, (batch,)
    if is_transactional and txn_first_offset is None:
        txn_first_offset = base_offset
    return ProducerEntry(
        header.producer_id, epoch, batches, coordinator_epoch, batch.timestamp, txn_first_offset
    )


def _check_sequence(entry: ProducerEntry, header: BatchHeader, *, any_sequence: bool) -> None:
    sequence = header.base_sequence
    if header.producer_epoch != entry.epoch:
        if sequence != 0 and not entry.is_unknown:
            raise OutOfOrderSequenceError(
                f"producer {entry.producer_id} starts epoch {header.producer_epoch} with sequence "
                f"{sequence}, not 0 (its last epoch was {entry.epoch})"
            )
        return
    last = entry.last_sequence
    wanted = 0 if last == INT32_MAX else last + 1
    if sequence != wanted and not any_sequence:
        raise OutOfOrderSequenceError(
            f"producer {entry.producer_id}, epoch {entry.epoch}: a batch with sequences "
            f"{sequence} to {header.last_sequence}, where {wanted} comes next"
        )


def after_marker(
    entry: ProducerEntry,
    header: BatchHeader,
    marker: ControlRecord,
    origin: Origin,
    *,
    is_strict: bool,
) -> ProducerEntry:
    """The entry behind the end of a transaction, open or not; raises where the marker is a leftover.

    ``is_strict``: the marker comes under transaction version 2, where each transaction ends with an
    epoch of its own. The same epoch again is then a retry, harmless where nothing is open; and at
    the last epoch there is no higher one to end with.
    """
    epoch = header.producer_epoch
    coordinator_epoch = marker.coordinator_epoch
    assert coordinator_epoch is not None, "a marker carries its coordinator's epoch"
    if origin is not _REPLICATION:
        if epoch < entry.epoch:
            raise _fenced(entry, header)
        is_retry = entry.txn_first_offset is None or epoch == _EPOCH_MAX
        if is_strict and epoch == entry.epoch and not is_retry:
            raise FencedProducerError(
                f"producer {entry.producer_id}: a marker of epoch {epoch}, which is the epoch of the "
                f"transaction open since offset {entry.txn_first_offset}; a higher one ends it"
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise FencedCoordinatorError(
                f"producer {entry.producer_id}: a marker of coordinator epoch {coordinator_epoch}, but "
                f"epoch {entry.coordinator_epoch} was seen"
            )
    batches = entry.batches if epoch == entry.epoch else ()
    return ProducerEntry(
        header.producer_id, epoch, batches, coordinator_epoch, header.max_timestamp, None
    )


def _fenced(entry: ProducerEntry, header: BatchHeader) -> FencedProducerError:
    return FencedProducerError(
        f"producer {entry.producer_id}: a batch of epoch {header.producer_epoch}, but epoch "
        f"{entry.epoch} was seen"
    )
