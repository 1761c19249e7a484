"""Names of files and folders, made and parsed here and nowhere else.

A partition's folder is ``<topic>-<partition>``; a segment's files are named by the first offset it may
hold, in twenty digits. Names that mean nothing parse to None: unknown files are reported, never guessed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from enum import StrEnum
from typing import Final, NamedTuple

from stratalog.errors import UsageError
from stratalog.types import Offset, TopicPartition

__all__ = [
    "BOOTSTRAP_CHECKPOINT",
    "CLEANER_CHECKPOINT",
    "CLEAN_SHUTDOWN",
    "DAMAGED_DIR",
    "FAILED_SYNC",
    "FOREIGN_ROOT_DIRS",
    "HIGH_WATERMARK_CHECKPOINT",
    "INTERNAL_TOPICS",
    "LEADER_EPOCH_CHECKPOINT",
    "LOCK",
    "LOG_START_CHECKPOINT",
    "LOG_SUFFIX",
    "METADATA_DIR",
    "META_PROPERTIES",
    "PARTITION_METADATA",
    "RECOVERY_CHECKPOINT",
    "REMOTE_INDEXES",
    "ROOT_FILES",
    "SEGMENT_KINDS",
    "STRATALOG_COMMITS",
    "STRATALOG_COMMITS_UNSYNCED",
    "STRATALOG_TOPICS",
    "STRATALOG_TRANSACTIONS",
    "TEMPORARY_SUFFIX",
    "UNDO_MANIFEST",
    "V07_SUFFIX",
    "FileKind",
    "PartitionFile",
    "PieceName",
    "PieceStage",
    "SegmentName",
    "Stage",
    "check_own_topic",
    "check_topic",
    "check_topic_type",
    "deleted_dir_name",
    "is_deleted_dir",
    "is_marked_partition_dir",
    "is_path",
    "log_file_name",
    "parse_data_name",
    "parse_partition_dir",
    "parse_partition_file",
    "parse_piece_name",
    "parse_segment_name",
    "parse_undo_dir",
    "partition_dir_name",
    "piece_file_name",
    "segment_file_name",
    "sidecar_path",
    "undo_dir_name",
]

LOG_SUFFIX: Final = ".log"
V07_SUFFIX: Final = ".kafka"

# In a partition's folder.
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
FAILED_SYNC: Final = "stratalog-failed-sync"  # our own, see ``failed_sync``
# There, of our own: a folder for each rewrite that can be undone. Kafka ignores folders there.
_UNDO: Final = "stratalog-undo."
UNDO_MANIFEST: Final = "manifest.json"
DAMAGED_DIR: Final = "stratalog-damaged"  # our own, and a folder: what salvage could not keep

# In the root of a log directory.
LOCK: Final = ".lock"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
RECOVERY_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"  # KRaft's first metadata
# There, of our own: Kafka leaves files that it does not know alone.
STRATALOG_TOPICS: Final = "stratalog-topics.json"
STRATALOG_TRANSACTIONS: Final = "stratalog-transactions.json"
STRATALOG_COMMITS: Final = "stratalog-commits.journal"
STRATALOG_COMMITS_UNSYNCED: Final = (
    "stratalog-commits.unsynced"  # its last line may not be on the disk
)
#: All files there that Kafka and Stratalog know, but for staged pieces.
ROOT_FILES: Final = frozenset(
    {
        LOCK, META_PROPERTIES, CLEAN_SHUTDOWN, RECOVERY_CHECKPOINT, LOG_START_CHECKPOINT,
        HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT, BOOTSTRAP_CHECKPOINT, STRATALOG_TOPICS,
        STRATALOG_TRANSACTIONS, STRATALOG_COMMITS, STRATALOG_COMMITS_UNSYNCED,
    }
)  # fmt: skip
#: A folder there with indexes of segments that are in remote storage.
REMOTE_INDEXES: Final = "remote-log-index-cache"
#: A folder in the first log directory: topics, ids and configs (``stratalog.metadata``).
METADATA_DIR: Final = "__cluster_metadata-0"
#: Folders there that look like those of partitions and are not.
FOREIGN_ROOT_DIRS: Final = frozenset({REMOTE_INDEXES, METADATA_DIR})

#: Whatever is replaced in one step is first written beside itself, under this suffix.
TEMPORARY_SUFFIX: Final = ".tmp"

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_TOPIC_SIZE_MAX: Final = 249
_PARTITION: Final = re.compile(r"[0-9]{1,10}")
_DIR_NAME_SIZE_MAX: Final = 255
# A partition that is being deleted, moved or was found stray: <topic>-<partition>.<32 hex>-<what>.
_MARKED: Final = re.compile(r"(\S+-[0-9]+)\.[0-9a-f]{32}-(?:delete|future|stray)")


class FileKind(StrEnum):
    """The files of a segment, by their suffix."""

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TXN_INDEX = ".txnindex"
    SNAPSHOT = ".snapshot"
    V07 = ".kafka"


#: The files of a segment, in the order in which they are renamed.
SEGMENT_KINDS: Final = (
    FileKind.LOG,
    FileKind.OFFSET_INDEX,
    FileKind.TIME_INDEX,
    FileKind.TXN_INDEX,
)


class Stage(StrEnum):
    """What a second suffix says: where in its life a file is."""

    LIVE = ""
    DELETED = ".deleted"
    CLEANED = ".cleaned"
    SWAP = ".swap"


class PieceStage(StrEnum):
    """What a last suffix says of a piece."""

    STAGED = ""
    PREPARED = ".prepared"  # made what its topic asks for, before it is committed
    LINKED = ".link"  # on its way to become a segment
    # The indexes of a staged segment, whose data file has no suffix.
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TXN_INDEX = ".txnindex"
    #: Offsets of records that a rewrite removes: never committed itself.
    OFFSETS = ".offsets"


class PieceName(NamedTuple):
    """What the name of a piece says: for which commit it was staged, by whom, and the how-many-th of his.
    ``owner`` is sixteen hexadecimal digits that stand for a name of any length."""

    owner: str
    version: int
    task: int
    attempt: int
    number: int
    stage: PieceStage = PieceStage.STAGED


class SegmentName(NamedTuple):
    """What the name of a segment's data file says."""

    base_offset: Offset
    is_v07: bool


class PartitionFile(NamedTuple):
    """What the name of a file in a partition's folder says."""

    offset: Offset
    kind: FileKind
    stage: Stage


_UNDO_ID: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")
_PIECE: Final = re.compile(
    r"stratalog-piece\.([0-9a-f]{16})\.([0-9]{1,19})\.([0-9]{1,19})\.([0-9]{1,19})\.([0-9]{1,10})"
    r"((?:\.prepared|\.link|\.index|\.timeindex|\.txnindex|\.offsets)?)"
)
_DIGITS: Final = 20
#: What stands behind the digits, for every file that there can be: hundreds are parsed at a start.
_SUFFIXES: Final = {kind.value + stage.value: (kind, stage) for kind in FileKind for stage in Stage}


#: Kafka's own topics: records for its own use, which no pattern of a consumer matches.
INTERNAL_TOPICS: Final = frozenset(
    {
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
        "__remote_log_metadata",
        "__cluster_metadata",
    }
)


def is_path(text: object) -> bool:
    """Whether the operating system can have a file of this name: text without a zero byte."""
    try:
        return isinstance(text, str) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def check_topic_type(topic: object) -> None:
    """UsageError where something else than text is given for a topic."""
    if not isinstance(topic, str):
        raise UsageError(f"a topic is text, not {topic!r}")


def check_topic(topic: str) -> str:
    """The name itself where Kafka takes it for a topic's; UsageError elsewhere."""
    check_topic_type(topic)
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise UsageError(
            f"{topic!r} is not a topic: 1 to {_TOPIC_SIZE_MAX} letters, digits, '.', '_' or '-'"
        )
    return topic


def check_own_topic(topic: str) -> str:
    """The name itself where it can be a topic of ours; UsageError where its folder is one that Kafka keeps
    for itself, and nobody would find it again."""
    folder = partition_dir_name(TopicPartition(check_topic(topic), 0))
    if folder in FOREIGN_ROOT_DIRS:
        raise UsageError(f"{topic!r} is reserved: Kafka keeps its metadata in {folder}")
    return topic


def partition_dir_name(topic_partition: TopicPartition) -> str:
    """The name of a partition's folder."""
    if topic_partition.partition < 0:
        raise UsageError(
            f"partition {topic_partition.partition} of {topic_partition.topic}: the first is 0"
        )
    return f"{check_topic(topic_partition.topic)}-{topic_partition.partition}"


def deleted_dir_name(topic_partition: TopicPartition, mark: str) -> str:
    """Return the name of the folder of a partition that is being deleted, as Kafka spells it. ``mark`` is 32
    hexadecimal digits. Of a long topic the end is left out: a name has at most 255 characters."""
    suffix = f"-{topic_partition.partition}.{mark}-delete"
    return check_topic(topic_partition.topic)[: _DIR_NAME_SIZE_MAX - len(suffix)] + suffix


def is_deleted_dir(name: object) -> bool:
    """Return whether the folder is that of a partition that is being deleted."""
    return isinstance(name, str) and is_marked_partition_dir(name) and name.endswith("-delete")


def parse_partition_dir(name: str) -> TopicPartition | None:
    """The partition that a folder of this name holds; None where it is not a partition's."""
    marked = _MARKED.fullmatch(name)
    topic, _, partition = (marked[1] if marked else name).rpartition("-")
    if not _TOPIC.fullmatch(topic) or topic in (".", "..") or not _PARTITION.fullmatch(partition):
        return None
    return TopicPartition(topic, int(partition))


def is_marked_partition_dir(name: str) -> bool:
    """Whether the folder is one that Kafka set aside: being deleted, being moved, or stray."""
    return _MARKED.fullmatch(name) is not None


def parse_partition_file(name: str) -> PartitionFile | None:
    """What a file of this name in a partition's folder is; None where we do not know it."""
    digits = name[:_DIGITS]
    known = _SUFFIXES.get(name[_DIGITS:])
    if known is None or len(digits) != _DIGITS or not (digits.isascii() and digits.isdecimal()):
        return None
    offset = int(digits)
    return PartitionFile(Offset(offset), *known) if offset < 2**63 else None


def parse_segment_name(name: str) -> SegmentName | None:
    """The base offset, and whether it is a 0.7 file; None where it is not a segment's data file."""
    return _segment_name(name, (Stage.LIVE,))


def parse_data_name(name: str) -> SegmentName | None:
    """The same, also of a data file that is complete and has yet to get its final name."""
    return _segment_name(name, (Stage.LIVE, Stage.SWAP))


def _segment_name(name: str, stages: Collection[Stage]) -> SegmentName | None:
    file = parse_partition_file(name)
    if file is None or file.stage not in stages or file.kind not in (FileKind.LOG, FileKind.V07):
        return None
    return SegmentName(file.offset, file.kind == FileKind.V07)


def sidecar_path(data_path: str, kind: FileKind) -> str | None:
    """Where another file of the segment lies whose data file this is; None where it is no such file."""
    for stage in (Stage.LIVE, Stage.SWAP):
        suffix = FileKind.LOG.value + stage.value
        if data_path.endswith(suffix):
            return data_path.removesuffix(suffix) + kind.value + stage.value
    return None


def segment_file_name(offset: int, kind: FileKind, stage: Stage = Stage.LIVE) -> str:
    """The name of a segment's file of this kind; of a snapshot, the offset that it was taken at."""
    return f"{offset:0{_DIGITS}d}{kind.value}{stage.value}"


def log_file_name(base_offset: int, *, is_v07: bool = False) -> str:
    """The name of the data file of the segment that starts at ``base_offset``."""
    return segment_file_name(base_offset, FileKind.V07 if is_v07 else FileKind.LOG)


def piece_file_name(piece: PieceName) -> str:
    """The name of a piece in the root of its log directory."""
    numbers = f"{piece.version}.{piece.task}.{piece.attempt}.{piece.number}"
    return f"stratalog-piece.{piece.owner}.{numbers}{piece.stage.value}"


def parse_piece_name(name: str) -> PieceName | None:
    """What a file of this name in a root is a piece of; None where it is none."""
    found = _PIECE.fullmatch(name)
    if found is None:
        return None
    version, task, attempt, number = (int(found[at]) for at in range(2, 6))
    piece = PieceName(found[1], version, task, attempt, number, PieceStage(found[6]))
    return piece if piece_file_name(piece) == name else None  # no zeros before a number


def undo_dir_name(rewrite_id: str) -> str:
    """Return the name of the folder, in that of a partition, that keeps the originals of a rewrite.
    UsageError if this cannot be the id of one."""
    if not _UNDO_ID.fullmatch(rewrite_id):
        raise UsageError(
            f"{rewrite_id!r} is not the id of a rewrite: 'undo' lists those that there are"
        )
    return _UNDO + rewrite_id


def parse_undo_dir(name: str) -> str | None:
    """Return the id of the rewrite whose originals a folder of this name keeps; None if it is another."""
    rewrite_id = name.removeprefix(_UNDO)
    return rewrite_id if rewrite_id != name and _UNDO_ID.fullmatch(rewrite_id) else None
