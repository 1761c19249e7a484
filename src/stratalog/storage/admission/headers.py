"""The batches of an append as header rows, and what is in them."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator
from typing import Final

from stratalog.errors import CorruptionError, InvalidRecordError, StratalogError
from stratalog.records import kernel
from stratalog.records.columns import decode_records
from stratalog.records.compression import Decompressor
from stratalog.records.layout import (
    CODEC_MASK,
    CRC_AT,
    CRC_FROM,
    INT32_MAX,
    LOG_OVERHEAD,
    MAGIC_AT,
    ROW_WIDTH,
    SIZE_AT,
    Check,
    Ending,
    Reason,
    Row,
)
from stratalog.records.model import Record
from stratalog.records.reasons import corruption, describe
from stratalog.types import Bytes

__all__ = ["Bytes", "payload_of", "records_of", "walk_rows"]

_POSITION: Final = int(Row.POSITION)
_SIZE: Final = int(Row.SIZE)
_ATTRIBUTES: Final = int(Row.ATTRIBUTES)
_PAYLOAD_POSITION: Final = int(Row.PAYLOAD_POSITION)
_PAYLOAD_SIZE: Final = int(Row.PAYLOAD_SIZE)
_CRC: Final = int(Check.CRC)
_END: Final = int(Ending.END)


_NO_ROW: Final = bytes(8 * ROW_WIDTH)


def walk_rows(data: Bytes, *, allow_tail: bool = False) -> tuple[memoryview, int]:
    """Header rows of all of ``data``, CRCs checked."""
    size = len(data)
    capacity = 1
    while True:
        rows = memoryview(array("q", _NO_ROW * capacity))
        held, reached, ending, reason, _ = kernel.walk(data, 0, size, rows, _CRC, -1, INT32_MAX)
        if ending == _END or (ending == Ending.FULL and reached == size):
            return rows, held
        if ending == Ending.FULL:
            capacity = max(64, capacity * 8)
            continue
        if allow_tail and ending == Ending.INCOMPLETE:
            return rows, held
        raise corruption(reason, reached) if allow_tail else _refusal(data, reached, reason)


#: Of these a producer is guilty, not the way that the bytes took: to send them again would not help.
_MADE_SO: Final = frozenset(
    {
        Reason.OFFSET_RANGE,
        Reason.LEADER_EPOCH_RANGE,
        Reason.UNKNOWN_CODEC,
        Reason.LAST_OFFSET_DELTA_RANGE,
        Reason.RECORD_COUNT_RANGE,
    }
)


def _refusal(data: Bytes, position: int, reason: int) -> StratalogError:
    """The error for a header that cannot be; InvalidRecordError where the batch's CRC is right."""
    with memoryview(data) as whole, whole[position + LOG_OVERHEAD :] as batch:
        if reason in _MADE_SO and batch[MAGIC_AT - LOG_OVERHEAD] == 2:
            size = int.from_bytes(whole[position + SIZE_AT : position + LOG_OVERHEAD], "big")
            crc = int.from_bytes(whole[position + CRC_AT : position + CRC_FROM], "big")
            if crc == kernel.crc32c(whole[position + CRC_FROM : position + LOG_OVERHEAD + size]):
                return InvalidRecordError(f"invalid batch: {describe(reason)}")
    return corruption(reason, position)


_local = threading.local()


def _decompressor() -> Decompressor:
    """One for each thread: it keeps its buffer."""
    found: Decompressor | None = getattr(_local, "decompressor", None)
    if found is None:
        found = _local.decompressor = Decompressor()
    return found


def payload_of(data: Bytes, rows: memoryview, at: int) -> memoryview:
    """The records of a batch, decompressed."""
    start = rows[at + _PAYLOAD_POSITION]
    part = memoryview(data)[start : start + rows[at + _PAYLOAD_SIZE]]
    try:
        return _decompressor().decompress(rows[at + _ATTRIBUTES] & CODEC_MASK, part)
    except CorruptionError as error:  # the CRC is right: it was sent so
        raise InvalidRecordError(f"invalid batch: {error.detail}") from None


def records_of(data: Bytes, rows: memoryview, at: int) -> Iterator[Record]:
    """The records of a batch, as a reader would see them; those of a control batch, too.

    Offset deltas beyond the batch's own last one are refused. Kafka refuses them in compressed batches
    only: others it stores as they are, and their records then have offsets that the batch has not.
    """
    start = rows[at + _POSITION]
    batch = bytes(memoryview(data)[start : start + rows[at + _SIZE]])
    try:
        yield from decode_records(batch, check=Check.INCLUDE_CONTROL)
    except CorruptionError as error:  # the CRC is right: it was sent so
        raise InvalidRecordError(f"invalid batch: {error.detail}") from None
