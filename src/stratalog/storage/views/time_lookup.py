"""Offsets by time in a log that is open: the first record of a time or later, and the largest time.

The same for files that any process may write to is ``inspect.partition.offset_for_time``. The two differ in
what they believe. Here segments were opened with their indexes checked, and know their largest timestamp, so
one segment is searched, as in Kafka. There no index is believed that the log does not bear out, and no
segment is opened to learn its largest timestamp. What is found in a batch is the same
(``batch_at.first_of_time``).
"""

from __future__ import annotations

from typing import Final

from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.records.layout import (
    BATCH_HEADER_SIZE,
    INT64_MIN,
    MAGIC_AT,
)
from stratalog.storage.names import FileKind
from stratalog.storage.segment.batch_at import TimedOffset, first_of_time
from stratalog.storage.segment.find import READ_SIZE, BatchPlace
from stratalog.storage.segment.segment import Segment
from stratalog.storage.views.log_view import LogView

__all__ = ["TimedOffset", "find_largest_time", "find_time"]

# What a named tuple's own function does, without that function.
_new: Final = tuple.__new__


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
        found = _in_batch(segment, place, timestamp, start)
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
        if best.log.read(place.position + MAGIC_AT, 1) == b"\0":
            return None  # its messages cannot have one
        found = _in_batch(best, place, largest, best.base_offset)
        if found is not None or largest < 0:
            return found
    return None


def _in_batch(
    segment: Segment, place: BatchPlace, timestamp: int, start: int
) -> TimedOffset | None:
    try:
        return first_of_time(segment.read_batch(place), place, timestamp, start)
    except CorruptionError as error:
        raise error.located(path=segment.path(FileKind.LOG)) from None
