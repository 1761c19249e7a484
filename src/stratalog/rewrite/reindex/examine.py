"""Walk a log as recovery does, and find which of the files that point into it are missing or wrong.

Every batch is checked to its CRC: nothing is rebuilt from damaged data. An index that is just as we would
write it is right; one that differs is compared with the batches entry by entry. A snapshot that can be
decoded is kept, because it may know of producers whose batches retention has deleted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from stratalog.errors import CorruptionError
from stratalog.records.layout import Check
from stratalog.rewrite.reindex.entries import find_false_offset, find_false_time
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.names import (
    FileKind,
    PartitionFile,
    Stage,
    parse_partition_file,
    segment_file_name,
)
from stratalog.storage.producers.rebuild import ProducerReplay, producers_for_reader
from stratalog.storage.producers.snapshot import decode_snapshot, encode_snapshot
from stratalog.storage.producers.snapshot_files import SnapshotFiles
from stratalog.storage.producers.states import ProducerStates
from stratalog.storage.segment.scan import SegmentScan, scan_segment
from stratalog.storage.segment.segment import Segment
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.storage.segment.txn_index import AbortedTxn, decode_entries, encode_entry
from stratalog.storage.views.log_view import LogView
from stratalog.types import Progress

__all__ = ["IndexProblem", "SegmentIndexes", "examine_log"]

_CHECK: Final = Check.CRC | Check.ORDER
_INDEX_BYTES_MAX: Final = 1 << 31
_SNAPSHOT_BYTES_MAX: Final = 100 << 20


@dataclass(frozen=True, slots=True)
class IndexProblem:
    """A file that is missing or wrong, and what is wrong with it."""

    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class SegmentIndexes:
    """What was found of one segment: the problems, and the contents that right files have. ``snapshot`` is
    the one that was taken before the segment; None if it need not be rebuilt."""

    segment: Segment
    problems: tuple[IndexProblem, ...] = ()
    contents: dict[FileKind, bytes] = field(default_factory=dict)
    snapshot: bytes | None = None


def examine_log(
    file_system: FileSystem,
    folder: str,
    view: LogView,
    limits: IndexLimits,
    progress: Progress,
    *,
    rebuilds_all: bool = False,
) -> Iterator[SegmentIndexes]:
    """Examine the sealed segments of a log, one after the other. With ``rebuilds_all``, contents are given
    also for files that are right. CorruptionError if a segment is damaged."""
    files = _files(file_system, folder)
    segments = list(view.segments.segments)
    states = ProducerStates()
    first = segments[0].base_offset
    snapshots = SnapshotFiles(file_system, folder, files)
    producers_for_reader(states, snapshots, segments, view.log_start, first)
    held = {file.offset for file in files if file.kind is FileKind.SNAPSHOT}
    for number, segment in enumerate(segments[:-1]):
        snapshot, problem = None, None
        if segment.base_offset in held and segment.base_offset > first:
            problem = _snapshot_problem(file_system, folder, segment.base_offset)
            if problem is not None:
                snapshot = encode_snapshot(states.snapshot_entries())
        scan, aborted = _walk(segment, segments[number + 1].base_offset, limits, states)
        progress(segment.size_bytes)
        found = _compare(file_system, segment, scan, aborted, rebuilds_all=rebuilds_all)
        problems = (*found.problems, *([] if problem is None else [problem]))
        yield SegmentIndexes(segment, problems, found.contents, snapshot)


def _files(file_system: FileSystem, folder: str) -> list[PartitionFile]:
    names = [entry.name for entry in file_system.list_dir(folder) if entry.is_file]
    parsed = [file for file in map(parse_partition_file, names) if file is not None]
    return [file for file in parsed if file.stage is Stage.LIVE]


def _walk(
    segment: Segment, next_base: int, limits: IndexLimits, states: ProducerStates
) -> tuple[SegmentScan, list[AbortedTxn]]:
    aborted: list[AbortedTxn] = []
    replay = ProducerReplay(states, start=segment.base_offset, aborted=aborted.append)
    scan = scan_segment(
        segment.log,
        segment.base_offset,
        limits,
        segment.size_bytes,
        check=_CHECK,
        expected_offset=segment.base_offset,
        seen=replay.seen,
        follower=next_base,
    )
    if not scan.is_whole:
        raise scan.pause.error().located(path=segment.path(FileKind.LOG))
    scan.index.close_times()
    states.map_end_offset = next_base
    return scan, aborted


def _compare(
    file_system: FileSystem,
    segment: Segment,
    scan: SegmentScan,
    aborted: Sequence[AbortedTxn],
    *,
    rebuilds_all: bool,
) -> SegmentIndexes:
    right = {
        FileKind.OFFSET_INDEX: bytes(scan.index.offsets),
        FileKind.TIME_INDEX: bytes(scan.index.times),
        FileKind.TXN_INDEX: b"".join(map(encode_entry, aborted)),
    }
    problems, contents = [], {}
    for kind, content in right.items():
        path = segment.path(kind)
        data = read_small_file(file_system, path, size_max=_INDEX_BYTES_MAX)
        detail = _problem(segment, kind, data, content)
        if detail is not None:
            problems.append(IndexProblem(os.path.basename(path), detail))
        if (detail is not None or rebuilds_all) and (data is not None or content or detail):
            contents[kind] = content
    return SegmentIndexes(segment, tuple(problems), contents)


def _problem(segment: Segment, kind: FileKind, data: bytes | None, right: bytes) -> str | None:
    """Return what is wrong with an index file; None if nothing is."""
    if data is None:
        return "missing" if right or kind is not FileKind.TXN_INDEX else None
    if data == right:
        return None
    if kind is FileKind.OFFSET_INDEX:
        return find_false_offset(segment, data)
    if kind is FileKind.TIME_INDEX:
        return find_false_time(segment, data)
    return _txn_problem(segment, data, right)


def _txn_problem(segment: Segment, data: bytes, right: bytes) -> str | None:
    """Return what is wrong with a transaction index. More entries than the log bears out do no harm:
    compaction leaves those of transactions that it emptied."""
    try:
        known = {each[:3] for each in decode_entries(data, segment.base_offset)}
    except CorruptionError as error:
        return error.detail
    due = {each[:3] for each in decode_entries(right, segment.base_offset)}
    lacking = sorted(each[2] for each in due - known)
    if not lacking:
        return None
    return f"the transaction that was aborted at offset {lacking[0]} has no entry"


def _snapshot_problem(file_system: FileSystem, folder: str, offset: int) -> IndexProblem | None:
    name = segment_file_name(offset, FileKind.SNAPSHOT)
    path = os.path.join(folder, name)
    try:
        data = read_small_file(file_system, path, size_max=_SNAPSHOT_BYTES_MAX)
        if data is not None:
            decode_snapshot(data)
    except CorruptionError as error:
        return IndexProblem(name, error.detail)
    return None
