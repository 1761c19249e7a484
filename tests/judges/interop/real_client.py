"""A real client (librdkafka) that reads partitions of a real broker to their end."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    TopicPartition,
)

from stratalog.records.layout import TimestampType
from stratalog.records.model import Record, RecordHeader

Place = tuple[str, int]


def consume(
    bootstrap: str, places: Iterable[Place], *, committed: bool = False, timeout_s: float = 60
) -> dict[Place, list[Record]]:
    """Every record from the log's start on."""
    found: dict[Place, list[Record]] = {place: [] for place in places}
    client = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    left = set(found)
    deadline = time.monotonic() + timeout_s
    try:
        client.assign([TopicPartition(topic, number, 0) for topic, number in found])
        while left:
            assert time.monotonic() < deadline, f"no end of {left}"
            for message in client.consume(10_000, 0.05):
                place = (str(message.topic()), int(message.partition() or 0))
                error = message.error()
                if error is None:
                    found[place].append(_record(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(place)
                else:
                    raise AssertionError(f"{place}: {error.str()}")
    finally:
        client.close()
    return found


def _record(message: Any) -> Record:
    kind, timestamp = message.timestamp()
    kinds = {
        TIMESTAMP_NOT_AVAILABLE: TimestampType.NONE,
        TIMESTAMP_LOG_APPEND_TIME: TimestampType.APPEND_TIME,
    }
    return Record(
        value=message.value(),
        key=message.key(),
        timestamp=-1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        timestamp_type=kinds.get(kind, TimestampType.CREATE_TIME),
        headers=tuple(RecordHeader(*header) for header in message.headers() or ()),
        offset=message.offset(),
    )
