"""Verifies everything that was named: files one by one, folders of partitions, and whole log directories."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from stratalog.errors import StorageError
from stratalog.inspect.check.data_file import CheckedFile, check_file
from stratalog.inspect.check.index_files import (
    NO_INDEXES,
    SegmentIndexes,
    load_index,
    load_indexes,
)
from stratalog.inspect.check.index_reports import SegmentContext, judge_indexes
from stratalog.inspect.check.metadata_snapshots import check_metadata_snapshot
from stratalog.inspect.check.report import (
    CheckedKind,
    FileReport,
    Finding,
    side_report,
    unreadable,
)
from stratalog.inspect.check.small_files import check_small_file, kind_of_name
from stratalog.inspect.file.span import is_last_segment
from stratalog.inspect.partition.partition_filter import EVERYTHING, PartitionFilter
from stratalog.inspect.partition.sources import PartitionSource, Sources, find_sources
from stratalog.inspect.verify.missing import find_missing_folders
from stratalog.inspect.verify.partition import (
    OnError,
    SegmentCheck,
    is_gone,
    verify_partition,
)
from stratalog.inspect.verify.roots import Roots, RootState, disagreements
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.names import (
    BOOTSTRAP_CHECKPOINT,
    FOREIGN_ROOT_DIRS,
    is_marked_partition_dir,
    parse_data_name,
    parse_partition_dir,
)
from stratalog.types import Progress

__all__ = ["LocalCheck", "metadata_sources", "verify_sources"]

_NO_ROOT = RootState("")
METADATA_FOLDER = "__cluster_metadata-0"


class LocalCheck:
    """Checks data files in this process, one after the other."""

    def __init__(
        self, file_system: FileSystem, progress: Progress | None = None, **settings: Any
    ) -> None:
        self._file_system = file_system
        self._progress = progress
        self._settings = settings
        self._done = 0

    def __call__(
        self, path: str, *, is_last: bool, expected_offset: int, indexes: SegmentIndexes
    ) -> CheckedFile:
        checked = check_file(
            path,
            is_last_segment=is_last,
            expected_offset=expected_offset,
            indexes=indexes,
            file_system=self._file_system,
            progress=None if self._progress is None else self._told(self._progress, self._done),
            **self._settings,
        )
        self._done += checked.report.size_bytes
        return checked

    @staticmethod
    def _told(progress: Progress, done: int) -> Progress:
        return lambda position: progress(done + position)


def metadata_sources(
    sources: Sources, wanted: PartitionFilter, file_system: FileSystem
) -> tuple[PartitionSource, ...]:
    """Find the metadata logs of KRaft in the log directories that were named. Other commands leave them out:
    their records are not a topic's. With a filter they are verified if the filter names them."""
    if wanted != EVERYTHING:
        return ()
    found: list[PartitionSource] = []
    for root in sources.roots:
        folder = os.path.join(root, METADATA_FOLDER)
        try:
            names = {entry.name for entry in file_system.list_dir(root) if entry.is_dir}
            if METADATA_FOLDER in names:
                found += find_sources(folder, file_system=file_system).partitions
        except StorageError:
            continue  # the root itself, or the folder: both are reported with what they hold
    return tuple(found)


def verify_sources(
    sources: Sources,
    check: SegmentCheck,
    *,
    wanted: PartitionFilter = EVERYTHING,
    refused: tuple[StorageError, ...] = (),
    metadata: tuple[PartitionSource, ...] = (),
    file_system: FileSystem | None = None,
    on_error: OnError,
) -> Iterator[FileReport]:
    """Verify files that were named, then partitions, then the files in the roots of log directories.

    ``refused`` are the folders that could not be listed, ``metadata`` the partitions of
    ``metadata_sources``. ``on_error`` is called with what cannot be read, which has a row too, and with
    files that are gone since their folder was listed, which have none.
    """
    verifier = _DirectoryVerifier(check, file_system or OsFileSystem(), on_error)
    # Before the logs: what a checkpoint says must be in them afterwards.
    states = [verifier.roots.of(root) for root in sources.roots]
    for source in (*sources.partitions, *metadata):
        if source.is_listed:
            yield from verifier.partition(source)
        else:
            yield from verifier.named(source)
    for error in refused:
        topic_partition = parse_partition_dir(os.path.basename(os.path.abspath(error.path)))
        yield unreadable(error.path, CheckedKind.PARTITION, topic_partition, error)
    yield from verifier.missing_folders(states, wanted)
    if wanted == EVERYTHING:
        yield from verifier.root_files(states)


class _DirectoryVerifier:
    def __init__(self, check: SegmentCheck, file_system: FileSystem, on_error: OnError) -> None:
        self._check = check
        self._file_system = file_system
        self._on_error = on_error
        self.roots = Roots(file_system)
        self._ids: dict[str, list[tuple[str, bytes]]] = {}

    # Partitions.

    def partition(self, source: PartitionSource) -> Iterator[FileReport]:
        whole = os.path.abspath(source.folder)
        name = os.path.basename(whole)
        # Folders that Kafka set aside, and the metadata log, are in no checkpoint of the root.
        is_own = source.topic_partition is not None and not is_marked_partition_dir(name)
        root = (
            self.roots.of(os.path.dirname(source.folder.rstrip(os.sep)) or os.path.dirname(whole))
            if is_own and name not in FOREIGN_ROOT_DIRS
            else _NO_ROOT
        )
        try:
            verified = verify_partition(
                source, root, self._check, self._file_system, self._on_error
            )
        except StorageError as error:
            self._on_error(error)
            yield unreadable(source.folder, CheckedKind.PARTITION, source.topic_partition, error)
            return
        for report in verified.reports:
            is_metadata = report.kind is CheckedKind.PARTITION_METADATA
            if is_metadata and is_own and verified.topic_id is not None:
                yield self._agreed(report, verified.topic_id)
            else:
                yield report

    def _agreed(self, report: FileReport, topic_id: bytes) -> FileReport:
        """Compare the topic id with that of the partitions of the same topic before."""
        known = self._ids.setdefault(report.topic or "", [])
        known.append((report.path, topic_id))
        usual, _ = Counter(each for _, each in known).most_common(1)[0]
        if topic_id == usual:
            return report
        other = next(path for path, each in known if each == usual)
        return report.with_findings(_other_id(report.path, other))

    # Files that were named.

    def named(self, source: PartitionSource) -> Iterator[FileReport]:
        paths = source.segments
        expected = -1
        before: FileReport | None = None
        for number, path in enumerate(paths):
            kind = kind_of_name(os.path.basename(path))
            if kind is not None:
                yield from self._side_file(path, kind, source)
                continue
            is_last = is_last_segment(paths, number)
            try:
                checked = self._check(
                    path, is_last=is_last, expected_offset=expected, indexes=NO_INDEXES
                )
            except StorageError as error:
                self._on_error(error)
                if not is_gone(error, source) and not _is_missing(error):
                    yield unreadable(path, CheckedKind.LOG, source.topic_partition, error)
            else:
                report = checked.report
                if before is not None:
                    yield before.with_findings(*_named_gap(before, report))
                before = report
                expected = max(expected, report.next_offset)
            if is_last:
                if before is not None:
                    yield before
                before, expected = None, -1
        if before is not None:
            yield before

    def _side_file(
        self, path: str, kind: CheckedKind, source: PartitionSource
    ) -> Iterator[FileReport]:
        """Check a file that was named by itself as what it is."""
        report: FileReport | None
        if kind is CheckedKind.METADATA_SNAPSHOT:
            report = check_metadata_snapshot(self._file_system, path, source.topic_partition)
        elif kind in (
            CheckedKind.OFFSET_INDEX,
            CheckedKind.TIME_INDEX,
            CheckedKind.TXN_INDEX,
        ):
            report = self._index(path, kind, source)
        else:
            checked = check_small_file(self._file_system, path, source.topic_partition)
            report = None if checked is None else checked.report
        if report is None:
            self._on_error(StorageError("no such file or directory", path=path))
            return
        self._tell(report)
        yield report

    def _index(self, path: str, kind: CheckedKind, source: PartitionSource) -> FileReport | None:
        """Compare an index with its data file where that is there, without checking the latter."""
        index = load_index(self._file_system, path, kind)
        if index is None:
            return None
        data_path = path.replace(f".{kind.value}", ".log")
        name = parse_data_name(os.path.basename(data_path))
        if name is not None and index.refused is None:
            try:
                if self._file_system.stat(data_path) is not None:
                    indexes = load_indexes(self._file_system, data_path, name.base_offset)
                    checked = check_file(data_path, indexes=indexes, file_system=self._file_system)
                    where = SegmentContext(source.topic_partition, is_last=True)
                    judged = judge_indexes(checked, indexes, name.base_offset, where)
                    return next((each for each in judged.reports if each.path == path), None)
            except StorageError as error:
                self._on_error(error)
        if index.refused is not None:
            return unreadable(path, kind, source.topic_partition, index.refused)
        found = []
        if index.damage is not None:
            found = [Finding.of_error(path, index.damage, "delete it: the next open rebuilds it")]
        return side_report(path, kind, source.topic_partition, index.size_bytes, tuple(found))

    # Roots.

    def missing_folders(
        self, states: list[RootState], wanted: PartitionFilter
    ) -> Iterator[FileReport]:
        for state in states:
            named = self.roots.without_folder(state)
            chosen = {
                topic_partition: files
                for topic_partition, files in named.items()
                if wanted.takes(topic_partition)
            }
            for topic_partition, finding in find_missing_folders(
                state.root, chosen, is_clean=state.is_clean
            ):
                yield side_report(
                    finding.path, CheckedKind.PARTITION, topic_partition, findings=(finding,)
                )

    def root_files(self, states: list[RootState]) -> Iterator[FileReport]:
        conflicts = disagreements(states)
        for state in states:
            for report in state.reports:
                self._tell(report)
                conflict = conflicts.get(report.path)
                yield report if conflict is None else report.with_findings(conflict)
            path = os.path.join(state.root, BOOTSTRAP_CHECKPOINT)
            bootstrap = check_metadata_snapshot(self._file_system, path, None)
            if bootstrap is not None:
                self._tell(bootstrap)
                yield bootstrap

    def _tell(self, report: FileReport) -> None:
        for finding in report.findings:
            if finding.severity == "unreadable":
                self._on_error(StorageError(finding.detail, path=finding.path))


def _is_missing(error: StorageError) -> bool:
    return error.errno == errno.ENOENT


def _named_gap(before: FileReport, after: FileReport) -> tuple[Finding, ...]:
    """Note offsets that are in none of the files that were named: their segment may not have been."""
    name = parse_data_name(os.path.basename(after.path))
    if name is None or before.status != "ok" or name.base_offset <= before.next_offset:
        return ()
    detail = (
        f"offsets {before.next_offset} to {name.base_offset - 1} are in none of the files that were named: "
        "name the folder to learn whether they are missing"
    )
    return (Finding.about(before.path, "note", "segment_gap", detail, offset=before.next_offset),)


def _other_id(path: str, other: str) -> Finding:
    return Finding.about(
        path, "damage", "topic_id", f"the topic id is not the one in {other}",
        "give both partitions the topic id that the cluster has: a broker takes a partition with another id "
        "for a stray one",
    )  # fmt: skip
