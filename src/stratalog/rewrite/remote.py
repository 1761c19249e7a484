"""Segments as values that travel to other processes, and become segments again there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.errors import StorageError
from stratalog.rewrite.source import SourceSegment
from stratalog.storage.commits.segment_groups import OldSegment
from stratalog.storage.commits.staged_segment import file_content
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import FileKind
from stratalog.storage.segment.sealed import SealedSegment
from stratalog.storage.segment.segment import Segment
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.storage.views.log_view import LogView, SegmentList

__all__ = ["RemoteSegment", "old_segments", "remote_segments", "view_of"]


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A sealed segment in a folder. Its batches lie below ``next_base``."""

    folder: str
    base_offset: int
    next_base: int
    size_bytes: int
    modified_ms: int
    limits: IndexLimits

    def source(self, file_system: FileSystem) -> SourceSegment:
        """Return the segment to be read. Raise StorageError if its data file is not the one that was planned
        for, as far as size and time tell; a commit looks at its bytes."""
        segment = SealedSegment(
            file_system, self.folder, self.base_offset, self.limits, self.size_bytes
        )
        path = segment.path(FileKind.LOG)
        found = file_system.stat(path)
        if found is None or (found.size, found.modified_ms) != (self.size_bytes, self.modified_ms):
            raise StorageError(
                "has changed since the rewrite was planned: nothing was replaced; run it again",
                path=path,
            )
        return SourceSegment(segment, self.next_base, self.modified_ms)


def remote_segments(view: LogView, segments: Sequence[Segment]) -> tuple[RemoteSegment, ...]:
    """Return sealed segments of a view as values."""
    return tuple(
        RemoteSegment(
            segment.folder,
            segment.base_offset,
            view.segments.next_base(view.segments.floor(segment.base_offset), view.log_end),
            segment.size_bytes,
            segment.modified_ms(),
            segment.limits,
        )
        for segment in segments
    )


def old_segments(file_system: FileSystem, sources: Sequence[SourceSegment]) -> list[OldSegment]:
    """Return segments as a commit knows them: by all of their bytes."""
    return [
        OldSegment(each.base_offset, file_content(file_system, each.segment.path(FileKind.LOG)))
        for each in sources
    ]


def view_of(file_system: FileSystem, segment: RemoteSegment, end: int) -> LogView:
    """Return a view of one sealed segment, with an empty active one after it. Rewrites end at ``end``."""
    after = SealedSegment(file_system, segment.folder, segment.next_base, segment.limits, 0)
    source = segment.source(file_system)
    return LogView(
        segments=SegmentList([source.segment, after]),
        log_start=segment.base_offset,
        log_end=segment.next_base,
        end_position=0,
        high_watermark=end,
        last_stable_offset=end,
    )
