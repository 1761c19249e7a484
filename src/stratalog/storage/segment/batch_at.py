"""A look at the batch at one position of a data file: whether it is one, and which offsets it has."""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final, NamedTuple

from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.records.columns import RegionDecoder, Selection, decode_records
from stratalog.records.compression import Decompressor
from stratalog.records.layout import (
    APPEND_TIME_MASK,
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    LEADER_EPOCH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_COUNT_AT,
    ROW_WIDTH,
    SIZE_AT,
    Check,
    Column,
    Row,
)
from stratalog.records.reasons import corruption
from stratalog.storage.segment.find import BatchPlace
from stratalog.storage.segment.log_file import LogFile

__all__ = [
    "OffsetsBehind",
    "TimedOffset",
    "first_in_wrapper",
    "first_of_time",
    "is_batch_at",
    "is_sound_at",
    "offsets_behind",
]


def is_batch_at(log_file: LogFile, position: int, offset: int, max_batch_bytes: int) -> bool:
    """Whether a batch lies at a position, whole and with its CRC, that starts at or below ``offset``: then
    whatever is at or above that lies there or behind it."""
    head = log_file.file.read(position, LOG_OVERHEAD)
    if len(head) < LOG_OVERHEAD:
        return False
    size = int.from_bytes(head[SIZE_AT:], "big", signed=True) + LOG_OVERHEAD
    if not LOG_OVERHEAD < size <= min(max_batch_bytes, log_file.size - position):
        return False
    headers = memoryview(array("q", bytes(8 * ROW_WIDTH)))
    data = log_file.file.read(position, size)
    held, *_ = kernel.walk(data, 0, len(data), headers, Check.CRC)
    if not held:
        return False
    base_offset: int = headers[Row.BASE_OFFSET]
    first: int = base_offset if base_offset >= 0 else headers[Row.LAST_OFFSET]
    return (log_file.base_offset or 0) <= first <= offset


def is_sound_at(log_file: LogFile, position: int) -> bool:
    """Whether the batch at a position matches its CRC. A writer may be at it: it is looked at twice."""
    return any(is_batch_at(log_file, position, INT64_MAX, INT32_MAX) for _ in range(2))


class OffsetsBehind(NamedTuple):
    """What is known of the offsets behind a place: none is below ``first``, and a batch has none above
    ``last``."""

    first: int
    last: int


_UNKNOWN: Final = OffsetsBehind(-1, INT64_MAX)


def offsets_behind(log_file: LogFile, position: int, next_offset: int | None) -> OffsetsBehind:
    """The offsets of the batch at a position, by its header; of the segment behind, which begins at
    ``next_offset``, where the file ends there."""
    if log_file.is_v07:
        return _UNKNOWN
    room = log_file.size - position
    if room <= 0:
        return _UNKNOWN if next_offset is None else OffsetsBehind(next_offset, next_offset)
    data = log_file.file.read(position, min(room, BATCH_HEADER_SIZE))
    found, at, size, base_offset, _, _ = kernel.find_batch(data, 0, len(data), INT64_MIN, False)
    if found <= 0 or at:
        return _UNKNOWN
    if base_offset < 0:
        first = first_in_wrapper(log_file.file.read(position, min(room, size)))
        return _UNKNOWN if first is None else OffsetsBehind(first, first)
    return OffsetsBehind(base_offset, base_offset)


def first_in_wrapper(data: bytes) -> int | None:
    """The first offset of the messages in a wrapper, which its header does not tell; None where it cannot be
    read."""
    decoder = RegionDecoder(Selection(columns=Column.OFFSET, batch_rows=1))
    decoder.decode(data, 0, len(data))
    taken = decoder.take()
    if not taken.rows:
        return None
    first: int = memoryview(taken.buffers[Column.OFFSET][0]).cast("B").cast("q")[0]
    return first


# Of a batch of magic 2: leader epoch, attributes, base timestamp, and the number of records.
_HEADER: Final = Struct(
    f">{LEADER_EPOCH_AT}xi{ATTRIBUTES_AT - LEADER_EPOCH_AT - 4}xh"
    f"{BASE_TIMESTAMP_AT - ATTRIBUTES_AT - 2}xq{RECORD_COUNT_AT - BASE_TIMESTAMP_AT - 8}xi"
)
assert _HEADER.size == BATCH_HEADER_SIZE


class TimedOffset(NamedTuple):
    """A record by its offset, with the timestamp that readers see and the epoch that wrote it."""

    offset: int
    timestamp: int
    leader_epoch: int


def first_of_time(data: bytes, place: BatchPlace, timestamp: int, start: int) -> TimedOffset | None:
    """Return the first record of a batch that has at least this timestamp, at ``start`` or above; control
    records count, as in Kafka. ``data`` is the whole batch. Raise CorruptionError, with the batch's position,
    if its records cannot be read."""
    try:
        if data[MAGIC_AT] < 2:
            return _first_message_of_time(data, timestamp, start)
        return _first_record_of_time(data, place, timestamp, start)
    except CorruptionError as error:
        raise type(error)(
            error.reason, error.detail, position=place.position, advice=error.advice
        ) from None


def _first_record_of_time(
    data: bytes, place: BatchPlace, timestamp: int, start: int
) -> TimedOffset | None:
    epoch, attributes, base_timestamp, count = _HEADER.unpack_from(data)
    base = place.base_offset
    records: bytes | memoryview = data
    first, end = BATCH_HEADER_SIZE, place.size_bytes
    if attributes & CODEC_MASK:
        payload = memoryview(data)[BATCH_HEADER_SIZE:]
        records = Decompressor().decompress(attributes & CODEC_MASK, payload)
        first, end = 0, len(records)
    shows_append_time = attributes & APPEND_TIME_MASK
    delta, found = kernel.find_timestamp(
        records,
        first,
        end,
        count,
        base_timestamp,
        INT64_MIN if shows_append_time else timestamp,
        start - base if start > base else 0,
    )
    if delta == -2:
        raise corruption(found, 0)
    if delta < 0:
        return None
    return TimedOffset(base + delta, place.max_timestamp if shows_append_time else found, epoch)


def _first_message_of_time(data: bytes, timestamp: int, start: int) -> TimedOffset | None:
    for record in decode_records(data):
        if record.offset >= start and record.timestamp >= timestamp:
            return TimedOffset(record.offset, record.timestamp, -1)
    return None
