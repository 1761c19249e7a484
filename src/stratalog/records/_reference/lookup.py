"""Where an offset or a time is: in the entries of an index, in a batch, between batches."""

from __future__ import annotations

import struct

from stratalog.records._reference.check import records_between
from stratalog.records._reference.cursor import Buffer, Wrong, wrap64
from stratalog.records._reference.decode import Decoded
from stratalog.records._reference.headers import integer_at, region_of
from stratalog.records.layout import (
    APPEND_TIME_MASK,
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    INT32_MAX,
    INT64_MAX,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    MESSAGE_ATTRIBUTES_AT,
    MESSAGE_KEY_AT_V1,
    MESSAGE_SIZE_MIN_V0,
    MESSAGE_SIZE_MIN_V1,
    MESSAGE_TIMESTAMP_AT,
    RECORD_COUNT_AT,
    RECORD_SIZE_MIN,
    Reason,
)


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
        if integer_at(view, middle * entry_size + key_at, key_size) <= target:
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
        integer_at(view, slot * size, key_size) if slot >= 0 else None,
        integer_at(view, slot * size + key_size, 4) if slot >= 0 else -1,
        integer_at(view, (slot + 1) * size + key_size, 4) if slot + 1 < count else -1,
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
    return time, wrap64(base_offset + relative), max(value, 0), following


def find_batch(
    data: Buffer, start: int, limit: int, target: int, by_time: bool
) -> tuple[int, int, int, int, int, int]:
    view = region_of(data, start, limit)
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
    attributes = integer_at(view, at + ATTRIBUTES_AT, 2)
    shown = time if attributes & APPEND_TIME_MASK else record.timestamp
    return 1, wrap64(base + record.offset), shown, integer_at(view, at + LEADER_EPOCH_AT, 4)


def _record_in_beginning(
    view: memoryview, at: int, size: int, timestamp: int, delta_min: int
) -> Decoded | None:
    """The record that find_timestamp would answer for all of a batch, where its beginning has it."""
    attributes = integer_at(view, at + ATTRIBUTES_AT, 2)
    count = integer_at(view, at + RECORD_COUNT_AT, 4)
    if attributes & CODEC_MASK or count * RECORD_SIZE_MIN > size - BATCH_HEADER_SIZE:
        return None
    start, end = at + BATCH_HEADER_SIZE, min(at + size, len(view))
    count = min(count, (end - start) // RECORD_SIZE_MIN)  # more are not there
    base_timestamp = integer_at(view, at + BASE_TIMESTAMP_AT, 8)
    try:
        for record in records_between(view, start, end, count, base_timestamp):
            # Of a batch with the broker's time, that stands for every record.
            is_late = record.timestamp >= timestamp or attributes & APPEND_TIME_MASK
            if is_late and record.offset >= delta_min:
                return record
    except Wrong:
        pass
    return None
