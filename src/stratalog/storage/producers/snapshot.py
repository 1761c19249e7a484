"""The producer snapshot: all producers of a partition before one offset, so that a start need not read
the log from its beginning.

    snapshot := int16 version 1, uint32 CRC-32C of all that follows it, int32 count, entry*
    entry    := int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta,
                int64 timestamp, int32 coordinator epoch, int64 first offset of the open transaction

What is absent is -1. Of the remembered batches only the last one is kept.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.storage.producers.entry import ProducerBatch, ProducerEntry
from stratalog.types import NO_SEQUENCE

__all__ = ["decode_snapshot", "encode_snapshot", "table_order"]

_VERSION: Final = 1
_HEADER: Final = struct.Struct(">hIi")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_CRC_FROM: Final = 6
_NO_OFFSET: Final = -1
_NO_BATCH: Final = ProducerBatch(NO_SEQUENCE, _NO_OFFSET, 0, -1)

assert (_HEADER.size, _ENTRY.size) == (10, 46)


def encode_snapshot(entries: Sequence[ProducerEntry]) -> bytes:
    """The file's bytes, entries in the order given (``table_order`` gives Kafka's)."""
    body = bytearray(_HEADER.pack(_VERSION, 0, len(entries)))
    for entry in entries:
        batch = entry.batches[-1] if entry.batches else _NO_BATCH
        open_since = _NO_OFFSET if entry.txn_first_offset is None else entry.txn_first_offset
        body += _ENTRY.pack(
            entry.producer_id, entry.epoch, batch.last_sequence, batch.last_offset, batch.offset_delta,
            entry.last_timestamp, entry.coordinator_epoch, open_since,
        )  # fmt: skip
    struct.pack_into(">I", body, 2, kernel.crc32c(memoryview(body)[_CRC_FROM:]))
    return bytes(body)


def decode_snapshot(data: Any) -> list[ProducerEntry]:
    """The entries of a file, in its order.

    Bytes behind the last entry are damage: Kafka writes over an older file without cutting it.
    """
    view = memoryview(data).cast("B")
    if view.nbytes < _HEADER.size:
        raise CorruptionError("snapshot_size", f"{view.nbytes} bytes are less than a header")
    version, crc, count = _HEADER.unpack_from(view)
    if version != _VERSION:
        raise CorruptionError("snapshot_version", f"a producer snapshot of version {version}")
    found = kernel.crc32c(view[_CRC_FROM:])
    if found != crc:
        raise CorruptionError("snapshot_crc", f"the CRC is {found:08x}, the file says {crc:08x}")
    if count < 0 or view.nbytes != _HEADER.size + count * _ENTRY.size:
        raise CorruptionError("snapshot_size", f"{view.nbytes} bytes do not hold {count} entries")
    entries: dict[int, ProducerEntry] = {}
    for index, fields in enumerate(_ENTRY.iter_unpack(view[_HEADER.size :])):
        entry = _entry_of(*fields)
        if entry is None or entry.producer_id in entries:
            raise CorruptionError(
                "snapshot_entry",
                f"producer {fields[0]} comes twice, or as no producer can be",
                position=_HEADER.size + index * _ENTRY.size,
            )
        entries[entry.producer_id] = entry
    return list(entries.values())


def _entry_of(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    open_since: int,
) -> ProducerEntry | None:
    if producer_id < 0:
        return None
    batches: tuple[ProducerBatch, ...] = ()
    if last_offset >= 0:
        if last_sequence < NO_SEQUENCE or not 0 <= offset_delta <= last_offset:
            return None
        batches = (ProducerBatch(last_sequence, last_offset, offset_delta, timestamp),)
    txn_first_offset = open_since if open_since >= 0 else None
    return ProducerEntry(
        producer_id, epoch, batches, coordinator_epoch, timestamp, txn_first_offset
    )


def table_order(entries: Iterable[ProducerEntry], most: int = 0) -> list[ProducerEntry]:
    """Entries in the order in which Kafka writes them, given in the order in which they came to be.

    No reader minds the order; the same bytes as Kafka's are easier to trust. It is that of a Java
    HashMap: slots by hash, in a slot first come first. The table doubles when it is three quarters
    full and never shrinks, so ``most`` is how many entries there ever were at once. Java turns a
    slot of more than eight into a tree, which is not followed here.
    """
    known = list(entries)
    slots = 16
    while max(most, len(known)) > slots * 3 // 4:
        slots *= 2
    return sorted(known, key=lambda entry: _java_hash(entry.producer_id) & (slots - 1))


def _java_hash(number: int) -> int:
    """Of a Long as a HashMap takes it: the four halves folded into the lowest."""
    folded = (number ^ number >> 32) & 0xFFFFFFFF
    return folded ^ folded >> 16
