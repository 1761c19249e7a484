"""Offsets by time: the first record of a time or later, and the record with the largest time."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.records.columns import decode_records
from stratalog.records.compression import Decompressor
from stratalog.records.layout import (
    APPEND_TIME_MASK,
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    INT64_MIN,
    LEADER_EPOCH_AT,
    MAGIC_AT,
    RECORD_COUNT_AT,
)
from stratalog.records.reasons import corruption
from stratalog.storage.names import FileKind
from stratalog.storage.segment.find import READ_SIZE, BatchPlace
from stratalog.storage.segment.segment import Segment
from stratalog.storage.views.log_view import LogView

__all__ = ["TimedOffset", "find_largest_time", "find_time"]

# What a named tuple's own function does, without that function.
_new: Final = tuple.__new__

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


def find_time(view: LogView, timestamp: int) -> TimedOffset | None:
    """The first record whose timestamp is at least ``timestamp``; None where there is none.

    As Kafka does it: the first segment whose largest timestamp reaches that far is searched, and no
    other. Control records count.
    """
    for segment in view.segments.segments:
        if not segment.size_bytes or _largest_time(segment) < timestamp:
            continue
        return _shortly(view, segment, timestamp) or _at_length(view, segment, timestamp)
    return None


def _largest_time(segment: Segment) -> int:
    largest = segment.index.max_timestamp
    return largest if largest >= 0 else segment.largest_timestamp


def _shortly(view: LogView, segment: Segment, timestamp: int) -> TimedOffset | None:
    """What the time index leads to, if the log says so too, from the first bytes of a batch or two; None
    where those do not tell."""
    try:
        entry = segment.index.place_before(timestamp)
    except BufferError:  # an index file was cut under its mapping
        return None
    if entry is None:
        return None
    entry_timestamp, entry_offset, position, next_position = entry
    start, end, limit = view.log_start, view.log_end, segment.size_bytes
    if entry_offset <= start:
        return None
    # Of a large batch that is not the one which is looked for, the header is enough to confirm the entry.
    is_passed = entry_timestamp < timestamp and next_position - position > READ_SIZE
    size = BATCH_HEADER_SIZE if is_passed else READ_SIZE
    file = segment.log
    while position < limit:
        found, offset, found_timestamp, epoch = kernel.find_timed(
            file.read(position, size),
            limit - position,
            timestamp,
            start,
            end,
            entry_timestamp,
            entry_offset,
        )
        if found > 0:
            return _new(TimedOffset, (offset, found_timestamp, epoch))
        if found < 0:
            return None
        position += offset  # the entry is true: on to the next batch
        entry_offset = -1
        size = READ_SIZE
    return None


def _at_length(view: LogView, segment: Segment, timestamp: int) -> TimedOffset | None:
    """The same from whole batches, one after the other."""
    start = view.log_start
    for place in segment.find_time(timestamp, start):
        if place.last_offset >= view.log_end:
            break
        found = _in_batch(segment, place, segment.read_batch(place), timestamp, start)
        if found is not None:
            return found
    return None


def find_largest_time(view: LogView) -> TimedOffset | None:
    """The first record with the largest timestamp of the log; None where there is none.

    As in Kafka, where no record has a time the first one has the largest: that of "no time".
    """
    largest, best = INT64_MIN, None
    for number, segment in enumerate(view.segments.segments):
        if view.limit(number) and segment.max_timestamp > largest:
            largest, best = segment.max_timestamp, segment
    if best is None:
        return None
    for place in best.find_time(largest, best.base_offset):
        data = best.read_batch(place)
        if data[MAGIC_AT] == 0:
            return None  # its messages cannot have one
        found = _in_batch(best, place, data, largest, best.base_offset)
        if found is not None or largest < 0:
            return found
    return None


def _in_batch(
    segment: Segment, place: BatchPlace, data: bytes, timestamp: int, start: int
) -> TimedOffset | None:
    """The first record of a batch with at least this timestamp, at ``start`` or behind it."""
    if data[MAGIC_AT] < 2:
        return _in_messages(data, timestamp, start)
    epoch, attributes, base_timestamp, count = _HEADER.unpack_from(data)
    base = place.base_offset
    records: bytes | memoryview = data
    first, end = BATCH_HEADER_SIZE, place.size_bytes
    try:
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
    except CorruptionError as error:
        raise error.located(position=place.position, path=segment.path(FileKind.LOG)) from None
    if delta < 0:
        return None
    return TimedOffset(base + delta, place.max_timestamp if shows_append_time else found, epoch)


def _in_messages(data: bytes, timestamp: int, start: int) -> TimedOffset | None:
    for record in decode_records(data):
        if record.offset >= start and record.timestamp >= timestamp:
            return TimedOffset(record.offset, record.timestamp, -1)
    return None
