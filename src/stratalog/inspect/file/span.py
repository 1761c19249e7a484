"""Which of the files that were named follow one another: segments of one folder, by their base offsets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from stratalog.storage.names import parse_data_name

__all__ = ["SegmentSpan", "is_last_segment", "segment_spans", "segments_in_order"]


class SegmentSpan(NamedTuple):
    """Which offsets a segment may hold, by its name and the next one's: from ``base_offset`` up to but
    not including ``next_offset``. None: the name does not tell, or there is no next one."""

    path: str
    base_offset: int | None
    next_offset: int | None

    @property
    def is_last(self) -> bool:
        return self.next_offset is None


def segment_spans(segments: Sequence[str]) -> Iterator[SegmentSpan]:
    """The spans of one partition's segments, which are given in order."""
    names = [parse_data_name(os.path.basename(path)) for path in segments]
    bases = [None if name is None else name.base_offset for name in names]
    for path, base, following in zip_longest(segments, bases, bases[1:]):
        yield SegmentSpan(path, base, following)


def is_last_segment(paths: Sequence[str], number: int) -> bool:
    """Whether no later segment of the same partition follows in the list."""
    if number + 1 >= len(paths):
        return True
    here, there = paths[number], paths[number + 1]
    own = parse_data_name(os.path.basename(here))
    following = parse_data_name(os.path.basename(there))
    return (
        own is None
        or following is None
        or _folder(here) != _folder(there)
        or following.base_offset <= own.base_offset
    )


def segments_in_order(paths: Sequence[str]) -> tuple[str, ...]:
    """The paths, each once: a folder's segments together and in the order of their offsets, folders in
    the order in which they were named. Files that are no segments come before those of their folder."""
    folders: dict[str, dict[str, int]] = {}
    for path in paths:
        name = parse_data_name(os.path.basename(path))
        folders.setdefault(_folder(path), {})[path] = -1 if name is None else name.base_offset
    return tuple(
        path for folder in folders.values() for path in sorted(folder, key=folder.__getitem__)
    )


def _folder(path: str) -> str:
    return os.path.dirname(os.path.abspath(path))
