"""Open a partition's folder: settle what a dead process left, recover what it may not have finished.

The order is Kafka's (temporary files, interrupted replacements, segments, recovery, epochs, producers), and
so are the outcomes. One thing is not: where Kafka cuts a log at a damaged batch although sound ones follow,
this refuses and says what is wrong, unless it is told to cut (see ``damage``).

Everything here may be interrupted at any point and run again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from stratalog.clock import Clock
from stratalog.errors import CorruptionError, DamagedLogError, StorageError
from stratalog.records.layout import Check
from stratalog.storage.activation import activate, overwrite
from stratalog.storage.active_segment import ActiveSegment
from stratalog.storage.damage import OnDamage, judge_tail
from stratalog.storage.epoch_file import EpochFile
from stratalog.storage.epoch_scan import EpochCheck, EpochsFound
from stratalog.storage.failed_sync import note_failed_sync, rewrite
from stratalog.storage.filesystem import FileSystem, WritableFile
from stratalog.storage.folder import FolderNames, SettlePlan, plan_orphans, plan_swaps, plan_sweep
from stratalog.storage.log_file import Window
from stratalog.storage.names import FAILED_SYNC, FileKind, segment_file_name
from stratalog.storage.producers import ProducerStates
from stratalog.storage.removal import rename_deleted
from stratalog.storage.replay import Replay, rebuild_producers
from stratalog.storage.sealed_segment import SealedSegment
from stratalog.storage.segment import Segment
from stratalog.storage.segment_scan import SegmentScan, scan_segment
from stratalog.storage.settling import swapped_span
from stratalog.storage.snapshot_files import SnapshotFiles
from stratalog.storage.sparse_index import IndexLimits
from stratalog.storage.txn_index import AbortedTxn, encode_entry

__all__ = ["Cut", "LoadOptions", "LoadReport", "LoadedLog", "load_log"]

_CHECK = Check.CRC | Check.ORDER
_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What loading must know beyond the folder."""

    file_system: FileSystem
    clock: Clock
    limits: IndexLimits
    recovery_point: int = 0
    log_start: int = 0
    is_clean: bool = False
    on_damage: OnDamage = OnDamage.REFUSE
    producer_ttl_ms: int = 86_400_000


@dataclass(frozen=True, slots=True)
class Cut:
    """A tail that was cut off."""

    path: str
    position: int
    size_bytes: int
    #: The first offset that is not there any more. How many followed it nobody can tell.
    from_offset: int
    detail: str
    #: Where the bytes were kept, when there were sound batches among them.
    kept_as: str | None = None


@dataclass(slots=True)
class LoadReport:
    """What loading found and did; empty after an orderly stop."""

    unknown_files: tuple[str, ...] = ()
    deleted_files: list[str] = field(default_factory=list)
    renamed_files: list[tuple[str, str]] = field(default_factory=list)
    recovered_segments: list[int] = field(default_factory=list)
    scanned_bytes: int = 0
    cuts: list[Cut] = field(default_factory=list)
    #: Base offsets of segments that lay behind a cut, or below the log's start, and were set aside.
    dropped_segments: list[int] = field(default_factory=list)

    @property
    def cut_bytes(self) -> int:
        return sum(cut.size_bytes for cut in self.cuts)


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
    return _Loader(folder, options).load()


class _Loader:
    def __init__(self, folder: str, options: LoadOptions) -> None:
        self._folder = folder
        self._options = options
        self._file_system = options.file_system
        self._report = LoadReport()
        self._set_aside: list[str] = []
        self._producers = ProducerStates()
        self._is_clean = options.is_clean
        self._has_failed_sync = False

    def load(self) -> LoadedLog:
        options = self._options
        names = self._settle()
        self._snapshots = SnapshotFiles(self._file_system, self._folder, names.files.values())
        self._epochs = EpochFile.load(self._file_system, self._folder)
        segments = self._open_segments(names)
        if self._epochs.was_damaged:
            self._relearn_epochs(segments)
        active = None
        if self._is_clean:
            try:
                next_offset = self._end_of(segments)
                if segments and next_offset >= options.log_start:
                    active = activate(self._file_system, options.clock, segments[-1])
            except CorruptionError:
                self._is_clean = False  # no orderly stop leaves it like this
        if not self._is_clean:
            segments, next_offset = self._recover(segments, options.recovery_point)
        if segments and next_offset < options.log_start:
            self._drop(segments)
            self._epochs.clear()
            self._producers.clear()
            segments = []
        if segments:
            last = segments.pop()
            active = active or activate(self._file_system, options.clock, last)
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
            set_aside=self._set_aside,
            report=self._report,
        )

    # Names.

    def _settle(self) -> FolderNames:
        entries = self._file_system.list_dir(self._folder)
        names = FolderNames.of(entry.name for entry in entries if entry.is_file)
        self._has_failed_sync = any(entry.name == FAILED_SYNC for entry in entries)
        self._is_clean = self._is_clean and not self._has_failed_sync
        self._report.unknown_files = names.unknown
        names = self._carry_out(names, plan_sweep(names))
        span = swapped_span(self._file_system, self._folder, names, self._options.limits)
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
        if plan.rename:
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
                segment, found = self._recover_segment(segment, segments, coming)
                if not found.is_whole:
                    coming = []  # they were set aside
            segments.append(segment)
        return self._without_leftovers(segments)

    def _without_leftovers(self, segments: list[SealedSegment]) -> list[SealedSegment]:
        """Segments without those that were begun and given up, for want of room: the one before went on.
        The names of such were removed, and a power cut may have brought them back."""
        kept: list[SealedSegment] = []
        for segment in segments:
            if kept and segment.size_bytes == 0:
                try:
                    place = kept[-1].last_batch()
                except CorruptionError:
                    place = None  # recovery will look
                if place is not None and place.last_offset >= segment.base_offset:
                    self._drop([segment])
                    continue
            kept.append(segment)
        return kept

    def _sealed(self, base_offset: int) -> SealedSegment:
        path = os.path.join(self._folder, segment_file_name(base_offset, FileKind.LOG))
        found = self._file_system.stat(path)
        size = 0 if found is None else found.size
        return SealedSegment(
            self._file_system, self._folder, base_offset, self._options.limits, size
        )

    def _end_of(self, segments: list[SealedSegment]) -> int:
        """The log's end after an orderly stop, from the last segment's index on."""
        if not segments:
            return self._options.log_start
        last = segments[-1]
        place = last.last_batch()
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
            segment, found = self._recover_segment(segments[number], done, segments[number + 1 :])
            done.append(segment)
            next_offset = found.next_offset
            if not found.is_whole:
                break
        return done, next_offset

    def _recover_segment(
        self,
        segment: SealedSegment,
        before: list[SealedSegment],
        behind: list[SealedSegment],
    ) -> tuple[SealedSegment, SegmentScan]:
        """Walk a whole segment: CRCs, offsets, indexes, epochs, producers, transaction index. Where
        it must be cut, the segments behind it go first: a crash in between leaves no hole."""
        options = self._options
        base = segment.base_offset
        producers = ProducerStates()
        self._rebuild(producers, list(before), base)
        aborted: list[AbortedTxn] = []
        replay = Replay(producers, start=base, aborted=aborted.append)
        epochs = EpochsFound([], latest=self._epochs.latest_epoch)
        check_epochs = EpochCheck(self._epochs.epoch_for_offset)

        def seen(rows: memoryview, count: int, window: Window) -> None:
            epochs.seen(rows, count, window)
            check_epochs.seen(rows, count)
            replay.seen(rows, count, window)

        log = self._file_system.open_writable(segment.path(FileKind.LOG))
        size = log.size()
        found = scan_segment(
            log, base, options.limits, size, check=_CHECK, expected_offset=base, seen=seen
        )
        self._report.recovered_segments.append(base)
        self._report.scanned_bytes += found.valid_bytes
        self._check_overlap(segment, found, behind)
        if not found.is_whole:
            self._cut(segment, log, found, size, behind)
        if self._has_failed_sync:
            rewrite(log, found.valid_bytes)
        for offset in self._snapshots.offsets:
            if offset > base:
                self._snapshots.delete(offset)  # of a log that may have been longer
        if check_epochs.contradicted is not None:
            # Their file is older than the log: it was replaced, and a crash brought it back.
            self._epochs.truncate_from_end(check_epochs.contradicted)
            epochs = EpochsFound([], latest=self._epochs.latest_epoch)
            scan_segment(
                log, base, options.limits, found.valid_bytes, check=Check.NONE, seen=epochs.seen
            )
        for epoch, offset in epochs.found:
            self._epochs.assign(epoch, offset)
        files = self._write_indexes(segment, log, found, aborted)
        if found.next_offset > base:
            producers.map_end_offset = found.next_offset
            self._snapshots.write(producers, found.next_offset)
            # What was checked is what is on the disk: nothing may be shown that a second crash could
            # still take away.
        for file in files:
            file.sync()
        recovered = SealedSegment(
            self._file_system, self._folder, base, options.limits, found.valid_bytes, log=log
        )
        recovered.take_end(found.valid_bytes, found.index, aborted)
        return recovered, found

    def _check_overlap(
        self, segment: SealedSegment, found: SegmentScan, behind: list[SealedSegment]
    ) -> None:
        """No CRC covers the offset of a batch. The last one of a segment ends before the next begins."""
        follower = behind[0].base_offset if behind else found.next_offset
        if found.next_offset > follower and self._options.on_damage != OnDamage.CUT:
            raise DamagedLogError(
                "segment_overlap",
                f"the segment reaches offset {found.next_offset - 1}, and the next one starts at "
                f"{follower}",
                path=segment.path(FileKind.LOG),
                advice="restore the segment from a copy, or open with on_damage='cut' to take it as "
                "it is",
            )

    def _cut(
        self,
        segment: SealedSegment,
        log: WritableFile,
        found: SegmentScan,
        size: int,
        behind: list[SealedSegment],
    ) -> None:
        """Cut a segment behind its last sound batch, if that may be done."""
        pause, options = found.pause, self._options
        path = segment.path(FileKind.LOG)
        verdict = judge_tail(log, pause.position, size, segment.base_offset)
        refusal = None
        if found.next_offset < options.recovery_point:
            refusal = (
                f"below the recovery point {options.recovery_point}: it was stored safely once"
            )
        elif any(each.size_bytes for each in behind):
            refusal = f"segments follow, from offset {behind[0].base_offset} on"
        elif not verdict.may_cut:
            refusal = verdict.detail
        if refusal is not None and options.on_damage != OnDamage.CUT:
            log.close()
            error = pause.error()
            raise DamagedLogError(
                error.reason,
                f"{error.detail}, where offset {found.next_offset} was to be; {refusal}",
                position=pause.position,
                path=path,
                advice="restore the segment from a copy, or open with on_damage='cut' to lose all "
                f"from offset {found.next_offset} on",
            )
        self._drop(behind)
        kept_as = None
        if verdict.sound_position is not None:
            kept_as = self._keep_aside(path, log, pause.position, size)
        log.truncate(pause.position)
        self._report.cuts.append(
            Cut(
                path,
                pause.position,
                size - pause.position,
                found.next_offset,
                f"{pause.error().detail}: {verdict.detail}",
                kept_as,
            )
        )

    def _keep_aside(self, path: str, log: WritableFile, position: int, size: int) -> str:
        """Copy what is cut into a file of its own: there are sound batches in it."""
        kept_as = f"{path}.{position}.cut"
        self._file_system.unlink(kept_as)
        file = self._file_system.open_writable(kept_as, create=True)
        try:
            for at in range(position, size, _COPY_BYTES):
                part = bytearray(min(_COPY_BYTES, size - at))
                read = log.read_into(at, memoryview(part))
                file.write_at(at - position, part[:read])
            file.sync()
        finally:
            file.close()
        self._file_system.sync_dir(self._folder)
        return kept_as

    def _write_indexes(
        self,
        segment: Segment,
        log: WritableFile,
        found: SegmentScan,
        aborted: Iterable[AbortedTxn],
    ) -> list[WritableFile]:
        """The indexes as recovery made them, each in the place of the old one. The data is on the disk
        before anything that points into it."""
        try:
            log.sync()
        except StorageError:
            note_failed_sync(self._file_system, segment.path(FileKind.TIME_INDEX))
            raise
        found.index.close_times()
        written = [
            overwrite(self._file_system, segment.path(FileKind.OFFSET_INDEX), found.index.offsets),
            overwrite(self._file_system, segment.path(FileKind.TIME_INDEX), found.index.times),
        ]
        entries = b"".join(map(encode_entry, aborted))
        path = segment.path(FileKind.TXN_INDEX)
        if entries or self._file_system.stat(path) is not None:
            written.append(overwrite(self._file_system, path, entries))
        return written

    def _drop(self, segments: list[SealedSegment]) -> None:
        """Set whole segments aside: they lie behind a cut, or below the log's start."""
        for segment in reversed(segments):  # the newest first: what is left has no hole
            self._report.dropped_segments.append(segment.base_offset)
            self._set_aside += rename_deleted(self._file_system, self._folder, segment.base_offset)
            path = self._snapshots.rename_deleted(segment.base_offset)
            if path is not None:
                self._set_aside.append(path)
            segment.close()
        if segments:
            self._file_system.sync_dir(self._folder)

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

    def _rebuild(
        self, producers: ProducerStates, segments: list[Segment], end: int, start: int = 0
    ) -> None:
        """The state before ``end``: from the newest snapshot that can be believed, and the log."""
        options = self._options
        rebuild_producers(
            producers, self._snapshots, segments, start, end,
            now_ms=options.clock.now_ms(), ttl_ms=options.producer_ttl_ms,
        )  # fmt: skip

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
                self._rebuild(producers, segments, base, log_start)
                self._snapshots.write(producers, base)
        self._rebuild(producers, segments, next_offset, log_start)
        if next_offset > 0 and next_offset not in self._snapshots.offsets:
            self._snapshots.write(producers, next_offset)
        producers.snapshot_offset = max(self._snapshots.offsets, default=0)


def _txns_are_sane(segment: SealedSegment) -> bool:
    try:
        _ = segment.aborted
    except CorruptionError:
        return False
    return True
