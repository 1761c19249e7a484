"""The records of one batch or message, also of the messages inside another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from stratalog.records._reference import crc
from stratalog.records._reference.cursor import Cursor, Span, Wrong, wrap64
from stratalog.records._reference.headers import Header, integer_at
from stratalog.records.layout import (
    CODEC_MASK,
    INT64_MAX,
    LOG_OVERHEAD,
    MAGIC_AT,
    MESSAGE_ATTRIBUTES_AT,
    MESSAGE_CRC_AT,
    MESSAGE_CRC_FROM,
    MESSAGE_KEY_AT_V0,
    MESSAGE_KEY_AT_V1,
    MESSAGE_SIZE_MIN_V0,
    MESSAGE_SIZE_MIN_V1,
    MESSAGE_TIMESTAMP_AT,
    OFFSET_AT,
    RECORD_SIZE_MIN,
    SIZE_AT,
    Check,
    Codec,
    Reason,
)


@dataclass(slots=True)
class Decoded:
    """One record, and the batch-level facts that go with it."""

    offset: int
    timestamp: int
    key: Span | None
    value: Span | None
    headers: list[tuple[bytes, bytes | None]] = field(default_factory=list)


def decode_records(header: Header, cursor: Cursor) -> Iterator[Decoded]:
    """The records of a magic 2 batch from its (decompressed) payload."""
    if header.count * RECORD_SIZE_MIN > cursor.remaining:
        raise Wrong(Reason.RECORD_COUNT_RANGE)
    for _ in range(header.count):
        length = cursor.varint()
        if not 1 <= length <= cursor.remaining:
            raise Wrong(Reason.RECORD_LENGTH)
        body = Cursor(cursor.data, cursor.position, cursor.position + length)
        cursor.take(length)
        yield _decode_record(header, body)
    if cursor.remaining:
        raise Wrong(Reason.BATCH_TRAILING_BYTES)


def _decode_record(header: Header, body: Cursor) -> Decoded:
    body.take(1)  # attributes: unused
    timestamp_delta = body.varlong()
    offset_delta = body.varint()
    key = body.field()
    value = body.field()
    if not 0 <= offset_delta <= header.last_offset - header.base_offset:
        raise Wrong(Reason.OFFSET_DELTA_RANGE)
    headers = _decode_headers(body)
    if body.remaining:
        raise Wrong(Reason.RECORD_TRAILING_BYTES)
    if header.is_append_time:
        timestamp = header.max_timestamp
    else:
        timestamp = wrap64(header.base_timestamp + timestamp_delta)
    return Decoded(header.base_offset + offset_delta, timestamp, key, value, headers)


def _decode_headers(body: Cursor) -> list[tuple[bytes, bytes | None]]:
    header_count = body.varint()
    if not 0 <= header_count <= body.remaining // 2:
        raise Wrong(Reason.HEADER_COUNT)
    headers = []
    for _ in range(header_count):
        key = body.field()
        if key is None:
            raise Wrong(Reason.HEADER_KEY_NULL)
        # Header keys are text: what is not UTF-8 becomes U+FFFD, as Kafka's own reader does.
        text = bytes(key).decode("utf-8", "replace").encode("utf-8")
        value = body.field()
        headers.append((text, None if value is None else bytes(value)))
    return headers


def decode_message(cursor: Cursor, offset: int, timestamp: int) -> Decoded:
    key = cursor.message_field()
    value = cursor.message_field()
    if cursor.remaining:
        raise Wrong(Reason.RECORD_TRAILING_BYTES)
    return Decoded(offset, timestamp, key, value)


def inner_messages(cursor: Cursor) -> list[tuple[int, int, int]]:
    """(offset, start, end) of every message of a message set."""
    messages = []
    while cursor.remaining:
        if cursor.remaining < LOG_OVERHEAD + MESSAGE_SIZE_MIN_V0:
            raise Wrong(Reason.BATCH_TRAILING_BYTES)
        size = integer_at(cursor.data, cursor.position + SIZE_AT, 4)
        if not MESSAGE_SIZE_MIN_V0 <= size <= cursor.remaining - LOG_OVERHEAD:
            raise Wrong(Reason.RECORD_LENGTH)
        entry = cursor.take(LOG_OVERHEAD + size)
        messages.append(
            (integer_at(cursor.data, entry.start + OFFSET_AT, 8), entry.start, entry.end)
        )
    if not messages:
        raise Wrong(Reason.EMPTY_WRAPPER)
    return messages


def decode_message_set(
    wrapper: Header, cursor: Cursor, flags: int, expected: int
) -> Iterator[Decoded]:
    """The messages inside a wrapper. Magic 0 keeps absolute offsets; magic 1 counts from zero and
    the wrapper has the last one's offset. Where the wrapper has append time, so have they all."""
    payload = cursor.data
    messages = inner_messages(cursor)
    first, last = messages[0][0], messages[-1][0]
    shift = 0
    if wrapper.magic == 1:
        if wrapper.last_offset != 0:  # some producers left it 0: the inner offsets then stand
            if wrapper.last_offset < last:
                raise Wrong(Reason.WRAPPER_OFFSET)
            shift = wrapper.last_offset - last
    elif wrapper.last_offset not in (0, last) and flags & Check.ORDER:
        raise Wrong(Reason.WRAPPER_OFFSET)
    if not 0 <= first <= last or first + shift > INT64_MAX:
        raise Wrong(Reason.OFFSET_RANGE)
    wrapper.base_offset = first + shift
    wrapper.last_offset = last + shift  # where the wrapper's own was 0, it is known only now
    wrapper.count = len(messages)
    if expected >= 0:
        if flags & Check.ORDER and wrapper.base_offset < expected:
            raise Wrong(Reason.OFFSET_ORDER)
        if flags & Check.CONTIGUOUS and wrapper.base_offset != expected:
            raise Wrong(Reason.OFFSET_GAP)
    for offset, start, end in messages:
        yield _decode_inner(wrapper, payload, (offset, start, end), flags, last, shift)


def _decode_inner(
    wrapper: Header,
    payload: memoryview,
    message: tuple[int, int, int],
    flags: int,
    last: int,
    shift: int,
) -> Decoded:
    offset, start, end = message
    magic = payload[start + MAGIC_AT]
    if magic > 1:
        raise Wrong(Reason.UNKNOWN_MAGIC)
    if magic == 1 and end - start < LOG_OVERHEAD + MESSAGE_SIZE_MIN_V1:
        raise Wrong(Reason.SIZE_TOO_SMALL)
    if payload[start + MESSAGE_ATTRIBUTES_AT] & CODEC_MASK:
        raise Wrong(Reason.NESTED_COMPRESSION)
    if flags & Check.CRC and crc.crc32(payload[start + MESSAGE_CRC_FROM : end]) != integer_at(
        payload, start + MESSAGE_CRC_AT, 4, signed=False
    ):
        raise Wrong(Reason.CRC_MISMATCH)
    if not 0 <= offset <= last:
        raise Wrong(Reason.OFFSET_RANGE)
    timestamp = -1
    if wrapper.magic == 1:
        if wrapper.is_append_time:
            timestamp = wrapper.max_timestamp
        elif magic == 1:
            timestamp = integer_at(payload, start + MESSAGE_TIMESTAMP_AT, 8)
    key_at = start + (MESSAGE_KEY_AT_V1 if magic == 1 else MESSAGE_KEY_AT_V0)
    return decode_message(Cursor(payload, key_at, end), offset + shift, timestamp)


def decode_entry(header: Header, payload: Cursor, flags: int, expected: int) -> list[Decoded]:
    """All records of one batch, message or wrapper: all of them or Wrong."""
    if header.magic == 2:
        return list(decode_records(header, payload))
    if header.codec == Codec.NONE:
        return [decode_message(payload, header.base_offset, header.base_timestamp)]
    return list(decode_message_set(header, payload, flags, expected))
