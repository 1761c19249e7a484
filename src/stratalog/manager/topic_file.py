"""The topics of a log directory: their ids, their partitions and their configs.

A file of our own in the root, beside Kafka's; Kafka keeps the same in its metadata log, and takes no notice
of ours. Folders that it does not know are partitions all the same, with Kafka's defaults.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, Final

from stratalog.errors import CorruptionError, UsageError
from stratalog.manager.directory import read_small_file
from stratalog.storage.filesystem import FileSystem, replace_file
from stratalog.storage.kafka_uuid import format_uuid, parse_uuid
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import STRATALOG_TOPICS, TEMPORARY_SUFFIX, check_topic

__all__ = ["Topic", "TopicFile"]

_VERSION: Final = 1


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


class TopicFile:
    """The file in one root."""

    def __init__(self, file_system: FileSystem, root: str) -> None:
        self._file_system = file_system
        self._path = os.path.join(root, STRATALOG_TOPICS)
        self.topics = self._read()

    def _read(self) -> dict[str, Topic]:
        data = read_small_file(self._file_system, self._path)
        if data is None:
            return {}
        try:
            return {topic.name: topic for topic in map(_decode, _entries(data))}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptionError(
                "topics_file", f"not what it must be: {error}", path=self._path,
                advice="remove it to go on with Kafka's default configs",
            ) from None  # fmt: skip

    def put(self, topic: Topic) -> None:
        self._write({**self.topics, topic.name: topic})

    def remove(self, name: str) -> None:
        if name in self.topics:
            self._write({key: topic for key, topic in self.topics.items() if key != name})

    def _write(self, topics: dict[str, Topic]) -> None:
        document = {
            "version": _VERSION,
            "topics": [_encode(topics[name]) for name in sorted(topics)],
        }
        text = json.dumps(document, indent=1) + "\n"
        replace_file(self._file_system, self._path, self._path + TEMPORARY_SUFFIX, text.encode())
        self.topics = topics


def _entries(data: bytes) -> list[dict[str, Any]]:
    document = json.loads(data)
    if document["version"] != _VERSION:
        raise UsageError(f"version {document['version']}")
    entries = document["topics"]
    if not isinstance(entries, list):
        raise UsageError("the topics are not a list")
    return entries


def _encode(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": None if topic.topic_id is None else format_uuid(topic.topic_id),
        "partitions": list(topic.partitions),
        "configs": topic.config.overrides(),
    }


def _decode(entry: dict[str, Any]) -> Topic:
    partitions = tuple(entry["partitions"])
    if not all(isinstance(each, int) and 0 <= each < 2**31 for each in partitions):
        raise UsageError(f"partitions {partitions}")
    return Topic(
        check_topic(entry["name"]),
        None if entry["id"] is None else parse_uuid(entry["id"]),
        partitions,
        LogConfig.of(entry["configs"]),
    )
