"""Recover one segment: walk all of it, truncate what a crash left unfinished, rebuild what points into it.

Everything here may be interrupted at any point and run again.
"""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.errors import DamagedLogError, StorageError
from stratalog.records.layout import Check
from stratalog.storage.epochs.epoch_file import EpochFile
from stratalog.storage.epochs.epoch_scan import EpochCheck, EpochsFound
from stratalog.storage.files.failed_sync import note_failed_sync, rewrite
from stratalog.storage.files.file_copy import copy_range
from stratalog.storage.files.filesystem import WritableFile
from stratalog.storage.names import FileKind
from stratalog.storage.producers.rebuild import ProducerReplay, rebuild_producers
from stratalog.storage.producers.snapshot_files import SnapshotFiles
from stratalog.storage.producers.states import ProducerStates
from stratalog.storage.recovery.report import Cut, LoadOptions, LoadReport
from stratalog.storage.replace.split import split_segment
from stratalog.storage.replace.swap import rename_deleted
from stratalog.storage.segment.abandoned import is_blank
from stratalog.storage.segment.activate import overwrite
from stratalog.storage.segment.clean_end import (
    RESTORE_ADVICE,
    STALE_POINT_ADVICE,
    find_excess,
    last_batch_at,
)
from stratalog.storage.segment.log_file import LogFile, Window
from stratalog.storage.segment.scan import SegmentScan, scan_segment
from stratalog.storage.segment.sealed import SealedSegment
from stratalog.storage.segment.segment import Segment
from stratalog.storage.segment.tail_verdict import OnDamage, judge_tail
from stratalog.storage.segment.txn_index import AbortedTxn, encode_entry

__all__ = ["SegmentRecovery", "SplitError"]

_CHECK = Check.CRC | Check.ORDER
_CUT_LAST_BATCH = (
    "open with on_damage='cut' to truncate its last batch, which is kept in a *.cut file"
)


class SplitError(Exception):
    """A segment was split: there are segments now that nobody has looked at."""


class SegmentRecovery:
    """What the recovery of a folder's segments has in common."""

    def __init__(
        self,
        folder: str,
        options: LoadOptions,
        report: LoadReport,
        snapshots: SnapshotFiles,
        epochs: EpochFile,
        *,
        has_failed_sync: bool,
    ) -> None:
        self._folder = folder
        self._options = options
        self._file_system = options.file_system
        self._report = report
        self._snapshots = snapshots
        self._epochs = epochs
        self._has_failed_sync = has_failed_sync
        #: Files that were set aside and are to be removed later.
        self.set_aside: list[str] = []

    def recover(
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
        self.rebuild(producers, list(before), base)
        aborted: list[AbortedTxn] = []
        replay = ProducerReplay(producers, start=base, aborted=aborted.append)
        epochs = EpochsFound([], latest=self._epochs.latest_epoch)
        check_epochs = EpochCheck(self._epochs.epoch_for_offset)

        def seen(rows: memoryview, count: int, window: Window) -> None:
            epochs.seen(rows, count, window)
            check_epochs.seen(rows, count)
            replay.seen(rows, count, window)

        log = self._file_system.open_writable(segment.path(FileKind.LOG))
        size = log.size()
        found = scan_segment(
            log, base, options.limits, size, check=_CHECK, expected_offset=base, seen=seen,
            follower=behind[0].base_offset if behind else options.clean_end,
        )  # fmt: skip
        self._report.scanned_bytes += found.valid_bytes
        excess = self._excess(segment, log, found, behind)
        if excess is not None:
            if options.on_damage != OnDamage.CUT:
                log.close()
                raise excess
            self._cut_last_batch(segment, log, found, size, excess)
            return self.recover(segment, before, behind)
        self._report.recovered_segments.append(base)
        if not found.is_whole:
            self._cut(segment, log, found, size, behind)
        if self._has_failed_sync:
            rewrite(log, found.valid_bytes)
        if found.overflows:
            self._split(segment, log, found.valid_bytes)
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

    def _excess(
        self,
        segment: SealedSegment,
        log: WritableFile,
        found: SegmentScan,
        behind: list[SealedSegment],
    ) -> DamagedLogError | None:
        """Find out whether the last batch of a segment reaches into the next one, or beyond the end that a
        clean shutdown left, because its offset, which no CRC covers, is wrong."""
        path, position = segment.path(FileKind.LOG), found.last_position
        if not behind:
            if self._options.clean_end is None:
                return None
            log_file = LogFile(path, log, found.valid_bytes, segment.base_offset, is_v07=False)
            last = last_batch_at(log_file, position, found.next_offset, found.last_expected)
            error = find_excess(path, last, self._options.clean_end)
            if error is None:
                return None
            reason, detail = error.reason, error.detail
            # Truncating is wrong advice for a log whose recovery point is not its own: that comes last.
            advice = f"{RESTORE_ADVICE}, or {_CUT_LAST_BATCH}; {STALE_POINT_ADVICE}"
        elif found.next_offset > behind[0].base_offset:
            reason, detail = "segment_overlap", _overlap(found, behind[0].base_offset)
            advice = f"restore the segment from a copy, or {_CUT_LAST_BATCH}"
        else:
            return None
        return DamagedLogError(reason, detail, position=position, path=path, advice=advice)

    def _cut_last_batch(
        self,
        segment: SealedSegment,
        log: WritableFile,
        found: SegmentScan,
        size: int,
        excess: DamagedLogError,
    ) -> None:
        path, position = segment.path(FileKind.LOG), found.last_position
        kept_as = self._keep_tail(path, log, position, size)
        log.truncate(position)
        log.close()
        self._report.cuts.append(
            Cut(
                path,
                position,
                size - position,
                found.last_expected,
                excess.reason,
                excess.detail,
                kept_as,
            )
        )

    def _cut(
        self,
        segment: SealedSegment,
        log: WritableFile,
        found: SegmentScan,
        size: int,
        behind: list[SealedSegment],
    ) -> None:
        """Truncate a segment after its last intact batch, if that may be done."""
        pause, options = found.pause, self._options
        path = segment.path(FileKind.LOG)
        verdict = judge_tail(log, pause, size, segment.base_offset)
        refusal = None
        if found.next_offset < options.recovery_point:
            refusal = f"below the recovery point {options.recovery_point}: it was fsynced before"
        elif not all(map(is_blank, behind)):
            refusal = f"segments follow, from offset {behind[0].base_offset} on"
        elif not verdict.may_cut:
            refusal = verdict.detail
        if refusal is not None and options.on_damage != OnDamage.CUT:
            log.close()
            error = pause.error()
            raise DamagedLogError(
                error.reason,
                f"{error.detail}, where offset {found.next_offset} was expected; {refusal}",
                position=pause.position,
                path=path,
                advice="restore the segment from a copy, or open with on_damage='cut' to truncate the log "
                f"at offset {found.next_offset}; what is truncated is kept in *.cut files",
            )
        error = pause.error()
        self._set_apart(behind, error.reason)
        kept_as = None
        if verdict.may_lose or refusal is not None:
            kept_as = self._keep_tail(path, log, pause.position, size)
        log.truncate(pause.position)
        self._report.cuts.append(
            Cut(
                path,
                pause.position,
                size - pause.position,
                found.next_offset,
                error.reason,
                f"{error.detail}: {refusal or verdict.detail}",
                kept_as,
            )
        )

    def _set_apart(self, segments: list[SealedSegment], reason: str) -> None:
        """Take the segments after a cut out of the log, and keep their data under other names."""
        for segment in reversed(segments):  # the newest first: what is left has no hole
            if is_blank(segment):
                self.drop([segment])
                continue
            path = segment.path(FileKind.LOG)
            kept_as = self._free_name(path, 0)
            segment.close()
            self._file_system.rename(path, kept_as)
            self._report.cuts.append(
                Cut(
                    path,
                    0,
                    segment.size_bytes,
                    segment.base_offset,
                    reason,
                    "the log was truncated before this segment",
                    kept_as,
                )
            )
            self.drop([segment])  # what is left of it can be rebuilt from the data

    def _keep_tail(self, path: str, log: WritableFile, position: int, size: int) -> str:
        """Copy what is truncated into a file of its own: intact batches may be in it."""
        kept_as = self._free_name(path, position)
        file = self._file_system.open_writable(kept_as, create=True)
        try:
            copy_range(log, position, size, file)
            file.sync()
        finally:
            file.close()
        self._file_system.sync_dir(self._folder)
        return kept_as

    def _free_name(self, path: str, position: int) -> str:
        """Choose a name for what is truncated at ``position`` that no earlier cut has taken."""
        kept_as = f"{path}.{position}.cut"
        number = 0
        while self._file_system.stat(kept_as) is not None:
            number += 1
            kept_as = f"{path}.{position}.{number}.cut"
        return kept_as

    def _split(self, segment: SealedSegment, log: WritableFile, size_bytes: int) -> None:
        """Make several segments of one that is too wide; then everything is looked at again."""
        base = segment.base_offset
        made = split_segment(self._file_system, self._folder, base, log, size_bytes)
        self._report.split_segments.append((base, made))
        log.close()
        raise SplitError

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

    def drop(self, segments: list[SealedSegment]) -> None:
        """Set whole segments aside to be deleted: nothing in them is still part of the log."""
        for segment in reversed(segments):  # the newest first: what is left has no hole
            self._report.dropped_segments.append(segment.base_offset)
            self.set_aside += rename_deleted(self._file_system, self._folder, segment.base_offset)
            path = self._snapshots.rename_deleted(segment.base_offset)
            if path is not None:
                self.set_aside.append(path)
            segment.close()
        if segments:
            self._file_system.sync_dir(self._folder)

    def rebuild(
        self, producers: ProducerStates, segments: list[Segment], end: int, start: int = 0
    ) -> None:
        """The state before ``end``: from the newest snapshot that can be believed, and the log."""
        options = self._options
        rebuild_producers(
            producers, self._snapshots, segments, start, end,
            now_ms=options.clock.now_ms(), ttl_ms=options.producer_ttl_ms,
        )  # fmt: skip


def _overlap(found: SegmentScan, follower: int) -> str:
    return (
        f"the segment reaches offset {found.next_offset - 1}, and the next one starts at {follower}"
    )
