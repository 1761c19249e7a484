"""Verifies every file in the folder of one partition, and collects the evidence about missing records."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from stratalog.errors import CorruptionError, StorageError
from stratalog.inspect.check.batch_facts import SegmentFacts
from stratalog.inspect.check.data_file import CheckedFile
from stratalog.inspect.check.index_files import SegmentIndexes, load_index, load_indexes
from stratalog.inspect.check.index_reports import (
    JudgedIndexes,
    SegmentContext,
    judge_indexes,
    nonempty_aborts,
)
from stratalog.inspect.check.metadata_snapshots import check_metadata_snapshot
from stratalog.inspect.check.report import (
    CheckedKind,
    FileReport,
    Finding,
    side_report,
    unreadable,
)
from stratalog.inspect.check.small_files import QUORUM_STATE, check_small_file, kind_of_name
from stratalog.inspect.partition.sources import PartitionSource
from stratalog.inspect.verify.epochs import find_epoch_conflict
from stratalog.inspect.verify.missing import (
    PartitionEvidence,
    SegmentEnd,
    find_missing,
)
from stratalog.inspect.verify.roots import RootState
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    FileKind,
    Stage,
    parse_data_name,
    parse_partition_file,
    segment_file_name,
)

__all__ = ["OnError", "SegmentCheck", "VerifiedPartition", "is_gone", "verify_partition"]

OnError = Callable[[StorageError], None]

_INDEX_KINDS: Final = {
    FileKind.OFFSET_INDEX: CheckedKind.OFFSET_INDEX,
    FileKind.TIME_INDEX: CheckedKind.TIME_INDEX,
    FileKind.TXN_INDEX: CheckedKind.TXN_INDEX,
}


class SegmentCheck(Protocol):
    """Checks one data file; StorageError where it cannot be read."""

    def __call__(
        self, path: str, *, is_last: bool, expected_offset: int, indexes: SegmentIndexes
    ) -> CheckedFile: ...


@dataclass(frozen=True, slots=True)
class VerifiedPartition:
    """The reports on the files of a partition, and the topic id that its metadata names."""

    reports: tuple[FileReport, ...]
    topic_id: bytes | None = None


def is_gone(error: StorageError, source: PartitionSource) -> bool:
    """Whether a file was deleted after its folder was listed: next to a live broker that is no error."""
    return source.is_listed and error.errno == errno.ENOENT


def verify_partition(
    source: PartitionSource,
    root: RootState,
    check: SegmentCheck,
    file_system: FileSystem,
    on_error: OnError,
) -> VerifiedPartition:
    """Verify the data files of a partition, their indexes, and every other file that is known."""
    return _PartitionVerifier(source, root, check, file_system, on_error).run()


class _PartitionVerifier:
    def __init__(
        self,
        source: PartitionSource,
        root: RootState,
        check: SegmentCheck,
        file_system: FileSystem,
        on_error: OnError,
    ) -> None:
        self._source = source
        self._root = root
        self._check = check
        self._file_system = file_system
        self._on_error = on_error
        self._odd: list[str] = []
        self._names = self._list()
        self._reports: list[FileReport] = []
        self._segments: list[SegmentEnd] = []
        self._facts: list[SegmentFacts] = []
        self._checkpoints = (
            {} if source.topic_partition is None else root.offsets_of(source.topic_partition)
        )
        self._first_epoch_start: int | None = None
        self._last_epoch_start: int | None = None
        self._last_producer_offset = -1
        self._topic_id: bytes | None = None

    def _list(self) -> frozenset[str]:
        try:
            entries = self._file_system.list_dir(self._source.folder)
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return frozenset()
            raise
        self._odd = sorted(
            entry.name for entry in entries if not entry.is_file and _is_known(entry.name)
        )
        return frozenset(entry.name for entry in entries if entry.is_file)

    def run(self) -> VerifiedPartition:
        self._verify_segments()
        self._verify_snapshots()
        self._verify_orphans()
        self._verify_epochs()
        self._verify_metadata()
        self._verify_kraft_files()
        self._report_odd_files()
        return VerifiedPartition(tuple(self._with_missing()), self._topic_id)

    # Segments and their indexes.

    def _verify_segments(self) -> None:
        paths = self._source.segments
        bases = [parse_data_name(os.path.basename(path)) for path in paths]
        expected = -1
        for number, path in enumerate(paths):
            name = bases[number]
            following = bases[number + 1] if number + 1 < len(paths) else None
            base_offset = 0 if name is None else name.base_offset
            indexes = load_indexes(
                self._file_system, path, None if name is None or name.is_v07 else base_offset
            )
            try:
                checked = self._check(
                    path,
                    is_last=number + 1 == len(paths),
                    expected_offset=expected,
                    indexes=indexes,
                )
            except StorageError as error:
                self._on_error(error)
                if not is_gone(error, self._source):
                    row = unreadable(path, CheckedKind.LOG, self._source.topic_partition, error)
                    self._reports.append(row)
                    self._segments.append(SegmentEnd(path, base_offset, None))
                continue
            expected = max(expected, checked.report.next_offset)
            self._add_segment(
                checked,
                indexes,
                base_offset,
                None if following is None else following.base_offset,
            )

    def _add_segment(
        self,
        checked: CheckedFile,
        indexes: SegmentIndexes,
        base_offset: int,
        next_base: int | None,
    ) -> None:
        report, facts = checked
        goes_to = next_base
        if goes_to is None and self._root.is_clean:
            goes_to = max(self._checkpoints.values(), default=None)
        where = SegmentContext(
            self._source.topic_partition,
            is_last=next_base is None,
            has_gap=goes_to is not None and report.status == "ok" and goes_to > report.next_offset,
            is_clean=self._root.is_clean,
        )
        judged = judge_indexes(
            checked,
            indexes,
            base_offset,
            where,
            self._missing_aborts(checked, indexes, base_offset, where),
        )
        self._report_errors(judged)
        self._reports += [report.with_findings(*judged.of_log), *judged.reports]
        self._facts.append(facts)
        self._segments.append(
            SegmentEnd(
                report.path, base_offset, report, facts.has_horizon, facts.widest, judged.beyond
            )
        )

    def _report_errors(self, judged: JudgedIndexes) -> None:
        for report in judged.reports:
            if report.status == "unreadable":
                self._tell(report)

    def _missing_aborts(
        self, checked: CheckedFile, indexes: SegmentIndexes, base_offset: int, where: SegmentContext
    ) -> tuple[int, ...]:
        producers = checked.facts.aborted_producers()
        damaged = indexes.txns is not None and (indexes.txns.damage or indexes.txns.refused)
        if not producers or damaged or not where.is_settled or not checked.facts.is_complete:
            return ()
        unlisted = set(producers) - {each.last_offset for each in indexes.aborted}
        if not unlisted:
            return ()
        try:
            return nonempty_aborts(self._file_system, checked.report.path, base_offset, unlisted)
        except StorageError as error:
            self._on_error(error)
            return ()

    # The other files.

    def _verify_snapshots(self) -> None:
        for offset in self._offsets(FileKind.SNAPSHOT):
            producers = self._add_small(segment_file_name(offset, FileKind.SNAPSHOT))
            self._last_producer_offset = max(
                (each.batches[-1].last_offset for each in producers or () if each.batches),
                default=-1,
            )

    def _offsets(self, kind: FileKind, *stages: Stage) -> list[int]:
        files = (parse_partition_file(name) for name in self._names)
        wanted = stages or (Stage.LIVE,)
        return sorted(
            file.offset
            for file in files
            if file is not None and file.kind is kind and file.stage in wanted
        )

    def _verify_orphans(self) -> None:
        """Index files without a data file. A writer that deletes a segment renames the data file first, so
        that one is there under another name."""
        held = set(self._offsets(FileKind.LOG, *Stage))
        for kind, checked_kind in _INDEX_KINDS.items():
            for offset in self._offsets(kind):
                if offset in held:
                    continue
                path = os.path.join(self._source.folder, segment_file_name(offset, kind))
                index = load_index(self._file_system, path, checked_kind)
                if index is None:
                    continue
                found = self._orphan(path, offset, index.count)
                self._reports.append(
                    side_report(
                        path, checked_kind, self._source.topic_partition, index.size_bytes, (found,)
                    )
                )

    def _orphan(self, path: str, offset: int, entries: int) -> Finding:
        log = segment_file_name(offset, FileKind.LOG)
        if not entries or offset < self._source.log_start:
            detail = f"there is no {log}: the next open deletes the index"
            return Finding.about(path, "note", "orphan_index", detail)
        detail = f"it has {entries} entries, and there is no {log}"
        advice = f"restore {log} from a replica or a backup: the next open deletes the index"
        return Finding.about(path, "missing", "missing_segment", detail, advice, offset=offset)

    def _verify_epochs(self) -> None:
        entries = self._add_small(LEADER_EPOCH_CHECKPOINT)
        if not entries:
            return
        self._first_epoch_start = entries[0].start_offset
        self._last_epoch_start = entries[-1].start_offset
        report = self._reports[-1]
        conflict = find_epoch_conflict(
            report.path,
            entries,
            [each for facts in self._facts for each in facts.epochs],
            log_start=self._source.log_start,
            is_clean=self._root.is_clean,
        )
        if conflict is not None:
            self._reports[-1] = report.with_findings(conflict)

    def _verify_metadata(self) -> None:
        metadata = self._add_small(PARTITION_METADATA)
        self._topic_id = None if metadata is None else metadata.topic_id

    def _verify_kraft_files(self) -> None:
        for name in sorted(self._names):
            if name == QUORUM_STATE:
                self._add_small(name)
            elif kind_of_name(name) is CheckedKind.METADATA_SNAPSHOT:
                report = check_metadata_snapshot(
                    self._file_system,
                    os.path.join(self._source.folder, name),
                    self._source.topic_partition,
                )
                if report is not None:
                    self._tell(report)
                    self._reports.append(report)

    def _report_odd_files(self) -> None:
        """Report links and folders that have the name of a file: what they stand for is not read."""
        for name in self._odd:
            path = os.path.join(self._source.folder, name)
            error = StorageError("not a regular file; links are not followed", path=path)
            self._on_error(error)
            kind = kind_of_name(name) or CheckedKind.LOG
            self._reports.append(unreadable(path, kind, self._source.topic_partition, error))

    def _add_small(self, name: str) -> Any:
        """Check a small file, add its report; what the file says."""
        path = os.path.join(self._source.folder, name)
        checked = check_small_file(self._file_system, path, self._source.topic_partition)
        if checked is None:
            return None
        self._tell(checked.report)
        self._reports.append(checked.report)
        return checked.value

    def _tell(self, report: FileReport) -> None:
        """Hand an unreadable file over as the error that it is."""
        for finding in report.findings:
            if finding.severity == "unreadable":
                self._on_error(StorageError(finding.detail, path=finding.path))

    # Missing records.

    def _with_missing(self) -> Iterator[FileReport]:
        found = find_missing(self._evidence())
        if any(each.severity != "note" for each in found) and self._has_changed():
            found = list(map(_changed_meanwhile, found))
        by_path: dict[str, list[Finding]] = {}
        for each in found:
            by_path.setdefault(each.path, []).append(each)
        for report in self._reports:
            yield report.with_findings(*by_path.pop(report.path, ()))
        for path, findings in by_path.items():
            yield side_report(
                path, CheckedKind.PARTITION, self._source.topic_partition, findings=tuple(findings)
            )

    def _has_changed(self) -> bool:
        """Whether a writer has been at work since the files were listed: it removes the marker of a clean
        shutdown first."""
        if self._list() != self._names:
            return True
        marker = os.path.join(self._root.root, CLEAN_SHUTDOWN)
        return self._root.is_clean and self._file_system.stat(marker) is None

    def _evidence(self) -> PartitionEvidence:
        snapshots = self._offsets(FileKind.SNAPSHOT)
        newest = max(snapshots, default=None)
        return PartitionEvidence(
            folder=self._source.folder,
            segments=self._segments,
            is_clean=self._root.is_clean,
            checkpoints=self._checkpoints,
            first_epoch_start=self._first_epoch_start,
            last_epoch_start=self._last_epoch_start,
            last_producer_offset=self._last_producer_offset,
            excess=self._excess(),
            snapshot=None
            if newest is None
            else (segment_file_name(newest, FileKind.SNAPSHOT), newest),
        )

    def _excess(self) -> CorruptionError | None:
        last = self._segments[-1] if self._segments else None
        if last is None or not last.is_sound:
            return None
        try:
            found = self._source.clean_excess(self._file_system)
        except StorageError:
            return None  # reported with the file itself
        return None if found is None else found.error


def _is_known(name: str) -> bool:
    return kind_of_name(name) is not None or parse_data_name(name) is not None


def _changed_meanwhile(finding: Finding) -> Finding:
    """A folder that changes while it is read proves nothing."""
    if finding.severity == "note":
        return finding
    detail = f"{finding.detail}; the folder changed during the check: run verify again"
    return replace(finding, severity="note", detail=detail, advice=None)
