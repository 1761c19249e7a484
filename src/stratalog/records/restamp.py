"""The edits that a batch may have in place, and nothing else.

Base offset and leader epoch lie outside the CRC: assigning them touches 12 bytes a batch. The append time
lies inside: setting it changes the attributes and the largest timestamp, and the CRC is made anew.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final

from stratalog.records import kernel
from stratalog.records.layout import (
    APPEND_TIME_MASK,
    ATTRIBUTES_AT,
    CONTROL_MASK,
    CRC_AT,
    CRC_FROM,
    LOG_OVERHEAD,
    MAX_TIMESTAMP_AT,
    MESSAGE_ATTRIBUTES_AT,
    MESSAGE_CRC_AT,
    MESSAGE_CRC_FROM,
    MESSAGE_TIMESTAMP_AT,
    OFFSET_AT,
    ROW_WIDTH,
    SIZE_AT,
    TRANSACTIONAL_MASK,
    Ending,
    Reason,
    Row,
)
from stratalog.records.reasons import corruption

__all__ = [
    "assign_message_offset",
    "assign_offsets",
    "set_append_time",
    "set_codec",
    "set_max_timestamp",
]

_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")
_UINT32: Final = struct.Struct(">I")

#: Kafka writes the attributes anew when it corrects a batch: bits without a meaning do not stay.
_KNOWN_ATTRIBUTES: Final = 0x7F
#: And these stay when it makes a batch anew.
_KEPT_ATTRIBUTES: Final = TRANSACTIONAL_MASK | CONTROL_MASK


def assign_offsets(
    data: bytearray | memoryview, *, next_offset: int, leader_epoch: int, position: int = 0
) -> int:
    """Give the magic 2 batches of ``data`` the offsets from ``next_offset`` on. Answers the offset
    after the last one. Where the data is not whole batches of magic 2, CorruptionError says where;
    the batches before that place are restamped already."""
    limit = memoryview(data).nbytes
    reached, ending, reason, after = kernel.restamp(
        data, position, limit, next_offset, leader_epoch
    )
    if ending != Ending.END:
        raise corruption(reason, reached)
    return after


def assign_message_offset(data: bytearray | memoryview, position: int, offset: int) -> None:
    """Give a message of magic 0 or 1 its offset; a wrapper of magic 1 that of its last message."""
    header = _header(data, position)
    if header[Row.MAGIC] > 1 or offset < 0:
        raise corruption(Reason.UNKNOWN_MAGIC if offset >= 0 else Reason.OFFSET_RANGE, position)
    _INT64.pack_into(data, position + OFFSET_AT, offset)


def set_append_time(data: bytearray | memoryview, position: int, timestamp: int) -> None:
    """Make the batch or message at ``position`` one of LogAppendTime: its readers then see
    ``timestamp`` for every record, while the records' own stay as they were sent."""
    header = _header(data, position)
    end = position + header[Row.SIZE]
    if header[Row.MAGIC] == 2:
        attributes = (header[Row.ATTRIBUTES] & _KNOWN_ATTRIBUTES) | APPEND_TIME_MASK
        _INT16.pack_into(data, position + ATTRIBUTES_AT, attributes)
        _INT64.pack_into(data, position + MAX_TIMESTAMP_AT, timestamp)
        _seal(data, position, end)
    elif header[Row.MAGIC] == 1:
        data[position + MESSAGE_ATTRIBUTES_AT] = header[Row.ATTRIBUTES] | APPEND_TIME_MASK
        _INT64.pack_into(data, position + MESSAGE_TIMESTAMP_AT, timestamp)
        with memoryview(data) as whole, whole[position + MESSAGE_CRC_FROM : end] as covered:
            crc = kernel.crc32(covered)
        _UINT32.pack_into(data, position + MESSAGE_CRC_AT, crc)
    else:
        raise corruption(Reason.UNKNOWN_MAGIC, position, detail="magic 0 has no timestamps")


def set_max_timestamp(data: bytearray | memoryview, position: int, timestamp: int) -> None:
    """Correct the largest timestamp of a magic 2 batch whose records keep their own (CreateTime)."""
    header = _header(data, position)
    if header[Row.MAGIC] != 2:
        raise corruption(Reason.UNKNOWN_MAGIC, position)
    attributes = header[Row.ATTRIBUTES] & _KNOWN_ATTRIBUTES & ~APPEND_TIME_MASK
    _INT16.pack_into(data, position + ATTRIBUTES_AT, attributes)
    _INT64.pack_into(data, position + MAX_TIMESTAMP_AT, timestamp)
    _seal(data, position, position + header[Row.SIZE])


def set_codec(data: bytearray, position: int, codec: int) -> None:
    """Finish the last batch of ``data``, magic 2, after its records were packed anew with ``codec``:
    size, attributes and CRC."""
    (attributes,) = _INT16.unpack_from(data, position + ATTRIBUTES_AT)
    _INT16.pack_into(data, position + ATTRIBUTES_AT, attributes & _KEPT_ATTRIBUTES | codec)
    _INT32.pack_into(data, position + SIZE_AT, len(data) - position - LOG_OVERHEAD)
    _seal(data, position, len(data))


def _seal(data: bytearray | memoryview, position: int, end: int) -> None:
    with memoryview(data) as whole, whole[position + CRC_FROM : end] as covered:
        crc = kernel.crc32c(covered)
    _UINT32.pack_into(data, position + CRC_AT, crc)


def _header(data: bytearray | memoryview, position: int) -> array[int]:
    row = array("q", bytes(8 * ROW_WIDTH))
    limit = memoryview(data).nbytes
    written, reached, _, reason, _ = kernel.walk(data, position, limit, memoryview(row))
    if written == 0:
        raise corruption(reason or Reason.SHORT_TAIL, reached)
    return row
