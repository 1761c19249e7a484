"""Split a segment whose offsets reach further than an index can say.

An index holds offsets as 31 bits above the segment's first. Brokers before 1.1 merged compacted segments
without regard to that, and the result can be read but not indexed. Its batches go unchanged into new
segments, by the steps of every swap (``.cleaned``, ``.swap``, final), so that this can be interrupted
anywhere. Indexes are not written here: recovery rebuilds those that are missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from stratalog.records.layout import INT32_MAX
from stratalog.storage.files.file_copy import copy_range
from stratalog.storage.files.filesystem import FileSystem, ReadableFile
from stratalog.storage.names import FileKind, Stage, segment_file_name
from stratalog.storage.replace.swap import swap_segments
from stratalog.storage.segment.find import BatchPlace, places_from

__all__ = ["SegmentPart", "plan_split", "split_segment"]


class SegmentPart(NamedTuple):
    """The bytes of a segment that become one of their own, and the offset that it is named by."""

    base_offset: int
    start: int
    end: int


def plan_split(base_offset: int, places: Iterable[BatchPlace]) -> list[SegmentPart]:
    """Plan where to split, so that every batch ends within 31 bits of the start of its part.

    The first part keeps the segment's own offset, also where no batch fits it and it stays empty: an
    interrupted replacement tells what it replaces by the offsets that it covers.
    """
    parts = [SegmentPart(base_offset, 0, 0)]
    next_offset = base_offset
    for place in places:
        part = parts[-1]
        if place.last_offset - part.base_offset > INT32_MAX:
            # Of a wrapper only the last offset is known; its records follow those before it.
            lowest = max(next_offset, place.last_offset - INT32_MAX)
            first = max(place.base_offset, lowest)
            part = SegmentPart(first, place.position, place.position)
            parts.append(part)
        parts[-1] = part._replace(end=place.end_position)
        next_offset = place.last_offset + 1
    return parts


def split_segment(
    file_system: FileSystem, folder: str, base_offset: int, log: ReadableFile, size_bytes: int
) -> list[int]:
    """Replace a segment, every batch of which is sound, by its parts; their offsets. Of the old one the
    next load removes what is left."""
    parts = plan_split(base_offset, places_from(log, 0, size_bytes))
    assert parts[-1].end == size_bytes, "every byte goes into one of the parts"
    found = file_system.stat(_path(folder, base_offset))
    for part in parts:
        path = _path(folder, part.base_offset, Stage.CLEANED)
        file_system.unlink(path)
        file = file_system.open_writable(path, create=True)
        try:
            copy_range(log, part.start, part.end, file)
            file.sync()
        finally:
            file.close()
        if found is not None:
            file_system.set_modified(path, found.modified_ms)
    bases = [part.base_offset for part in parts]
    swap_segments(file_system, folder, bases, [base_offset])
    return bases


def _path(folder: str, base_offset: int, stage: Stage = Stage.LIVE) -> str:
    return os.path.join(folder, segment_file_name(base_offset, FileKind.LOG, stage))
