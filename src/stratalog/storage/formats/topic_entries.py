"""``stratalog-topics.json``: the topics of a log directory, with their ids, partitions and configs."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stratalog.errors import CorruptionError, UsageError
from stratalog.records.layout import INT32_MAX
from stratalog.storage.formats.kafka_uuid import format_uuid, parse_uuid
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import check_topic, is_deleted_dir

__all__ = [
    "Deletion",
    "Topic",
    "TopicEntry",
    "decode_deleted_folders",
    "decode_topics",
    "encode_topics",
]

_VERSION: Final = 1
#: More partitions than a cluster has; without a limit, one digit too many would fill the memory.
_TOTAL_MAX: Final = 10_000_000
_MARK: Final = re.compile(r"[0-9a-f]{32}")
_NOT_AN_ENTRY: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: ``partitions`` are the numbers of those that exist."""

    name: str
    topic_id: bytes | None = None
    partitions: tuple[int, ...] = ()
    config: LogConfig = field(default_factory=LogConfig)

    @property
    def partition_count(self) -> int:
        return len(self.partitions)


@dataclass(frozen=True, slots=True)
class Deletion:
    """A topic is being deleted. ``mark``, 32 hexadecimal digits, is in the new names of its folders.

    ``directories`` are the ids of all log directories that hold partitions of the topic. The deletion is
    decided when the files of all of them say so.
    """

    mark: str
    directories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """What one directory's file says of a topic. ``topic.partitions`` are those of this directory.

    While partitions are being created ``plan`` says which, for every directory by its id: the next process
    that opens the directories after a crash creates the rest. If it is None, nothing is in progress: a
    folder that is missing then was taken away, and must not be replaced by an empty one.

    ``total_partitions`` counts the partitions of the topic in all directories, so that a process that opens
    only some of them knows. It is None in files of earlier versions.
    """

    topic: Topic
    plan: Mapping[str, tuple[int, ...]] | None = None
    deletion: Deletion | None = None
    total_partitions: int | None = None

    def known_partitions(self) -> set[int]:
        """Return the partitions that the topic must have, in all directories, as far as the entry says."""
        planned = (self.plan or {}).values()
        return {
            *range(self.total_partitions or 0),
            *self.topic.partitions,
            *(each for partitions in planned for each in partitions),
        }


def decode_topics(data: bytes) -> dict[str, TopicEntry]:
    """Read ``stratalog-topics.json``; CorruptionError where it is damaged."""
    try:
        return {entry.topic.name: entry for entry in map(_decode, _documents(data))}
    except _NOT_AN_ENTRY as error:
        raise CorruptionError(
            "topics_file", f"not the topics of a log directory: {error}",
            advice="restore it from a backup, or remove it to continue with Kafka's default configs",
        ) from None  # fmt: skip


def decode_deleted_folders(data: bytes) -> tuple[str, ...]:
    """Read the names of the folders in the root that belonged to deleted topics and may still be there, from
    a file that ``decode_topics`` accepts."""
    return tuple(json.loads(data).get("deleted", ()))


def encode_topics(
    entries: Mapping[str, TopicEntry], deleted_folders: Collection[str] = ()
) -> bytes:
    """Return the file's text, topics by name."""
    document: dict[str, Any] = {
        "version": _VERSION,
        "topics": [_encode(entries[name]) for name in sorted(entries)],
    }
    if deleted_folders:
        document["deleted"] = sorted(deleted_folders)
    return (json.dumps(document, indent=1) + "\n").encode()


def _documents(data: bytes) -> list[dict[str, Any]]:
    document = json.loads(data)
    if document["version"] != _VERSION:
        raise UsageError(f"version {document['version']}")
    entries = document["topics"]
    if not isinstance(entries, list):
        raise UsageError("the topics are not a list")
    deleted = document.get("deleted", [])
    if not isinstance(deleted, list) or not all(map(is_deleted_dir, deleted)):
        raise UsageError("the deleted folders are not names of folders that are being deleted")
    return entries


def _encode(entry: TopicEntry) -> dict[str, Any]:
    topic = entry.topic
    document: dict[str, Any] = {
        "name": topic.name,
        "id": None if topic.topic_id is None else format_uuid(topic.topic_id),
        "partitions": list(topic.partitions),
        "configs": topic.config.overrides(),
    }
    if entry.total_partitions is not None:
        document["total_partitions"] = entry.total_partitions
    if entry.plan is not None:
        document["being_made"] = {name: list(each) for name, each in sorted(entry.plan.items())}
    if entry.deletion is not None:
        document["being_deleted"] = {
            "mark": entry.deletion.mark,
            "directories": list(entry.deletion.directories),
        }
    return document


def _decode(document: dict[str, Any]) -> TopicEntry:
    topic_id = None if document["id"] is None else parse_uuid(document["id"])
    if topic_id is None and document["id"] is not None:
        raise UsageError(f"{document['id']!r} is not an id of 22 characters of base64")
    if not isinstance(document["configs"], dict):
        raise UsageError("the configs are not pairs")
    topic = Topic(
        check_topic(document["name"]),
        topic_id,
        _partitions(document["partitions"]),
        LogConfig.of(document["configs"]),
    )
    plan = document.get("being_made")
    if plan is not None:
        plan = {str(name): _partitions(each) for name, each in plan.items()}
    total = document.get("total_partitions")
    if total is not None and (type(total) is not int or not 0 <= total <= _TOTAL_MAX):
        raise UsageError(f"the total of partitions is {total!r}")
    return TopicEntry(topic, plan, _deletion(document.get("being_deleted")), total)


def _deletion(document: dict[str, Any] | None) -> Deletion | None:
    if document is None:
        return None
    if not _MARK.fullmatch(document["mark"]):
        raise UsageError(f"the mark {document['mark']!r} is not 32 hexadecimal digits")
    return Deletion(document["mark"], tuple(map(str, document["directories"])))


def _partitions(listed: Any) -> tuple[int, ...]:
    partitions = tuple(listed)
    if not all(type(each) is int and 0 <= each <= INT32_MAX for each in partitions):
        raise UsageError(f"partitions {partitions}")
    return partitions
