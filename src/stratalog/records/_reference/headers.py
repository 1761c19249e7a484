"""From header to header over a region of log: batches, messages, and where that stops."""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.records._reference import crc
from stratalog.records._reference.cursor import Buffer, Cursor, Wrong
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
    INT32_MAX,
    INT64_MAX,
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
    ROW_WIDTH,
    SIZE_AT,
    Check,
    Codec,
    Ending,
    Reason,
    Row,
)


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


def torn_tail(data: memoryview, position: int, limit: int) -> Stop:
    zeros = not any(data[position:limit])
    return Stop(Ending.INCOMPLETE, Reason.ZERO_TAIL if zeros else Reason.SHORT_TAIL)


def integer_at(data: memoryview, at: int, size: int, *, signed: bool = True) -> int:
    return int.from_bytes(data[at : at + size], "big", signed=signed)


def parse_header(data: memoryview, position: int, limit: int, size_max: int = INT32_MAX) -> Header:
    """The header at ``position``; Stop where there is none. Sizes are believed last."""
    remaining = limit - position
    if remaining == 0:
        raise Stop(Ending.END)
    if remaining < PREFIX_SIZE:
        raise torn_tail(data, position, limit)
    size = integer_at(data, position + SIZE_AT, 4)
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
    if integer_at(data, position + OFFSET_AT, 8) < 0:
        raise Stop(Ending.CORRUPT, Reason.OFFSET_RANGE)
    if size + LOG_OVERHEAD > remaining:
        raise Stop(Ending.INCOMPLETE, Reason.SHORT_TAIL)
    parse = parse_batch_header if magic == 2 else _parse_message_header
    try:
        return parse(data, position, size + LOG_OVERHEAD)
    except Wrong as wrong:
        raise Stop(Ending.CORRUPT, wrong.reason) from None


def parse_batch_header(data: memoryview, position: int, size: int) -> Header:
    base_offset = integer_at(data, position + OFFSET_AT, 8)
    last_offset_delta = integer_at(data, position + LAST_OFFSET_DELTA_AT, 4)
    header = Header(
        position=position,
        size=size,
        magic=2,
        attributes=integer_at(data, position + ATTRIBUTES_AT, 2),
        base_offset=base_offset,
        last_offset=base_offset + last_offset_delta,
        count=integer_at(data, position + RECORD_COUNT_AT, 4),
        crc=integer_at(data, position + CRC_AT, 4, signed=False),
        payload=(position + BATCH_HEADER_SIZE, position + size),
        base_timestamp=integer_at(data, position + BASE_TIMESTAMP_AT, 8),
        max_timestamp=integer_at(data, position + MAX_TIMESTAMP_AT, 8),
        producer_id=integer_at(data, position + PRODUCER_ID_AT, 8),
        producer_epoch=integer_at(data, position + PRODUCER_EPOCH_AT, 2),
        base_sequence=integer_at(data, position + BASE_SEQUENCE_AT, 4),
        leader_epoch=integer_at(data, position + LEADER_EPOCH_AT, 4),
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
    offset = integer_at(data, position + OFFSET_AT, 8)
    timestamp = integer_at(data, position + MESSAGE_TIMESTAMP_AT, 8) if magic == 1 else -1
    key_at = position + (MESSAGE_KEY_AT_V1 if magic == 1 else MESSAGE_KEY_AT_V0)
    header = Header(
        position=position,
        size=size,
        magic=magic,
        attributes=data[position + MESSAGE_ATTRIBUTES_AT],
        base_offset=offset,
        last_offset=offset,
        count=1,
        crc=integer_at(data, position + MESSAGE_CRC_AT, 4, signed=False),
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


def crc_matches(data: memoryview, header: Header) -> bool:
    end = header.position + header.size
    if header.magic == 2:
        return crc.crc32c(data[header.position + CRC_FROM : end]) == header.crc
    return crc.crc32(data[header.position + MESSAGE_CRC_FROM : end]) == header.crc


def check_place(header: Header, flags: int, expected: int) -> None:
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


def check_content(data: memoryview, header: Header) -> None:
    """Decode what is not compressed; Wrong where that fails."""
    from stratalog.records._reference.decode import decode_entry  # which builds on this module

    decode_entry(header, Cursor(data, *header.payload), 0, -1)


def _check_batch(data: memoryview, header: Header, flags: int, expected: int) -> None:
    check_place(header, flags, expected)
    if flags & Check.CRC and not crc_matches(data, header):
        raise Wrong(Reason.CRC_MISMATCH)
    if flags & Check.COUNTS and header.magic == 2 and header.codec == Codec.NONE:
        _hop_records(data, header)
    if flags & Check.RECORDS and header.codec == Codec.NONE:
        check_content(data, header)


def region_of(data: Buffer, position: int, limit: int) -> memoryview:
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
    view = region_of(data, position, limit)
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
    view = region_of(data, position, limit)
    records = control = batches = 0
    try:
        while True:
            header = parse_header(view, position, limit, size_max)
            _check_batch(view, header, flags, expected)
            if header.count < 0 or (flags & Check.RECORDS and header.codec):
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
    return bytes(region_of(data, position, limit)[position:limit])


def zero_run(data: Buffer, start: int, end: int, *, guarded: bool = False) -> int:
    view = region_of(data, start, end)
    for position in range(start, end):
        if view[position]:
            return position
    return end
