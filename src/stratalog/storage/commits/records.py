"""What the journal of commits says, line by line: records as values, and as text.

    4f1d0c2a {"type": "intent", "number": 7, …}

Eight hexadecimal digits are the CRC-32C of the JSON behind them. ``docs/formats/commit-journal.md`` describes
every field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from stratalog.errors import UsageError
from stratalog.records import kernel
from stratalog.records.layout import INT32_MAX, INT64_MAX
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.piece import Piece
from stratalog.storage.formats.kafka_uuid import format_uuid, parse_uuid
from stratalog.storage.names import check_topic
from stratalog.types import TopicPartition

__all__ = [
    "Begin",
    "CommitMethod",
    "CommitRecord",
    "CommittedSpan",
    "Done",
    "Highest",
    "Intent",
    "NewTopic",
    "PartitionIntent",
    "PlannedPiece",
    "Revised",
    "Revision",
    "decode_line",
    "encode_line",
]

_VERSION: Final = 1
_CRC_DIGITS: Final = 8
#: What a text that is no record makes of the attempt to read it as one.
NOT_A_RECORD: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


class CommitMethod(StrEnum):
    """How a piece gets into its log."""

    APPEND = "append"
    ADOPT = "adopt"


@dataclass(frozen=True, slots=True)
class PlannedPiece:
    piece: Piece
    method: CommitMethod


@dataclass(frozen=True, slots=True)
class PartitionIntent:
    """The pieces that one partition gets, in this order, from offset ``start`` on."""

    place: TopicPartition
    start: int
    pieces: tuple[PlannedPiece, ...]

    @property
    def records(self) -> int:
        return sum(each.piece.records for each in self.pieces)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that comes into being with a commit."""

    name: str
    topic_id: bytes
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Begin:
    """The first line. ``generation`` is another one whenever the file was written anew; up to
    ``last_number`` commits have their numbers; ``size_bytes`` are the lines that were written with it."""

    generation: int
    last_number: int
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Intent:
    """A commit that will happen."""

    number: int
    key: CommitKey
    time_ms: int
    partitions: tuple[PartitionIntent, ...]
    topics: tuple[NewTopic, ...] = ()


@dataclass(frozen=True, slots=True)
class Revision:
    """From batch ``batch`` of piece ``piece`` on, the rest of a partition's pieces is at ``start``."""

    place: TopicPartition
    piece: int
    batch: int
    start: int


@dataclass(frozen=True, slots=True)
class Revised:
    """A replay found the end of a partition elsewhere than the intent says."""

    number: int
    revisions: tuple[Revision, ...]


@dataclass(frozen=True, slots=True)
class CommittedSpan:
    """Where a commit's records of one partition are: all from ``first_offset`` to ``last_offset``. Where
    foreign ones lie among them, ``records`` are fewer than that. ``visible_from`` is where readers had to
    stop while the commit was under way."""

    place: TopicPartition
    first_offset: int
    last_offset: int
    records: int
    visible_from: int


@dataclass(frozen=True, slots=True)
class Done:
    """A commit that has happened."""

    number: int
    key: CommitKey
    spans: tuple[CommittedSpan, ...]


@dataclass(frozen=True, slots=True)
class Highest:
    """The highest version that is done, of every owner that is remembered for ever."""

    versions: Mapping[str, int]


CommitRecord = Begin | Intent | Revised | Done | Highest


def encode_line(record: CommitRecord) -> bytes:
    """One line, with its end."""
    text = json.dumps(_ENCODE[type(record)](record), separators=(",", ":")).encode()
    return b"%08x %s\n" % (kernel.crc32c(text), text)


def decode_line(line: bytes) -> CommitRecord | None:
    """The record of a line without its end; None where its CRC is not that of its text. One of
    ``NOT_A_RECORD`` is raised where the CRC is right and the text still is none."""
    text = line[_CRC_DIGITS + 1 :]
    if line[: _CRC_DIGITS + 1] != b"%08x " % kernel.crc32c(text):
        return None
    document = json.loads(text)
    decode = _DECODE.get(document["type"])
    if decode is None:
        raise ValueError(f"a record of type {document['type']!r}: a newer Stratalog wrote it")
    return decode(document)


# Numbers that are what they must be.


def _number(value: Any, largest: int = INT64_MAX) -> int:
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(f"{value!r} is not a number from 0 to {largest}")
    return value


def _place(topic: Any, partition: Any) -> TopicPartition:
    return TopicPartition(check_topic(topic), _number(partition, INT32_MAX))


def _key(document: dict[str, Any]) -> CommitKey:
    is_fresh = document.get("fresh", False)
    if not isinstance(document["owner"], str) or type(is_fresh) is not bool:
        raise ValueError("a key that is none")
    return CommitKey(document["owner"], document["version"], is_fresh)


def _of_key(key: CommitKey) -> dict[str, Any]:
    document: dict[str, Any] = {"owner": key.owner, "version": key.version}
    return document | {"fresh": True} if key.is_fresh else document


# Each record as a document, and back.


def _encode_begin(record: Begin) -> dict[str, Any]:
    return {
        "type": "journal",
        "format": _VERSION,
        "generation": record.generation,
        "last_number": record.last_number,
        "size": record.size_bytes,
    }


def _decode_begin(document: dict[str, Any]) -> Begin:
    if document["format"] != _VERSION:
        raise ValueError(f"format {document['format']!r}: a newer Stratalog wrote it")
    generation = _number(document["generation"])
    if generation == 0:
        raise ValueError("generation 0: the first is 1")
    return Begin(generation, _number(document["last_number"]), _number(document["size"]))


def _encode_intent(record: Intent) -> dict[str, Any]:
    return {
        "type": "intent",
        "number": record.number,
        **_of_key(record.key),
        "time": record.time_ms,
        "topics": [
            {
                "name": topic.name,
                "id": format_uuid(topic.topic_id),
                "partitions": topic.partitions,
                "configs": dict(topic.configs),
            }
            for topic in record.topics
        ],
        "partitions": [
            {
                "topic": each.place.topic,
                "partition": each.place.partition,
                "start": each.start,
                "pieces": [
                    [planned.method.value, *planned.piece.to_json()] for planned in each.pieces
                ],
            }
            for each in record.partitions
        ],
    }


def _decode_intent(document: dict[str, Any]) -> Intent:
    time_ms = document["time"]
    if type(time_ms) is not int:
        raise ValueError(f"the time {time_ms!r}")
    return Intent(
        _number(document["number"]),
        _key(document),
        time_ms,
        tuple(map(_decode_partition, document["partitions"])),
        tuple(map(_decode_topic, document["topics"])),
    )


def _decode_partition(document: dict[str, Any]) -> PartitionIntent:
    place = _place(document["topic"], document["partition"])
    pieces = tuple(
        PlannedPiece(Piece.from_json(place, fields), CommitMethod(method))
        for method, *fields in document["pieces"]
    )
    return PartitionIntent(place, _number(document["start"]), pieces)


def _decode_topic(document: dict[str, Any]) -> NewTopic:
    topic_id = parse_uuid(document["id"])
    if topic_id is None:
        raise UsageError(f"{document['id']!r} is not an id of 22 characters of base64")
    configs = {str(name): str(value) for name, value in document["configs"].items()}
    return NewTopic(
        check_topic(document["name"]),
        topic_id,
        _number(document["partitions"], INT32_MAX),
        configs,
    )


def _encode_revised(record: Revised) -> dict[str, Any]:
    return {
        "type": "revised",
        "number": record.number,
        "partitions": [
            [each.place.topic, each.place.partition, each.piece, each.batch, each.start]
            for each in record.revisions
        ],
    }


def _decode_revised(document: dict[str, Any]) -> Revised:
    return Revised(
        _number(document["number"]),
        tuple(
            Revision(_place(topic, partition), _number(piece), _number(batch), _number(start))
            for topic, partition, piece, batch, start in document["partitions"]
        ),
    )


def _encode_done(record: Done) -> dict[str, Any]:
    return {
        "type": "done",
        "number": record.number,
        **_of_key(record.key),
        "partitions": [
            [*span.place, span.first_offset, span.last_offset, span.records, span.visible_from]
            for span in record.spans
        ],
    }


def _decode_done(document: dict[str, Any]) -> Done:
    return Done(
        _number(document["number"]),
        _key(document),
        tuple(
            CommittedSpan(
                _place(topic, partition),
                _number(first),
                _number(last),
                _number(records),
                _number(visible_from),
            )
            for topic, partition, first, last, records, visible_from in document["partitions"]
        ),
    )


def _encode_highest(record: Highest) -> dict[str, Any]:
    return {"type": "highest", "owners": dict(sorted(record.versions.items()))}


def _decode_highest(document: dict[str, Any]) -> Highest:
    return Highest({str(owner): _number(version) for owner, version in document["owners"].items()})


_ENCODE: Final[dict[type, Callable[[Any], dict[str, Any]]]] = {
    Begin: _encode_begin,
    Intent: _encode_intent,
    Revised: _encode_revised,
    Done: _encode_done,
    Highest: _encode_highest,
}
_DECODE: Final[dict[str, Callable[[dict[str, Any]], CommitRecord]]] = {
    "journal": _decode_begin,
    "intent": _decode_intent,
    "revised": _decode_revised,
    "done": _decode_done,
    "highest": _decode_highest,
}
