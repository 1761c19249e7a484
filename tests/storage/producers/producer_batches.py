"""Headers of batches as an append would bring them, for the tests of producers and transactions."""

from __future__ import annotations

from collections.abc import Mapping

from stratalog.records.control import ControlRecord, ControlType
from stratalog.records.layout import CONTROL_MASK, TRANSACTIONAL_MASK
from stratalog.records.model import BatchHeader
from stratalog.storage.producers.states import Admission, Origin, ProducerStates
from stratalog.storage.segment.txn_index import AbortedTxn

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
T = 1_700_000_000_000


def data(
    producer_id: int,
    sequence: int,
    offset: int,
    count: int = 1,
    *,
    epoch: int = 0,
    timestamp: int = T,
    in_txn: bool = False,
) -> BatchHeader:
    """A batch of ``count`` records."""
    return BatchHeader(
        position=0,
        size_bytes=100,
        magic=2,
        attributes=TRANSACTIONAL_MASK if in_txn else 0,
        base_offset=offset,
        last_offset=offset + count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        record_count=count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def end(
    producer_id: int, offset: int, *, epoch: int = 0, timestamp: int = T, count: int = 1
) -> BatchHeader:
    """The control batch that ends a transaction; emptied by compaction with ``count`` 0."""
    return BatchHeader(
        position=0,
        size_bytes=78,
        magic=2,
        attributes=TRANSACTIONAL_MASK | CONTROL_MASK,
        base_offset=offset,
        last_offset=offset,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        record_count=count,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def says(kind: int, coordinator_epoch: int | None = 0) -> ControlRecord:
    """What stands in such a batch."""
    return ControlRecord(0, kind, coordinator_epoch, b"")


def append(
    states: ProducerStates,
    *headers: BatchHeader,
    origin: Origin = Origin.CLIENT,
    markers: Mapping[int, ControlRecord] | None = None,
) -> tuple[Admission, list[AbortedTxn]]:
    """What a log does with one append: admit, write, apply, complete."""
    admission = states.admit(headers, origin, markers or {})
    assert admission.duplicate is None
    states.apply(admission)
    ended = [states.complete(txn) for txn in admission.completed]
    return admission, [txn for txn in ended if txn is not None]


def finish(
    states: ProducerStates,
    producer_id: int,
    offset: int,
    kind: ControlType,
    *,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = T,
) -> list[AbortedTxn]:
    """Append a marker as a coordinator does; what goes into the transaction index."""
    header = end(producer_id, offset, epoch=epoch, timestamp=timestamp)
    markers = {offset: says(kind, coordinator_epoch)}
    return append(states, header, origin=Origin.COORDINATOR, markers=markers)[1]
