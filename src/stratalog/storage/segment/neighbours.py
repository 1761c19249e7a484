"""Check a batch that was found by its offset against its neighbours.

No CRC covers the offset and the size of a batch, nor its magic byte. A look-up trusts them: one flipped bit
leads it past the batch that holds the offset, or to another one. A read that begins at a place therefore asks
once what the batches before and after it prove. A check reads a few headers, and one batch at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.errors import CorruptionError
from stratalog.records.columns import RegionDecoder, Selection
from stratalog.records.layout import INT32_MAX, Column, Ending, Reason
from stratalog.records.reasons import corruption
from stratalog.storage.files.filesystem import ReadableFile
from stratalog.storage.segment.find import BatchPlace, places_from

if TYPE_CHECKING:
    from stratalog.storage.segment.segment import Segment

__all__ = ["check_last_batch", "check_sound", "last_and_expected", "last_in_order"]


def check_last_batch(segment: Segment) -> BatchPlace | None:
    """The last batch of a segment; None where there is none. CorruptionError where it is not sound, or where
    the offsets before it are not in order, as far as they are looked at."""
    last, expected = last_and_expected(segment, segment.size_bytes)
    if last is not None:
        check_sound(segment.log, last, expected)
    return last


def last_in_order(segment: Segment, limit: int) -> BatchPlace | None:
    """The last batch of a segment before ``limit``, where a batch ends; None where there is none. Only the
    last few are looked at. CorruptionError where their offsets are not in order."""
    return last_and_expected(segment, limit)[0]


def last_and_expected(segment: Segment, limit: int) -> tuple[BatchPlace | None, int]:
    """The same, and the offset that was expected there."""
    if limit == 0:
        return None, segment.base_offset
    try:
        start = segment.index.second_position_before(limit)
    except BufferError:  # the index file was cut under its mapping
        start = 0
    if start:
        try:
            return _walk(segment, start, limit)
        except CorruptionError:
            pass  # an index is a hint: whether the log is wrong, the log itself says
    return _walk(segment, 0, limit)


def _walk(segment: Segment, start: int, limit: int) -> tuple[BatchPlace | None, int]:
    expected = following = segment.base_offset
    last = None
    for last in places_from(segment.log, start, limit):
        expected = following
        if last.first_offset < expected:
            raise corruption(Reason.OFFSET_ORDER, last.position)
        following = last.last_offset + 1
    return last, expected


def check_sound(log: ReadableFile, place: BatchPlace, expected: int) -> None:
    """CorruptionError where a batch is not what its header says, its size, its format and its first offset
    included."""
    data = log.read(place.position, place.size_bytes)
    decoder = RegionDecoder(Selection(columns=Column.OFFSET, max_batch_bytes=INT32_MAX))
    decoder.expect(expected)
    pause = decoder.decode(data, 0, len(data))
    if pause.ending == Ending.FULL:
        return  # so many records in one batch: what is checked here was right
    if pause.ending != Ending.END:
        raise corruption(pause.reason or Reason.SHORT_TAIL, place.position, detail=pause.detail)
