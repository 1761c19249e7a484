"""Open a partition's segments with their indexes. Apart from ``sources``, because most commands only need to
know which files there are."""

from __future__ import annotations

from stratalog.inspect.file.span import SegmentSpan
from stratalog.inspect.partition.sources import PartitionSource
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.replace.settle import swapped_kinds
from stratalog.storage.segment.sealed import SealedSegment
from stratalog.storage.segment.sparse_index import IndexLimits

__all__ = ["sealed_segment"]


def sealed_segment(
    source: PartitionSource, span: SegmentSpan, file_system: FileSystem
) -> SealedSegment:
    """Return a segment of a partition, with all its files where they are now. A sealed one remembers which
    data file it was: its indexes must not be taken for those of another that is swapped in meanwhile."""
    base = span.base_offset or 0
    found = file_system.stat(span.path)
    return SealedSegment(
        file_system,
        source.folder,
        base,
        IndexLimits(),
        0 if found is None else found.size,
        listed=None if span.is_last else found,  # the last one may grow
        swapped=swapped_kinds(base, source.swapped),
    )
