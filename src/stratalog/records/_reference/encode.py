"""Rows as records, records as batches or messages; and batches that get other offsets."""

from __future__ import annotations

import struct
from typing import Final

from stratalog.records._reference import crc
from stratalog.records._reference.cursor import Wrong, wrap64
from stratalog.records._reference.headers import Stop, parse_header, region_of
from stratalog.records._reference.rows import Rows
from stratalog.records.layout import (
    BATCH_HEADER_SIZE,
    CRC_AT,
    CRC_FROM,
    INT32_MAX,
    INT64_MAX,
    LEADER_EPOCH_AT,
    LOG_OVERHEAD,
    OFFSET_AT,
    Ending,
    Reason,
)


def encode_number(value: int) -> bytes:
    """A varint or varlong: the two differ only in what they may hold."""
    raw = value << 1 ^ value >> 63
    raw &= 2**64 - 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def _encode_field(part: bytes | None) -> bytes:
    return encode_number(-1) if part is None else encode_number(len(part)) + part


def encode_record(rows: Rows, row: int, timestamp_delta: int, offset_delta: int) -> bytes:
    body = bytearray(1)
    body += encode_number(timestamp_delta)
    body += encode_number(offset_delta)
    body += _encode_field(rows.key(row))
    body += _encode_field(rows.value(row))
    headers = rows.headers(row)
    body += encode_number(len(headers))
    for key, value in headers:
        body += _encode_field(key) + _encode_field(value)
    return encode_number(len(body)) + body


def encode_records(
    out: bytearray,
    rows: Rows,
    row: int,
    row_end: int,
    size_target: int,
    base_timestamp: int | None = None,
) -> tuple[int, int, int, int, int, int]:
    if not 0 <= row < row_end <= rows.count:
        raise ValueError("no such rows")
    base_time = -1 if base_timestamp is None else base_timestamp
    base_offset = last_delta = 0
    max_timestamp = -1
    encoded = bytearray()
    i = row
    while i < row_end:
        timestamp = rows.timestamp(i)
        try:
            offset = rows.offset(i, row, 0)
            if i == row:
                base_offset = offset
                if base_timestamp is None:
                    base_time = timestamp
            if offset - base_offset > INT32_MAX:
                break
            delta = wrap64(timestamp - base_time)
            record = encode_record(rows, i, delta, offset - base_offset)
        except Wrong as wrong:
            return i, base_offset, last_delta, base_time, max_timestamp, wrong.reason
        if i > row and len(encoded) + len(record) > size_target:
            break
        encoded += record
        last_delta = offset - base_offset
        max_timestamp = max(max_timestamp, timestamp)
        i += 1
    out += encoded
    return i, base_offset, last_delta, base_time, max_timestamp, Reason.NONE


_BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")


def murmur2(data: bytes) -> int:
    """The 32-bit hash that Kafka's Java clients use, as an unsigned number."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    length = len(data)
    h = 0x9747B28C ^ length
    for k in struct.unpack_from(f"<{length >> 2}I", data):
        k = k * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    if length & 3:
        h = (h ^ int.from_bytes(data[length & ~3 :], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def hash_keys(rows: Rows, partitions: int, out: memoryview) -> int:
    """Put the partition of every row's key into ``out``, -1 where it has none. Answers the reason where
    a key's bounds are wrong, else 0."""
    if partitions < 1 or len(out) < rows.count:
        raise ValueError("there is a partition, and room for every row")
    for row in range(rows.count):
        try:
            key = rows.key(row)
        except Wrong as wrong:
            return int(wrong.reason)
        out[row] = -1 if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions
    return 0


def write_batch_header(
    out: bytearray,
    at: int,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> None:
    size = len(out) - at
    if at < 0 or size < BATCH_HEADER_SIZE or size - LOG_OVERHEAD > INT32_MAX:
        raise ValueError("no room for a header, or a batch of 2 GiB")
    try:
        header = _BATCH_HEADER.pack(
            base_offset, size - LOG_OVERHEAD, leader_epoch, 2, 0, attributes, last_offset_delta,
            base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, record_count,
        )  # fmt: skip
    except struct.error as error:
        raise OverflowError(str(error)) from None
    out[at : at + BATCH_HEADER_SIZE] = header
    struct.pack_into(">I", out, at + CRC_AT, crc.crc32c(bytes(out[at + CRC_FROM :])))


def _encode_message_field(part: bytes | None) -> bytes:
    return struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part


def encode_messages(
    out: bytearray,
    rows: Rows,
    row: int,
    row_end: int,
    size_target: int,
    magic: int,
    attributes: int,
    base_offset: int,
    relative: bool,
    append_time: int | None = None,
) -> tuple[int, int, int, int, int]:
    if not 0 <= row < row_end <= rows.count or magic not in (0, 1):
        raise ValueError("no such rows, or no such magic")
    first = last = base_offset
    max_timestamp = -1
    encoded = bytearray()
    i = row
    while i < row_end:
        try:
            offset = rows.offset(i, row, base_offset)
            fields = _encode_message_field(rows.key(i)) + _encode_message_field(rows.value(i))
        except Wrong as wrong:
            return i, first, last, max_timestamp, wrong.reason
        timestamp = rows.timestamp(i) if append_time is None else append_time
        body = struct.pack(">bB", magic, attributes)
        if magic == 1:
            body += struct.pack(">q", timestamp)
        body += fields
        if i > row and len(encoded) + LOG_OVERHEAD + 4 + len(body) > size_target:
            break
        if i == row:
            first = offset
        shown = offset - first if relative else offset
        encoded += struct.pack(">qiI", shown, 4 + len(body), crc.crc32(body)) + body
        last = offset
        max_timestamp = max(max_timestamp, timestamp)
        i += 1
    out += encoded
    return i, first, last, max_timestamp, Reason.NONE


def restamp(
    data: bytearray | memoryview, position: int, limit: int, next_offset: int, leader_epoch: int
) -> tuple[int, int, int, int]:
    view = region_of(data, position, limit)
    try:
        while True:
            header = parse_header(view, position, limit)
            delta = header.last_offset - header.base_offset
            if header.magic != 2:
                raise Stop(Ending.CORRUPT, Reason.UNKNOWN_MAGIC)
            if not 0 <= next_offset <= INT64_MAX - delta - 1:
                raise Stop(Ending.CORRUPT, Reason.OFFSET_RANGE)
            struct.pack_into(">q", view, position + OFFSET_AT, next_offset)
            struct.pack_into(">i", view, position + LEADER_EPOCH_AT, leader_epoch)
            next_offset += delta + 1
            position += header.size
    except Stop as stop:
        return position, stop.ending, stop.reason, next_offset
