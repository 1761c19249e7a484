"""Values that a verification returns: a report for every file, with its findings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Literal

from stratalog.errors import CorruptionError, StorageError
from stratalog.types import TopicPartition

__all__ = [
    "CheckedKind",
    "FileReport",
    "Finding",
    "Severity",
    "Status",
    "side_report",
    "unreadable",
]

Severity = Literal["damage", "missing", "torn_tail", "unreadable", "note"]
Status = Literal["ok", "torn", "missing", "damaged", "unreadable"]

#: The worst finding decides the status.
_STATUSES: Final[dict[Severity, Status]] = {
    "unreadable": "unreadable",
    "damage": "damaged",
    "missing": "missing",
    "torn_tail": "torn",
}


class CheckedKind(StrEnum):
    """What a file, or the folder of a partition, was checked as."""

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TXN_INDEX = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"
    LEADER_EPOCHS = "leader_epochs"
    PARTITION_METADATA = "partition_metadata"
    OFFSET_CHECKPOINT = "checkpoint"
    META_PROPERTIES = "meta_properties"
    CLEAN_SHUTDOWN = "clean_shutdown"
    METADATA_SNAPSHOT = "metadata_snapshot"
    QUORUM_STATE = "quorum_state"
    TOPICS = "topics"
    COMMITS = "commits"
    TRANSACTIONS = "transactions"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it must be: where, why, how much of the file it concerns, what to do.

    ``reason`` is the stable name for programs; ``offset`` is what the batch says of itself, None where
    that cannot be read. A *note* is worth knowing and not wrong.
    """

    path: str
    position: int
    severity: Severity
    reason: str
    detail: str
    advice: str | None
    offset: int | None
    size_bytes: int

    @classmethod
    def about(
        cls,
        path: str,
        severity: Severity,
        reason: str,
        detail: str,
        advice: str | None = None,
        *,
        position: int = 0,
        offset: int | None = None,
        size_bytes: int = 0,
    ) -> Finding:
        """Build a finding about a file as a whole, unless a place in it is given."""
        return cls(
            path=path, position=position, severity=severity, reason=reason, detail=detail,
            advice=advice, offset=offset, size_bytes=size_bytes,
        )  # fmt: skip

    @classmethod
    def of_error(cls, path: str, error: CorruptionError, advice: str) -> Finding:
        """Turn the error of a decoder into a finding with the remedy for this kind of file."""
        return cls.about(
            path, "damage", error.reason, error.detail, error.advice or advice,
            position=error.position or 0,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """What was checked of one file, and what was found. Records and batches are the sound ones."""

    path: str
    topic: str | None
    partition: int | None
    records: int = 0
    control_records: int = 0
    batches: int = 0
    size_bytes: int = 0
    unchecked_bytes: int = 0
    next_offset: int = -1
    findings: tuple[Finding, ...] = ()
    #: The base offset of the first sound batch; None where there is none.
    first_offset: int | None = None
    kind: CheckedKind = CheckedKind.LOG

    @property
    def status(self) -> Status:
        severities = {finding.severity for finding in self.findings}
        return next((_STATUSES[each] for each in _STATUSES if each in severities), "ok")

    @property
    def has_batches(self) -> bool:
        """Whether the counts of records and batches mean anything for this kind of file."""
        return self.kind in (CheckedKind.LOG, CheckedKind.METADATA_SNAPSHOT)

    def with_findings(self, *more: Finding) -> FileReport:
        return replace(self, findings=(*self.findings, *more)) if more else self


def side_report(
    path: str,
    kind: CheckedKind,
    topic_partition: TopicPartition | None,
    size_bytes: int = 0,
    findings: tuple[Finding, ...] = (),
) -> FileReport:
    """Report on a file that holds no batches."""
    return FileReport(
        path=path,
        topic=None if topic_partition is None else topic_partition.topic,
        partition=None if topic_partition is None else topic_partition.partition,
        size_bytes=size_bytes,
        unchecked_bytes=size_bytes if any(f.severity == "unreadable" for f in findings) else 0,
        findings=findings,
        kind=kind,
    )


def unreadable(
    path: str, kind: CheckedKind, topic_partition: TopicPartition | None, error: StorageError
) -> FileReport:
    """Report on a file or folder that the operating system refuses to read."""
    finding = Finding.about(
        path, "unreadable", "unreadable", error.detail,
        "nothing was checked: make it readable, or check the disk, and run verify again",
    )  # fmt: skip
    return side_report(path, kind, topic_partition, findings=(finding,))
