"""The transaction index: which transactions were aborted, for readers that want committed records only.

A segment's ``.txnindex`` has one entry of 34 bytes for each transaction whose ABORT marker lies in the
segment and that held records. Entries stand in the order of their markers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from stratalog.errors import CorruptionError

__all__ = ["ENTRY_SIZE", "AbortedTxn", "collect_aborted", "decode_entries", "encode_entry"]

_VERSION: Final = 0
_ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_SIZE: Final = _ENTRY.size

assert ENTRY_SIZE == 34


class AbortedTxn(NamedTuple):
    """One aborted transaction: its first record, its marker, and the last stable offset behind it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_entry(txn: AbortedTxn) -> bytes:
    """The 34 bytes that are appended to the index when the marker is."""
    return _ENTRY.pack(_VERSION, *txn)


def decode_entries(data: Any, base_offset: int) -> list[AbortedTxn]:
    """All entries of the index of the segment that starts at ``base_offset``.

    Kafka looks at the high byte of the version only, so 0 to 255 all count as version 0; so they do here.
    """
    size = memoryview(data).nbytes
    if size % ENTRY_SIZE:
        raise CorruptionError(
            "txn_index_size", f"{size} bytes are not whole entries of {ENTRY_SIZE}",
            position=size - size % ENTRY_SIZE,
        )  # fmt: skip
    entries = []
    least = base_offset
    for index, (version, *fields) in enumerate(_ENTRY.iter_unpack(data)):
        if version >> 8:
            raise CorruptionError(
                "txn_index_version", f"an entry of version {version}", position=index * ENTRY_SIZE
            )
        txn = AbortedTxn(*fields)
        if txn.last_offset < least:
            raise CorruptionError(
                "txn_index_order",
                f"a marker at offset {txn.last_offset}, where the least possible is {least}",
                position=index * ENTRY_SIZE,
            )
        if not 0 <= txn.first_offset <= txn.last_offset:
            raise CorruptionError(
                "txn_index_range",
                f"a transaction from offset {txn.first_offset} to its marker at {txn.last_offset}",
                position=index * ENTRY_SIZE,
            )
        least = txn.last_offset + 1
        entries.append(txn)
    return entries


def collect_aborted(
    entries: Iterable[AbortedTxn], start_offset: int, upper_bound: int
) -> tuple[list[AbortedTxn], bool]:
    """The transactions of one segment's index that may touch ``start_offset`` up to ``upper_bound``.

    The second value says that no later segment can add one; until then the caller goes on to the
    index of the next segment.
    """
    found = []
    for txn in entries:
        if txn.last_offset >= start_offset and txn.first_offset < upper_bound:
            found.append(txn)
        # Whatever is aborted behind this one begins at its last stable offset or later.
        if txn.last_stable_offset >= upper_bound:
            return found, True
    return found, False
