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
from stratalog.storage.names import FileKind
from stratalog.storage.segment.batch_at import offsets_behind
from stratalog.storage.segment.find import BatchPlace, places_from
from stratalog.storage.segment.log_file import LogFile

if TYPE_CHECKING:
    from stratalog.storage.segment.segment import Segment
    from stratalog.storage.views.log_view import LogView

__all__ = ["check_followed", "check_last_batch", "expected_at", "last_in_order"]


def expected_at(view: LogView, offset: int) -> int:
    """The lowest offset that the batch which a look-up finds for ``offset`` may begin with, -1: there is
    none. CorruptionError where the batches before it are out of order, or where one of them may hold the
    offset itself."""
    found = view.find(offset)
    if found is None:
        return -1
    number, place = found
    has_gap = _first_offset(place) > offset
    if has_gap:
        # Also the segments that the look-up has passed: the last batch of one may be the one.
        for each in range(max(view.segments.floor(offset), 0), number):
            _check_end(view.segments[each], view.limit(each))
    segment = view.segments[number]
    try:
        before, expected = _last_in_order(segment, place.position)
        if before is None:
            return segment.base_offset
        if has_gap and before.last_offset < offset:
            _check_sound(segment.log, before, expected)
        return before.last_offset + 1
    except CorruptionError as error:
        raise error.located(path=segment.path(FileKind.LOG)) from None


def check_followed(view: LogView, number: int, position: int, next_offset: int) -> None:
    """CorruptionError where what follows a batch that ends at ``position`` of a segment lies below
    ``next_offset``: then the batch before it has an offset that is too high, and hides what follows."""
    segment = view.segments[number]
    log = LogFile(
        segment.path(FileKind.LOG),
        segment.log,
        view.limit(number),
        segment.base_offset,
        is_v07=False,
    )
    is_last = number + 1 == len(view.segments)
    follower = None if is_last else view.segments[number + 1].base_offset
    if offsets_behind(log, position, follower).last < next_offset:
        raise corruption(
            Reason.OFFSET_ORDER,
            position,
            detail=f"what follows offset {next_offset - 1} lies below it",
        ).located(path=log.path)


def check_last_batch(segment: Segment) -> BatchPlace | None:
    """The last batch of a segment; None where there is none. CorruptionError where it is not sound, or where
    the offsets before it are not in order, as far as they are looked at."""
    last, expected = _last_in_order(segment, segment.size_bytes)
    if last is not None:
        _check_sound(segment.log, last, expected)
    return last


def last_in_order(segment: Segment, limit: int) -> BatchPlace | None:
    """The last batch of a segment before ``limit``, where a batch ends; None where there is none. Only the
    last few are looked at. CorruptionError where their offsets are not in order."""
    return _last_in_order(segment, limit)[0]


def _last_in_order(segment: Segment, limit: int) -> tuple[BatchPlace | None, int]:
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


def _first_offset(place: BatchPlace) -> int:
    """What is known of a batch's first offset: of a wrapper, that its last is not below it."""
    return place.base_offset if place.base_offset >= 0 else place.last_offset


def _walk(segment: Segment, start: int, limit: int) -> tuple[BatchPlace | None, int]:
    expected = following = segment.base_offset
    last = None
    for last in places_from(segment.log, start, limit):
        expected = following
        if _first_offset(last) < expected:
            raise corruption(Reason.OFFSET_ORDER, last.position)
        following = last.last_offset + 1
    return last, expected


def _check_end(segment: Segment, limit: int) -> None:
    try:
        last, expected = _last_in_order(segment, limit)
        if last is not None:
            _check_sound(segment.log, last, expected)
    except CorruptionError as error:
        raise error.located(path=segment.path(FileKind.LOG)) from None


def _check_sound(log: ReadableFile, place: BatchPlace, expected: int) -> None:
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
