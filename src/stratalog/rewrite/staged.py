"""Write new segments as staged ones in the root of a log directory, for a commit that puts them into a log.

Tasks write so, which hold no lock and may not touch the partition's folder. Several attempts of one task may
write at once: each has names of its own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from stratalog.records.layout import INT32_MAX
from stratalog.rewrite.cleaned import CleanedSegments
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.segment_groups import (
    OldSegment,
    SegmentGroup,
    StagedSegment,
    staged_file_name,
)
from stratalog.storage.commits.staged_segment import file_content
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import FileKind, PieceName, piece_file_name
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.storage.segment.txn_index import AbortedTxn

__all__ = ["StagedSegments"]


class StagedSegments:
    """The segments that one group of old ones becomes, staged by one attempt of a task. Call ``finish``, or
    ``discard`` on the way out."""

    def __init__(
        self,
        file_system: FileSystem,
        root: str,
        key: CommitKey,
        base_offset: int,
        limits: IndexLimits,
        *,
        task: int,
        attempt: int,
        size_max: int = INT32_MAX,
    ) -> None:
        """``attempt`` tells tries of one task apart: no two may have the same. For the others see
        ``CleanedSegments``."""
        self._file_system = file_system
        self._root = root
        self._name = PieceName(key.owner_digest, key.version, task, attempt, 0)
        self._numbers: dict[int, int] = {}
        self._segments = CleanedSegments(
            file_system, self._path_of, base_offset, limits, size_max=size_max
        )
        self._segments.begin()

    def _path_of(self, base_offset: int, kind: FileKind) -> str:
        return os.path.join(self._root, staged_file_name(self._name_of(base_offset), kind))

    def _name_of(self, base_offset: int) -> PieceName:
        number = self._numbers.setdefault(base_offset, len(self._numbers))
        return self._name._replace(number=number)

    def put(self, data: Any, aborted: Sequence[AbortedTxn]) -> None:
        """Write whole batches, and note the aborted transactions whose markers are among them."""
        self._segments.put(data, aborted)

    def finish(self, old: Sequence[OldSegment], end: int, modified_ms: int) -> SegmentGroup:
        """Fsync everything that was written, and return it as the group that replaces the segments ``old``,
        whose batches lie below offset ``end``."""
        kinds = self._segments.finish()
        new = tuple(self._staged(base_offset, each) for base_offset, each in kinds.items())
        self._file_system.sync_dir(self._root)
        return SegmentGroup(tuple(old), new, end, self._segments.records, modified_ms)

    def _staged(self, base_offset: int, kinds: Sequence[FileKind]) -> StagedSegment:
        files = {}
        for kind in kinds:
            path = self._path_of(base_offset, kind)
            file = self._file_system.open_writable(path)
            try:
                file.sync()
            finally:
                file.close()
            files[kind] = file_content(self._file_system, path)
        return StagedSegment(base_offset, piece_file_name(self._name_of(base_offset)), files)

    def discard(self) -> None:
        """Remove everything that was written."""
        self._segments.discard()
