"""Segments that hold nothing: just begun, or begun and given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from stratalog.errors import CorruptionError
from stratalog.storage.segment.segment import Segment

__all__ = ["find_leftovers", "is_blank"]

SegmentType = TypeVar("SegmentType", bound=Segment)

_READ_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = 64


def is_blank(segment: Segment) -> bool:
    """Whether there is nothing in a segment: no byte, or only the zeros that it was preallocated with."""
    at, size = 0, segment.size_bytes
    while at < size:
        data = segment.log.read(at, min(_READ_BYTES if at else _HEAD_BYTES, size - at))
        if not data or data.count(0) < len(data):
            return False
        at += len(data)
    return True


def find_leftovers(segments: Sequence[SegmentType]) -> list[SegmentType]:
    """The segments, of these in their order, that were begun and given up, for want of room: the one before
    went on. The names of such were removed, and a power cut may have brought them back."""
    found = []
    kept = segments[0] if segments else None
    for segment in segments[1:]:
        assert kept is not None
        if _is_leftover(segment, kept, is_last=segment is segments[-1]):
            found.append(segment)
        else:
            kept = segment
    return found


def _is_leftover(segment: Segment, before: Segment, *, is_last: bool) -> bool:
    if segment.size_bytes and not is_last:
        return False  # not looked into: those that are preallocated are trimmed when the next one begins
    if any(segment.log.read(0, _HEAD_BYTES) if segment.size_bytes else b""):
        return False  # most are no such thing, and the one before need not be opened
    try:
        place = before.last_batch()
        return place is not None and place.last_offset >= segment.base_offset and is_blank(segment)
    except CorruptionError:
        return False  # recovery will look
