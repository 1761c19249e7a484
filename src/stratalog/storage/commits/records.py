"""What the journal of commits says, line by line: records as values, and as text.

    4f1d0c2a {"type": "intent", "number": 7, …}

Eight hexadecimal digits are the CRC-32C of the JSON behind them. ``docs/formats/commit-journal.md`` describes
every field.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from stratalog.errors import UsageError
from stratalog.records import kernel
from stratalog.records.layout import INT32_MAX, INT64_MAX
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.piece import Piece
from stratalog.storage.commits.segment_groups import PartitionGroups, SegmentGroup
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
    "ReplacedPartition",
    "Revised",
    "Revision",
    "decode_line",
    "encode_line",
]

_VERSION: Final = 1
#: Of the ``replace`` line: a reader that knows another one must not guess.
_REPLACE_VERSION: Final = 1
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

    topic_partition: TopicPartition
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
    """A commit that will happen. It appends pieces to ``partitions``, or puts staged segments in the place of
    the live ones that ``replaced`` names: never both, for a replacement hides nothing from readers."""

    number: int
    key: CommitKey
    time_ms: int
    partitions: tuple[PartitionIntent, ...]
    topics: tuple[NewTopic, ...] = ()
    replaced: tuple[PartitionGroups, ...] = ()

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        """The partitions that the commit changes."""
        appended = [each.topic_partition for each in self.partitions]
        return appended + [each.topic_partition for each in self.replaced]

    def piece_names(self) -> Iterator[str]:
        """Yield the names of the pieces that the commit needs until it is done; a staged segment is named by
        its data file."""
        for partition in self.partitions:
            yield from (planned.piece.name for planned in partition.pieces)
        for replaced in self.replaced:
            yield from (segment.name for group in replaced.groups for segment in group.new)


@dataclass(frozen=True, slots=True)
class Revision:
    """From batch ``batch`` of piece ``piece`` on, the rest of a partition's pieces is at ``start``."""

    topic_partition: TopicPartition
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

    topic_partition: TopicPartition
    first_offset: int
    last_offset: int
    records: int
    visible_from: int

    @property
    def place(self) -> TopicPartition:
        """The same as ``topic_partition``. Deprecated: use that name."""
        text = "CommittedSpan.place is deprecated: use topic_partition"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return self.topic_partition


@dataclass(frozen=True, slots=True)
class ReplacedPartition:
    """How many groups of a partition a commit was to replace, and how many it did. The others were not there
    any more as they were planned for."""

    topic_partition: TopicPartition
    planned: int
    done: int


@dataclass(frozen=True, slots=True)
class Done:
    """A commit that has happened."""

    number: int
    key: CommitKey
    spans: tuple[CommittedSpan, ...]
    replaced: tuple[ReplacedPartition, ...] = ()


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


def _topic_partition(topic: Any, partition: Any) -> TopicPartition:
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
    if record.replaced:
        return _encode_replace(record)
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
                "topic": each.topic_partition.topic,
                "partition": each.topic_partition.partition,
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
    topic_partition = _topic_partition(document["topic"], document["partition"])
    pieces = tuple(
        PlannedPiece(Piece.from_json(topic_partition, fields), CommitMethod(method))
        for method, *fields in document["pieces"]
    )
    return PartitionIntent(topic_partition, _number(document["start"]), pieces)


def _encode_replace(record: Intent) -> dict[str, Any]:
    """A type of its own: a reader that does not know it refuses the journal, and does not take the commit
    for one without records."""
    return {
        "type": "replace",
        "format": _REPLACE_VERSION,
        "number": record.number,
        **_of_key(record.key),
        "time": record.time_ms,
        "partitions": [
            {
                "topic": each.topic_partition.topic,
                "partition": each.topic_partition.partition,
                "cleaned": each.cleaned_to,
                "groups": [group.to_json() for group in each.groups],
            }
            for each in record.replaced
        ],
    }


def _decode_replace(document: dict[str, Any]) -> Intent:
    if document["format"] != _REPLACE_VERSION:
        raise ValueError(
            f"a replacement of format {document['format']!r}: a newer Stratalog wrote it"
        )
    replaced = tuple(map(_decode_groups, document["partitions"]))
    if not replaced or type(document["time"]) is not int:
        raise ValueError("a replacement of nothing, or without a time")
    return Intent(
        _number(document["number"]), _key(document), document["time"], (), replaced=replaced
    )


def _decode_groups(document: dict[str, Any]) -> PartitionGroups:
    cleaned = document["cleaned"]
    return PartitionGroups(
        _topic_partition(document["topic"], document["partition"]),
        tuple(map(SegmentGroup.from_json, document["groups"])),
        None if cleaned is None else _number(cleaned),
    )


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
            [
                each.topic_partition.topic,
                each.topic_partition.partition,
                each.piece,
                each.batch,
                each.start,
            ]
            for each in record.revisions
        ],
    }


def _decode_revised(document: dict[str, Any]) -> Revised:
    return Revised(
        _number(document["number"]),
        tuple(
            Revision(
                _topic_partition(topic, partition), _number(piece), _number(batch), _number(start)
            )
            for topic, partition, piece, batch, start in document["partitions"]
        ),
    )


def _encode_done(record: Done) -> dict[str, Any]:
    document = {
        "type": "done",
        "number": record.number,
        **_of_key(record.key),
        "partitions": [
            [
                *span.topic_partition,
                span.first_offset,
                span.last_offset,
                span.records,
                span.visible_from,
            ]
            for span in record.spans
        ],
    }
    if record.replaced:
        document["replaced"] = [
            [*each.topic_partition, each.planned, each.done] for each in record.replaced
        ]
    return document


def _decode_done(document: dict[str, Any]) -> Done:
    return Done(
        _number(document["number"]),
        _key(document),
        tuple(
            CommittedSpan(
                _topic_partition(topic, partition),
                _number(first),
                _number(last),
                _number(records),
                _number(visible_from),
            )
            for topic, partition, first, last, records, visible_from in document["partitions"]
        ),
        tuple(
            ReplacedPartition(_topic_partition(topic, partition), _number(planned), _number(done))
            for topic, partition, planned, done in document.get("replaced", ())
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
    "replace": _decode_replace,
    "revised": _decode_revised,
    "done": _decode_done,
    "highest": _decode_highest,
}
