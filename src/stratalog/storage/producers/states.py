"""The producers of one partition: what each may append next, and which transactions are open.

Deciding and doing are apart. :meth:`ProducerStates.admit` says what an append would change, or raises, and
changes nothing; when the bytes are in the log, :meth:`ProducerStates.apply` puts it in place. So a write that
fails leaves no trace here.

The state holds up to ``map_end_offset``, and a snapshot of it was written at ``snapshot_offset``: both are
kept by the owner, who alone knows of batches without a producer, and of files. The owner also holds the lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from stratalog.errors import CorruptionError
from stratalog.records.control import ControlRecord, ControlType
from stratalog.records.layout import CONTROL_MASK
from stratalog.records.model import BatchHeader
from stratalog.storage.producers.entry import (
    BATCHES_KEPT,
    Origin,
    ProducerBatch,
    ProducerEntry,
    after_data,
    after_marker,
    unknown_producer,
)
from stratalog.storage.producers.open_transactions import CompletedTxn, Transactions
from stratalog.storage.producers.snapshot import table_order
from stratalog.storage.segment.txn_index import AbortedTxn

__all__ = ["Admission", "Origin", "ProducerBatch", "ProducerEntry", "ProducerStates"]

_NO_MARKERS: Final[Mapping[int, ControlRecord]] = MappingProxyType({})
_CLIENT: Final = Origin.CLIENT
_REPLICATION: Final = Origin.REPLICATION


class Admission(NamedTuple):
    """What one append does to the producers, once it is in the log.

    With a ``duplicate`` it does nothing: the batch is there already, at these offsets, and they are
    the answer.
    """

    entries: tuple[ProducerEntry, ...] = ()
    started: tuple[tuple[int, int], ...] = ()  # first offset, producer id
    completed: tuple[CompletedTxn, ...] = ()
    duplicate: ProducerBatch | None = None


_NOTHING: Final = Admission()


class ProducerStates:
    """All producers of one partition, and its transactions."""

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._most_entries = 0  # before the last removal; see ``table_order``
        self._transactions = Transactions()
        self.map_end_offset = 0
        self.snapshot_offset = 0

    @property
    def entries(self) -> Mapping[int, ProducerEntry]:
        """Every known producer by its id, in the order in which they were first seen."""
        return MappingProxyType(self._entries)

    @property
    def ongoing(self) -> tuple[tuple[int, int], ...]:
        """First offset and producer id of each open transaction, in the order of the offsets."""
        return self._transactions.ongoing

    def find_duplicate(
        self, producer_id: int, epoch: int, base_sequence: int, last_sequence: int
    ) -> ProducerBatch | None:
        """The batch of the same producer, epoch and sequences, if it is among its latest five."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return None
        return entry.find_duplicate(epoch, base_sequence, last_sequence)

    # --- appending -------------------------------------------------------------------------------

    def admit(
        self,
        headers: Sequence[BatchHeader],
        origin: Origin,
        markers: Mapping[int, ControlRecord] = _NO_MARKERS,
        *,
        strict_markers: bool = False,
    ) -> Admission:
        """Whether the batches of one append may go in, with the offsets that they would get.

        ``markers`` holds the control record of each control batch by the batch's base offset; an
        emptied one has none. Raises a ProducerError; never for REPLICATION, where the leader has
        decided. ``strict_markers`` is transaction version 2's rule (see ``after_marker``).
        """
        if origin is _CLIENT:
            duplicate = self._duplicate_of(headers)
            if duplicate is not None:
                return Admission(duplicate=duplicate)
        if len(headers) == 1 and not headers[0].attributes & CONTROL_MASK:  # nearly always
            return self._admit_data(headers[0], origin)
        return self._admit_all(headers, origin, markers, strict_markers)

    def _admit_data(self, header: BatchHeader, origin: Origin) -> Admission:
        """The short way of one batch of records."""
        producer_id = header.producer_id
        if producer_id < 0:
            return _NOTHING
        before = self._entries.get(producer_id)
        if before is None:
            before = unknown_producer(producer_id)
        entry = after_data(before, header, origin, any_sequence=before.is_unknown)
        return Admission((entry,), _started_by(before, entry))

    def _admit_all(
        self,
        headers: Sequence[BatchHeader],
        origin: Origin,
        markers: Mapping[int, ControlRecord],
        is_strict: bool,
    ) -> Admission:
        entries: dict[int, ProducerEntry] = {}
        started: list[tuple[int, int]] = []
        completed: list[CompletedTxn] = []
        for header in headers:
            producer_id = header.producer_id
            if producer_id < 0:
                continue
            stored = self._entries.get(producer_id)
            if stored is None:
                stored = unknown_producer(producer_id)
            before = entries.get(producer_id, stored)
            if header.attributes & CONTROL_MASK:
                entry = before  # of an emptied batch; Kafka knows its producer from then on, too
                if header.record_count > 0:
                    marker = markers.get(header.base_offset)
                    assert marker is not None, f"no control record for offset {header.base_offset}"
                    if not marker.is_marker:
                        continue
                    entry = after_marker(before, header, marker, origin, is_strict=is_strict)
                    completed += _completed_by(before, header, marker)
            else:
                entry = after_data(before, header, origin, any_sequence=stored.is_unknown)
                started += _started_by(before, entry)
            entries[producer_id] = entry
        # Kafka gathers them in a table of their own, where the latest comes first in its slot.
        in_order = table_order(reversed(entries.values()))
        return Admission(tuple(in_order), tuple(started), tuple(completed))

    def _duplicate_of(self, headers: Sequence[BatchHeader]) -> ProducerBatch | None:
        """Where this append stands already. All of it must: what is new may not vanish with the rest."""
        first = last = None
        for header in headers:
            entry = self._entries.get(header.producer_id)
            if entry is None:
                return None
            last = entry.find_duplicate(
                header.producer_epoch, header.base_sequence, header.last_sequence
            )
            if last is None:
                return None
            first = first or last
        if first is None or last is None or first is last:
            return first
        return last._replace(offset_delta=last.last_offset - first.first_offset)

    def apply(self, admission: Admission) -> None:
        """Put in place what was admitted. Then each of ``admission.completed`` goes to ``complete``."""
        assert admission.duplicate is None, "a duplicate is answered, not applied"
        for entry in admission.entries:
            assert len(entry.batches) <= BATCHES_KEPT
            self._entries[entry.producer_id] = entry
        for first_offset, producer_id in admission.started:
            self._transactions.start(first_offset, producer_id)

    def last_stable_offset_after(self, txn: CompletedTxn) -> int:
        """What the transaction index says of ``txn``, asked before ``complete``."""
        return self._transactions.last_stable_offset_after(txn)

    def complete(self, txn: CompletedTxn) -> AbortedTxn | None:
        """Close a transaction that an append completed; its index entry where it was aborted."""
        return self._transactions.complete(txn)

    def replay(
        self, headers: Iterable[BatchHeader], markers: Mapping[int, ControlRecord] = _NO_MARKERS
    ) -> list[AbortedTxn]:
        """Take over batches that are in the log, one by one; what they add to the transaction index."""
        aborted = []
        for header in headers:
            if header.producer_id < 0:
                continue
            admission = self.admit((header,), _REPLICATION, markers)
            self.apply(admission)
            for txn in admission.completed:
                entry = self.complete(txn)
                if entry is not None:
                    aborted.append(entry)
        return aborted

    # --- what readers may see --------------------------------------------------------------------

    @property
    def has_transactions(self) -> bool:
        """Whether any transaction can be in a reader's way."""
        return not self._transactions.is_empty

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset that read_committed readers may not see yet; None: no transaction is in
        the way. It may lie below the log's start, to which the caller raises it."""
        return self._transactions.first_unstable_offset(high_watermark)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forget decided transactions whose marker is below the high watermark."""
        self._transactions.on_high_watermark(high_watermark)

    # --- keeping ---------------------------------------------------------------------------------

    def expire(self, now_ms: int, ttl_ms: int) -> int:
        """Forget producers that were silent for ``ttl_ms``; how many."""
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.is_expired(now_ms, ttl_ms)
        ]
        self._most_entries = max(self._most_entries, len(self._entries))
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def clear(self) -> None:
        """Forget everything. The two offsets are 0 then, until the owner says better."""
        self._most_entries = max(self._most_entries, len(self._entries))
        self._entries.clear()
        self._transactions.clear()
        self.map_end_offset = self.snapshot_offset = 0

    def load(
        self, entries: Iterable[ProducerEntry], offset: int, *, now_ms: int, ttl_ms: int
    ) -> None:
        """Begin anew from a snapshot at ``offset``, without those that have expired since.

        A snapshot that knows of what lies at or behind its own offset is damaged: CorruptionError,
        and nothing has changed.
        """
        known = list(entries)
        for entry in known:
            reached = max(
                entry.batches[-1].last_offset if entry.batches else -1,
                -1 if entry.txn_first_offset is None else entry.txn_first_offset,
            )
            if reached >= offset:
                raise CorruptionError(
                    "snapshot_offset",
                    f"producer {entry.producer_id} is at offset {reached} in a snapshot at {offset}",
                )
        self.clear()
        for entry in known:
            if not entry.is_expired(now_ms, ttl_ms):
                self._entries[entry.producer_id] = entry
                if entry.txn_first_offset is not None:
                    self._transactions.start(entry.txn_first_offset, entry.producer_id)
        self.map_end_offset = self.snapshot_offset = offset

    def snapshot_entries(self) -> list[ProducerEntry]:
        """All producers for a snapshot, in the order in which Kafka would write them."""
        return table_order(self._entries.values(), self._most_entries)


def _started_by(before: ProducerEntry, entry: ProducerEntry) -> tuple[tuple[int, int], ...]:
    """The transaction that a batch of records has opened, if it has."""
    if entry.txn_first_offset is None or before.txn_first_offset is not None:
        return ()
    return ((entry.txn_first_offset, entry.producer_id),)


def _completed_by(
    entry: ProducerEntry, header: BatchHeader, marker: ControlRecord
) -> tuple[CompletedTxn, ...]:
    """The transaction that a marker ends; none where it held no records."""
    if entry.txn_first_offset is None:
        return ()
    is_aborted = marker.type_id == ControlType.ABORT
    return (
        CompletedTxn(header.producer_id, entry.txn_first_offset, header.base_offset, is_aborted),
    )
