"""Checks snapshots of KRaft's metadata: ``<end offset>-<epoch>.checkpoint`` and ``bootstrap.checkpoint``.

Such a file is a sequence of batches that begins with the control record SnapshotHeader and ends with
SnapshotFooter. It is written under another name and renamed when it is complete: one without its footer was
cut off later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from stratalog.errors import StorageError
from stratalog.inspect.check.data_file import check_file
from stratalog.inspect.check.report import CheckedKind, FileReport, Finding, unreadable
from stratalog.records.control import ControlType
from stratalog.storage.files.filesystem import FileSystem
from stratalog.types import TopicPartition

__all__ = ["check_metadata_snapshot"]

_ADVICE: Final = (
    "restore it from another controller or a backup, or delete it while Kafka is stopped if the metadata log "
    "goes back to an older snapshot"
)


def check_metadata_snapshot(
    file_system: FileSystem, path: str, topic_partition: TopicPartition | None, **settings: Any
) -> FileReport | None:
    """Check the batches of a snapshot, its header and its footer; None if the file does not exist."""
    try:
        if file_system.stat(path) is None:
            return None
        checked = check_file(path, file_system=file_system, **settings)
    except StorageError as error:
        return unreadable(path, CheckedKind.METADATA_SNAPSHOT, topic_partition, error)
    report, facts = checked
    found = [
        replace(each, severity="damage", advice=_ADVICE) if each.severity != "note" else each
        for each in report.findings
    ]
    if not found and facts.first_control != ControlType.SNAPSHOT_HEADER:
        found.append(_finding(path, "snapshot_header", "it does not begin with a snapshot header"))
    if not found and facts.last_control != ControlType.SNAPSHOT_FOOTER:
        detail = "it does not end with a snapshot footer: the end of the file is missing"
        found.append(_finding(path, "snapshot_footer", detail, report.size_bytes))
    return replace(
        report,
        kind=CheckedKind.METADATA_SNAPSHOT,
        topic=None if topic_partition is None else topic_partition.topic,
        partition=None if topic_partition is None else topic_partition.partition,
        findings=tuple(found),
    )


def _finding(path: str, reason: str, detail: str, position: int = 0) -> Finding:
    return Finding.about(path, "damage", reason, detail, _ADVICE, position=position)
