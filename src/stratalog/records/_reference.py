"""The kernel's specification: the same functions in plain Python, as plainly as they can be said.

Read this to know what ``_kernel.pyx`` must do. A property test feeds both the same generated and
mutated bytes and wants the same answers, so where the two differ one of them has a bug. It also runs,
slowly, in the kernel's place: ``STRATALOG_KERNEL=reference``.

Reading goes through :class:`Cursor` only: it cannot go past its limit.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from stratalog.records.layout import (
    APPEND_TIME_MASK,
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    CONTROL_MASK,
    CRC_AT,
    CRC_FROM,
    INDEX_STATE_WIDTH,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    MESSAGE_ATTRIBUTES_AT,
    MESSAGE_CRC_AT,
    MESSAGE_CRC_FROM,
    MESSAGE_KEY_AT_V0,
    MESSAGE_KEY_AT_V1,
    MESSAGE_SIZE_MIN_V0,
    MESSAGE_SIZE_MIN_V1,
    MESSAGE_TIMESTAMP_AT,
    OFFSET_AT,
    PREFIX_SIZE,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
    RECORD_SIZE_MIN,
    REMEMBERED_BATCHES,
    REPLAY_PRODUCERS_MAX,
    ROW_WIDTH,
    SIZE_AT,
    TRANSACTIONAL_MASK,
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
    Column,
    Ending,
    IndexState,
    Reason,
    Row,
    TimestampType,
)

Buffer = bytes | bytearray | memoryview

NAME: Final = "reference"
HARDWARE_CRC: Final = False
MICROSECONDS_MAX_MS: Final = 9223372036854775


def _make_table(polynomial: int) -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (polynomial if crc & 1 else 0)
        table.append(crc)
    return table


_CRC32C_TABLE: Final = _make_table(0x82F63B78)


def crc32c(data: Buffer, value: int = 0) -> int:
    crc = value ^ 0xFFFFFFFF
    for byte in memoryview(data).cast("B"):
        crc = crc >> 8 ^ _CRC32C_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def crc32(data: Buffer, value: int = 0) -> int:
    return zlib.crc32(data, value)


class Wrong(Exception):
    """What is being read is not what it must be; the reason says what."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class Span(NamedTuple):
    """Some bytes, and where they lie in the buffer they come from."""

    data: memoryview
    start: int
    end: int

    def __bytes__(self) -> bytes:
        return bytes(self.data[self.start : self.end])

    def __len__(self) -> int:
        return self.end - self.start


class Cursor:
    """A place in some bytes, and the limit that reading never passes."""

    def __init__(self, data: memoryview, position: int, limit: int) -> None:
        assert 0 <= position <= limit <= len(data)
        self.data = data
        self.position = position
        self.limit = limit

    @property
    def remaining(self) -> int:
        return self.limit - self.position

    def take(self, size: int) -> Span:
        if not 0 <= size <= self.remaining:
            raise Wrong(Reason.FIELD_LENGTH)
        self.position += size
        return Span(self.data, self.position - size, self.position)

    def int32(self) -> int:
        return int.from_bytes(bytes(self.take(4)), "big", signed=True)

    def varint(self) -> int:
        return self._number(groups_max=5, bits=32)

    def varlong(self) -> int:
        return self._number(groups_max=10, bits=64)

    def _number(self, groups_max: int, bits: int) -> int:
        raw = 0
        for group in range(groups_max):
            if self.remaining == 0:
                raise Wrong(Reason.VARINT)
            byte = self.data[self.position]
            self.position += 1
            raw |= (byte & 0x7F) << 7 * group
            if byte < 0x80:
                raw &= (1 << bits) - 1  # bits beyond the type are dropped, as Kafka does
                return raw >> 1 ^ -(raw & 1)
        raise Wrong(Reason.VARINT)

    def field(self) -> Span | None:
        """A varint size, -1 for null, and as many bytes."""
        return self._nullable(self.varint())

    def message_field(self) -> Span | None:
        """An int32 size, -1 for null, and as many bytes."""
        return self._nullable(self.int32())

    def _nullable(self, size: int) -> Span | None:
        if size == -1:
            return None
        return self.take(size)


def _wrap64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


@dataclass(slots=True)
class Header:
    """What the header of one batch, message, wrapper or 0.7 entry says."""

    position: int
    size: int
    magic: int
    attributes: int
    base_offset: int
    last_offset: int
    count: int
    crc: int
    payload: tuple[int, int]  # where it starts, where it ends
    base_timestamp: int = -1
    max_timestamp: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    leader_epoch: int = -1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return self.magic == 2 and bool(self.attributes & CONTROL_MASK)

    @property
    def is_append_time(self) -> bool:
        return bool(self.attributes & APPEND_TIME_MASK)

    @property
    def after(self) -> int:
        return min(self.last_offset + 1, INT64_MAX)

    def row(self) -> list[int]:
        row = [0] * ROW_WIDTH
        row[Row.POSITION] = self.position
        row[Row.SIZE] = self.size
        row[Row.MAGIC] = self.magic
        row[Row.ATTRIBUTES] = self.attributes
        row[Row.BASE_OFFSET] = self.base_offset
        row[Row.LAST_OFFSET] = self.last_offset
        row[Row.BASE_TIMESTAMP] = self.base_timestamp
        row[Row.MAX_TIMESTAMP] = self.max_timestamp
        row[Row.RECORD_COUNT] = self.count
        row[Row.PRODUCER_ID] = self.producer_id
        row[Row.PRODUCER_EPOCH] = self.producer_epoch
        row[Row.BASE_SEQUENCE] = self.base_sequence
        row[Row.LEADER_EPOCH] = self.leader_epoch
        row[Row.CRC] = self.crc
        row[Row.PAYLOAD_POSITION] = self.payload[0]
        row[Row.PAYLOAD_SIZE] = self.payload[1] - self.payload[0]
        return row


class Stop(Exception):
    """A region ends here: how, and why."""

    def __init__(self, ending: Ending, reason: Reason = Reason.NONE) -> None:
        super().__init__(ending, reason)
        self.ending = ending
        self.reason = reason


def _tail(data: memoryview, position: int, limit: int) -> Stop:
    zeros = not any(data[position:limit])
    return Stop(Ending.INCOMPLETE, Reason.ZERO_TAIL if zeros else Reason.SHORT_TAIL)


def _integer(data: memoryview, at: int, size: int, *, signed: bool = True) -> int:
    return int.from_bytes(data[at : at + size], "big", signed=signed)


def parse_header(data: memoryview, position: int, limit: int, size_max: int = INT32_MAX) -> Header:
    """The header at ``position``; Stop where there is none. Sizes are believed last."""
    remaining = limit - position
    if remaining == 0:
        raise Stop(Ending.END)
    if remaining < PREFIX_SIZE:
        raise _tail(data, position, limit)
    size = _integer(data, position + SIZE_AT, 4)
    magic = data[position + MAGIC_AT]
    if size < MESSAGE_SIZE_MIN_V0:
        if size == 0 and not any(data[position:limit]):
            raise Stop(Ending.INCOMPLETE, Reason.ZERO_TAIL)
        raise Stop(Ending.CORRUPT, Reason.SIZE_TOO_SMALL)
    if magic > 2:
        raise Stop(Ending.CORRUPT, Reason.UNKNOWN_MAGIC)
    if size < (MESSAGE_SIZE_MIN_V0, MESSAGE_SIZE_MIN_V1, BATCH_LENGTH_MIN)[magic]:
        raise Stop(Ending.CORRUPT, Reason.SIZE_TOO_SMALL)
    if size > size_max - LOG_OVERHEAD:
        raise Stop(Ending.CORRUPT, Reason.SIZE_TOO_LARGE)
    if _integer(data, position + OFFSET_AT, 8) < 0:
        raise Stop(Ending.CORRUPT, Reason.OFFSET_RANGE)
    if size + LOG_OVERHEAD > remaining:
        raise Stop(Ending.INCOMPLETE, Reason.SHORT_TAIL)
    parse = _parse_batch_header if magic == 2 else _parse_message_header
    try:
        return parse(data, position, size + LOG_OVERHEAD)
    except Wrong as wrong:
        raise Stop(Ending.CORRUPT, wrong.reason) from None


def _parse_batch_header(data: memoryview, position: int, size: int) -> Header:
    base_offset = _integer(data, position + OFFSET_AT, 8)
    last_offset_delta = _integer(data, position + LAST_OFFSET_DELTA_AT, 4)
    header = Header(
        position=position,
        size=size,
        magic=2,
        attributes=_integer(data, position + ATTRIBUTES_AT, 2),
        base_offset=base_offset,
        last_offset=base_offset + last_offset_delta,
        count=_integer(data, position + RECORD_COUNT_AT, 4),
        crc=_integer(data, position + CRC_AT, 4, signed=False),
        payload=(position + BATCH_HEADER_SIZE, position + size),
        base_timestamp=_integer(data, position + BASE_TIMESTAMP_AT, 8),
        max_timestamp=_integer(data, position + MAX_TIMESTAMP_AT, 8),
        producer_id=_integer(data, position + PRODUCER_ID_AT, 8),
        producer_epoch=_integer(data, position + PRODUCER_EPOCH_AT, 2),
        base_sequence=_integer(data, position + BASE_SEQUENCE_AT, 4),
        leader_epoch=_integer(data, position + LEADER_EPOCH_AT, 4),
    )
    if header.leader_epoch < -1:
        raise Wrong(Reason.LEADER_EPOCH_RANGE)
    if last_offset_delta < 0:
        raise Wrong(Reason.LAST_OFFSET_DELTA_RANGE)
    if header.last_offset > INT64_MAX:
        raise Wrong(Reason.OFFSET_RANGE)
    if header.codec > Codec.ZSTD:
        raise Wrong(Reason.UNKNOWN_CODEC)
    if not 0 <= header.count <= last_offset_delta + 1:
        raise Wrong(Reason.RECORD_COUNT_RANGE)
    if header.codec == Codec.NONE and header.count * RECORD_SIZE_MIN > size - BATCH_HEADER_SIZE:
        raise Wrong(Reason.RECORD_COUNT_RANGE)
    return header


def _parse_message_header(data: memoryview, position: int, size: int) -> Header:
    magic = data[position + MAGIC_AT]
    offset = _integer(data, position + OFFSET_AT, 8)
    timestamp = _integer(data, position + MESSAGE_TIMESTAMP_AT, 8) if magic == 1 else -1
    key_at = position + (MESSAGE_KEY_AT_V1 if magic == 1 else MESSAGE_KEY_AT_V0)
    header = Header(
        position=position,
        size=size,
        magic=magic,
        attributes=data[position + MESSAGE_ATTRIBUTES_AT],
        base_offset=offset,
        last_offset=offset,
        count=1,
        crc=_integer(data, position + MESSAGE_CRC_AT, 4, signed=False),
        payload=(key_at, position + size),
        base_timestamp=timestamp,
        max_timestamp=timestamp,
    )
    if header.codec == Codec.NONE:
        return header
    if header.codec > Codec.LZ4:
        raise Wrong(Reason.UNKNOWN_CODEC)
    # A wrapper: its first offset and its count are known only inside.
    header.base_offset = -1
    header.count = -1
    cursor = Cursor(data, key_at, position + size)
    cursor.message_field()
    value = cursor.message_field()
    if cursor.remaining:
        raise Wrong(Reason.FIELD_LENGTH)
    if not value:
        raise Wrong(Reason.EMPTY_WRAPPER)
    header.payload = (position + size - len(value), position + size)
    return header


def _crc_matches(data: memoryview, header: Header) -> bool:
    end = header.position + header.size
    if header.magic == 2:
        return crc32c(data[header.position + CRC_FROM : end]) == header.crc
    return crc32(data[header.position + MESSAGE_CRC_FROM : end]) == header.crc


def _check_place(header: Header, flags: int, expected: int) -> None:
    first = header.base_offset if header.base_offset >= 0 else header.last_offset
    if expected < 0:
        return
    if flags & Check.ORDER and first < expected:
        raise Wrong(Reason.OFFSET_ORDER)
    if flags & Check.CONTIGUOUS and header.base_offset >= 0 and first != expected:
        raise Wrong(Reason.OFFSET_GAP)


def _hop_records(data: memoryview, header: Header) -> None:
    cursor = Cursor(data, *header.payload)
    for _ in range(header.count):
        length = cursor.varint()
        if not 0 <= length <= cursor.remaining:
            raise Wrong(Reason.RECORD_LENGTH)
        cursor.take(length)
    if cursor.remaining:
        raise Wrong(Reason.BATCH_TRAILING_BYTES)


def _check_batch(data: memoryview, header: Header, flags: int, expected: int) -> None:
    _check_place(header, flags, expected)
    if flags & Check.CRC and not _crc_matches(data, header):
        raise Wrong(Reason.CRC_MISMATCH)
    if flags & Check.COUNTS and header.magic == 2 and header.codec == Codec.NONE:
        _hop_records(data, header)


def _region(data: Buffer, position: int, limit: int) -> memoryview:
    view = memoryview(data).cast("B")
    if not 0 <= position <= limit <= len(view):
        raise ValueError(f"not a region: {position} to {limit} of {len(view)} bytes")
    return view


def walk(
    data: Buffer,
    position: int,
    limit: int,
    rows: memoryview,
    flags: int = 0,
    expected: int = -1,
    size_max: int = INT32_MAX,
    *,
    guarded: bool = False,  # the compiled kernel's alone: here a mapping that is lost ends the process
) -> tuple[int, int, int, int, int]:
    view = _region(data, position, limit)
    capacity = len(rows) // ROW_WIDTH
    if capacity == 0:
        raise ValueError("no room for a header row")
    written = 0
    try:
        while True:
            header = parse_header(view, position, limit, size_max)
            if written == capacity:
                raise Stop(Ending.FULL)
            _check_batch(view, header, flags, expected)
            for i, value in enumerate(header.row()):
                rows[written * ROW_WIDTH + i] = value
            written += 1
            expected = header.after
            position += header.size
    except Wrong as wrong:
        return written, position, Ending.CORRUPT, wrong.reason, expected
    except Stop as stop:
        return written, position, stop.ending, stop.reason, expected


def count(
    data: Buffer,
    position: int,
    limit: int,
    flags: int = 0,
    expected: int = -1,
    size_max: int = INT32_MAX,
    *,
    guarded: bool = False,  # the compiled kernel's alone: here a mapping that is lost ends the process
) -> tuple[int, int, int, int, int, int, int]:
    view = _region(data, position, limit)
    records = control = batches = 0
    try:
        while True:
            header = parse_header(view, position, limit, size_max)
            _check_batch(view, header, flags, expected)
            if header.count < 0:
                raise Stop(Ending.COMPRESSED)
            if header.is_control:
                control += header.count
            else:
                records += header.count
            batches += 1
            expected = header.after
            position += header.size
    except Wrong as wrong:
        return records, control, batches, position, Ending.CORRUPT, wrong.reason, expected
    except Stop as stop:
        return records, control, batches, position, stop.ending, stop.reason, expected


def copy(data: Buffer, position: int, limit: int, *, guarded: bool = False) -> bytes:
    return bytes(_region(data, position, limit)[position:limit])


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
        timestamp = _wrap64(header.base_timestamp + timestamp_delta)
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


def _decode_message(cursor: Cursor, offset: int, timestamp: int) -> Decoded:
    key = cursor.message_field()
    value = cursor.message_field()
    if cursor.remaining:
        raise Wrong(Reason.RECORD_TRAILING_BYTES)
    return Decoded(offset, timestamp, key, value)


def _inner_messages(cursor: Cursor) -> list[tuple[int, int, int]]:
    """(offset, start, end) of every message of a message set."""
    messages = []
    while cursor.remaining:
        if cursor.remaining < LOG_OVERHEAD + MESSAGE_SIZE_MIN_V0:
            raise Wrong(Reason.BATCH_TRAILING_BYTES)
        size = _integer(cursor.data, cursor.position + SIZE_AT, 4)
        if not MESSAGE_SIZE_MIN_V0 <= size <= cursor.remaining - LOG_OVERHEAD:
            raise Wrong(Reason.RECORD_LENGTH)
        entry = cursor.take(LOG_OVERHEAD + size)
        messages.append((_integer(cursor.data, entry.start + OFFSET_AT, 8), entry.start, entry.end))
    if not messages:
        raise Wrong(Reason.EMPTY_WRAPPER)
    return messages


def decode_message_set(
    wrapper: Header, cursor: Cursor, flags: int, expected: int
) -> Iterator[Decoded]:
    """The messages inside a wrapper. Magic 0 keeps absolute offsets; magic 1 counts from zero and
    the wrapper has the last one's offset. Where the wrapper has append time, so have they all."""
    payload = cursor.data
    messages = _inner_messages(cursor)
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
    if flags & Check.CRC and crc32(payload[start + MESSAGE_CRC_FROM : end]) != _integer(
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
            timestamp = _integer(payload, start + MESSAGE_TIMESTAMP_AT, 8)
    key_at = start + (MESSAGE_KEY_AT_V1 if magic == 1 else MESSAGE_KEY_AT_V0)
    return _decode_message(Cursor(payload, key_at, end), offset + shift, timestamp)


def decode_entry(header: Header, payload: Cursor, flags: int, expected: int) -> list[Decoded]:
    """All records of one batch, message or wrapper: all of them or Wrong."""
    if header.magic == 2:
        return list(decode_records(header, payload))
    if header.codec == Codec.NONE:
        return [_decode_message(payload, header.base_offset, header.base_timestamp)]
    return list(decode_message_set(header, payload, flags, expected))


# 0.7


def parse_entry_v07(data: memoryview, position: int, limit: int, offset: int) -> Header:
    remaining = limit - position
    if remaining == 0:
        raise Stop(Ending.END)
    if remaining < V07_LENGTH_SIZE + 1:
        raise _tail(data, position, limit)
    length = _integer(data, position, 4)
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
        crc=_integer(data, crc_at, 4, signed=False),
        payload=(crc_at + 4, end),
    )
    if header.codec > Codec.SNAPPY:
        raise Stop(Ending.CORRUPT, Reason.UNKNOWN_CODEC)
    if header.codec and crc_at + 4 == end:
        raise Stop(Ending.CORRUPT, Reason.EMPTY_WRAPPER)
    return header


def _crc_matches_v07(data: memoryview, header: Header) -> bool:
    return crc32(data[slice(*header.payload)]) == header.crc


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
        if flags & Check.CRC and not _crc_matches_v07(data, inner):
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
    view = _region(data, position, limit)
    capacity = len(rows) // ROW_WIDTH
    if capacity == 0:
        raise ValueError("no room for a header row")
    written = 0
    try:
        while True:
            header = parse_entry_v07(view, position, limit, base_offset + position)
            if written == capacity:
                raise Stop(Ending.FULL)
            if flags & Check.CRC and not _crc_matches_v07(view, header):
                raise Stop(Ending.CORRUPT, Reason.CRC_MISMATCH)
            for i, value in enumerate(header.row()):
                rows[written * ROW_WIDTH + i] = value
            written += 1
            position += header.size
    except Stop as stop:
        reached = min(base_offset + position, INT64_MAX)
        return written, position, stop.ending, stop.reason, reached


# Columns


def _bitmap(bits: Sequence[bool]) -> bytes:
    out = bytearray((len(bits) + 7) // 8)
    for i, bit in enumerate(bits):
        out[i // 8] |= bit << i % 8
    return bytes(out)


def _validity(present: Sequence[bool]) -> bytes | None:
    return None if all(present) else _bitmap(present)


def _pack(code: str, values: Sequence[int]) -> bytes:
    return struct.pack(f"={len(values)}{code}", *values)


def _ends(parts: Sequence[bytes | None]) -> bytes:
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part or b""))
    return _pack("i", ends)


def _binary(parts: Sequence[bytes | None]) -> tuple[bytes | None, bytes, bytes]:
    present = [part is not None for part in parts]
    return _validity(present), _ends(parts), b"".join(part or b"" for part in parts)


@dataclass(slots=True)
class _Filled:
    """A decoded record among others of a column set, with what its batch says."""

    record: Decoded
    header: Header
    timestamp_type: int
    codec: int
    position: int
    key: bytes | None
    value: bytes | None
    key_view: bytes
    value_view: bytes


class Columns:
    """See ``_kernel.Columns``: fill, add, take."""

    def __init__(
        self,
        want: int,
        flags: int = 0,
        *,
        views: bool = False,
        rows_max: int = 65536,
        bytes_max: int = 8 << 20,
        bounds: tuple[int, int, int, int] | None = None,
        aborted: Sequence[int] | None = None,
    ) -> None:
        self._want = want
        self._flags = flags
        self._views = views
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._bounds = bounds or (INT64_MIN, INT64_MAX, INT64_MIN, INT64_MAX)
        fields = iter(aborted or ())
        #: Producer id, first offset and offset of the marker of each transaction, in order.
        self._aborted = list(zip(fields, fields, fields, strict=False))
        self._filled: list[_Filled] = []
        self.expected = -1
        self.skipped = 0

    @property
    def rows(self) -> int:
        return len(self._filled)

    @property
    def used(self) -> int:
        total = 0
        for row in self._filled:
            if self._want & Column.KEY and not self._views:
                total += len(row.key or b"")
            if self._want & Column.VALUE and not self._views:
                total += len(row.value or b"")
            if self._want & Column.HEADERS:
                total += sum(len(k) + len(v or b"") for k, v in row.record.headers)
        return total

    def _full(self, header: Header) -> bool:
        payload_size = header.payload[1] - header.payload[0]
        return bool(self._filled) and (
            self.rows + max(header.count, 1) > self._rows_max
            or self.used + payload_size > self._bytes_max
        )

    def _outside(self, header: Header) -> bool:
        first, last, first_time, last_time = self._bounds
        # A wrapper that kept offset 0 may hold more than its header tells.
        knows_last = header.count >= 0 or header.last_offset > 0
        if (knows_last and header.last_offset < first) or header.base_offset > last:
            return True
        if header.max_timestamp < first_time:
            return True
        return header.is_append_time and header.max_timestamp > last_time

    def _left_out(self, header: Header) -> bool:
        if header.is_control:
            return not self._flags & Check.INCLUDE_CONTROL
        if not _is_transactional(header):
            return False
        key = (header.producer_id, header.last_offset)
        slot = bisect_right(self._aborted, key, key=lambda txn: txn[:2]) - 1
        if slot < 0:
            return False
        producer_id, _, marker_offset = self._aborted[slot]
        return producer_id == header.producer_id and header.last_offset < marker_offset

    def fill(
        self,
        data: Buffer,
        position: int,
        limit: int,
        *,
        size_max: int = INT32_MAX,
        position_base: int = 0,
        buffer_index: int = 0,
        guarded: bool = False,
    ) -> tuple[int, int, int]:
        view = self._aim(data, position, limit)
        try:
            while True:
                header = parse_header(view, position, limit, size_max)
                _check_place(header, self._flags, self.expected)
                if self._outside(header):
                    self.skipped += 1
                else:
                    if self._full(header):
                        raise Stop(Ending.FULL)
                    if self._flags & Check.CRC and not _crc_matches(view, header):
                        raise Wrong(Reason.CRC_MISMATCH)
                    # Only now: a flipped bit must not hide records by calling them control records.
                    if not self._left_out(header):
                        if header.codec and header.payload[0] < header.payload[1]:
                            raise Stop(Ending.COMPRESSED)
                        payload = Cursor(view, *header.payload)
                        self._decode(header, payload, position_base + position, buffer_index)
                self.expected = header.after
                position += header.size
        except Wrong as wrong:
            return position, Ending.CORRUPT, wrong.reason
        except Stop as stop:
            return position, stop.ending, stop.reason

    def add(
        self,
        data: Buffer,
        position: int,
        limit: int,
        payload: Buffer,
        *,
        position_base: int = 0,
        buffer_index: int = 0,
    ) -> tuple[int, int, int]:
        view = self._aim(data, position, limit)
        inside = self._aim(payload, 0, len(memoryview(payload).cast("B")))
        try:
            header = parse_header(view, position, limit)
            cursor = Cursor(inside, 0, len(inside))
            self._decode(header, cursor, position_base + position, buffer_index)
        except Wrong as wrong:
            return position, Ending.CORRUPT, wrong.reason
        except Stop as stop:
            return position, stop.ending, stop.reason
        self.expected = header.after
        return position + header.size, Ending.END, Reason.NONE

    def _decode(self, header: Header, payload: Cursor, position: int, buffer_index: int) -> None:
        records = decode_entry(header, payload, self._flags, self.expected)
        if header.magic == 0:
            timestamp_type = TimestampType.NONE
        elif header.is_append_time:
            timestamp_type = TimestampType.APPEND_TIME
        else:
            timestamp_type = TimestampType.CREATE_TIME
        self._keep(records, header, timestamp_type, header.codec, position, buffer_index)

    def fill_v07(
        self,
        data: Buffer,
        position: int,
        limit: int,
        *,
        base_offset: int = 0,
        buffer_index: int = 0,
    ) -> tuple[int, int, int]:
        view = self._aim(data, position, limit)
        try:
            while True:
                header = parse_entry_v07(view, position, limit, base_offset + position)
                if not self._bounds[0] <= header.base_offset <= self._bounds[1]:
                    self.skipped += 1
                else:
                    if self._full(header):
                        raise Stop(Ending.FULL)
                    if self._flags & Check.CRC and not _crc_matches_v07(view, header):
                        raise Wrong(Reason.CRC_MISMATCH)
                    if header.codec:
                        raise Stop(Ending.COMPRESSED)
                    self._decode_v07(header, Cursor(view, *header.payload), buffer_index)
                position += header.size
        except Wrong as wrong:
            return position, Ending.CORRUPT, wrong.reason
        except Stop as stop:
            return position, stop.ending, stop.reason

    def add_v07(
        self,
        data: Buffer,
        position: int,
        limit: int,
        payload: Buffer,
        *,
        base_offset: int = 0,
        buffer_index: int = 0,
    ) -> tuple[int, int, int]:
        view = self._aim(data, position, limit)
        inside = self._aim(payload, 0, len(memoryview(payload).cast("B")))
        try:
            header = parse_entry_v07(view, position, limit, base_offset + position)
            self._decode_v07(header, Cursor(inside, 0, len(inside)), buffer_index)
        except Wrong as wrong:
            return position, Ending.CORRUPT, wrong.reason
        except Stop as stop:
            return position, stop.ending, stop.reason
        return position + header.size, Ending.END, Reason.NONE

    def _decode_v07(self, header: Header, payload: Cursor, buffer_index: int) -> None:
        records = decode_entry_v07(header, payload, self._flags)
        self._keep(
            records, header, TimestampType.NONE, header.codec, header.base_offset, buffer_index
        )

    def _aim(self, data: Buffer, position: int, limit: int) -> memoryview:
        view = _region(data, position, limit)
        if self._views and limit > INT32_MAX:
            raise ValueError("a view reaches 2 GiB at most: map the region in parts")
        return view

    def _keep(
        self,
        records: list[Decoded],
        header: Header,
        timestamp_type: int,
        codec: int,
        position: int,
        buffer_index: int,
    ) -> None:
        first, last, first_time, last_time = self._bounds
        for record in records:
            if first <= record.offset <= last and first_time <= record.timestamp <= last_time:
                self._filled.append(
                    _Filled(
                        record,
                        header,
                        timestamp_type,
                        codec,
                        position,
                        None if record.key is None else bytes(record.key),
                        None if record.value is None else bytes(record.value),
                        _view(record.key, buffer_index),
                        _view(record.value, buffer_index),
                    )
                )

    def take(self) -> tuple[int, dict[int, Any]]:
        rows, self._filled = self._filled, []
        taken: dict[int, Any] = {}
        for column in Column:
            if self._want & column:
                taken[int(column)] = self._column(column, rows)
        return len(rows), taken

    def _column(self, column: Column, rows: list[_Filled]) -> tuple[Any, ...]:
        match column:
            case Column.TIMESTAMP:
                times = [row.record.timestamp for row in rows]
                fits = [abs(time) <= MICROSECONDS_MAX_MS for time in times]
                micros = [time * 1000 if fit else 0 for time, fit in zip(times, fits, strict=True)]
                return _validity(fits), _pack("q", micros)
            case Column.KEY:
                return self._fields([row.key for row in rows], [row.key_view for row in rows])
            case Column.VALUE:
                return self._fields([row.value for row in rows], [row.value_view for row in rows])
            case Column.HEADERS:
                return _headers_column([row.record.headers for row in rows])
            case Column.IS_CONTROL:
                return (_bitmap([row.header.is_control for row in rows]),)
            case Column.IS_TRANSACTIONAL:
                return (_bitmap([_is_transactional(row.header) for row in rows]),)
            case _:
                code, value = _FIXED[column]
                return (_pack(code, [value(row) for row in rows]),)

    def _fields(self, parts: list[bytes | None], views: list[bytes]) -> tuple[Any, ...]:
        if not self._views:
            return _binary(parts)
        return _validity([part is not None for part in parts]), b"".join(views)


def _is_transactional(header: Header) -> bool:
    return header.magic == 2 and bool(header.attributes & TRANSACTIONAL_MASK)


def _sequence(row: _Filled) -> int:
    base = row.header.base_sequence
    return -1 if base < 0 else (base + row.record.offset - row.header.base_offset) & INT32_MAX


_FIXED: Final[dict[Column, tuple[str, Any]]] = {
    Column.OFFSET: ("q", lambda row: row.record.offset),
    Column.TIMESTAMP_MS: ("q", lambda row: row.record.timestamp),
    Column.TIMESTAMP_TYPE: ("i", lambda row: row.timestamp_type),
    Column.POSITION: ("q", lambda row: row.position),
    Column.BASE_OFFSET: ("q", lambda row: row.header.base_offset),
    Column.PRODUCER_ID: ("q", lambda row: row.header.producer_id),
    Column.PRODUCER_EPOCH: ("h", lambda row: row.header.producer_epoch),
    Column.SEQUENCE: ("i", _sequence),
    Column.LEADER_EPOCH: ("i", lambda row: row.header.leader_epoch),
    Column.CODEC: ("b", lambda row: row.codec),
}


def _headers_column(all_headers: list[list[tuple[bytes, bytes | None]]]) -> tuple[Any, ...]:
    ends = [0]
    for headers in all_headers:
        ends.append(ends[-1] + len(headers))
    flat = [header for headers in all_headers for header in headers]
    keys = _binary([key for key, _ in flat])[1:]
    values = _binary([value for _, value in flat])
    return _pack("i", ends), len(flat), keys, values


def _view(part: Span | None, buffer_index: int) -> bytes:
    """A 16-byte view of Arrow's: short bytes inside it, long ones by buffer and position."""
    if part is None:
        return bytes(16)
    data = bytes(part)
    if len(data) <= 12:
        return struct.pack("=i12s", len(data), data)
    return struct.pack("=i4sii", len(data), data[:4], buffer_index, part.start)


# Columns into records


def _bytes_of(buffer: Any) -> memoryview:
    return memoryview(buffer).cast("B")


def _bit(bitmap: memoryview | None, row: int) -> bool:
    return bitmap is None or bool(bitmap[row // 8] >> row % 8 & 1)


class _Field:
    """A binary column of Arrow's, read only."""

    def __init__(self, parts: tuple[Any, Any, Any, int], count: int) -> None:
        valid, ends, data, first = parts
        if first < 0:
            raise ValueError("a column starts before its buffers")
        self.valid = None if valid is None else _hold(valid, (first + count + 7) // 8)
        self.ends = _hold(ends, (first + count + 1) * 4)
        self.data = _bytes_of(data)
        self.first = first

    def __getitem__(self, row: int) -> bytes | None:
        row += self.first
        if not _bit(self.valid, row):
            return None
        start, end = struct.unpack_from("=ii", self.ends, row * 4)
        if not 0 <= start <= end <= len(self.data):
            raise Wrong(Reason.FIELD_LENGTH)
        return bytes(self.data[start:end])


def _hold(buffer: Any, size: int) -> memoryview:
    view = _bytes_of(buffer)
    if len(view) < size:
        raise ValueError("a column is shorter than its row count")
    return view


class Rows:
    """See ``_kernel.Rows``."""

    def __init__(
        self,
        count: int,
        *,
        timestamps: tuple[Any, Any, int] | None = None,
        multiply: int = 1,
        divide: int = 1,
        default_timestamp: int = -1,
        offsets: tuple[Any, int] | None = None,
        key: tuple[Any, Any, Any, int] | None = None,
        value: tuple[Any, Any, Any, int] | None = None,
        headers: tuple[Any, Any, int, Any, Any] | None = None,
        order: Any = None,
    ) -> None:
        if count < 0 or multiply < 1 or divide < 1:
            raise ValueError("a count of rows and a scale are positive")
        self.count = count
        self._scale = (multiply, divide)
        self._default_timestamp = default_timestamp
        self._timestamps = timestamps
        if timestamps is not None:
            _starts_at(timestamps[2])
            if timestamps[0] is not None:
                _hold(timestamps[0], (timestamps[2] + count + 7) // 8)
            _hold(timestamps[1], (timestamps[2] + count) * 8)
        self._offsets = offsets
        if offsets is not None:
            _starts_at(offsets[1])
            _hold(offsets[0], (offsets[1] + count) * 8)
        self._key = None if key is None else _Field(key, count)
        self._value = None if value is None else _Field(value, count)
        self._headers = headers
        if headers is not None:
            valid, ends, first, keys, values = headers
            _starts_at(first)
            if valid is not None:
                _hold(valid, (first + count + 7) // 8)
            _hold(ends, (first + count + 1) * 4)
            self._header_count = min(len(_bytes_of(p[1])) // 4 - 1 - p[3] for p in (keys, values))
            if self._header_count < 0:
                raise ValueError("a column is shorter than its row count")
            self._header_key = _Field(keys, self._header_count)
            self._header_value = _Field(values, self._header_count)
        self._order = None
        if order is not None:
            if offsets is not None:
                raise ValueError("rows that bring their offsets have an order")
            data = _bytes_of(order)
            self._order = struct.unpack_from(f"={len(data) // 8}q", data)
            self.count = len(self._order)
            if any(not 0 <= row < count for row in self._order):
                raise ValueError("no such row")

    def _row(self, row: int) -> int:
        return row if self._order is None else self._order[row]

    @property
    def has_offsets(self) -> bool:
        return self._offsets is not None

    @property
    def has_headers(self) -> bool:
        return self._headers is not None and self._header_count > 0

    def timestamp(self, row: int) -> int:
        if self._timestamps is None:
            return self._default_timestamp
        valid, values, first = self._timestamps
        row = self._row(row)
        if not _bit(None if valid is None else _bytes_of(valid), first + row):
            return self._default_timestamp
        (value,) = struct.unpack_from("=q", _bytes_of(values), (first + row) * 8)
        multiply, divide = self._scale
        return _wrap64(int(value) * multiply) // divide

    def offset(self, row: int, first_row: int, base_offset: int) -> int:
        if self._offsets is None:
            if not 0 <= base_offset <= INT64_MAX - (row - first_row):
                raise Wrong(Reason.OFFSET_RANGE)
            return base_offset + row - first_row
        values, first = self._offsets
        (offset,) = struct.unpack_from("=q", _bytes_of(values), (first + row) * 8)
        if offset < 0:
            raise Wrong(Reason.OFFSET_RANGE)
        if row > first_row and offset <= self.offset(row - 1, row - 1, 0):
            raise Wrong(Reason.OFFSET_ORDER)
        return int(offset)

    def key(self, row: int) -> bytes | None:
        return None if self._key is None else self._key[self._row(row)]

    def value(self, row: int) -> bytes | None:
        return None if self._value is None else self._value[self._row(row)]

    def headers(self, row: int) -> list[tuple[bytes, bytes | None]]:
        if self._headers is None:
            return []
        valid, ends, first, _, _ = self._headers
        row = self._row(row)
        if not _bit(None if valid is None else _bytes_of(valid), first + row):
            return []
        start, end = struct.unpack_from("=ii", _bytes_of(ends), (first + row) * 4)
        if not 0 <= start <= end <= self._header_count:
            raise Wrong(Reason.HEADER_COUNT)
        headers = []
        for i in range(start, end):
            key = self._header_key[i]
            if key is None:
                raise Wrong(Reason.HEADER_KEY_NULL)
            headers.append((key, self._header_value[i]))
        return headers


def _starts_at(first: int) -> None:
    if first < 0:
        raise ValueError("a column starts before its buffers")


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
            delta = _wrap64(timestamp - base_time)
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
    struct.pack_into(">I", out, at + CRC_AT, crc32c(bytes(out[at + CRC_FROM :])))


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
        encoded += struct.pack(">qiI", shown, 4 + len(body), crc32(body)) + body
        last = offset
        max_timestamp = max(max_timestamp, timestamp)
        i += 1
    out += encoded
    return i, first, last, max_timestamp, Reason.NONE


def restamp(
    data: bytearray | memoryview, position: int, limit: int, next_offset: int, leader_epoch: int
) -> tuple[int, int, int, int]:
    view = _region(data, position, limit)
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


# The records of one batch, looked through


def _records_between(
    data: Buffer, start: int, end: int, count: int, base_timestamp: int
) -> Iterator[Decoded]:
    """The records of an uncompressed batch as the decoder sees them, whatever its header says of their
    offsets: the offset of each is its delta."""
    view = _region(data, start, end)
    if count < 0:
        raise Wrong(Reason.RECORD_COUNT_RANGE)
    batch = Header(
        position=start,
        size=end - start,
        magic=2,
        attributes=0,
        base_offset=0,
        last_offset=INT32_MAX,
        count=count,
        crc=0,
        payload=(start, end),
        base_timestamp=base_timestamp,
    )
    yield from decode_records(batch, Cursor(view, start, end))


def check_records(
    data: Buffer, start: int, end: int, count: int, base_timestamp: int
) -> tuple[int, int, int, int, int, int, int]:
    timestamps: list[int] = []
    gap_row = null_key_row = -1
    try:
        for row, record in enumerate(_records_between(data, start, end, count, base_timestamp)):
            timestamps.append(record.timestamp)
            if record.offset != row and gap_row < 0:
                gap_row = row
            if record.key is None and null_key_row < 0:
                null_key_row = row
    except Wrong as wrong:
        return wrong.reason, len(timestamps), -1, -1, -1, -1, -1
    max_timestamp = max([-1, *timestamps])  # Kafka's starts from "none"
    max_row = -1 if max_timestamp == -1 else timestamps.index(max_timestamp)
    min_timestamp = min(timestamps, default=-1)
    return Reason.NONE, -1, min_timestamp, max_timestamp, max_row, gap_row, null_key_row


def admit_plain(
    data: Buffer, size_max: int, now: int, before_max: int, after_max: int, needs_key: bool
) -> tuple[bytearray | memoryview, array[int]] | None:
    if before_max < 0 or after_max < 0:
        raise ValueError("not a span of time")
    row = array("q", bytes(8 * ROW_WIDTH))
    size = memoryview(data).nbytes
    held, reached, *_ = walk(data, 0, size, memoryview(row), Check.CRC)
    if not held or reached != size or size > size_max or row[Row.MAGIC] != 2:
        return None
    count = row[Row.RECORD_COUNT]
    if (
        row[Row.ATTRIBUTES] & (CODEC_MASK | APPEND_TIME_MASK | CONTROL_MASK)
        or row[Row.BASE_OFFSET] != 0
        or count < 1
        or row[Row.LAST_OFFSET] != count - 1
        or (row[Row.PRODUCER_ID] >= 0 and row[Row.BASE_SEQUENCE] < 0)
    ):
        return None
    start = row[Row.PAYLOAD_POSITION]
    reason, _, least, largest, _, gap_row, null_key_row = check_records(
        data, start, start + row[Row.PAYLOAD_SIZE], count, row[Row.BASE_TIMESTAMP]
    )
    if reason or gap_row >= 0 or largest != row[Row.MAX_TIMESTAMP]:
        return None
    if now - least > before_max or largest - now > after_max or (needs_key and null_key_row >= 0):
        return None
    return (bytearray(data) if memoryview(data).readonly else data), row  # type: ignore[return-value]


def place_plain(
    data: bytearray | memoryview,
    row: Any,
    state: Any,
    position: int,
    segment_bytes: int,
    first_timestamp: int,
    span_ms: int,
    next_offset: int,
    leader_epoch: int,
) -> int:
    if position < 0 or segment_bytes < 0:
        raise ValueError(f"no segment: {position} of {segment_bytes} bytes")
    given = _numbers(row, ROW_WIDTH, writable=True)
    held = _numbers(state, INDEX_STATE_WIDTH)
    view = memoryview(data).cast("B")
    if view.readonly:
        raise BufferError("not memory that may be written")
    count = given[Row.RECORD_COUNT]
    if len(view) < BATCH_HEADER_SIZE or len(view) != given[Row.SIZE]:
        raise ValueError("not the row of this batch")
    if count < 1 or not 0 <= next_offset <= INT64_MAX - count:
        return -1
    last_offset = next_offset + count - 1
    if (
        len(view) > segment_bytes - position
        or held[IndexState.OFFSET_SLOTS] <= 0
        or held[IndexState.TIME_SLOTS] <= 0
        or not 0 <= last_offset - held[IndexState.BASE_OFFSET] <= INT32_MAX
    ):
        return -1
    # Without a first timestamp the clock decides, and where the span is none the caller.
    waited = given[Row.MAX_TIMESTAMP] - first_timestamp
    if position > 0 and (first_timestamp < 0 or span_ms < 0 or waited > span_ms):
        return -1
    struct.pack_into(">q", view, OFFSET_AT, next_offset)
    struct.pack_into(">i", view, LEADER_EPOCH_AT, leader_epoch)
    given[Row.BASE_OFFSET] = next_offset
    given[Row.LAST_OFFSET] = last_offset
    given[Row.LEADER_EPOCH] = leader_epoch
    return last_offset


def find_timestamp(
    data: Buffer,
    start: int,
    end: int,
    count: int,
    base_timestamp: int,
    target: int,
    delta_min: int,
) -> tuple[int, int]:
    try:
        for record in _records_between(data, start, end, count, base_timestamp):
            if record.timestamp >= target and record.offset >= delta_min:
                return record.offset, record.timestamp
    except Wrong as wrong:
        return -2, wrong.reason
    return -1, -1


# Beside the log: indexes, and which rows a replay must see


def search_entries(
    data: Buffer,
    count: int,
    entry_size: int,
    key_at: int,
    key_size: int,
    target: int,
    *,
    guarded: bool = False,
) -> int:
    view = memoryview(data).cast("B")
    if key_size not in (4, 8) or not 0 <= key_at <= entry_size - key_size:
        raise ValueError(f"no key of {key_size} bytes at {key_at} of {entry_size}")
    if not 0 <= count <= len(view) // entry_size:
        raise ValueError(f"{count} entries of {entry_size} bytes in {len(view)}")
    low, high = -1, count - 1
    while low < high:  # every step leaves less between the two, whatever the bytes say
        middle = low + (high - low + 1) // 2
        if _integer(view, middle * entry_size + key_at, key_size) <= target:
            low = middle
        else:
            high = middle - 1
    return low


def _search_pairs(entries: Buffer, key_size: int, target: int) -> tuple[int | None, int, int]:
    """The key of the last entry, a key and four bytes, whose key is not above ``target``; its value and
    the next one's. None and -1 where there is none."""
    view = memoryview(entries).cast("B")
    size = key_size + 4
    count = len(view) // size
    slot = search_entries(view, count, size, 0, key_size, target)
    return (
        _integer(view, slot * size, key_size) if slot >= 0 else None,
        _integer(view, slot * size + key_size, 4) if slot >= 0 else -1,
        _integer(view, (slot + 1) * size + key_size, 4) if slot + 1 < count else -1,
    )


def find_places(
    offset_entries: Buffer, base_offset: int, offset: int, *, guarded: bool = False
) -> tuple[int, int]:
    if offset < base_offset:
        return 0, -1
    relative = min(offset - base_offset, INT32_MAX)
    key, value, next_value = _search_pairs(offset_entries, 4, relative)
    return max(value, 0), max(value if key == relative else next_value, -1)


def find_time_entry(
    time_entries: Buffer,
    offset_entries: Buffer,
    base_offset: int,
    timestamp: int,
    *,
    guarded: bool = False,
) -> tuple[int, int, int, int] | None:
    time, relative, _ = _search_pairs(time_entries, 8, timestamp)
    if time is None or relative < 0:
        return None
    key, value, next_value = _search_pairs(offset_entries, 4, relative)
    following = max(next_value, -1) if key == relative else -1
    return time, _wrap64(base_offset + relative), max(value, 0), following


def _numbers(source: Any, least: int, *, writable: bool = False) -> memoryview:
    view = memoryview(source)
    if view.format not in ("q", "l") or view.itemsize != 8 or not 0 <= least <= view.nbytes // 8:
        raise ValueError(f"not a buffer of {least} 64-bit integers")
    if writable and view.readonly:
        raise ValueError("a buffer that may not be written")
    return view.cast("B").cast("q")


def find_batch(
    data: Buffer, start: int, limit: int, target: int, by_time: bool
) -> tuple[int, int, int, int, int, int]:
    view = _region(data, start, limit)
    at = start
    sizes_min = (MESSAGE_SIZE_MIN_V0, MESSAGE_SIZE_MIN_V1, BATCH_LENGTH_MIN)
    while limit - at >= MESSAGE_KEY_AT_V1:
        offset, length = struct.unpack_from(">qi", view, at)
        magic = view[at + MAGIC_AT]
        reason = Reason.NONE
        if length < MESSAGE_SIZE_MIN_V0:
            reason = Reason.SIZE_TOO_SMALL
        elif magic > 2:
            reason = Reason.UNKNOWN_MAGIC
        elif length < sizes_min[magic]:
            reason = Reason.SIZE_TOO_SMALL
        elif offset < 0:
            reason = Reason.OFFSET_RANGE
        if reason:
            return -1, at, reason, -1, -1, -1
        last, timestamp = offset, -1
        if magic == 2:
            if limit - at < BATCH_HEADER_SIZE:
                break
            (delta,) = struct.unpack_from(">i", view, at + LAST_OFFSET_DELTA_AT)
            (count,) = struct.unpack_from(">i", view, at + RECORD_COUNT_AT)
            # Else it would be passed over, and its records missed, before anybody looks at its CRC.
            if delta < 0:
                reason = Reason.LAST_OFFSET_DELTA_RANGE
            elif offset > INT64_MAX - delta:
                reason = Reason.OFFSET_RANGE
            elif not 0 <= count <= delta + 1:
                reason = Reason.RECORD_COUNT_RANGE
            if reason:
                return -1, at, reason, -1, -1, -1
            last = offset + delta
            (timestamp,) = struct.unpack_from(">q", view, at + MAX_TIMESTAMP_AT)
        else:
            if magic == 1:
                (timestamp,) = struct.unpack_from(">q", view, at + MESSAGE_TIMESTAMP_AT)
            if view[at + MESSAGE_ATTRIBUTES_AT] & CODEC_MASK:
                offset = -1
        if (timestamp if by_time else last) >= target:
            return 1, at, length + LOG_OVERHEAD, offset, last, timestamp
        at += length + LOG_OVERHEAD
    return 0, at, 0, -1, -1, -1


def find_timed(
    data: Buffer,
    room: int,
    timestamp: int,
    start_offset: int,
    end_offset: int,
    entry_timestamp: int,
    entry_offset: int,
) -> tuple[int, int, int, int]:
    if entry_offset != -1:
        found, *_, last, time = find_batch(data, 0, len(data), entry_offset, by_time=False)
        if found <= 0 or (time, last) != (entry_timestamp, entry_offset):
            return -1, 0, 0, 0
    found, at, size, base, last, time = find_batch(data, 0, len(data), timestamp, by_time=True)
    if found == 0 and 0 < at < room:
        return 0, at, 0, 0
    view = memoryview(data).cast("B")
    if found <= 0 or at + size > room or last >= end_offset or view[at + MAGIC_AT] != 2:
        return -1, 0, 0, 0
    record = _record_in_beginning(view, at, size, timestamp, start_offset - base)
    if record is None:
        return -1, 0, 0, 0
    attributes = _integer(view, at + ATTRIBUTES_AT, 2)
    shown = time if attributes & APPEND_TIME_MASK else record.timestamp
    return 1, _wrap64(base + record.offset), shown, _integer(view, at + LEADER_EPOCH_AT, 4)


def _record_in_beginning(
    view: memoryview, at: int, size: int, timestamp: int, delta_min: int
) -> Decoded | None:
    """The record that find_timestamp would answer for all of a batch, where its beginning has it."""
    attributes = _integer(view, at + ATTRIBUTES_AT, 2)
    count = _integer(view, at + RECORD_COUNT_AT, 4)
    if attributes & CODEC_MASK or count * RECORD_SIZE_MIN > size - BATCH_HEADER_SIZE:
        return None
    start, end = at + BATCH_HEADER_SIZE, min(at + size, len(view))
    count = min(count, (end - start) // RECORD_SIZE_MIN)  # more are not there
    base_timestamp = _integer(view, at + BASE_TIMESTAMP_AT, 8)
    try:
        for record in _records_between(view, start, end, count, base_timestamp):
            # Of a batch with the broker's time, that stands for every record.
            is_late = record.timestamp >= timestamp or attributes & APPEND_TIME_MASK
            if is_late and record.offset >= delta_min:
                return record
    except Wrong:
        pass
    return None


def note_batches(
    rows: Any, count: int, state: Any, offset_out: bytearray, time_out: bytearray
) -> tuple[int, int]:
    given = _numbers(rows, count * ROW_WIDTH)
    held = _numbers(state, INDEX_STATE_WIDTH, writable=True)
    numbers = held[:INDEX_STATE_WIDTH].tolist()
    offsets, times = bytearray(), bytearray()
    done, reason = 0, Reason.NONE
    try:
        while done < count:
            row = given[done * ROW_WIDTH : (done + 1) * ROW_WIDTH].tolist()
            numbers = _note_batch(row, numbers, offsets, times)
            done += 1
    except Wrong as wrong:
        reason = wrong.reason
    offset_out += offsets
    time_out += times
    for at, number in enumerate(numbers):
        held[at] = number
    return done, reason


def _note_batch(
    row: list[int], before: list[int], offsets: bytearray, times: bytearray
) -> list[int]:
    """The state behind one batch, and the entries that it calls for. Wrong where an index cannot hold
    them: then there are none."""
    state = list(before)
    base_offset = state[IndexState.BASE_OFFSET]
    last_offset = row[Row.LAST_OFFSET]
    position = row[Row.POSITION] + state[IndexState.POSITION_BASE]
    if row[Row.MAX_TIMESTAMP] > state[IndexState.MAX_TIMESTAMP]:
        state[IndexState.MAX_TIMESTAMP] = row[Row.MAX_TIMESTAMP]
        state[IndexState.MAX_TIMESTAMP_OFFSET] = last_offset
    if not 0 <= last_offset - base_offset <= INT32_MAX:
        raise Wrong(Reason.OFFSET_RANGE)
    if not 0 <= position <= INT32_MAX:
        raise Wrong(Reason.SIZE_TOO_LARGE)
    offset_entry = time_entry = b""
    # Strictly more, and not counting this batch: the first of a segment never has an entry.
    if state[IndexState.BYTES_SINCE] > state[IndexState.INTERVAL]:
        if state[IndexState.OFFSET_SLOTS] > 0:
            if last_offset <= state[IndexState.LAST_OFFSET]:
                raise Wrong(Reason.OFFSET_ORDER)
            offset_entry = struct.pack(">ii", last_offset - base_offset, position)
            state[IndexState.LAST_OFFSET] = last_offset
            state[IndexState.OFFSET_SLOTS] -= 1
        timestamp = state[IndexState.MAX_TIMESTAMP]
        offset = state[IndexState.MAX_TIMESTAMP_OFFSET]
        if timestamp > state[IndexState.LAST_TIME] and state[IndexState.TIME_SLOTS] > 0:
            if not 0 <= offset - base_offset <= INT32_MAX:
                raise Wrong(Reason.OFFSET_RANGE)
            if offset < state[IndexState.LAST_TIME_OFFSET]:
                raise Wrong(Reason.OFFSET_ORDER)
            time_entry = struct.pack(">qi", timestamp, offset - base_offset)
            state[IndexState.LAST_TIME] = timestamp
            state[IndexState.LAST_TIME_OFFSET] = offset
            state[IndexState.TIME_SLOTS] -= 1
        state[IndexState.BYTES_SINCE] = 0
    state[IndexState.BYTES_SINCE] = _wrap64(state[IndexState.BYTES_SINCE] + row[Row.SIZE])
    offsets += offset_entry
    times += time_entry
    return state


@dataclass(slots=True)
class _Run:
    """Rows of one producer that follow each other with one epoch and one transactional bit."""

    kind: tuple[int, bool]
    rows: list[int] = field(default_factory=list)


def replay_rows(rows: Any, count: int, keep: Any) -> int:
    given = _numbers(rows, count * ROW_WIDTH)
    kept = _numbers(keep, count, writable=True)
    open_runs: dict[int, _Run | None] = {}  # None: a marker has ended it
    runs: list[_Run] = []
    always: list[int] = []
    for row in range(count):
        fields = given[row * ROW_WIDTH : (row + 1) * ROW_WIDTH].tolist()
        producer_id = fields[Row.PRODUCER_ID]
        attributes = fields[Row.ATTRIBUTES] if fields[Row.MAGIC] == 2 else 0
        if attributes & CONTROL_MASK:
            always.append(row)
            if open_runs.get(producer_id):
                open_runs[producer_id] = None
            continue
        if producer_id < 0:
            continue
        if producer_id not in open_runs and len(open_runs) == REPLAY_PRODUCERS_MAX:
            always.append(row)  # keeping more than is needed is always right
            continue
        kind = (fields[Row.PRODUCER_EPOCH], bool(attributes & TRANSACTIONAL_MASK))
        run = open_runs.get(producer_id)
        if run is None or run.kind != kind:
            run = open_runs[producer_id] = _Run(kind)
            runs.append(run)
        run.rows.append(row)
    wanted = set(always)
    for run in runs:
        wanted |= {run.rows[0], *run.rows[-REMEMBERED_BATCHES:]}
    for at, row in enumerate(sorted(wanted)):
        kept[at] = row
    return len(wanted)


def zero_run(data: Buffer, start: int, end: int, *, guarded: bool = False) -> int:
    view = _region(data, start, end)
    for position in range(start, end):
        if view[position]:
            return position
    return end
