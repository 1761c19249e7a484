"""The options of a read, by the names of Spark's Kafka source and a few of our own.

Spark hands options over with lower-cased names and as texts. What only a consumer of a broker needs is taken
and means nothing here, so that a pipeline moves by its format and its address.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from stratalog.errors import UsageError
from stratalog.inspect.file.skipped_damage import OnDamagedBatch, refuse_committed_skip
from stratalog.inspect.latest.latest_reader import (
    MEMORY_BYTES_DEFAULT,
    MEMORY_BYTES_MIN,
    LatestPerKey,
)
from stratalog.records.layout import BATCH_SIZE_MAX_DEFAULT
from stratalog.spark.options.offsets import (
    EARLIEST,
    LATEST,
    Kind,
    Position,
    parse_assignment,
    parse_numbers,
    parse_position,
)
from stratalog.spark.options.option_names import (
    IDLE_OPTIONS,
    KAFKA_OPTIONS,
    OWN_OPTIONS,
    SINK_OPTIONS,
    is_topic_config,
)
from stratalog.spark.options.options import STORE_PREFIX, Given, refuse_unknown
from stratalog.spark.options.paths import parse_paths
from stratalog.storage.names import INTERNAL_TOPICS, check_topic
from stratalog.types import TopicPartition

__all__ = ["ReadOptions", "Wanted"]

#: What Spark reads of a file in one task, too.
SPLIT_BYTES: Final = 128 << 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which partitions to read: topics by name or by pattern, or single partitions. Where none of them is
    given, every topic except Kafka's internal ones."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    topic_partitions: tuple[TopicPartition, ...] | None = None
    #: Whether internal topics are read that were not asked for by name.
    includes_internal: bool = False

    @property
    def is_given(self) -> bool:
        """Whether the options choose topics at all."""
        return not (self.topics is None and self.pattern is None and self.topic_partitions is None)

    def takes(self, topic_partition: TopicPartition) -> bool:
        if self.topic_partitions is not None:
            return topic_partition in self.topic_partitions
        return self.takes_topic(topic_partition.topic)

    def takes_topic(self, topic: str) -> bool:
        """Whether any partition of the topic can be read."""
        names = self.topic_names
        if names is not None:
            return topic in names
        if topic in INTERNAL_TOPICS and not self.includes_internal:
            return False
        # As in Spark's Kafka source, a pattern may match anywhere in the name.
        return self.pattern is None or re.search(self.pattern, topic) is not None

    @property
    def topic_names(self) -> tuple[str, ...] | None:
        """The only topics that can be wanted; None where any can."""
        if self.topic_partitions is not None:
            return tuple(
                sorted({topic_partition.topic for topic_partition in self.topic_partitions})
            )
        return self.topics


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Everything that a read was told. Pickled into tasks as it is."""

    paths: tuple[str, ...]
    store: Mapping[str, str] = field(default_factory=dict)
    wanted: Wanted = Wanted()
    start: Position
    end: Position
    latest_where_no_time: bool = False
    include_control: bool = False
    is_committed: bool = False
    fail_on_data_loss: bool = True
    check_crc: bool = True
    on_damage: OnDamagedBatch = OnDamagedBatch.FAIL
    split_bytes: int = SPLIT_BYTES
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_batch_bytes: int = BATCH_SIZE_MAX_DEFAULT
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    #: How the newest record of each key is read; None: all records are.
    latest: LatestPerKey | None = None

    @classmethod
    def of(cls, options: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
        """The options as Spark gives them, checked: UsageError for what cannot be."""
        given = Given(options)
        refuse_unknown(
            [name for name in given.names() if not is_topic_config(name)],
            (*KAFKA_OPTIONS, *OWN_OPTIONS, *IDLE_OPTIONS),
            SINK_OPTIONS,
        )
        read = cls(
            paths=parse_paths(given.path(), given.text("paths")),
            store=given.with_prefix(STORE_PREFIX),
            wanted=_wanted(given),
            start=_start(given, is_stream=is_stream),
            end=_end(given, is_stream=is_stream),
            latest_where_no_time=given.word(
                "startingOffsetsByTimestampStrategy", ("error", "latest"), "error"
            )
            == "latest",
            include_control=given.flag("includeControl", False),
            is_committed=_is_committed(given),
            fail_on_data_loss=given.flag("failOnDataLoss", True),
            check_crc=given.flag("checkCrc", True),
            on_damage=OnDamagedBatch(given.word("onDamage", ("fail", "skip"), "fail")),
            split_bytes=given.size("splitBytes") or SPLIT_BYTES,
            min_partitions=given.count("minPartitions"),
            max_records_per_partition=given.count("maxRecordsPerPartition"),
            max_batch_bytes=given.size("maxBatchBytes") or BATCH_SIZE_MAX_DEFAULT,
            max_offsets_per_trigger=given.count("maxOffsetsPerTrigger"),
            min_offsets_per_trigger=given.count("minOffsetsPerTrigger"),
            max_bytes_per_trigger=given.size("maxBytesPerTrigger"),
            max_trigger_delay_ms=given.duration_ms("maxTriggerDelay", 900_000, unit="ms"),
            latest=_latest(given, is_stream=is_stream),
        )
        refuse_committed_skip(is_committed=read.is_committed, on_damage=read.on_damage)
        if is_stream and not read.wanted.is_given:
            raise UsageError(
                "a stream must choose its topics: set one of subscribe, subscribePattern and assign; "
                "subscribePattern='.*' takes every topic"
            )
        least, most = read.min_offsets_per_trigger, read.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise UsageError(f"minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}")
        return read


def _wanted(given: Given) -> Wanted:
    names = [each for each in ("subscribe", "subscribePattern", "assign") if given.text(each)]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)} are given: set only one of them")
    includes_internal = given.flag("includeInternal", False)
    topics = given.words("subscribe")
    if topics is not None:
        return Wanted(topics=tuple(check_topic(topic) for topic in dict.fromkeys(topics)))
    pattern = given.text("subscribePattern")
    if pattern is not None:
        try:
            with warnings.catch_warnings():
                # Java's sets within sets: here they would mean something else, and be taken.
                warnings.simplefilter("error", FutureWarning)
                re.compile(pattern)
        except (re.error, FutureWarning) as error:
            raise UsageError(f"subscribePattern={pattern!r}: {error}") from None
        return Wanted(pattern=pattern, includes_internal=includes_internal)
    topic = given.text("topic")
    if topic is not None and not names:
        return Wanted(topics=(check_topic(topic),))  # a table that is also written
    assigned = given.text("assign")
    if assigned is not None:
        topic_partitions = parse_assignment(assigned, "assign")
        if not topic_partitions:
            raise UsageError(f"assign={assigned!r} names no partition")
        return Wanted(topic_partitions=topic_partitions)
    return Wanted(includes_internal=includes_internal)


def _start(given: Given, *, is_stream: bool) -> Position:
    found = _position(given, "starting")
    if found is None:
        return Position(Kind.LATEST if is_stream else Kind.EARLIEST)
    if not is_stream and (found.kind is Kind.LATEST or LATEST in (found.numbers or {}).values()):
        raise UsageError(
            f"{found.option}: a batch read cannot start at the latest offset: there is nothing to read"
        )
    return found


def _end(given: Given, *, is_stream: bool) -> Position:
    found = _position(given, "ending")
    if found is None:
        return Position(Kind.LATEST)
    if is_stream and found.kind is not Kind.TIME:
        raise UsageError(f"{found.option}: a stream has no end, except an endingTimestamp")
    if found.kind is Kind.EARLIEST or EARLIEST in (found.numbers or {}).values():
        raise UsageError(f"{found.option}: a read cannot end at the earliest offset")
    return found


def _position(given: Given, side: str) -> Position | None:
    """The strongest of the three ways to say it: one time for all, a time for each, offsets."""
    time_ms = given.time_ms(f"{side}Timestamp")
    if time_ms is not None:
        return Position(Kind.TIME, time_ms=time_ms, option=f"{side}Timestamp")
    option = f"{side}OffsetsByTimestamp"
    text = given.text(option)
    if text is not None:
        return Position(Kind.TIMES, numbers=parse_numbers(text, option), option=option)
    option = f"{side}Offsets"
    text = given.text(option)
    return None if text is None else parse_position(text, option)


def _latest(given: Given, *, is_stream: bool) -> LatestPerKey | None:
    memory = given.size("latestPerKeyMemory")
    tombstones = given.flag("tombstones", False)
    if not given.flag("latestPerKey", False):
        for name, is_given in (("tombstones", tombstones), ("latestPerKeyMemory", memory)):
            if is_given:
                raise UsageError(f"{name} needs latestPerKey=true")
        return None
    if is_stream:
        raise UsageError(
            "latestPerKey is for batch reads: a stream has no end up to which a record is the latest"
        )
    for name in ("minPartitions", "maxRecordsPerPartition"):
        if given.text(name) is not None:
            raise UsageError(
                f"{name} cannot be combined with latestPerKey, which reads each partition in one task"
            )
    if given.flag("includeControl", False):
        raise UsageError(
            "control records have no keys: includeControl and latestPerKey cannot be combined"
        )
    if memory is not None and memory < MEMORY_BYTES_MIN:
        raise UsageError(f"latestPerKeyMemory={memory}: at least {MEMORY_BYTES_MIN} bytes")
    return LatestPerKey(memory_bytes=memory or MEMORY_BYTES_DEFAULT, tombstones=tombstones)


def _is_committed(given: Given) -> bool:
    words = ("read_committed", "read_uncommitted")
    default = given.word("kafka.isolation.level", words, words[1])
    return given.word("isolationLevel", words, default) == words[0]
