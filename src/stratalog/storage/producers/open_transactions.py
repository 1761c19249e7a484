"""Which transactions of a partition are open, and which are decided but not yet safe to show.

A read_committed reader may go up to the first *unstable* offset: the first record of a transaction that is
still open, or whose marker lies at or above the high watermark. The second kind matters because such a
marker can still be lost together with the leader that wrote it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush
from typing import NamedTuple

from stratalog.storage.segment.txn_index import AbortedTxn

__all__ = ["CompletedTxn", "Transactions", "last_stable_offset"]


def last_stable_offset(first_unstable: int | None, start: int, end: int) -> int:
    """Return the last stable offset of a log that a reader sees from ``start`` up to ``end``."""
    return end if first_unstable is None else max(min(first_unstable, end), start)


class CompletedTxn(NamedTuple):
    """A transaction that held records and has met its marker, which stands at ``last_offset``."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class Transactions:
    """The transactions of one partition that a reader may have to wait for."""

    def __init__(self) -> None:
        # Sorted. The producer is part of the key, so that no damaged file can make two of them one.
        self._ongoing: list[tuple[int, int]] = []  # (first offset, producer id)
        # A heap: only the earliest one is ever asked for.
        self._unreplicated: list[tuple[int, int]] = []  # (first offset, offset of the marker)

    @property
    def ongoing(self) -> tuple[tuple[int, int], ...]:
        """First offset and producer id of each open transaction, in the order of the offsets."""
        return tuple(self._ongoing)

    @property
    def is_empty(self) -> bool:
        """None is open, and none is waiting for the high watermark."""
        return not self._ongoing and not self._unreplicated

    def start(self, first_offset: int, producer_id: int) -> None:
        insort(self._ongoing, (first_offset, producer_id))

    def last_stable_offset_after(self, txn: CompletedTxn) -> int:
        """What the transaction index says of ``txn``: where the next open transaction of another
        producer starts, or else the offset behind the marker. Ask before ``complete``."""
        for first_offset, producer_id in self._ongoing:
            if producer_id != txn.producer_id:
                return first_offset
        return txn.last_offset + 1

    def complete(self, txn: CompletedTxn) -> AbortedTxn | None:
        """Close ``txn``; the entry for the transaction index where it was aborted.

        Its records stay unstable until the high watermark has passed the marker.
        """
        aborted = None
        if txn.is_aborted:
            aborted = AbortedTxn(*txn[:3], self.last_stable_offset_after(txn))
        key = (txn.first_offset, txn.producer_id)
        index = bisect_left(self._ongoing, key)
        assert self._ongoing[index : index + 1] == [key], f"{txn} was never started"
        del self._ongoing[index]
        heappush(self._unreplicated, (txn.first_offset, txn.last_offset))
        return aborted

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset whose fate is open under this high watermark; None: there is none."""
        decided = self._unreplicated
        if decided and decided[0][1] < high_watermark:  # nobody told us of this high watermark yet
            decided = sorted(txn for txn in decided if txn[1] >= high_watermark)
        return min((txns[0][0] for txns in (self._ongoing, decided) if txns), default=None)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forget decided transactions that every replica has; O(1) where there are none."""
        while self._unreplicated and self._unreplicated[0][1] < high_watermark:
            heappop(self._unreplicated)

    def clear(self) -> None:
        self._ongoing.clear()
        self._unreplicated.clear()
