"""Judges the index files of a segment by what the walk over its batches found.

An entry beyond the end of the log has two explanations: the log lost its end, or the index is wrong. Which
one it is, the neighbours decide. If the next segment begins where this one ends, nothing is missing and the
index is wrong. If there is a gap, the entry is evidence for ``missing``. At the end of the log only an
orderly stop makes a difference: without one, a power failure may have kept the index and lost the log, and
the next open rebuilds the index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stratalog.inspect.check.batch_facts import SegmentFacts
from stratalog.inspect.check.data_file import CheckedFile
from stratalog.inspect.check.index_files import ENTRY_SIZES, IndexFile, SegmentIndexes
from stratalog.inspect.check.report import (
    CheckedKind,
    FileReport,
    Finding,
    Severity,
    side_report,
    unreadable,
)
from stratalog.records.layout import CONTROL_MASK, ROW_WIDTH, TRANSACTIONAL_MASK, Check, Row
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.segment.index_entries import offset_entry_at, time_entry_at
from stratalog.storage.segment.log_file import Window, open_log_file
from stratalog.storage.segment.scan import scan_segment
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.storage.segment.txn_index import AbortedTxn
from stratalog.types import TopicPartition

__all__ = ["JudgedIndexes", "SegmentContext", "judge_indexes", "nonempty_aborts"]

_REBUILD: Final = (
    "delete it while nothing writes to the partition: Kafka and Stratalog rebuild the indexes of this "
    "segment when they open it next"
)
_REBUILD_TXNS: Final = (
    "delete it and the .index of the same segment while nothing writes to the partition: the next open "
    "rebuilds both from the log"
)


@dataclass(frozen=True, slots=True)
class SegmentContext:
    """Where a segment stands: whether it is the last one, whether the next segment or, after an orderly
    stop, a checkpoint says that it went on, and whether there was an orderly stop."""

    topic_partition: TopicPartition | None
    is_last: bool
    has_gap: bool = False
    is_clean: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether the files are what a writer left on purpose: it went on to the next segment, or stopped."""
        return not self.is_last or self.is_clean


@dataclass(frozen=True, slots=True)
class JudgedIndexes:
    """The reports on the index files of a segment. ``beyond`` is evidence, in words, that the log went on
    beyond its end; ``of_log`` are findings that belong to the data file."""

    reports: tuple[FileReport, ...]
    beyond: str | None = None
    of_log: tuple[Finding, ...] = ()


class _Judge:
    def __init__(self, checked: CheckedFile, base_offset: int, where: SegmentContext) -> None:
        self._facts: SegmentFacts = checked.facts
        self._report = checked.report
        self._base_offset = base_offset
        self._where = where
        self._end_position = checked.report.size_bytes - checked.report.unchecked_bytes
        self._last_offset = checked.report.next_offset - 1
        self.beyond: list[str] = []

    def offset_index(self, file: IndexFile) -> list[Finding]:
        facts = self._facts
        if facts.wrong_offset_entry is not None:
            offset, position = offset_entry_at(
                file.entries, facts.wrong_offset_entry, self._base_offset
            )
            detail = f"the entry (offset {offset}, byte {position}) does not match the data file"
            return [self._wrong_entry(file, facts.wrong_offset_entry, detail)]
        slot = facts.offset_slots[1]
        if slot < file.count:
            offset, position = offset_entry_at(file.entries, slot, self._base_offset)
            if position < self._end_position or offset < self._base_offset:
                detail = f"an entry points to byte {position}, and no batch starts there"
                return [self._wrong_entry(file, slot, detail)]
            return self._beyond(file, slot, f"offset {offset} at byte {position}")
        if facts.entry_offset > self._last_offset:
            return self._beyond(file, max(slot - 1, 0), f"offset {facts.entry_offset}")
        return self._zeros(file)

    def time_index(self, file: IndexFile) -> list[Finding]:
        facts = self._facts
        if facts.wrong_time_entry is not None:
            detail = "times do not ascend, or a batch up to the offset of an entry is later than it"
            return [self._wrong_entry(file, facts.wrong_time_entry, detail)]
        if file.count:
            timestamp, offset = time_entry_at(file.entries, 0, self._base_offset)
            if timestamp < 0 or offset < self._base_offset:
                above = offset - self._base_offset
                detail = f"the first entry has time {timestamp} and offset {above} above the first"
                return [self._wrong_entry(file, 0, detail)]
            slot = file.count - 1
            timestamp, offset = time_entry_at(file.entries, slot, self._base_offset)
            if offset > self._last_offset:
                return self._beyond(file, slot, f"offset {offset}")
            if timestamp > facts.max_timestamp and not facts.has_untimed:
                detail = f"the last entry has time {timestamp}; the latest batch is of {facts.max_timestamp}"
                return [self._wrong_entry(file, slot, detail)]
        return self._zeros(file)

    def txn_index(self, file: IndexFile, aborted: tuple[AbortedTxn, ...]) -> list[Finding]:
        producers = self._facts.aborted_producers()
        for slot, entry in enumerate(aborted):
            if entry.last_offset > self._last_offset:
                return self._beyond(file, slot, f"an abort at offset {entry.last_offset}")
            if producers is None:
                continue
            if producers.get(entry.last_offset) != entry.producer_id:
                detail = (
                    f"an entry says that a transaction of producer {entry.producer_id} was aborted at "
                    f"offset {entry.last_offset}, and the batch there does not"
                )
                return [self._wrong_entry(file, slot, detail, _REBUILD_TXNS)]
            # Beyond the marker where the append that brought it also started another transaction.
            if not 0 <= entry.last_stable_offset <= self._last_offset + 1:
                detail = f"an entry has the last stable offset {entry.last_stable_offset}"
                return [self._wrong_entry(file, slot, detail, _REBUILD_TXNS)]
        return []

    def _beyond(self, file: IndexFile, slot: int, what: str) -> list[Finding]:
        """Judge an entry that names what lies beyond the end of the log."""
        said = f"the {file.kind.value} names {what}"
        if self._where.has_gap:
            self.beyond.append(said)
            return []
        detail = (
            f"{said}, and the log ends at offset {self._last_offset + 1}, byte {self._end_position}"
        )
        if self._where.is_settled:
            return [self._wrong_entry(file, slot, detail, reason="index_beyond_log")]
        detail += ": a power failure may leave this, and the next open rebuilds the index"
        return [self._found(file, slot, "note", "index_beyond_log", detail, None)]

    def _zeros(self, file: IndexFile) -> list[Finding]:
        if not file.has_zero_tail or not self._where.is_settled:
            return []
        detail = (
            "zeros follow the last entry, as in the index of a segment that is being written to"
        )
        return [self._wrong_entry(file, file.count, detail, reason="index_zeros")]

    def _wrong_entry(
        self,
        file: IndexFile,
        slot: int,
        detail: str,
        advice: str = _REBUILD,
        reason: str = "index_entry",
    ) -> Finding:
        return self._found(file, slot, "damage", reason, detail, advice)

    def _found(
        self,
        file: IndexFile,
        slot: int,
        severity: Severity,
        reason: str,
        detail: str,
        advice: str | None,
    ) -> Finding:
        size = ENTRY_SIZES[file.kind]
        return Finding.about(
            file.path, severity, reason, detail, advice, position=slot * size, size_bytes=size
        )


def judge_indexes(
    checked: CheckedFile,
    indexes: SegmentIndexes,
    base_offset: int,
    where: SegmentContext,
    missing_aborts: tuple[int, ...] = (),
) -> JudgedIndexes:
    """Report on the index files of a segment. ``missing_aborts`` are the markers of aborted transactions
    with records in this segment that its transaction index does not have."""
    judge = _Judge(checked, base_offset, where)
    reports = tuple(_report(judge, checked, indexes, file, where) for file in indexes.files)
    found = _missing_aborts(checked, indexes, missing_aborts) if missing_aborts else None
    if found is not None and indexes.txns is not None:
        reports = (*reports[:-1], reports[-1].with_findings(found))
        found = None
    return JudgedIndexes(
        reports,
        judge.beyond[0] if judge.beyond else None,
        () if found is None else (found,),
    )


def _report(
    judge: _Judge,
    checked: CheckedFile,
    indexes: SegmentIndexes,
    file: IndexFile,
    where: SegmentContext,
) -> FileReport:
    if file.refused is not None:
        return unreadable(file.path, file.kind, where.topic_partition, file.refused)
    advice = _REBUILD_TXNS if file.kind is CheckedKind.TXN_INDEX else _REBUILD
    if file.damage is not None:
        found = [Finding.of_error(file.path, file.damage, advice)]
    elif not checked.facts.is_complete:
        detail = "not compared with the data file, which is damaged"
        found = [Finding.about(file.path, "note", "not_compared", detail)]
    elif file.kind is CheckedKind.OFFSET_INDEX:
        found = judge.offset_index(file)
    elif file.kind is CheckedKind.TIME_INDEX:
        found = judge.time_index(file)
    else:
        found = judge.txn_index(file, indexes.aborted)
    return side_report(file.path, file.kind, where.topic_partition, file.size_bytes, tuple(found))


def _missing_aborts(
    checked: CheckedFile, indexes: SegmentIndexes, missing: tuple[int, ...]
) -> Finding:
    path = checked.report.path if indexes.txns is None else indexes.txns.path
    file = "there is no transaction index" if indexes.txns is None else "has no entry"
    detail = (
        f"the transaction that was aborted at offset {missing[0]} {file}"
        if indexes.txns is not None
        else f"a transaction was aborted at offset {missing[0]}, and {file}"
    )
    more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
    return Finding.about(
        path, "damage", "txn_index_missing",
        f"{detail}{more}: a broker shows its records to read_committed consumers",
        _REBUILD_TXNS, offset=missing[0],
    )  # fmt: skip


def nonempty_aborts(
    file_system: FileSystem, path: str, base_offset: int, aborts: set[int]
) -> tuple[int, ...]:
    """Which of these ABORT markers end transactions that have records in this segment. Headers are read
    once more: aborts without an entry are rare."""
    open_since: dict[int, int] = {}
    found: list[int] = []

    def seen(headers: memoryview, count: int, _: Window) -> None:
        for at in range(0, count * ROW_WIDTH, ROW_WIDTH):
            producer_id, attributes = headers[at + Row.PRODUCER_ID], headers[at + Row.ATTRIBUTES]
            if headers[at + Row.MAGIC] < 2 or not attributes & TRANSACTIONAL_MASK:
                continue
            offset = headers[at + Row.LAST_OFFSET]
            if attributes & CONTROL_MASK:
                if open_since.pop(producer_id, None) is not None and offset in aborts:
                    found.append(offset)
            elif headers[at + Row.RECORD_COUNT] > 0:
                open_since.setdefault(producer_id, offset)

    with open_log_file(path, file_system) as log_file:
        scan_segment(
            log_file.file, base_offset, IndexLimits(), log_file.size, check=Check.NONE, seen=seen
        )
    return tuple(found)
