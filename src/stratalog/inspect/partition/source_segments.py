"""A partition's segments, to be looked into with their indexes. Apart from ``sources``: who only wants to
know which files there are shall not wait for it."""

from __future__ import annotations

from stratalog.inspect.file.span import SegmentSpan
from stratalog.inspect.partition.sources import PartitionSource
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.replace.settle import swapped_kinds
from stratalog.storage.segment.sealed import SealedSegment
from stratalog.storage.segment.sparse_index import IndexLimits

__all__ = ["sealed_segment"]


def sealed_segment(
    source: PartitionSource, span: SegmentSpan, file_system: FileSystem, size_bytes: int = 0
) -> SealedSegment:
    """A segment of a partition, with all its files where they lie now."""
    base = span.base_offset or 0
    swapped = swapped_kinds(base, source.swapped)
    return SealedSegment(
        file_system, source.folder, base, IndexLimits(), size_bytes, swapped=swapped
    )
