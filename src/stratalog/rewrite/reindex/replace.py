"""Put rebuilt indexes and snapshots of an open log in the place of those that are wrong."""

from __future__ import annotations

import os

from stratalog.rewrite.limits import RewriteLimits, RewriteStoppedError
from stratalog.rewrite.reindex.examine import SegmentIndexes
from stratalog.storage.files.filesystem import replace_file
from stratalog.storage.names import FileKind, Stage, segment_file_name
from stratalog.storage.partition_log import PartitionLog

__all__ = ["replace_indexes"]


def replace_indexes(log: PartitionLog, found: SegmentIndexes, limits: RewriteLimits) -> int:
    """Replace the files of one segment for which there are contents; return how many. The caller holds
    ``log.rewriting()``. RewriteStoppedError if the segment was deleted meanwhile."""
    limits.check()
    base = found.segment.base_offset
    if found.snapshot is not None:
        path = os.path.join(log.folder, segment_file_name(base, FileKind.SNAPSHOT))
        temporary = segment_file_name(base, FileKind.SNAPSHOT, Stage.CLEANED)
        replace_file(log.file_system, path, os.path.join(log.folder, temporary), found.snapshot)
    if found.contents and not log.replace_indexes(found.segment, found.contents):
        raise RewriteStoppedError(
            f"the segment at {base} was deleted before its indexes were replaced"
        )
    return len(found.contents) + (found.snapshot is not None)
