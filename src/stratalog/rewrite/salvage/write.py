"""Write the new folder of a partition: segments with their indexes, producer snapshots, leader epochs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from stratalog.errors import StorageError
from stratalog.records.layout import Check
from stratalog.rewrite.cleaned import CleanedSegments, cleaned_paths
from stratalog.rewrite.limits import RewriteLimits
from stratalog.rewrite.salvage.damaged_files import (
    ranges_to_store,
    store_ranges,
    write_new_file,
    write_report,
)
from stratalog.rewrite.salvage.epochs import epochs_of
from stratalog.rewrite.salvage.kept_batches import KeptBatches, Sources, walk_kept
from stratalog.rewrite.salvage.plan import SalvagePlan
from stratalog.rewrite.salvage.segments import NewSegment, segments_of
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.formats.partition_metadata import encode_partition_metadata
from stratalog.storage.names import (
    DAMAGED_DIR,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    FileKind,
    Stage,
    log_file_name,
    segment_file_name,
)
from stratalog.storage.producers.rebuild import ProducerReplay, Replayed
from stratalog.storage.producers.snapshot_files import SnapshotFiles
from stratalog.storage.producers.states import ProducerStates
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.storage.segment.txn_index import AbortedTxn, encode_entry

__all__ = ["PartitionFiles", "WrittenSegment", "write_partition", "write_segment"]


class WrittenSegment(NamedTuple):
    """A segment on the disk: the names of its files, its base offset and those of what did not fit into it,
    its size, and the aborted transactions whose markers are in it, as far as they are known."""

    names: tuple[str, ...]
    base_offsets: tuple[int, ...]
    size_bytes: int
    aborted: tuple[AbortedTxn, ...] = ()


def write_partition(
    file_system: FileSystem,
    plan: SalvagePlan,
    folder: str,
    topic_id: bytes | None,
    limits: RewriteLimits,
) -> None:
    """Write everything that a plan keeps into a new folder, and what it does not keep into a sub-folder.
    Everything is fsynced. Raise StorageError if the files are not what they were when the plan was made."""
    files = PartitionFiles(file_system, plan, folder)
    files.begin()
    for segment in segments_of(plan):
        files.begin_segment(segment)
        written = write_segment(file_system, plan.sources, segment, folder, files.producers, limits)
        files.end_segment(segment, written, written.aborted)
    store_ranges(file_system, ranges_to_store(plan), files.damaged_folder, limits)
    files.finish(topic_id)


def write_segment(
    file_system: FileSystem,
    sources: Sources,
    segment: NewSegment,
    folder: str,
    producers: Replayed,
    limits: RewriteLimits,
) -> WrittenSegment:
    """Write the batches of one new segment with the indexes that depend only on them, and fsync them. The
    batches are replayed to ``producers``."""
    write = _write_v07 if segment.is_v07 else _write_batches
    return write(file_system, sources, segment, folder, producers, limits)


def _write_batches(
    file_system: FileSystem,
    sources: Sources,
    segment: NewSegment,
    folder: str,
    producers: Replayed,
    limits: RewriteLimits,
) -> WrittenSegment:
    aborted: list[AbortedTxn] = []
    replay = ProducerReplay(producers, aborted=aborted.append)
    new = CleanedSegments(
        file_system, cleaned_paths(folder, Stage.LIVE), segment.base_offset, IndexLimits()
    )

    def seen(batches: KeptBatches) -> None:
        new.append(batches.data)
        replay.seen(batches.rows, batches.held, batches.window)
        limits.note(batches.end - batches.start)

    try:
        new.begin()
        walk_kept(file_system, sources, segment.runs, seen, check=Check.CRC)
        kinds = new.finish(segment.modified_ms)
        new.sync()
    except BaseException:
        new.discard()
        raise
    names = (segment_file_name(base, kind) for base in kinds for kind in kinds[base])
    size_bytes = sum(each.size_bytes for each in new.sizes())
    return WrittenSegment(tuple(names), tuple(kinds), size_bytes, tuple(aborted))


def _write_v07(
    file_system: FileSystem,
    sources: Sources,
    segment: NewSegment,
    folder: str,
    producers: Replayed,  # noqa: ARG001  # 0.7 knew none
    limits: RewriteLimits,
) -> WrittenSegment:
    name = log_file_name(segment.base_offset, is_v07=True)
    path = os.path.join(folder, name)
    file = file_system.open_writable(path, create=True)
    written = 0

    def seen(batches: KeptBatches) -> None:
        nonlocal written
        file.write_at(written, batches.data)
        written += batches.end - batches.start
        limits.note(batches.end - batches.start)

    try:
        walk_kept(file_system, sources, segment.runs, seen, check=Check.CRC)
        file.sync()
    finally:
        file.close()
    file_system.set_modified(path, segment.modified_ms)
    return WrittenSegment((name,), (segment.base_offset,), written)


class PartitionFiles:
    """The files of a new partition folder that depend on more than one segment: producer snapshots and
    transaction indexes, leader epochs, the topic id, the report."""

    def __init__(self, file_system: FileSystem, plan: SalvagePlan, folder: str) -> None:
        self._file_system = file_system
        self._plan = plan
        self._folder = folder
        self._snapshots = SnapshotFiles(file_system, folder, ())
        self._segments = 0
        self._written = 0
        #: The producers' states after the segments so far.
        self.producers = ProducerStates()

    @property
    def damaged_folder(self) -> str:
        return os.path.join(self._folder, DAMAGED_DIR)

    def begin(self) -> None:
        """Create the folders."""
        self._file_system.make_dir(self._folder)
        self._file_system.make_dir(self.damaged_folder)

    def begin_segment(self, segment: NewSegment) -> None:
        """Write the snapshot before a segment, except before the first."""
        if self._segments and not self._plan.is_v07:
            self._snapshots.write(self.producers, segment.base_offset)
        self._segments += 1

    def end_segment(
        self, segment: NewSegment, written: WrittenSegment, aborted: Sequence[AbortedTxn]
    ) -> None:
        """Write the transaction indexes of a segment whose batches were replayed to the producers."""
        self._written += written.size_bytes
        bases = written.base_offsets
        for base, next_base in zip(bases, (*bases[1:], None), strict=True):
            inside = [
                each
                for each in aborted
                if base <= each.last_offset and (next_base is None or each.last_offset < next_base)
            ]
            if inside:
                name = segment_file_name(base, FileKind.TXN_INDEX)
                path = os.path.join(self._folder, name)
                write_new_file(self._file_system, path, b"".join(map(encode_entry, inside)))
                self._file_system.set_modified(path, segment.modified_ms)

    def finish(self, topic_id: bytes | None) -> None:
        """Write everything else, and fsync the folders. Raise StorageError if the segments do not hold what
        the plan keeps."""
        if self._written != self._plan.kept_bytes:
            raise StorageError(
                f"{self._written} bytes were written, and the plan keeps {self._plan.kept_bytes}: the "
                "files changed while they were salvaged",
                path=self._plan.folder,
            )
        if not self._plan.is_v07:
            self._finish_batches(topic_id)
        write_report(self._file_system, self._plan, self.damaged_folder)
        self._file_system.sync_dir(self._folder)

    def _finish_batches(self, topic_id: bytes | None) -> None:
        if self._plan.kept:
            self._snapshots.write(self.producers, self._plan.log_end)
        self._snapshots.sync()
        _write_epochs(self._file_system, self._plan, self._folder)
        if topic_id is not None:
            data = encode_partition_metadata(topic_id)
            path = os.path.join(self._folder, PARTITION_METADATA)
            write_new_file(self._file_system, path, data)


def _write_epochs(file_system: FileSystem, plan: SalvagePlan, folder: str) -> None:
    epochs = epochs_of(
        plan.facts.epochs,
        plan.known_epochs,
        log_start=plan.log_start,
        log_end=plan.log_end,
    )
    # Kafka creates the file empty.
    data = epochs.encode() if epochs.entries else b""
    write_new_file(file_system, os.path.join(folder, LEADER_EPOCH_CHECKPOINT), data)
