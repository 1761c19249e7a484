"""``stratalog-topics.json``: the topics of a log directory, with their ids, partitions and configs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stratalog.errors import CorruptionError, UsageError
from stratalog.records.layout import INT32_MAX
from stratalog.storage.formats.kafka_uuid import format_uuid, parse_uuid
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import check_topic

__all__ = ["Topic", "TopicEntry", "decode_topics", "encode_topics"]

_VERSION: Final = 1
_NOT_AN_ENTRY: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: ``partitions`` are the indexes that there are."""

    name: str
    topic_id: bytes | None = None
    partitions: tuple[int, ...] = ()
    config: LogConfig = field(default_factory=LogConfig)

    @property
    def partition_count(self) -> int:
        return len(self.partitions)


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """What one directory's file says of a topic. ``topic.partitions`` are those of this directory.

    While partitions are being made ``plan`` says which, for every directory by its id: whoever opens the
    directories after a crash makes the rest. Where it is None nothing is under way: a folder that is
    missing then was taken away, and an empty one in its place would be a lie.
    """

    topic: Topic
    plan: Mapping[str, tuple[int, ...]] | None = None


def decode_topics(data: bytes) -> dict[str, TopicEntry]:
    """Read ``stratalog-topics.json``; CorruptionError where it is damaged."""
    try:
        return {entry.topic.name: entry for entry in map(_decode, _documents(data))}
    except _NOT_AN_ENTRY as error:
        raise CorruptionError(
            "topics_file", f"not what it must be: {error}",
            advice="put back a copy of it, or remove it to go on with Kafka's default configs",
        ) from None  # fmt: skip


def encode_topics(entries: Mapping[str, TopicEntry]) -> bytes:
    """The file's text, topics by name."""
    document = {
        "version": _VERSION,
        "topics": [_encode(entries[name]) for name in sorted(entries)],
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def _documents(data: bytes) -> list[dict[str, Any]]:
    document = json.loads(data)
    if document["version"] != _VERSION:
        raise UsageError(f"version {document['version']}")
    entries = document["topics"]
    if not isinstance(entries, list):
        raise UsageError("the topics are not a list")
    return entries


def _encode(entry: TopicEntry) -> dict[str, Any]:
    topic = entry.topic
    document: dict[str, Any] = {
        "name": topic.name,
        "id": None if topic.topic_id is None else format_uuid(topic.topic_id),
        "partitions": list(topic.partitions),
        "configs": topic.config.overrides(),
    }
    if entry.plan is not None:
        document["being_made"] = {name: list(each) for name, each in sorted(entry.plan.items())}
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
    if plan is None:
        return TopicEntry(topic)
    return TopicEntry(topic, {str(name): _partitions(each) for name, each in plan.items()})


def _partitions(listed: Any) -> tuple[int, ...]:
    partitions = tuple(listed)
    if not all(type(each) is int and 0 <= each <= INT32_MAX for each in partitions):
        raise UsageError(f"partitions {partitions}")
    return partitions
