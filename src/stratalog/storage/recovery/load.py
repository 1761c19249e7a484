"""Open a partition's folder: settle what a dead process left, recover what it may not have finished.

The order is Kafka's (temporary files, interrupted replacements, segments, recovery, epochs, producers), and
so are the outcomes. One thing is not: where Kafka cuts a log at a damaged batch although sound ones follow,
this refuses and says what is wrong, unless it is told to cut (see ``damage``).

Everything here may be interrupted at any point and run again.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

from stratalog.errors import CorruptionError, DamagedLogError, StratalogError
from stratalog.records.layout import INT32_MAX, INT64_MAX, Check, Reason
from stratalog.records.reasons import corruption
from stratalog.storage.epochs.epoch_file import EpochFile
from stratalog.storage.epochs.epoch_scan import EpochsFound
from stratalog.storage.names import FAILED_SYNC, FileKind, segment_file_name
from stratalog.storage.producers.snapshot_files import SnapshotFiles
from stratalog.storage.producers.states import ProducerStates
from stratalog.storage.recovery.recover_segment import SegmentRecovery, SplitError
from stratalog.storage.recovery.report import LoadOptions, LoadReport
from stratalog.storage.replace.folder import (
    FolderNames,
    SettlePlan,
    plan_orphans,
    plan_swaps,
    plan_unfinished,
)
from stratalog.storage.replace.settle import check_segment_files, swapped_span
from stratalog.storage.segment.abandoned import find_leftovers
from stratalog.storage.segment.activate import activate
from stratalog.storage.segment.active import ActiveSegment
from stratalog.storage.segment.neighbours import check_last_batch
from stratalog.storage.segment.scan import scan_segment
from stratalog.storage.segment.sealed import SealedSegment
from stratalog.storage.segment.segment import Segment

__all__ = ["LoadedLog", "load_log"]


@dataclass(slots=True)
class LoadedLog:
    """A folder that is ready to be written to."""

    sealed: list[SealedSegment]
    active: ActiveSegment
    next_offset: int
    log_start: int
    recovery_point: int
    epochs: EpochFile
    producers: ProducerStates
    snapshots: SnapshotFiles
    #: Files that were set aside and are to be removed later.
    set_aside: list[str]
    report: LoadReport


def load_log(folder: str, options: LoadOptions) -> LoadedLog:
    """Load one partition. DamagedLogError where recovery would have to throw away sound records."""
    report = LoadReport()
    while True:
        try:
            return _Loader(folder, options, report).load()
        except SplitError:
            pass  # there are segments now that no one has looked at: from the beginning, as in Kafka


class _Loader:
    def __init__(self, folder: str, options: LoadOptions, report: LoadReport) -> None:
        self._folder = folder
        self._options = options
        self._file_system = options.file_system
        self._report = report
        self._producers = ProducerStates()
        self._is_clean = options.is_clean
        self._has_failed_sync = False
        self._active: ActiveSegment | None = None

    def load(self) -> LoadedLog:
        try:
            return self._load()
        except BaseException:
            if self._active is not None:
                # As an orderly stop leaves it: others may believe the whole length of an index.
                with suppress(StratalogError):
                    self._active.finish()
            raise

    def _load(self) -> LoadedLog:
        options = self._options
        names = self._settle()
        self._snapshots = SnapshotFiles(self._file_system, self._folder, names.files.values())
        self._epochs = EpochFile.load(self._file_system, self._folder)
        self._recovery = SegmentRecovery(
            self._folder, options, self._report, self._snapshots, self._epochs,
            has_failed_sync=self._has_failed_sync,
        )  # fmt: skip
        segments = self._open_segments(names)
        if self._epochs.was_damaged:
            self._relearn_epochs(segments)
        active = None
        if self._is_clean:
            try:
                next_offset = self._end_of(segments)
                if options.clean_end is not None and next_offset > options.clean_end:
                    self._is_clean = (
                        False  # recovery says whether the offset of the last batch is wrong
                    )
                elif segments and next_offset - segments[-1].base_offset - 1 > INT32_MAX:
                    self._is_clean = False  # no further append could be indexed: recovery splits it
                elif segments and next_offset >= options.log_start:
                    active = self._activate(segments[-1])
            except CorruptionError:
                self._is_clean = False  # no orderly stop leaves it like this
        if not self._is_clean:
            segments, next_offset = self._recover(segments, options.recovery_point)
        if segments and next_offset < options.log_start:
            self._recovery.drop(segments)
            self._epochs.clear()
            self._producers.clear()
            segments = []
        if segments:
            last = segments.pop()
            active = active or self._activate(last)
            # A killed process may have made files whose names are not on the disk yet.
            active.is_new = not self._is_clean
            recovery_point = (
                next_offset if self._is_clean else min(options.recovery_point, next_offset)
            )
        else:
            next_offset = options.log_start
            active = self._create(next_offset)
            recovery_point = 0 if self._is_clean else min(options.recovery_point, next_offset)
        first = segments[0] if segments else active
        log_start = max(options.log_start, first.base_offset)
        self._epochs.truncate_from_end(next_offset)
        self._epochs.truncate_from_start(log_start)
        self._load_producers([*segments, active], log_start, next_offset)
        if self._has_failed_sync:
            self._file_system.unlink(os.path.join(self._folder, FAILED_SYNC))
        return LoadedLog(
            sealed=segments,
            active=active,
            next_offset=next_offset,
            log_start=log_start,
            recovery_point=recovery_point,
            epochs=self._epochs,
            producers=self._producers,
            snapshots=self._snapshots,
            set_aside=self._recovery.set_aside,
            report=self._report,
        )

    # Names.

    def _settle(self) -> FolderNames:
        entries = self._file_system.list_dir(self._folder)
        check_segment_files(self._folder, entries)
        names = FolderNames.of(entry.name for entry in entries if entry.is_file)
        self._has_failed_sync = any(entry.name == FAILED_SYNC for entry in entries)
        self._is_clean = self._is_clean and not self._has_failed_sync
        self._report.unknown_files = names.unknown
        names = self._carry_out(names, plan_unfinished(names))
        try:
            span = swapped_span(
                self._file_system, self._folder, names, check=Check.CRC | Check.ORDER
            )
        except CorruptionError as error:
            raise DamagedLogError(
                error.reason, error.detail, position=error.position, path=error.path,
                advice="restore it from a copy; or, if all segments that it replaces exist, "
                "move it away",
            ) from None  # fmt: skip
        names = self._carry_out(names, plan_swaps(names, *span))
        return self._carry_out(names, plan_orphans(names))

    def _carry_out(self, names: FolderNames, plan: SettlePlan) -> FolderNames:
        if not plan:
            return names
        for name in plan.delete:
            self._file_system.unlink(os.path.join(self._folder, name))
        for old, new in plan.rename:
            self._file_system.rename(
                os.path.join(self._folder, old), os.path.join(self._folder, new)
            )
        # Also after deletions: a killed process may have renamed a segment and not synced the folder, and a
        # power cut would bring the segment back next to what is written in its place.
        self._file_system.sync_dir(self._folder)
        self._report.deleted_files += plan.delete
        self._report.renamed_files += plan.rename
        return names.without(plan)

    # Segments.

    def _open_segments(self, names: FolderNames) -> list[SealedSegment]:
        """All segments, oldest first. Those whose indexes are missing or whose transaction index is
        wrong are recovered at once, whatever the recovery point says."""
        bases = names.bases()
        have_indexes = set(names.bases(FileKind.OFFSET_INDEX)) & set(
            names.bases(FileKind.TIME_INDEX)
        )
        have_txns = set(names.bases(FileKind.TXN_INDEX))
        coming = [self._sealed(base) for base in bases]
        segments: list[SealedSegment] = []
        while coming:
            segment = coming.pop(0)
            base = segment.base_offset
            is_trusted = self._is_clean or base < self._options.recovery_point
            is_wrong = base not in have_indexes or (
                base in have_txns and not _txns_are_sane(segment)
            )
            if is_trusted and is_wrong:
                segment, found = self._recovery.recover(segment, segments, coming)
                if not found.is_whole:
                    coming = []  # they were set aside
            segments.append(segment)
        return self._without_leftovers(segments)

    def _without_leftovers(self, segments: list[SealedSegment]) -> list[SealedSegment]:
        """Segments without those that were begun and given up."""
        leftovers = find_leftovers(segments)
        self._recovery.drop(leftovers)
        return [segment for segment in segments if segment not in leftovers]

    def _sealed(self, base_offset: int) -> SealedSegment:
        path = os.path.join(self._folder, segment_file_name(base_offset, FileKind.LOG))
        found = self._file_system.stat(path)
        size = 0 if found is None else found.size
        limits = self._options.limits
        return SealedSegment(
            self._file_system, self._folder, base_offset, limits, size, listed=found
        )

    def _end_of(self, segments: list[SealedSegment]) -> int:
        """The log's end after an orderly stop, from the last segment's index on."""
        if not segments:
            return self._options.log_start
        last = segments[-1]
        place = check_last_batch(last)
        if place is not None and place.last_offset == INT64_MAX:
            raise corruption(Reason.OFFSET_RANGE, place.position)  # recovery says the rest
        return last.base_offset if place is None else place.last_offset + 1

    def _recover(
        self, segments: list[SealedSegment], recovery_point: int
    ) -> tuple[list[SealedSegment], int]:
        """Check everything behind the recovery point, and cut what a crash left unfinished."""
        if not segments:
            return segments, self._options.log_start
        first = max(
            (n for n, each in enumerate(segments) if each.base_offset <= recovery_point), default=0
        )
        done = list(segments[:first])
        next_offset = segments[first].base_offset
        for number in range(first, len(segments)):
            segment, found = self._recovery.recover(segments[number], done, segments[number + 1 :])
            done.append(segment)
            next_offset = found.next_offset
            if not found.is_whole:
                break
        return done, next_offset

    def _activate(self, segment: SealedSegment) -> ActiveSegment:
        self._active = activate(self._file_system, self._options.clock, segment)
        return self._active

    def _create(self, base_offset: int) -> ActiveSegment:
        return ActiveSegment.create(
            self._file_system,
            self._folder,
            base_offset,
            self._options.limits,
            created_ms=self._options.clock.now_ms(),
        )

    def _relearn_epochs(self, segments: list[SealedSegment]) -> None:
        """The epochs as the batches tell them: their file cannot be believed."""
        found: list[tuple[int, int]] = []
        for segment in segments:
            scan_segment(
                segment.log, segment.base_offset, segment.limits, segment.size_bytes,
                check=Check.NONE, seen=EpochsFound(found).seen,
            )  # fmt: skip
        self._epochs.replace(found)

    # Producers.

    def _load_producers(self, segments: list[Segment], log_start: int, next_offset: int) -> None:
        bases = [segment.base_offset for segment in segments]
        for offset in self._snapshots.strays(bases):
            self._snapshots.delete(offset)
        for offset in self._snapshots.offsets:
            if not log_start <= offset <= next_offset:
                self._snapshots.delete(offset)
        producers = self._producers
        for base in bases[-2:]:
            # The last two starts have one: should the newest be damaged, the one before is near.
            if log_start < base and base not in self._snapshots.offsets:
                self._recovery.rebuild(producers, segments, base, log_start)
                self._snapshots.write(producers, base)
        self._recovery.rebuild(producers, segments, next_offset, log_start)
        if next_offset > 0 and next_offset not in self._snapshots.offsets:
            self._snapshots.write(producers, next_offset)
        producers.snapshot_offset = max(self._snapshots.offsets, default=0)


def _txns_are_sane(segment: SealedSegment) -> bool:
    try:
        _ = segment.aborted
    except CorruptionError:
        return False
    return True
