"""Which partitions are wanted: topics by name or pattern, partitions by number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from typing import Final

from stratalog.errors import UnknownPartitionError, UsageError
from stratalog.types import TopicPartition

__all__ = [
    "EVERYTHING",
    "PartitionFilter",
    "Partitions",
    "Topics",
    "partition_filter",
    "topics_regex",
]

Topics = str | Iterable[str]
Partitions = int | str | Iterable[int]

_PATTERN: Final = re.compile(r"[a-zA-Z0-9._*?-]+")
_NUMBERS: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
_NAMED_MAX: Final = 12


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """Topics, with ``*`` and ``?`` for any characters and any one; numbers as ranges. None: all. What is
    asked for ``may_miss``: then nothing is said where it is not there."""

    topics: tuple[str, ...] | None = None
    numbers: tuple[range, ...] | None = None
    may_miss: bool = False

    def takes(self, topic_partition: TopicPartition | None) -> bool:
        """Whether the partition is wanted. What belongs to none is, when nothing is asked for."""
        if topic_partition is None:
            return self.topics is None and self.numbers is None
        return self._takes_topic(topic_partition.topic) and (
            self.numbers is None or any(topic_partition.partition in some for some in self.numbers)
        )

    def names(self, topic: str) -> bool:
        """Whether the topic is asked for by its very name, and not by a pattern or by silence."""
        return self.topics is not None and topic in self.topics

    def _takes_topic(self, topic: str) -> bool:
        return self.topics is None or any(fnmatchcase(topic, each) for each in self.topics)

    def check(self, there: Iterable[TopicPartition]) -> None:
        """UnknownPartitionError where something that was asked for is not there."""
        if self.may_miss:
            return
        topic_partitions = sorted(set(there))
        topics = sorted({topic_partition.topic for topic_partition in topic_partitions})
        for pattern in self.topics or ():
            if not any(fnmatchcase(topic, pattern) for topic in topics):
                raise UnknownPartitionError(f"no topic {pattern!r}; {_found(topics)}")
        wanted = [
            topic_partition
            for topic_partition in topic_partitions
            if self._takes_topic(topic_partition.topic)
        ]
        for some in self.numbers or ():
            if not any(topic_partition.partition in some for topic_partition in wanted):
                known = [str(topic_partition) for topic_partition in wanted]
                raise UnknownPartitionError(f"no partition {_range(some)}; {_found(known)}")


EVERYTHING: Final = PartitionFilter()


def topics_regex(patterns: Iterable[str]) -> str:
    """Return the regular expression for the topics that one of the patterns takes, for Spark's
    ``subscribePattern``. It matches whole names."""
    return f"(?:{'|'.join(map(translate, patterns))})"


def _found(names: Sequence[str]) -> str:
    if not names:
        return "found none"
    more = len(names) - _NAMED_MAX
    listed = ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    return f"found {listed}"


def _range(numbers: range) -> str:
    return str(numbers.start) if len(numbers) == 1 else f"{numbers.start}-{numbers.stop - 1}"


def partition_filter(
    topics: Topics | None = None, partitions: Partitions | None = None
) -> PartitionFilter:
    """The filter for what a caller gave: ``orders``, ``["orders", "pay*"]``; ``0``, ``"0,2-5"``."""
    return PartitionFilter(
        None if topics is None else _patterns(topics),
        None if partitions is None else _numbers(partitions),
    )


def _patterns(topics: Topics) -> tuple[str, ...]:
    if not isinstance(topics, Iterable):
        raise UsageError(f"topics are names, not {topics!r}")
    given: tuple[object, ...] = (topics,) if isinstance(topics, str) else tuple(topics)
    names = tuple(each for each in given if isinstance(each, str) and _PATTERN.fullmatch(each))
    for pattern in given:
        if pattern not in names:
            raise UsageError(
                f"{pattern!r} is not a topic name: use letters, digits, '.', '_', '-', and * and ?"
            )
    if not given:
        raise UsageError("topics is empty: name one, or leave it out for all")
    return names


def _numbers(partitions: Partitions) -> tuple[range, ...]:
    if isinstance(partitions, int):
        partitions = (partitions,)
    if not isinstance(partitions, Iterable):
        raise UsageError(f"partitions are numbers, not {partitions!r}")
    if isinstance(partitions, str):
        numbers = tuple(map(_number_range, partitions.split(",")))
    else:
        numbers = tuple(range(number, number + 1) for number in partitions)
    if not numbers or any(some.start < 0 or not some for some in numbers):
        raise UsageError(f"{partitions!r} names no partitions: write 0, or 0,2-5")
    return numbers


def _number_range(text: str) -> range:
    match = _NUMBERS.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a partition: write 0 or 0,2-5")
    first = int(match[1])
    return range(first, int(match[2] or first) + 1)
