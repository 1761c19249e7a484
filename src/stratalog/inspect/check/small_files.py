"""Checks the small files of log directories and partitions: one decoder and one remedy for each kind.

Sizes are checked before anything is read. A file that Kafka and Stratalog replace or rebuild by themselves
is named as such in the remedy; one that holds what cannot be rebuilt has to be restored.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, NamedTuple

from stratalog.errors import CorruptionError, StorageError
from stratalog.inspect.check.report import (
    CheckedKind,
    FileReport,
    Finding,
    Severity,
    side_report,
    unreadable,
)
from stratalog.records.layout import INT32_MAX, INT64_MAX
from stratalog.storage.epochs.leader_epochs import EpochEntry
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.formats.checkpoints import decode_lines, decode_offsets
from stratalog.storage.formats.meta_properties import decode_meta_properties
from stratalog.storage.formats.partition_metadata import decode_partition_metadata
from stratalog.storage.names import (
    BOOTSTRAP_CHECKPOINT,
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_CHECKPOINT,
    STRATALOG_COMMITS,
    STRATALOG_TOPICS,
    STRATALOG_TRANSACTIONS,
    FileKind,
    Stage,
    parse_partition_file,
)
from stratalog.storage.producers.snapshot import decode_snapshot
from stratalog.types import TopicPartition

__all__ = ["QUORUM_STATE", "ROOT_FILES", "CheckedSmallFile", "check_small_file", "kind_of_name"]

QUORUM_STATE: Final = "quorum-state"

_STOPPED: Final = "while nothing writes to the directory"
_MIB: Final = 1 << 20
_METADATA_SNAPSHOT: Final = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint")
_INDEXES: Final = {
    FileKind.OFFSET_INDEX: CheckedKind.OFFSET_INDEX,
    FileKind.TIME_INDEX: CheckedKind.TIME_INDEX,
    FileKind.TXN_INDEX: CheckedKind.TXN_INDEX,
    FileKind.SNAPSHOT: CheckedKind.PRODUCER_SNAPSHOT,
}


class _NoteError(Exception):
    """Something worth knowing that is not damage."""


class _Rule(NamedTuple):
    kind: CheckedKind
    decode: Callable[[bytes], Any]
    advice: str
    size_max: int = 64 * _MIB


def _decode_epochs(data: bytes) -> tuple[EpochEntry, ...]:
    """The entries as the file has them."""
    return tuple(
        EpochEntry(line.integer(0, 0, INT32_MAX), line.integer(1, 0, INT64_MAX))
        for line in decode_lines(data, 2)
    )


def _decode_clean_shutdown(data: bytes) -> None:
    """Brokers before 3.8 leave the file empty, and no broker refuses to start because of its text."""
    try:
        is_known = not data or isinstance(json.loads(data), dict)
    except (ValueError, RecursionError):
        is_known = False
    if not is_known:
        raise _NoteError("the text is not JSON; only that the file exists counts")


def _decode_quorum_state(data: bytes) -> dict[str, Any]:
    try:
        state = json.loads(data)
        if not isinstance(state, dict):
            raise CorruptionError("quorum_state", "not a JSON object")
        if state["data_version"] not in (0, 1):
            raise ValueError(f"data_version {state['data_version']!r}; known are 0 and 1")
        for name in ("leaderId", "leaderEpoch", "votedId"):
            if type(state[name]) is not int or not -1 <= state[name] <= INT32_MAX:
                raise ValueError(f"{name} is {state[name]!r}")
    except (ValueError, RecursionError) as error:
        raise CorruptionError("quorum_state", f"not a quorum state: {error}") from None
    except KeyError as error:
        raise CorruptionError("quorum_state", f"{error.args[0]} is missing") from None
    return state


# The decoders of Stratalog's own files are imported when there is such a file: Kafka's directories have none.


def _decode_topics(data: bytes) -> Any:
    from stratalog.storage.formats.topic_entries import decode_topics

    return decode_topics(data)


def _decode_commits(data: bytes) -> Any:
    from stratalog.storage.commits.journal import decode_journal

    return decode_journal(data)


def _decode_transactions(data: bytes) -> Any:
    from stratalog.storage.formats.transaction_entries import decode_transactions

    return decode_transactions(data)


def _checkpoint(advice: str) -> _Rule:
    return _Rule(CheckedKind.OFFSET_CHECKPOINT, decode_offsets, advice)


#: The files in the root of a log directory, in the order in which they are reported.
ROOT_FILES: Final = {
    META_PROPERTIES: _Rule(
        CheckedKind.META_PROPERTIES, decode_meta_properties,
        "restore it from a backup, or write it again with the cluster.id and node.id of this broker: "
        "neither Kafka nor Stratalog opens the directory without it", _MIB,
    ),
    RECOVERY_CHECKPOINT: _checkpoint(
        f"delete it {_STOPPED}: the next open then checks all logs from their beginning"
    ),
    HIGH_WATERMARK_CHECKPOINT: _checkpoint(
        f"delete it {_STOPPED}: high watermarks are then found again from the replicas"
    ),
    LOG_START_CHECKPOINT: _checkpoint(
        f"restore it, or delete it {_STOPPED}: records that were deleted by delete-records may then "
        "be shown again"
    ),
    CLEANER_CHECKPOINT: _checkpoint(
        f"delete it {_STOPPED}: compaction then begins again at the start of each log"
    ),
    CLEAN_SHUTDOWN: _Rule(CheckedKind.CLEAN_SHUTDOWN, _decode_clean_shutdown, "", _MIB),
    STRATALOG_TOPICS: _Rule(CheckedKind.TOPICS, _decode_topics, "restore it from a backup"),
    STRATALOG_COMMITS: _Rule(
        CheckedKind.COMMITS, _decode_commits, "restore it from a backup", 1024 * _MIB
    ),
    STRATALOG_TRANSACTIONS: _Rule(
        CheckedKind.TRANSACTIONS, _decode_transactions, "restore it from a backup"
    ),
}  # fmt: skip
_PARTITION_FILES: Final = {
    LEADER_EPOCH_CHECKPOINT: _Rule(
        CheckedKind.LEADER_EPOCHS, _decode_epochs,
        f"delete it {_STOPPED}, with the marker .kafka_cleanshutdown and the "
        "recovery-point-offset-checkpoint: recovery then makes it from the batches",
    ),
    PARTITION_METADATA: _Rule(
        CheckedKind.PARTITION_METADATA, decode_partition_metadata,
        "restore it from a backup, or write it with the topic id that other partitions of the topic "
        "have: a broker takes a partition without it for a stray one", _MIB,
    ),
    QUORUM_STATE: _Rule(
        CheckedKind.QUORUM_STATE, _decode_quorum_state,
        "if this is the only controller, delete it while Kafka is stopped: the election starts from the "
        "epoch of the metadata log; otherwise restore it", _MIB,
    ),
}  # fmt: skip
SNAPSHOT_RULE: Final = _Rule(
    CheckedKind.PRODUCER_SNAPSHOT, decode_snapshot,
    f"delete it {_STOPPED}: the next open takes an older one and the log", 100 * _MIB,
)  # fmt: skip


class CheckedSmallFile(NamedTuple):
    """The report on a small file, and what the file says; None where it is damaged or not there."""

    report: FileReport
    value: Any


def kind_of_name(name: str) -> CheckedKind | None:
    """What a file of this name is checked as; None where it is read as a data file."""
    rule = ROOT_FILES.get(name) or _PARTITION_FILES.get(name)
    if rule is not None:
        return rule.kind
    if name == BOOTSTRAP_CHECKPOINT or _METADATA_SNAPSHOT.fullmatch(name):
        return CheckedKind.METADATA_SNAPSHOT
    file = parse_partition_file(name)
    if file is None or file.stage not in (Stage.LIVE, Stage.SWAP):
        return None
    return _INDEXES.get(file.kind)


def check_small_file(
    file_system: FileSystem, path: str, topic_partition: TopicPartition | None
) -> CheckedSmallFile | None:
    """Check a file by its name and content; None if it does not exist."""
    name = os.path.basename(path)
    rule = ROOT_FILES.get(name) or _PARTITION_FILES.get(name) or SNAPSHOT_RULE
    size = 0
    try:
        found = file_system.stat(path)
        size = 0 if found is None else found.size
        data = read_small_file(file_system, path, size_max=rule.size_max)
        if data is None:
            return None
        size = len(data)
        value = rule.decode(data)
    except StorageError as error:
        return CheckedSmallFile(unreadable(path, rule.kind, topic_partition, error), None)
    except CorruptionError as error:
        return _small(
            path, rule, topic_partition, size, None, Finding.of_error(path, error, rule.advice)
        )
    except _NoteError as note:
        finding = Finding.about(path, "note", "unknown_text", str(note))
        return _small(path, rule, topic_partition, size, None, finding)
    more = _findings_of_value(path, rule, value)
    return _small(path, rule, topic_partition, size, value, *more)


def _small(
    path: str,
    rule: _Rule,
    topic_partition: TopicPartition | None,
    size: int,
    value: Any,
    *found: Finding,
) -> CheckedSmallFile:
    return CheckedSmallFile(side_report(path, rule.kind, topic_partition, size, found), value)


def _findings_of_value(path: str, rule: _Rule, value: Any) -> tuple[Finding, ...]:
    """What a decoder accepts and is still worth reporting."""
    severity: Severity = "damage"
    detail = None
    if rule.kind is CheckedKind.PRODUCER_SNAPSHOT:
        detail = _implausible_producer(path, value)
    elif rule.kind is CheckedKind.LEADER_EPOCHS and not _ascend(value):
        severity = "note"  # old brokers left such files, and loading drops what is contradicted
        detail = "epochs or their start offsets do not ascend; a broker drops the earlier ones"
    elif rule.kind is CheckedKind.META_PROPERTIES and value.node_id is None:
        detail = "neither node.id nor broker.id is in it"
    elif rule.kind is CheckedKind.COMMITS and value.has_torn_tail:
        severity = "note"
        detail = "the last line is incomplete: a writer crashed or is still writing; the line does not count"
    if detail is None:
        return ()
    advice = rule.advice if severity == "damage" else None
    return (Finding.about(path, severity, f"{rule.kind.value}_content", detail, advice),)


def _implausible_producer(path: str, producers: Any) -> str | None:
    file = parse_partition_file(os.path.basename(path))
    if file is None:
        return None
    for each in producers:
        last = each.batches[-1].last_offset if each.batches else -1
        if max(last, each.txn_first_offset or -1) >= file.offset:
            return (
                f"producer {each.producer_id} has offset {max(last, each.txn_first_offset or -1)}, and "
                f"the snapshot covers the log up to {file.offset}"
            )
    return None


def _ascend(entries: tuple[EpochEntry, ...]) -> bool:
    return all(
        one.epoch < other.epoch and one.start_offset < other.start_offset
        for one, other in pairwise(entries)
    )
