"""Replacing segments in a list: the new ones take the place of the old, between the neighbours that stay."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stratalog.errors import UsageError
from stratalog.storage.segment.sealed import SealedSegment
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.storage.views.log_view import SegmentList
from stratalog.testing import MemoryFileSystem

FILES = MemoryFileSystem()


def segment(base_offset: int) -> SealedSegment:
    return SealedSegment(FILES, "/t-0", base_offset, IndexLimits(), 0)


def listed(*bases: int) -> SegmentList:
    return SegmentList([segment(base) for base in bases])


def bases(found: SegmentList) -> list[int]:
    return [each.base_offset for each in found.segments]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ((0, 1), (0,), [0, 5, 10, 15]),
        ((1, 2), (5,), [0, 5, 10, 15]),
        ((1, 3), (5, 7, 12), [0, 5, 7, 12, 15]),
        ((1, 3), (), [0, 15]),
        ((0, 4), (40,), [40]),
        ((3, 4), (15, 20), [0, 5, 10, 15, 20]),
        ((3, 4), (12,), [0, 5, 10, 12]),
        ((2, 4), (10, 15, 20), [0, 5, 10, 15, 20]),
    ],
)
def test_new_segments_take_the_place_of_the_old(
    old: tuple[int, int], new: Sequence[int], expected: list[int]
) -> None:
    before = listed(0, 5, 10, 15)
    fresh = [segment(base) for base in new]
    after = before.replacing(before.segments[slice(*old)], fresh)
    assert bases(after) == expected
    assert all(each in after.segments for each in fresh)
    assert bases(before) == [0, 5, 10, 15]
    assert [after.floor(base) for base in expected] == list(range(len(expected)))


@pytest.mark.parametrize("new", [(0,), (15,), (5, 15), (7, 6), (5, 5), (20,)])
def test_segments_that_are_not_in_order_between_their_neighbours_are_refused(
    new: Sequence[int],
) -> None:
    before = listed(0, 5, 10, 15)
    with pytest.raises(UsageError, match="cannot take the place"):
        before.replacing(before.segments[1:3], [segment(base) for base in new])


def test_segments_that_are_not_in_the_list_are_refused() -> None:
    before = listed(0, 5, 10)
    for old in (
        [segment(5)],
        [before[0], before[2]],
        [before[1], before[0]],
        [before[2], segment(15)],
        [segment(-1)],
    ):
        with pytest.raises(UsageError, match="not neighbours"):
            before.replacing(old, [segment(5)])
    with pytest.raises(UsageError, match="at least one"):
        before.replacing([], [segment(5)])
