"""A partition as it can be read without changing a byte, also while its owner writes to it.

Nothing is trusted that a writer may still be changing: the last segment is read up to its last whole batch,
and its indexes are made anew in memory. What the writer has not finished is simply not there yet.
"""

from __future__ import annotations

import os
from typing import Final

from stratalog.errors import StorageError
from stratalog.records.layout import Check
from stratalog.storage.filesystem import FileSystem
from stratalog.storage.folder import FolderNames
from stratalog.storage.log_config import LogConfig
from stratalog.storage.log_view import LogView, SegmentList
from stratalog.storage.names import FileKind, segment_file_name
from stratalog.storage.producers import ProducerStates
from stratalog.storage.replay import Replay, rebuild_producers
from stratalog.storage.segment import SealedSegment
from stratalog.storage.segment_scan import scan_segment
from stratalog.storage.snapshot_files import SnapshotFiles
from stratalog.storage.sparse_index import IndexLimits
from stratalog.storage.txn_index import AbortedTxn

__all__ = ["open_view"]

_NEVER_MS: Final = 2**62


def open_view(
    folder: str,
    file_system: FileSystem,
    *,
    log_start: int = 0,
    config: LogConfig | None = None,
    now_ms: int,
) -> LogView:
    """The partition in ``folder`` as it is now. The high watermark is the end: who replicates it
    elsewhere is not known here. A damaged middle shows when it is read."""
    config = config or LogConfig()
    limits = IndexLimits(config.index_interval_bytes, config.segment_index_bytes)
    for attempt in (1, 2, 3):
        try:
            return _open(folder, file_system, limits, log_start, now_ms)
        except StorageError:
            if (
                attempt == 3
            ):  # retention may take a segment away between the listing and the opening
                raise
    raise AssertionError


def _open(
    folder: str, file_system: FileSystem, limits: IndexLimits, log_start: int, now_ms: int
) -> LogView:
    entries = file_system.list_dir(folder)
    names = FolderNames.of(entry.name for entry in entries if entry.is_file)
    segments = []
    for base in names.bases():
        path = os.path.join(folder, segment_file_name(base, FileKind.LOG))
        found = file_system.stat(path)
        if found is None:
            raise StorageError("gone while the folder was read", path=path)
        segments.append(SealedSegment(file_system, folder, base, limits, found.size))
    if not segments:
        empty = SealedSegment(file_system, folder, log_start, limits, 0)
        return LogView(SegmentList([empty]), log_start, log_start, 0, log_start, log_start)
    last = segments[-1]
    # The last segment is walked from its start: of what its writer keeps in memory, its indexes and
    # its aborted transactions, the files may know nothing yet.
    producers = ProducerStates()
    snapshots = SnapshotFiles(file_system, folder, names.files)
    first = min(max(log_start, segments[0].base_offset), last.base_offset)
    rebuild_producers(
        producers, snapshots, segments, first, last.base_offset,
        now_ms=now_ms, ttl_ms=_NEVER_MS, keep=True,
    )  # fmt: skip
    aborted: list[AbortedTxn] = []
    replay = Replay(producers, start=last.base_offset, aborted=aborted.append)
    found_end = scan_segment(
        last.log, last.base_offset, limits, last.size_bytes,
        check=Check.ORDER, expected_offset=last.base_offset, seen=replay.seen,
    )  # fmt: skip
    last.take_end(found_end.valid_bytes, found_end.index, aborted)
    log_end = found_end.next_offset
    start = min(max(log_start, segments[0].base_offset), log_end)
    producers.on_high_watermark(log_end)
    unstable = producers.first_unstable_offset(log_end)
    stable = log_end if unstable is None else max(min(unstable, log_end), start)
    return LogView(SegmentList(segments), start, log_end, last.size_bytes, log_end, stable)
