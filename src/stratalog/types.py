"""The glossary as types: integers that must not be mixed have different names.

An ``Offset`` counts records in a partition. A position counts bytes in one file, and is never called an
offset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, NewType

__all__ = [
    "NO_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "Bytes",
    "LeaderEpoch",
    "Offset",
    "ProducerId",
    "Progress",
    "TimestampMs",
    "TopicPartition",
]

#: Bytes in memory: what is written, decoded or compressed.
Bytes = bytes | bytearray | memoryview

#: Called with the number of bytes that are done.
Progress = Callable[[int], None]

Offset = NewType("Offset", int)
TimestampMs = NewType("TimestampMs", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)

NO_TIMESTAMP = TimestampMs(-1)
NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1


class TopicPartition(NamedTuple):
    """A topic's name and the index of one of its partitions; prints as its folder is named."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
