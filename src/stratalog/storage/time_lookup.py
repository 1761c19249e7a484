"""Offsets by time: the first record of a time or later, and the record with the largest time."""

from __future__ import annotations

from typing import NamedTuple

from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.records.columns import decode_records
from stratalog.records.compression import Decompressor
from stratalog.records.layout import APPEND_TIME_MASK, CODEC_MASK, ROW_WIDTH, Check, Row
from stratalog.records.reasons import corruption
from stratalog.storage.batch_finder import BatchPlace
from stratalog.storage.log_view import LogView
from stratalog.storage.names import FileKind
from stratalog.storage.segment import Segment

__all__ = ["TimedOffset", "find_largest_time", "find_time"]


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
    start = view.log_start
    for number, segment in enumerate(view.segments.segments):
        if not view.limit(number) or segment.largest_timestamp < timestamp:
            continue
        for place in segment.find_time(timestamp, start):
            if place.last_offset >= view.log_end:
                break
            found = _in_batch(segment, place, timestamp, start)
            if found is not None:
                return found
        return None
    return None


def find_largest_time(view: LogView) -> TimedOffset | None:
    """The first record with the largest timestamp of the log; None where no record has one."""
    largest, best = -1, None
    for number, segment in enumerate(view.segments.segments):
        if view.limit(number) and segment.max_timestamp > largest:
            largest, best = segment.max_timestamp, segment
    if best is None:
        return None
    for place in best.find_time(largest, best.base_offset):
        found = _in_batch(best, place, largest, best.base_offset)
        if found is not None:
            return found
    return None


def _in_batch(
    segment: Segment, place: BatchPlace, timestamp: int, start: int
) -> TimedOffset | None:
    """The first record of a batch with at least this timestamp, at ``start`` or behind it."""
    data = segment.read_batch(place)
    row = memoryview(bytearray(8 * ROW_WIDTH)).cast("q")
    held, reached, _, reason, _ = kernel.walk(data, 0, len(data), row, Check.CRC)
    if not held:
        raise corruption(reason, place.position + reached).located(path=segment.path(FileKind.LOG))
    if row[Row.MAGIC] < 2:
        return _in_messages(data, timestamp, start)
    epoch = row[Row.LEADER_EPOCH]
    base = row[Row.BASE_OFFSET]
    count = row[Row.RECORD_COUNT]
    if count == 0:
        return None
    delta_min = max(start - base, 0)
    target = -(2**63) if row[Row.ATTRIBUTES] & APPEND_TIME_MASK else timestamp
    payload_at = row[Row.PAYLOAD_POSITION]
    payload = memoryview(data)[payload_at : payload_at + row[Row.PAYLOAD_SIZE]]
    codec = row[Row.ATTRIBUTES] & CODEC_MASK
    try:
        records = Decompressor().decompress(codec, payload) if codec else payload
        delta, found = kernel.find_timestamp(
            records, 0, len(records), count, row[Row.BASE_TIMESTAMP], target, delta_min
        )
        if delta == -2:
            raise corruption(found, 0)
    except CorruptionError as error:
        raise error.located(position=place.position, path=segment.path(FileKind.LOG)) from None
    if delta < 0:
        return None
    if row[Row.ATTRIBUTES] & APPEND_TIME_MASK:
        found = row[Row.MAX_TIMESTAMP]
    return TimedOffset(base + delta, found, epoch)


def _in_messages(data: bytearray, timestamp: int, start: int) -> TimedOffset | None:
    for record in decode_records(data):
        if record.offset >= start and record.timestamp >= timestamp:
            return TimedOffset(record.offset, record.timestamp, -1)
    return None
