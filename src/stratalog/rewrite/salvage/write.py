"""Write the new folder of a partition: segments with their indexes, producer snapshots, leader epochs."""

from __future__ import annotations

import os

from stratalog.errors import StorageError
from stratalog.records.layout import Check
from stratalog.rewrite.cleaned import CleanedSegments, cleaned_paths
from stratalog.rewrite.limits import RewriteLimits
from stratalog.rewrite.salvage.damaged_files import store_damage, write_new_file
from stratalog.rewrite.salvage.epochs import epochs_of
from stratalog.rewrite.salvage.kept_batches import KeptBatches, walk_kept
from stratalog.rewrite.salvage.plan import SalvagePlan
from stratalog.rewrite.salvage.segments import NewSegment, plan_segments, plan_segments_v07
from stratalog.storage.files.filesystem import FileSystem, WritableFile
from stratalog.storage.formats.partition_metadata import encode_partition_metadata
from stratalog.storage.names import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    Stage,
    log_file_name,
)
from stratalog.storage.producers.rebuild import ProducerReplay
from stratalog.storage.producers.snapshot_files import SnapshotFiles
from stratalog.storage.producers.states import ProducerStates
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.storage.segment.txn_index import AbortedTxn

__all__ = ["write_partition"]


def write_partition(
    file_system: FileSystem,
    plan: SalvagePlan,
    folder: str,
    topic_id: bytes | None,
    limits: RewriteLimits,
) -> None:
    """Write everything that a plan keeps into a new folder, and what it does not keep into a sub-folder.
    Everything is fsynced. Raise StorageError if the files are not what they were when the plan was made."""
    file_system.make_dir(folder)
    if plan.is_v07:
        _write_v07(file_system, plan, folder, limits)
    else:
        _PartitionWriter(file_system, plan, folder, limits).write()
        _write_epochs(file_system, plan, folder)
        if topic_id is not None:
            data = encode_partition_metadata(topic_id)
            write_new_file(file_system, os.path.join(folder, PARTITION_METADATA), data)
    store_damage(file_system, plan, folder, limits)
    file_system.sync_dir(folder)


class _PartitionWriter:
    def __init__(
        self, file_system: FileSystem, plan: SalvagePlan, folder: str, limits: RewriteLimits
    ) -> None:
        self._file_system = file_system
        self._plan = plan
        self._folder = folder
        self._limits = limits
        self._states = ProducerStates()
        self._snapshots = SnapshotFiles(file_system, folder, ())

    def write(self) -> None:
        segments = plan_segments(self._plan)
        written = 0
        for number, segment in enumerate(segments):
            if number:
                self._snapshots.write(self._states, segment.base_offset)
            written += self._write_segment(segment)
        if self._plan.kept:
            self._snapshots.write(self._states, self._plan.log_end)
        self._snapshots.sync()
        if written != self._plan.kept_bytes:
            raise StorageError(
                f"{written} bytes were written, and the plan keeps {self._plan.kept_bytes}: the files "
                "changed while they were salvaged",
                path=self._plan.folder,
            )

    def _write_segment(self, segment: NewSegment) -> int:
        aborted: list[AbortedTxn] = []
        replay = ProducerReplay(self._states, aborted=aborted.append)
        new = CleanedSegments(
            self._file_system,
            cleaned_paths(self._folder, Stage.LIVE),
            segment.base_offset,
            IndexLimits(),
        )

        def seen(batches: KeptBatches) -> None:
            new.append(batches.data)
            replay.seen(batches.rows, batches.held, batches.window)
            self._limits.note(batches.end - batches.start)

        try:
            new.begin()
            walk_kept(self._file_system, self._plan.sources, segment.runs, seen, check=Check.CRC)
            new.note_aborted(aborted)
            new.finish(segment.modified_ms)
            new.sync()
        except BaseException:
            new.discard()
            raise
        return sum(each.size_bytes for each in new.sizes())


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


def _write_v07(
    file_system: FileSystem, plan: SalvagePlan, folder: str, limits: RewriteLimits
) -> None:
    for segment in plan_segments_v07(plan):
        path = os.path.join(folder, log_file_name(segment.base_offset, is_v07=True))
        file = file_system.open_writable(path, create=True)
        try:
            _copy_v07(file_system, plan, segment, file, limits)
            file.sync()
        finally:
            file.close()
        file_system.set_modified(path, segment.modified_ms)


def _copy_v07(
    file_system: FileSystem,
    plan: SalvagePlan,
    segment: NewSegment,
    file: WritableFile,
    limits: RewriteLimits,
) -> None:
    written = 0

    def seen(batches: KeptBatches) -> None:
        nonlocal written
        file.write_at(written, batches.data)
        written += batches.end - batches.start
        limits.note(batches.end - batches.start)

    walk_kept(file_system, plan.sources, segment.runs, seen, check=Check.CRC)
