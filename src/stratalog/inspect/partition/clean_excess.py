"""Find the last batch of a partition that lies beyond where a clean shutdown left the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from stratalog.errors import CorruptionError, StorageError
from stratalog.inspect.file.span import segment_spans
from stratalog.inspect.partition.sources import PartitionSource, vanished
from stratalog.records.layout import Ending, Reason
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.segment.log_file import LogFile
from stratalog.storage.segment.walk import FileEnd

if TYPE_CHECKING:
    from stratalog.inspect.file.skipped_damage import Resumption
    from stratalog.inspect.file.tail import SegmentTail

__all__ = ["CleanExcess", "find_clean_excess"]


class CleanExcess(NamedTuple):
    """A last batch whose offset is wrong. All offsets before it lie below ``expected``."""

    path: str
    position: int
    expected: int
    error: CorruptionError

    def end_of(self, log_size: int) -> FileEnd:
        """How the file ends for who walks over it."""
        from stratalog.inspect.partition.excess_end import ExcessBatchEnd

        pause = ExcessBatchEnd(
            self.position, Ending.CORRUPT, Reason.OFFSET_ORDER, self.error.detail, self.error
        )
        return FileEnd(self.path, log_size, pause)

    def applied_to(self, end: FileEnd) -> FileEnd:
        """How a walk ended that was bounded by ``expected``: here, or as it was."""
        is_here = end.path == self.path and end.pause.position == self.position
        return self.end_of(end.size) if is_here and end.pause.ending == Ending.CORRUPT else end

    def resumption(self, log_file: LogFile) -> Resumption:
        """What is left out where damage is skipped: nothing follows the batch."""
        from stratalog.inspect.file.skipped_damage import Resumption, SkippedDamage

        skipped = SkippedDamage(
            path=self.path,
            position=self.position,
            size_bytes=log_file.size - self.position,
            start_offset=self.expected,
            resume_offset=None,
            reason=self.error.reason,
            detail=self.error.detail,
        )
        return Resumption(skipped, None)


def find_clean_excess(
    source: PartitionSource, file_system: FileSystem | None = None
) -> CleanExcess | None:
    """Compare the end of a partition with where a clean shutdown left it, from the headers of the last few
    batches. None where it goes on no further, or where nothing says where it ended."""
    if source.clean_end is None or not source.segments:
        return None
    # Only now: a log beside a writer, or without a checkpoint, is not compared.
    from stratalog.inspect.file.tail import tail_without_excess

    files = file_system or OsFileSystem()
    try:
        tail = _tail(source, files)
        judged = tail_without_excess(tail, source.clean_end, files)
    except StorageError as error:
        if not vanished(source, error):
            raise
        return None  # a writer is at work
    if judged is tail or judged.damage is None:
        return None
    return CleanExcess(judged.path, judged.position, judged.next_offset, judged.damage)


def _tail(source: PartitionSource, files: FileSystem) -> SegmentTail:
    """The end of the last segment by its headers; from its start on where the index cannot be read."""
    from stratalog.inspect.file.tail import SegmentTail, find_tail, walk_tail

    *_, span = segment_spans(source.segments)
    try:
        return find_tail(span, files, check_crc=False)
    except StorageError:
        start = SegmentTail(span.path, 0, span.base_offset or 0)
        found = walk_tail(start, files, check_crc=False)
        assert found is not None, "there was no batch to be missed"
        return found
