"""A partition log as a list of batches: slow, short, and plainly right. What the real one must agree with.

It has no segments, no indexes, no files and no state beside the list: everything else is read off the batches
each time it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from stratalog.records.columns import decode_records
from stratalog.records.control import ControlType, parse_control
from stratalog.records.layout import (
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    INT32_MAX,
    TRANSACTIONAL_MASK,
    Check,
)
from stratalog.records.model import Record

__all__ = ["LogModel", "ModelBatch", "ModelTxn", "stamped"]

_HEADER: Final = Struct(">qiiBIhiqqqhii")
_OFFSET: Final = Struct(">q")
_EPOCH: Final = Struct(">i")


def stamped(data: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """A batch with another place in a log: the bytes that a leader changes."""
    return _OFFSET.pack(base_offset) + data[8:12] + _EPOCH.pack(leader_epoch) + data[16:]


class ModelBatch(NamedTuple):
    """One batch of magic 2, as it stands in a log."""

    data: bytes
    base_offset: int
    last_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool
    #: What a control batch says: how a transaction ended. None if compaction has emptied it.
    marker: ControlType | None
    records: tuple[Record, ...]
    max_timestamp: int
    delete_horizon_ms: int | None

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.last_offset - self.base_offset) & INT32_MAX

    @property
    def as_sent(self) -> bytes:
        """The bytes as a producer sends them."""
        return stamped(self.data, 0, -1)

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(data: bytes) -> ModelBatch:
        (
            base, _, leader_epoch, _, _, attributes, delta, base_timestamp, max_timestamp,
            producer_id, epoch, sequence, _,
        ) = _HEADER.unpack_from(data)  # fmt: skip
        records = tuple(decode_records(data, check=Check.CRC | Check.INCLUDE_CONTROL))
        is_control = bool(attributes & CONTROL_MASK)
        marker = None
        if is_control and records:
            marker = parse_control(records[0].key, records[0].value).type
        return ModelBatch(
            data, base, base + delta, leader_epoch, producer_id, epoch, sequence,
            bool(attributes & TRANSACTIONAL_MASK), is_control, marker, records, max_timestamp,
            base_timestamp if attributes & DELETE_HORIZON_MASK else None,
        )  # fmt: skip


class ModelTxn(NamedTuple):
    """A transaction with records in the log; ``marker_offset`` is None while it is open."""

    producer_id: int
    first_offset: int
    marker_offset: int | None = None
    is_aborted: bool = False

    def holds(self, batch: ModelBatch) -> bool:
        """Whether a batch is of this transaction, which has ended."""
        return (
            batch.is_transactional
            and batch.producer_id == self.producer_id
            and self.marker_offset is not None
            and self.first_offset <= batch.base_offset < self.marker_offset
        )


@dataclass(slots=True)
class LogModel:
    """A log: its batches, and the three offsets that are not read off them."""

    batches: list[ModelBatch] = field(default_factory=list)
    log_start: int = 0
    log_end: int = 0
    high_watermark: int = 0

    def append(self, *batches: ModelBatch) -> None:
        for batch in batches:
            assert batch.base_offset >= self.log_end
            self.batches.append(batch)
            self.log_end = batch.next_offset

    def truncate(self, offset: int) -> None:
        """Whole batches go; the log ends at ``offset`` nevertheless."""
        if offset < self.log_end:
            self.batches = [batch for batch in self.batches if batch.last_offset < offset]
            self.log_end = offset
            self.log_start = min(self.log_start, offset)
            self.high_watermark = min(self.high_watermark, offset)

    def restart(self, offset: int) -> None:
        self.batches = []
        self.log_start = self.log_end = self.high_watermark = offset

    def advance_start(self, offset: int) -> None:
        self.log_start = max(self.log_start, offset)

    def advance_high_watermark(self, offset: int) -> None:
        self.high_watermark = max(self.high_watermark, min(offset, self.log_end))

    # Transactions.

    def transactions(self) -> list[ModelTxn]:
        """In the order in which they began."""
        found: list[ModelTxn] = []
        for batch in self.batches:
            is_open = [
                number
                for number, txn in enumerate(found)
                if txn.producer_id == batch.producer_id and txn.marker_offset is None
            ]
            if batch.marker is not None:
                for number in is_open:
                    found[number] = found[number]._replace(
                        marker_offset=batch.base_offset,
                        is_aborted=batch.marker is ControlType.ABORT,
                    )
            elif batch.is_transactional and not batch.is_control and not is_open:
                found.append(ModelTxn(batch.producer_id, batch.base_offset))
        return found

    def last_stable_offset(self) -> int:
        """Below it everything is decided, and the decision is below the high watermark."""
        unstable = [
            txn.first_offset
            for txn in self.transactions()
            if txn.marker_offset is None or txn.marker_offset >= self.high_watermark
        ]
        return max(min([*unstable, self.high_watermark]), min(self.log_start, self.high_watermark))

    def open_since(self, producer_id: int) -> int | None:
        for txn in self.transactions():
            if txn.producer_id == producer_id and txn.marker_offset is None:
                return txn.first_offset
        return None

    # Reading.

    def before(self, bound: int) -> list[ModelBatch]:
        """The batches that a reader up to ``bound`` may see: whole ones, from the start on."""
        return [
            b for b in self.batches if b.last_offset >= self.log_start and b.last_offset < bound
        ]

    def committed(self, bound: int | None = None) -> list[Record]:
        """What read_committed shows: no control records, nothing aborted, nothing undecided."""
        aborted = [txn for txn in self.transactions() if txn.is_aborted]
        stable = self.last_stable_offset() if bound is None else bound
        return [
            record
            for batch in self.before(stable)
            if not batch.is_control and not any(txn.holds(batch) for txn in aborted)
            for record in batch.records
            if record.offset >= self.log_start
        ]

    def records(self) -> Iterator[Record]:
        """All, control records too, from the start on."""
        for batch in self.batches:
            yield from (record for record in batch.records if record.offset >= self.log_start)

    def at_time(self, timestamp: int) -> Record | None:
        """The first record of this time or later."""
        return next((each for each in self.records() if each.timestamp >= timestamp), None)

    # Producers.

    def batches_of(self, producer_id: int) -> Sequence[ModelBatch]:
        """The data batches of its last epoch, oldest first; those before are of no account."""
        found: list[ModelBatch] = []
        for batch in self.batches:
            if batch.producer_id == producer_id:
                if found and found[-1].producer_epoch != batch.producer_epoch:
                    found = []
                found.append(batch)
        return [batch for batch in found if not batch.is_control]

    def epoch_of(self, producer_id: int) -> int:
        epochs = [b.producer_epoch for b in self.batches if b.producer_id == producer_id]
        return epochs[-1] if epochs else -1
