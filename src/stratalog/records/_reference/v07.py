"""Kafka 0.7: entries without offsets."""

from __future__ import annotations

from stratalog.records._reference import crc
from stratalog.records._reference.cursor import Buffer, Cursor, Span, Wrong
from stratalog.records._reference.decode import Decoded
from stratalog.records._reference.headers import Header, Stop, integer_at, region_of, torn_tail
from stratalog.records.layout import (
    INT64_MAX,
    ROW_WIDTH,
    V07_ATTRIBUTES_AT,
    V07_CODEC_MASK,
    V07_CRC_AT_V0,
    V07_CRC_AT_V1,
    V07_LENGTH_MIN_V0,
    V07_LENGTH_MIN_V1,
    V07_LENGTH_SIZE,
    V07_MAGIC_AT,
    Check,
    Codec,
    Ending,
    Reason,
)


def parse_entry_v07(data: memoryview, position: int, limit: int, offset: int) -> Header:
    remaining = limit - position
    if remaining == 0:
        raise Stop(Ending.END)
    if remaining < V07_LENGTH_SIZE + 1:
        raise torn_tail(data, position, limit)
    length = integer_at(data, position, 4)
    magic = data[position + V07_MAGIC_AT]
    if length < V07_LENGTH_MIN_V0:
        if length == 0 and not any(data[position:limit]):
            raise Stop(Ending.INCOMPLETE, Reason.ZERO_TAIL)
        raise Stop(Ending.CORRUPT, Reason.SIZE_TOO_SMALL)
    if magic > 1:
        raise Stop(Ending.CORRUPT, Reason.UNKNOWN_MAGIC)
    if magic == 1 and length < V07_LENGTH_MIN_V1:
        raise Stop(Ending.CORRUPT, Reason.SIZE_TOO_SMALL)
    if not 0 <= offset <= INT64_MAX:  # a base offset near the end of 64 bits, and a position
        raise Stop(Ending.CORRUPT, Reason.OFFSET_RANGE)
    if length + V07_LENGTH_SIZE > remaining:
        raise Stop(Ending.INCOMPLETE, Reason.SHORT_TAIL)
    end = position + V07_LENGTH_SIZE + length
    attributes = data[position + V07_ATTRIBUTES_AT] & V07_CODEC_MASK if magic == 1 else 0
    crc_at = position + (V07_CRC_AT_V1 if magic == 1 else V07_CRC_AT_V0)
    header = Header(
        position=position,
        size=end - position,
        magic=magic,
        attributes=attributes,
        base_offset=offset,
        last_offset=offset,
        count=1 if attributes == Codec.NONE else -1,
        crc=integer_at(data, crc_at, 4, signed=False),
        payload=(crc_at + 4, end),
    )
    if header.codec > Codec.SNAPPY:
        raise Stop(Ending.CORRUPT, Reason.UNKNOWN_CODEC)
    if header.codec and crc_at + 4 == end:
        raise Stop(Ending.CORRUPT, Reason.EMPTY_WRAPPER)
    return header


def crc_matches_v07(data: memoryview, header: Header) -> bool:
    return crc.crc32(data[slice(*header.payload)]) == header.crc


def decode_entry_v07(header: Header, payload: Cursor, flags: int) -> list[Decoded]:
    """One 0.7 entry. Every message inside a compressed one has the wrapper's offset."""
    if not header.codec:
        return [Decoded(header.base_offset, -1, None, payload.take(payload.remaining))]
    decoded: list[Decoded] = []
    data = payload.data
    while True:
        try:
            inner = parse_entry_v07(data, payload.position, payload.limit, header.base_offset)
        except Stop as stop:
            if stop.ending == Ending.END:
                return decoded
            if stop.ending == Ending.INCOMPLETE:
                raise Wrong(Reason.BATCH_TRAILING_BYTES) from None
            raise Wrong(stop.reason) from None
        if inner.codec:
            raise Wrong(Reason.NESTED_COMPRESSION)
        if flags & Check.CRC and not crc_matches_v07(data, inner):
            raise Wrong(Reason.CRC_MISMATCH)
        decoded.append(Decoded(header.base_offset, -1, None, Span(data, *inner.payload)))
        payload.take(inner.size)


def walk_v07(
    data: Buffer,
    position: int,
    limit: int,
    rows: memoryview,
    flags: int = 0,
    base_offset: int = 0,
) -> tuple[int, int, int, int, int]:
    view = region_of(data, position, limit)
    capacity = len(rows) // ROW_WIDTH
    if capacity == 0:
        raise ValueError("no room for a header row")
    written = 0
    try:
        while True:
            header = parse_entry_v07(view, position, limit, base_offset + position)
            if written == capacity:
                raise Stop(Ending.FULL)
            if flags & Check.CRC and not crc_matches_v07(view, header):
                raise Stop(Ending.CORRUPT, Reason.CRC_MISMATCH)
            for i, value in enumerate(header.row()):
                rows[written * ROW_WIDTH + i] = value
            written += 1
            position += header.size
    except Stop as stop:
        reached = min(base_offset + position, INT64_MAX)
        return written, position, stop.ending, stop.reason, reached
