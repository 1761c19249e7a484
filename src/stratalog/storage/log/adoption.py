"""Make a segment of a file of finished batches without copying it.

The batches get their offsets in place: 16 bytes each, outside the CRC. In one step the file then gets a
second name, that of an empty active segment: after a crash there is the empty segment or the whole one. The
first name stays, for the commit that must know later what was adopted.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from typing import Final

from stratalog.clock import Clock
from stratalog.errors import StorageError
from stratalog.records.layout import LOG_OVERHEAD, ROW_WIDTH, Check, Row
from stratalog.records.restamp import assign_offsets
from stratalog.storage.commits.piece_reader import BatchWindow, BatchWindows
from stratalog.storage.files.filesystem import FileSystem, WritableFile
from stratalog.storage.names import FileKind
from stratalog.storage.segment.activate import activate
from stratalog.storage.segment.active import ActiveSegment
from stratalog.storage.segment.scan import SegmentScan, scan_segment
from stratalog.storage.segment.sealed import SealedSegment
from stratalog.storage.segment.sparse_index import IndexLimits

__all__ = ["StagedFile"]

#: Base offset, size and leader epoch: the first fields of a batch.
_BEGINNING: Final = struct.Struct(">qii")
#: Batches below this size are written again as whole windows: fewer calls, and the same pages.
_SMALL_BATCH: Final = 4096
_NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """The first ``size_bytes`` of the file at ``path``. ``link_path`` is a temporary name on the same file
    system."""

    path: str
    link_path: str
    size_bytes: int

    def stamp(
        self, file_system: FileSystem, *, next_offset: int, leader_epoch: int, limits: IndexLimits
    ) -> SegmentScan | None:
        """Assign the offsets of the batches, fsync them, and link the file to its second name. Return what a
        scan found, or None if it cannot be a segment: it has more batches than an index has room for, or the
        file system has no hard links."""
        file = file_system.open_writable(self.path)
        try:
            after = next_offset
            for window in BatchWindows(file, self.size_bytes):
                after = _stamp(file, window, after, leader_epoch)
            file.sync()
            found = scan_segment(
                file,
                next_offset,
                limits,
                self.size_bytes,
                check=Check.ORDER,
                expected_offset=next_offset,
            )
        finally:
            file.close()
        is_segment = found.is_whole and not found.overflows and found.next_offset == after
        return found if is_segment and self._link(file_system) else None

    def _link(self, file_system: FileSystem) -> bool:
        file_system.unlink(self.link_path)
        try:
            file_system.link(self.path, self.link_path)
        except StorageError as error:
            if error.errno not in _NO_LINKS:
                raise
            return False
        return True

    def replace(
        self, file_system: FileSystem, clock: Clock, empty: ActiveSegment, found: SegmentScan
    ) -> ActiveSegment:
        """Replace a segment that is empty. This is durable when its folder is synced."""
        file_system.rename(self.link_path, empty.path(FileKind.LOG))
        segment = SealedSegment(
            file_system, empty.folder, empty.base_offset, empty.limits, self.size_bytes
        )
        segment.take_end(self.size_bytes, found.index, ())
        active = activate(file_system, clock, segment)
        active.jitter_ms = empty.jitter_ms
        active.is_new = True
        return active


def _stamp(file: WritableFile, window: BatchWindow, next_offset: int, leader_epoch: int) -> int:
    if len(window.data) < window.batches * _SMALL_BATCH:
        after = assign_offsets(window.data, next_offset=next_offset, leader_epoch=leader_epoch)
        file.write_at(window.position, window.data)
        return after
    rows = window.rows
    for at in range(0, window.batches * ROW_WIDTH, ROW_WIDTH):
        size = rows[at + Row.SIZE] - LOG_OVERHEAD
        position = window.position + rows[at + Row.POSITION]
        file.write_at(position, _BEGINNING.pack(next_offset, size, leader_epoch))
        next_offset += rows[at + Row.LAST_OFFSET] - rows[at + Row.BASE_OFFSET] + 1
    return next_offset
