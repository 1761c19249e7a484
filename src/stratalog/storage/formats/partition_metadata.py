"""``partition.metadata``: which topic the partition belongs to, by the id that outlives its name.

    version: 0
    topic_id: ABEiM0RVZneImaq7zN3u_w         no end of line behind it

It must be there before the first record: a broker takes a partition without it for a stray one.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from stratalog.errors import CorruptionError
from stratalog.records.layout import INT32_MAX
from stratalog.storage.formats.kafka_uuid import UUID_SIZE, format_uuid, parse_uuid, random_uuid

__all__ = [
    "PartitionMetadata",
    "decode_partition_metadata",
    "encode_partition_metadata",
    "new_topic_id",
]

_VERSION: Final = 0
_NO_TOPIC_ID: Final = bytes(UUID_SIZE)
_NUMBER: Final = re.compile(rb"[0-9]{1,10}")


class PartitionMetadata(NamedTuple):
    version: int
    topic_id: bytes


def new_topic_id() -> bytes:
    """The id of a topic that is being created."""
    return random_uuid()


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """The file's text."""
    assert topic_id != _NO_TOPIC_ID
    return f"version: {_VERSION}\ntopic_id: {format_uuid(topic_id)}".encode("ascii")


def decode_partition_metadata(data: bytes) -> PartitionMetadata:
    """What the file says; CorruptionError where it is damaged.

    Later versions may add lines behind the two that are known, so none is refused.
    """
    lines = data.splitlines()
    if len(lines) < 2:
        raise _wrong(f"{len(lines)} lines, not 2")
    version = _field(lines, 0, b"version:")
    if not _NUMBER.fullmatch(version) or int(version) > INT32_MAX:
        raise _wrong("line 1: the version is not a number")
    topic_id = parse_uuid(_field(lines, 1, b"topic_id:").decode("ascii", "replace"))
    if topic_id is None:
        raise _wrong("line 2: the topic id is not 22 characters of base64")
    if topic_id == _NO_TOPIC_ID:
        raise _wrong("line 2: the topic id is all zeros")
    return PartitionMetadata(int(version), topic_id)


def _field(lines: list[bytes], at: int, label: bytes) -> bytes:
    words = lines[at].split()
    if len(words) != 2 or words[0] != label:
        raise _wrong(f"line {at + 1}: {label.decode('ascii')} and one word are missing")
    return words[1]


def _wrong(detail: str) -> CorruptionError:
    return CorruptionError("partition_metadata", detail)
