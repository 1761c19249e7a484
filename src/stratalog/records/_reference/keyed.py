"""Records as a rewrite looks at them: their key, whether they have a value, and the bytes to copy.

Headers are not read: they are copied with the rest of the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stratalog.records._reference.cursor import Cursor, Wrong, wrap64
from stratalog.records._reference.decode import decode_message, decode_message_set, inner_messages
from stratalog.records._reference.headers import Header
from stratalog.records.layout import (
    MAGIC_AT,
    MESSAGE_KEY_AT_V0,
    MESSAGE_KEY_AT_V1,
    RECORD_SIZE_MIN,
    Codec,
    Reason,
)


@dataclass(slots=True)
class KeyedRecord:
    """A record, or a message of magic 0 or 1."""

    whole: bytes
    rest: bytes  # from the key's size on: what does not depend on the batch's base timestamp
    magic: int
    offset: int
    timestamp: int
    key: bytes | None
    is_tombstone: bool


def payload_of(view: memoryview, header: Header) -> Cursor:
    """The payload of an uncompressed batch or message."""
    return Cursor(view, *header.payload)


def read_keyed(
    view: memoryview, header: Header, payload: Cursor, flags: int, expected: int
) -> Iterator[KeyedRecord]:
    """The records of one batch, message or wrapper from its (decompressed) payload. A message that stands
    alone is its own payload. Of a wrapper, the header gets to know its offsets and its count."""
    if header.magic == 2:
        yield from _read_records(header, payload)
    elif header.codec == Codec.NONE:
        yield _read_message(view, header)
    else:
        yield from _read_wrapper(header, payload, flags, expected)


def _read_records(header: Header, cursor: Cursor) -> Iterator[KeyedRecord]:
    if header.count * RECORD_SIZE_MIN > cursor.remaining:
        raise Wrong(Reason.RECORD_COUNT_RANGE)
    for _ in range(header.count):
        start = cursor.position
        length = cursor.varint()
        if not 1 <= length <= cursor.remaining:
            raise Wrong(Reason.RECORD_LENGTH)
        body = Cursor(cursor.data, cursor.position, cursor.position + length)
        cursor.take(length)
        body.take(1)  # attributes: unused
        timestamp_delta = body.varlong()
        offset_delta = body.varint()
        rest_at = body.position
        key, value = body.field(), body.field()
        if not 0 <= offset_delta <= header.last_offset - header.base_offset:
            raise Wrong(Reason.OFFSET_DELTA_RANGE)
        timestamp = wrap64(header.base_timestamp + timestamp_delta)
        yield KeyedRecord(
            whole=bytes(cursor.data[start : body.limit]),
            rest=bytes(cursor.data[rest_at : body.limit]),
            magic=2,
            offset=header.base_offset + offset_delta,
            timestamp=header.max_timestamp if header.is_append_time else timestamp,
            key=None if key is None else bytes(key),
            is_tombstone=value is None,
        )
    if cursor.remaining:
        raise Wrong(Reason.BATCH_TRAILING_BYTES)


def _read_message(view: memoryview, header: Header) -> KeyedRecord:
    message = decode_message(payload_of(view, header), header.base_offset, header.base_timestamp)
    return KeyedRecord(
        whole=bytes(view[header.position : header.position + header.size]),
        rest=bytes(view[slice(*header.payload)]),
        magic=header.magic,
        offset=message.offset,
        timestamp=message.timestamp,
        key=None if message.key is None else bytes(message.key),
        is_tombstone=message.value is None,
    )


def _read_wrapper(
    header: Header, payload: Cursor, flags: int, expected: int
) -> Iterator[KeyedRecord]:
    data = payload.data
    spans = inner_messages(Cursor(data, payload.position, payload.limit))
    decoded = decode_message_set(header, payload, flags, expected)
    for (_, start, end), message in zip(spans, decoded, strict=True):
        magic = data[start + MAGIC_AT]
        rest_at = start + (MESSAGE_KEY_AT_V1 if magic == 1 else MESSAGE_KEY_AT_V0)
        yield KeyedRecord(
            whole=bytes(data[start:end]),
            rest=bytes(data[rest_at:end]),
            magic=magic,
            offset=message.offset,
            timestamp=message.timestamp,
            key=None if message.key is None else bytes(message.key),
            is_tombstone=message.value is None,
        )
