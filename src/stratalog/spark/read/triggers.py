"""How far a trigger of a stream goes: pure functions from offsets to offsets, as Spark decides for Kafka."""

from __future__ import annotations

import math
from collections.abc import Mapping

from stratalog.spark.options.offsets import Offsets
from stratalog.types import TopicPartition

__all__ = ["backlog", "limit_by_offsets", "merged_start", "reached_or_less"]


def backlog(start: Offsets, end: Offsets) -> int:
    """How many offsets lie between."""
    return sum(
        max(0, offset - start.get(topic_partition, offset))
        for topic_partition, offset in end.items()
    )


def limit_by_offsets(start: Offsets, end: Offsets, offsets_max: int) -> dict[TopicPartition, int]:
    """At most so many offsets, each partition's share by how much it holds. Every partition that holds
    something moves, so that a few more may come out."""
    total = backlog(start, end)
    if total <= offsets_max:
        return dict(end)
    limited = {}
    for topic_partition, offset in end.items():
        begin = start.get(topic_partition, offset)
        share = offsets_max * (max(0, offset - begin) / total)
        step = math.ceil(share) if share < 1 else math.floor(share)
        limited[topic_partition] = min(begin + step, offset)
    return limited


def merged_start(
    start: Offsets, starts_of_new: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The start of a trigger: where the last one ended, and for partitions that have come since, their
    own beginning."""
    return {**starts_of_new, **start}


def reached_or_less(offsets: Offsets, highest: Offsets) -> dict[TopicPartition, int]:
    """Offsets that go nowhere beyond ``highest``; partitions that it does not know do not count."""
    return {
        topic_partition: min(offset, highest[topic_partition])
        for topic_partition, offset in offsets.items()
        if topic_partition in highest
    }
