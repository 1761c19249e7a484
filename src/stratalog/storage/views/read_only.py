"""A partition as it can be read without changing a byte, also while its owner writes to it.

Nothing is trusted that a writer may still be changing: the last segment is read up to its last whole batch,
and its indexes are made anew in memory. What the writer has not finished is simply not there yet.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import NamedTuple

from stratalog.errors import CorruptionError, StorageError, UsageError
from stratalog.records.layout import Check, Ending, Reason
from stratalog.records.reasons import corruption
from stratalog.storage.files.filesystem import FileStat, FileSystem
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import FileKind, segment_file_name
from stratalog.storage.producers.open_transactions import last_stable_offset
from stratalog.storage.producers.rebuild import (
    ProducerReplay,
    aborted_by_segment,
    producers_for_reader,
)
from stratalog.storage.producers.snapshot_files import SnapshotFiles
from stratalog.storage.producers.states import ProducerStates
from stratalog.storage.replace.folder import FolderNames
from stratalog.storage.replace.settle import (
    LISTINGS_MAX,
    check_segment_files,
    read_settled,
    swapped_kinds,
)
from stratalog.storage.segment.abandoned import find_leftovers
from stratalog.storage.segment.batch_at import is_sound_at
from stratalog.storage.segment.clean_end import CleanEnd, find_excess, is_still_clean, last_batch_at
from stratalog.storage.segment.log_file import LogFile
from stratalog.storage.segment.scan import SegmentScan, scan_segment
from stratalog.storage.segment.sealed import SealedSegment
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.storage.segment.torn_tail import classify_tail
from stratalog.storage.segment.txn_index import AbortedTxn
from stratalog.storage.views.log_view import LogView, SegmentList

__all__ = ["FolderView", "check_format", "folder_trace", "open_view"]


class FolderView(NamedTuple):
    """A log without its writer. Where the last segment goes on behind ``damage``, and not behind what
    its writer is still at, the log ends there for us and nobody knows what follows."""

    view: LogView
    damage: CorruptionError | None = None


def open_view(
    folder: str,
    file_system: FileSystem,
    *,
    log_start: int = 0,
    clean_end: CleanEnd | None = None,
    config: LogConfig | None = None,
) -> FolderView:
    """The partition in ``folder`` as it is now. The high watermark is the end: who replicates it
    elsewhere is not known here. A damaged middle shows when it is read. ``clean_end`` is where a clean
    shutdown left the log: a last batch beyond it is damage, unless a writer has begun meanwhile."""
    config = config or LogConfig()
    limits = IndexLimits(config.index_interval_bytes, config.segment_index_bytes)
    for _ in range(LISTINGS_MAX - 1):
        try:
            return _open(folder, file_system, limits, log_start, clean_end)
        except StorageError as error:
            # Retention may take a segment away between the listing and the opening.
            if error.errno != errno.ENOENT:
                raise
    return _open(folder, file_system, limits, log_start, clean_end)


def check_format(folder: str, file_system: FileSystem) -> None:
    """UsageError where the folder's segments are of a format that is only read, and not here."""
    entries = file_system.list_dir(folder)
    _check_format(folder, FolderNames.of(entry.name for entry in entries if entry.is_file))


def _check_format(folder: str, names: FolderNames) -> None:
    if names.bases(FileKind.V07) and not names.bases():
        raise UsageError(
            f"{folder} is of Kafka 0.7, which is only read, by stratalog.scan; 'upgrade --to' converts it"
        )


def folder_trace(folder: str, file_system: FileSystem) -> tuple[tuple[str, int], ...]:
    """The data files and the size of the last: as long as it is the same, nothing was appended."""
    names = FolderNames.of(entry.name for entry in file_system.list_dir(folder) if entry.is_file)
    bases = names.bases()
    listed = [(segment_file_name(base, FileKind.LOG), 0) for base in bases]
    if listed:
        name = listed[-1][0]
        found = file_system.stat(os.path.join(folder, name))
        listed[-1] = (name, -1 if found is None else found.size)
    return tuple(listed)


def _aborted_finder(
    segments: Callable[[], list[SealedSegment]],
) -> Callable[[int], tuple[AbortedTxn, ...]]:
    """Looks through the batches of all when it is first asked, in segments of its own: those that ask hold
    it, and in a ring of the two their files would stay open."""
    found: dict[int, tuple[AbortedTxn, ...]] = {}

    def find(base_offset: int) -> tuple[AbortedTxn, ...]:
        if not found:
            made = segments()
            try:
                found.update(aborted_by_segment(made))
            finally:
                for each in made:
                    each.close()
        return found[base_offset]

    return find


def _open(
    folder: str,
    file_system: FileSystem,
    limits: IndexLimits,
    log_start: int,
    clean_end: CleanEnd | None,
) -> FolderView:
    settled = read_settled(file_system, folder)
    check_segment_files(folder, settled.entries)
    names = settled.names

    def sealed(base: int, listed: FileStat) -> SealedSegment:
        swapped = swapped_kinds(base, settled.swapped)
        return SealedSegment(
            file_system, folder, base, limits, listed.size, listed=listed, swapped=swapped
        )

    listing: list[tuple[int, FileStat]] = []
    for base in names.bases():
        name = segment_file_name(base, FileKind.LOG)
        path = os.path.join(folder, settled.swapped.get(name, name))
        found = file_system.stat(path)
        if found is None:
            raise StorageError("gone while the folder was read", path=path, errno=errno.ENOENT)
        listing.append((base, found))
    segments = [sealed(*each) for each in listing]
    if not segments:
        _check_format(folder, names)
        empty = SealedSegment(file_system, folder, log_start, limits, 0)
        view = LogView(SegmentList([empty]), log_start, log_start, 0, log_start, log_start)
        return FolderView(view)
    _ = segments[-1].log  # open from here on
    _check_still_last(file_system, folder, segments[-1])
    for segment in find_leftovers(segments):
        segments.remove(segment)
    last = segments[-1]
    kept = {segment.base_offset for segment in segments[:-1]}
    find_aborted = _aborted_finder(lambda: [sealed(*each) for each in listing if each[0] in kept])
    for segment in segments[:-1]:
        segment.find_aborted = find_aborted
    # The last segment is walked from its start: of what its writer keeps in memory, its indexes and
    # its aborted transactions, the files may know nothing yet.
    producers = ProducerStates()
    snapshots = SnapshotFiles(file_system, folder, names.files.values())
    producers_for_reader(producers, snapshots, segments, log_start, last.base_offset)
    aborted: list[AbortedTxn] = []
    replay = ProducerReplay(producers, start=last.base_offset, aborted=aborted.append)
    found_end = scan_segment(
        last.log, last.base_offset, limits, last.size_bytes,
        check=Check.ORDER, expected_offset=last.base_offset, seen=replay.seen,
    )  # fmt: skip
    file_size = last.size_bytes
    valid_bytes, log_end = found_end.valid_bytes, found_end.next_offset
    excess = _excess(last, found_end, clean_end, file_system)
    if excess is not None or found_end.pause.reason == Reason.OFFSET_ORDER:
        # No CRC covers an offset: which of two batches is out of order cannot be told. Neither is shown.
        valid_bytes, log_end = found_end.last_position, found_end.last_expected
        found_end.index.truncate(log_end)
    last.take_end(valid_bytes, found_end.index, aborted)
    start = min(max(log_start, segments[0].base_offset), log_end)
    producers.on_high_watermark(log_end)
    unstable = producers.first_unstable_offset(log_end)
    stable = last_stable_offset(unstable, start, log_end)
    view = LogView(SegmentList(segments), start, log_end, last.size_bytes, log_end, stable)
    return FolderView(view, excess or _damage(last, found_end, file_size))


def _check_still_last(file_system: FileSystem, folder: str, last: SealedSegment) -> None:
    """Raise StorageError (ENOENT) if the log was rolled since the folder was listed. Its last segment may
    then have been cleaned, because of newer records in segments that the listing does not have."""
    if read_settled(file_system, folder).names.bases()[-1:] != [last.base_offset]:
        raise StorageError(
            "rolled while the folder was read", path=last.path(FileKind.LOG), errno=errno.ENOENT
        )


def _excess(
    segment: SealedSegment,
    found: SegmentScan,
    clean_end: CleanEnd | None,
    file_system: FileSystem,
) -> CorruptionError | None:
    """Compare the end of the last segment with where a clean shutdown left the log."""
    if clean_end is None or found.next_offset <= clean_end.offset:
        return None
    if found.pause.reason == Reason.OFFSET_ORDER:
        return None  # the last batch is not the end
    path = segment.path(FileKind.LOG)
    log_file = LogFile(path, segment.log, found.valid_bytes, segment.base_offset, is_v07=False)
    last = last_batch_at(log_file, found.last_position, found.next_offset, found.last_expected)
    error = find_excess(path, last, clean_end.offset)
    return error if error is not None and is_still_clean(file_system, clean_end) else None


def _damage(segment: SealedSegment, found: SegmentScan, file_size: int) -> CorruptionError | None:
    """What the last segment ends in, where that is not its end: bytes that no writer leaves, or a batch
    that seems cut off while sound ones follow it."""
    path = segment.path(FileKind.LOG)
    log_file = LogFile(path, segment.log, file_size, segment.base_offset, is_v07=False)
    pause = classify_tail(log_file, found.pause)
    if pause.ending == Ending.CORRUPT:
        return pause.error().located(path=path)
    # Headers alone were read, and no CRC covers a size: one that is wrong passes for the end.
    last = found.last_position
    if last >= found.valid_bytes or is_sound_at(log_file, last):
        return None
    return corruption(Reason.CRC_MISMATCH, last).located(path=path)
