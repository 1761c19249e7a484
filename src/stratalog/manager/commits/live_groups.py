"""Find out which segments of a group a log has: the old ones as they were planned for, the new, or others.

Others, Kafka among them, may have rolled, appended, compacted and deleted since a replacement was planned.
"""

from __future__ import annotations

from collections.abc import Sequence

from stratalog.storage.commits.segment_groups import FileContent, SegmentGroup
from stratalog.storage.commits.staged_segment import file_content
from stratalog.storage.names import FileKind
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.segment.segment import Segment

__all__ = ["find_old", "has_new", "is_below_start"]


def find_old(log: PartitionLog, group: SegmentGroup) -> Sequence[Segment] | None:
    """Return the live segments that a group replaces; None if they are not those that were planned for."""
    segments, end = _segments_of(log, group)
    is_planned = (
        [each.base_offset for each in segments] == [each.base_offset for each in group.old]
        and end == group.end
        and log.segments[-1] not in segments[-1:]
        and all(
            _has_content(log, live, old.log) for live, old in zip(segments, group.old, strict=True)
        )
    )
    return segments if is_planned else None


def has_new(log: PartitionLog, group: SegmentGroup) -> bool:
    """Return whether the new segments of a group are live already. An empty segment may be among them: a swap
    adds one where it removes all records of the last old segments."""
    segments, _ = _segments_of(log, group)
    expected = {each.base_offset: each.files[FileKind.LOG] for each in group.new}
    if expected.keys() - {each.base_offset for each in segments}:
        return False
    return all(
        _has_content(log, each, expected[each.base_offset])
        if each.base_offset in expected
        else each.size_bytes == 0
        for each in segments
    )


def is_below_start(log: PartitionLog, group: SegmentGroup) -> bool:
    """Return whether everything in a group was deleted by retention: nothing is left to replace."""
    return log.log_start >= group.end and not _segments_of(log, group)[0]


def _segments_of(log: PartitionLog, group: SegmentGroup) -> tuple[Sequence[Segment], int]:
    """Return the live segments that begin within the offsets of a group, and where the next one begins."""
    view = log.view
    segments = view.segments.segments
    found = [each for each in segments if group.start <= each.base_offset < group.end]
    if not found:
        return (), -1
    last = view.segments.floor(found[-1].base_offset)
    return found, view.segments.next_base(last, view.log_end)


def _has_content(log: PartitionLog, segment: Segment, expected: FileContent) -> bool:
    if segment.size_bytes != expected.size_bytes:
        return False
    return file_content(log.file_system, segment.path(FileKind.LOG)) == expected
