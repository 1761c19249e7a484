"""The transactions of a partition, followed from a snapshot on and through its last segment as that grows."""

from __future__ import annotations

from stratalog.inspect.file.span import segment_spans
from stratalog.inspect.file.tail import SegmentTail, walk_tail
from stratalog.inspect.partition.source_segments import sealed_segment
from stratalog.inspect.partition.sources import PartitionSource
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.producers.rebuild import (
    ProducerReplay,
    aborted_by_segment,
    producers_for_reader,
)
from stratalog.storage.producers.snapshot_files import SnapshotFiles
from stratalog.storage.producers.states import ProducerStates
from stratalog.storage.replace.settle import read_settled
from stratalog.storage.segment.sealed import SealedSegment
from stratalog.storage.segment.txn_index import AbortedTxn

__all__ = ["FollowedTransactions", "aborted_in_sealed"]


def aborted_in_sealed(
    source: PartitionSource, file_system: FileSystem
) -> dict[int, tuple[AbortedTxn, ...]]:
    """The aborted transactions of all segments but the last, by the base offsets of these, from batches."""
    segments = _sealed_segments(source, file_system)
    try:
        return aborted_by_segment(segments)
    finally:
        for segment in segments:
            segment.close()


def _sealed_segments(source: PartitionSource, file_system: FileSystem) -> list[SealedSegment]:
    spans = segment_spans(source.segments[:-1])
    return [sealed_segment(source, span, file_system) for span in spans]


class FollowedTransactions:
    """The producers of a partition, followed through its last segment."""

    def __init__(self, source: PartitionSource, file_system: FileSystem) -> None:
        *_, last = segment_spans(source.segments)
        base_offset = last.base_offset or 0
        self._file_system = file_system
        self._states = ProducerStates()
        self.aborted: list[AbortedTxn] = []
        self.tail = SegmentTail(last.path, 0, base_offset)
        self._load(source, base_offset)
        self._replay = ProducerReplay(self._states, start=base_offset, aborted=self.aborted.append)

    def _load(self, source: PartitionSource, end: int) -> None:
        """Load the state before the last segment, from a snapshot and the batches after it."""
        folder = source.folder
        names = read_settled(self._file_system, folder).names
        snapshots = SnapshotFiles(self._file_system, folder, names.files.values())
        segments = _sealed_segments(source, self._file_system)
        try:
            producers_for_reader(self._states, snapshots, segments, source.log_start, end)
        finally:
            for segment in segments:
                segment.close()

    def go_on(self) -> bool:
        """Take in what was appended; False where what was known is there no more."""
        found = walk_tail(self.tail, self._file_system, self._replay.seen)
        if found is None:
            return False
        self.tail = found
        self._states.on_high_watermark(found.next_offset)
        return True

    @property
    def first_unstable_offset(self) -> int | None:
        return self._states.first_unstable_offset(self.tail.next_offset)
