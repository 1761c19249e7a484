"""The records of one batch, looked through and not taken: what an append must know of them."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from typing import Any

from stratalog.records._reference.cursor import Buffer, Cursor, Wrong
from stratalog.records._reference.decode import Decoded, decode_records
from stratalog.records._reference.headers import Header, region_of, walk
from stratalog.records._reference.rows import numbers_in
from stratalog.records.layout import (
    APPEND_TIME_MASK,
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    CONTROL_MASK,
    INDEX_STATE_WIDTH,
    INT32_MAX,
    INT64_MAX,
    LEADER_EPOCH_AT,
    OFFSET_AT,
    ROW_WIDTH,
    Check,
    IndexState,
    Reason,
    Row,
)


def records_between(
    data: Buffer, start: int, end: int, count: int, base_timestamp: int
) -> Iterator[Decoded]:
    """The records of an uncompressed batch as the decoder sees them, whatever its header says of their
    offsets: the offset of each is its delta."""
    view = region_of(data, start, end)
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
        for row, record in enumerate(records_between(data, start, end, count, base_timestamp)):
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
    given = numbers_in(row, ROW_WIDTH, writable=True)
    held = numbers_in(state, INDEX_STATE_WIDTH)
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
        for record in records_between(data, start, end, count, base_timestamp):
            if record.timestamp >= target and record.offset >= delta_min:
                return record.offset, record.timestamp
    except Wrong as wrong:
        return -2, wrong.reason
    return -1, -1
