"""Check that a look-up found the batch that holds the offset, by the batches around it in the view."""

from __future__ import annotations

from stratalog.errors import CorruptionError
from stratalog.records.layout import Reason
from stratalog.records.reasons import corruption
from stratalog.storage.names import FileKind
from stratalog.storage.segment.batch_at import offsets_behind
from stratalog.storage.segment.log_file import LogFile
from stratalog.storage.segment.neighbours import check_sound, last_and_expected
from stratalog.storage.segment.segment import Segment
from stratalog.storage.views.log_view import LogView

__all__ = ["check_followed", "expected_at"]


def expected_at(view: LogView, offset: int) -> int:
    """The lowest offset that the batch which a look-up finds for ``offset`` may begin with, -1: there is
    none. CorruptionError where the batches before it are out of order, or where one of them may hold the
    offset itself."""
    found = view.find(offset)
    if found is None:
        return -1
    number, place = found
    has_gap = place.first_offset > offset
    if has_gap:
        # Also the segments that the look-up has passed: the last batch of one may be the one.
        for each in range(max(view.segments.floor(offset), 0), number):
            _check_end(view.segments[each], view.limit(each))
    segment = view.segments[number]
    try:
        before, expected = last_and_expected(segment, place.position)
        if before is None:
            return segment.base_offset
        if has_gap and before.last_offset < offset:
            check_sound(segment.log, before, expected)
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


def _check_end(segment: Segment, limit: int) -> None:
    try:
        last, expected = last_and_expected(segment, limit)
        if last is not None:
            check_sound(segment.log, last, expected)
    except CorruptionError as error:
        raise error.located(path=segment.path(FileKind.LOG)) from None
