"""Follow the transactions of a log while it is compacted from its start, to know which markers may go.

The rules are Kafka's (``CleanedTransactionMetadata``). A marker is kept as long as records of its transaction
are: until then readers need it. Records of aborted transactions go at once, and their marker with the next
cleaning that finds none of them; its entry in the transaction index stays as long as they were seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from stratalog.records.control import ControlRecord, ControlType
from stratalog.storage.segment.txn_index import AbortedTxn

__all__ = ["CleanedTransactions"]


class CleanedTransactions:
    """The transactions that are open at the current offset of a cleaning."""

    def __init__(self) -> None:
        self._coming: list[tuple[int, int, AbortedTxn]] = []
        self._aborted: dict[int, AbortedTxn] = {}
        self._observed: set[int] = set()  # of the aborted ones: records were seen
        self._committed: set[int] = set()

    def fork(self) -> CleanedTransactions:
        """Return a copy that goes on by itself."""
        other = CleanedTransactions()
        other._coming = list(self._coming)
        other._aborted = dict(self._aborted)
        other._observed = set(self._observed)
        other._committed = set(self._committed)
        return other

    def add(self, aborted: Iterable[AbortedTxn]) -> None:
        """Add aborted transactions with records in the next segment."""
        for transaction in aborted:
            heappush(self._coming, (transaction.first_offset, transaction.producer_id, transaction))

    def note_batches(self, up_to: int, events: Iterable[tuple[int, bool]]) -> None:
        """Note the producers whose transactional batches were read, all below offset ``up_to``, and whether
        each was of an aborted transaction."""
        self._begin(up_to)
        for producer_id, is_aborted in events:
            if not is_aborted:
                self._committed.add(producer_id)
            elif producer_id in self._aborted:
                self._observed.add(producer_id)

    def end(
        self, producer_id: int, marker: ControlRecord | None, last_offset: int
    ) -> tuple[bool, AbortedTxn | None]:
        """Note a control batch (without a ``marker``: one that was emptied). Return whether it may go as far
        as transactions are concerned, and the entry that the transaction index must keep."""
        self._begin(last_offset)
        if marker is None:
            return True, None
        if marker.type is ControlType.ABORT:
            return self._end_aborted(producer_id)
        if marker.type is ControlType.COMMIT:
            return self._end_committed(producer_id), None
        return False, None

    def pass_marker(self, producer_id: int, last_offset: int, *, is_abort: bool) -> None:
        """Note a marker whose fate is decided elsewhere."""
        self._begin(last_offset)
        if is_abort:
            self._end_aborted(producer_id)
        else:
            self._end_committed(producer_id)

    def _end_committed(self, producer_id: int) -> bool:
        is_observed = producer_id in self._committed
        self._committed.discard(producer_id)
        return not is_observed

    def _end_aborted(self, producer_id: int) -> tuple[bool, AbortedTxn | None]:
        transaction = self._aborted.pop(producer_id, None)
        if transaction is None or producer_id not in self._observed:
            return True, None
        self._observed.discard(producer_id)
        return False, transaction

    def _begin(self, up_to: int) -> None:
        while self._coming and self._coming[0][0] <= up_to:
            _, producer_id, transaction = heappop(self._coming)
            self._aborted.setdefault(producer_id, transaction)
