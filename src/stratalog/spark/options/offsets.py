"""Offsets as Spark's Kafka source writes them: ``{"orders": {"0": 23, "1": -1}}``, and where a read begins.

The same JSON stands in options, in checkpoints and in progress reports. Spark compares the offsets of a
stream as texts, so that equal ones must be written equally: topics and partitions in order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from stratalog.errors import UsageError
from stratalog.records.layout import INT32_MAX, INT64_MAX, INT64_MIN
from stratalog.types import TopicPartition

__all__ = [
    "EARLIEST",
    "FIRST_START",
    "LATEST",
    "Kind",
    "Offsets",
    "Position",
    "offsets_as_dict",
    "parse_assignment",
    "parse_numbers",
    "parse_offsets_dict",
    "parse_position",
]

EARLIEST: Final = -2
LATEST: Final = -1
#: Beside the topics in the offset of a stream: where its first batch begins. No topic has such a name.
FIRST_START: Final = "(start)"

Offsets = Mapping[TopicPartition, int]


class Kind(StrEnum):
    """How a position is given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"  # a number for each partition; EARLIEST and LATEST among them
    TIMES = "times"  # a time for each partition, in milliseconds
    TIME = "time"  # one time for all


@dataclass(frozen=True, slots=True)
class Position:
    """Where a read begins or ends, before it is known what the partitions hold."""

    kind: Kind
    numbers: Mapping[TopicPartition, int] | None = None
    time_ms: int | None = None
    option: str = ""  # which option said so, for messages


def offsets_as_dict(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Offsets as JSON objects, in one order whatever theirs was."""
    result: dict[str, dict[str, int]] = {}
    for topic_partition in sorted(offsets):
        result.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offsets[
            topic_partition
        ]
    return result


def parse_offsets_dict(value: Any, name: str) -> dict[TopicPartition, int]:
    """What :func:`offsets_as_dict` made, from a checkpoint. Old checkpoints stay readable for ever."""
    if isinstance(value, dict):
        value = {topic: numbers for topic, numbers in value.items() if topic != FIRST_START}
    return _numbers(value, name)


def parse_numbers(text: str, option: str) -> dict[TopicPartition, int]:
    """An option such as ``{"orders": {"0": 23, "1": -2}}``."""
    return _numbers(_json(text, option, '{"topic": {"0": 23, "1": -2}}'), option)


def _numbers(value: Any, option: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    if not isinstance(value, dict):
        raise _refused(option, value)
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            raise _refused(option, partitions)
        for number, offset in partitions.items():
            if not _is_partition(number) or not _is_int64(offset):
                raise _refused(option, {number: offset})
            found[TopicPartition(topic, int(number))] = offset
    return found


def parse_assignment(text: str, option: str) -> tuple[TopicPartition, ...]:
    """An option such as ``{"orders": [0, 1]}``."""
    value = _json(text, option, '{"topic": [0, 1]}')
    if not isinstance(value, dict):
        raise _refused(option, value)
    topic_partitions = []
    for topic, numbers in value.items():
        if not isinstance(numbers, list):
            raise _refused(option, numbers)
        for number in numbers:
            if type(number) is not int or not 0 <= number <= INT32_MAX:
                raise _refused(option, number)
            topic_partitions.append(TopicPartition(topic, number))
    return tuple(sorted(set(topic_partitions)))


def parse_position(text: str, option: str) -> Position:
    """``earliest``, ``latest``, or a number for each partition."""
    word = text.strip().lower()
    if word in (Kind.EARLIEST, Kind.LATEST):
        return Position(Kind(word), option=option)
    numbers = parse_numbers(text, option)
    for topic_partition, offset in numbers.items():
        if offset < EARLIEST:
            raise UsageError(
                f"{option}: {offset} of {topic_partition} is not an offset: use 0 or more, -2 for the "
                "earliest, or -1 for the latest"
            )
    return Position(Kind.OFFSETS, numbers=numbers, option=option)


def _json(text: str, option: str, example: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"{option}: {text[:200]!r} is not valid JSON such as {example}") from None


def _is_partition(text: Any) -> bool:
    is_number = isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 10
    return is_number and int(text) <= INT32_MAX


def _is_int64(value: Any) -> bool:
    return type(value) is int and INT64_MIN <= value <= INT64_MAX


def _refused(option: str, value: Any) -> UsageError:
    return UsageError(f"{option}: {json.dumps(value)[:200]} is not valid here")
