"""Transactions that are left out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from stratalog.records._reference.headers import Header
from stratalog.records.layout import TRANSACTIONAL_MASK


def is_transactional(header: Header) -> bool:
    return header.magic == 2 and bool(header.attributes & TRANSACTIONAL_MASK)


class AbortedTransactions:
    """Producer id, first offset and offset of the marker of each, in this order. A batch is in one of them
    if it ends in it."""

    def __init__(self, fields: Iterable[int] | None) -> None:
        numbers = iter(() if fields is None else fields)
        self._aborted = list(zip(numbers, numbers, numbers, strict=False))

    def __contains__(self, header: Header) -> bool:
        if header.is_control or not is_transactional(header):
            return False
        key = (header.producer_id, header.last_offset)
        slot = bisect_right(self._aborted, key, key=lambda txn: txn[:2]) - 1
        if slot < 0:
            return False
        producer_id, _, marker_offset = self._aborted[slot]
        return producer_id == header.producer_id and header.last_offset < marker_offset
