"""Plan an export: which partitions, from where to where, and by which options of the source."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from stratalog.errors import UnknownPartitionError, UsageError
from stratalog.inspect.file.skipped_damage import OnDamagedBatch
from stratalog.inspect.partition.ends import EndsCache
from stratalog.inspect.partition.partition_filter import Partitions, Topics
from stratalog.inspect.partition.sources import PartitionSource
from stratalog.inspect.range.plan import plan_range
from stratalog.spark.jobs.exporting.damage import Damage
from stratalog.spark.jobs.exporting.folder import can_be_renamed
from stratalog.spark.jobs.exporting.report import ExportedPartition
from stratalog.spark.jobs.exporting.topics import topics_pattern
from stratalog.spark.jobs.run.log_paths import LogPaths
from stratalog.types import TopicPartition

__all__ = ["ExportPlan", "ExportedRecords", "Target", "plan_export"]


@dataclass(frozen=True, slots=True)
class ExportedRecords:
    """Which records an export writes, as a checkpoint notes it."""

    topics: list[str] | None
    partitions: str | None
    where: str | None
    committed: bool = False

    @classmethod
    def of(cls, topics: Topics | None, partitions: Partitions | None, where: str | None) -> Self:
        named = None if topics is None else [topics] if isinstance(topics, str) else sorted(topics)
        if partitions is None or isinstance(partitions, str | int):
            return cls(named, None if partitions is None else str(partitions), where)
        return cls(named, ",".join(map(str, sorted(partitions))), where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    to: str
    format: str
    is_table: bool
    partition_by: tuple[str, ...]
    options: Mapping[str, str]
    decode: str
    schema: str | None

    def is_replaceable(self, mode: str) -> bool:
        """Whether the target is written under another name first, so that a failed write leaves nothing."""
        return not self.is_table and can_be_renamed(self.to, self.format, mode)


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What is to be read, and by which options of the source."""

    logs: LogPaths
    options: Mapping[str, str]
    sources: Mapping[TopicPartition, PartitionSource]
    ends: Mapping[TopicPartition, int]
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    #: Those that go on behind their end with damage.
    damaged: frozenset[TopicPartition] = frozenset()
    #: Where the logs end, also behind what is committed.
    log_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    cache: EndsCache | None = None

    @property
    def log_directories(self) -> set[str]:
        """Those on this machine."""
        if self.logs.is_remote:
            return set()
        return {os.path.dirname(os.path.abspath(each.folder)) for each in self.sources.values()}

    def up_to(self, damage: Damage) -> ExportPlan:
        """The same plan, with every partition read up to its first damage."""
        ends = dict(self.ends)
        for topic_partition, skipped in damage.items():
            ends[topic_partition] = max(
                self.starts[topic_partition], min(ends[topic_partition], skipped[0].start_offset)
            )
        return replace(self, ends=ends, damaged=frozenset())

    def without(self, damage: Damage) -> ExportPlan:
        """The same plan, with nothing of the partitions that are damaged."""
        ends = {
            topic_partition: self.starts[topic_partition] if topic_partition in damage else end
            for topic_partition, end in self.ends.items()
        }
        return replace(self, ends=ends, damaged=frozenset())

    def losses(self, before: Mapping[TopicPartition, int]) -> list[str]:
        """What a run that has come so far before will not find any more: sentences."""
        lost = []
        for topic_partition, start in self.starts.items():
            # What came after the first run is new from its beginning on.
            reached, end = (
                before.get(topic_partition, 0 if before else start),
                self.log_ends[topic_partition],
            )
            if reached < start:
                lost.append(
                    f"{topic_partition}: offsets {reached} to {start - 1} were deleted before they "
                    "were exported"
                )
            elif reached > end and topic_partition not in self.damaged:
                lost.append(
                    f"{topic_partition} ends at {end}, and was exported up to {reached}: "
                    "the log was truncated or recreated"
                )
        return lost

    def rows(self, before: Mapping[TopicPartition, int]) -> tuple[ExportedPartition, ...]:
        files = self.logs.file_system
        rows = []
        for topic_partition, source in self.sources.items():
            reached = before.get(topic_partition, 0)
            if reached > self.log_ends[topic_partition] and topic_partition not in self.damaged:
                reached = 0  # a log that was made anew is read from its beginning
            start = min(max(reached, self.starts[topic_partition]), self.ends[topic_partition])
            size = 0
            if start < self.ends[topic_partition]:
                end = self.ends[topic_partition]
                size = plan_range(source, start, end, files, cache=self.cache).size_bytes
            rows.append(
                ExportedPartition(*topic_partition, start, self.ends[topic_partition], size)
            )
        return tuple(rows)


def plan_export(
    logs: LogPaths,
    topics: Topics | None,
    partitions: Partitions | None,
    committed: bool,
    allow_loss: bool,
    on_damage: OnDamagedBatch,
) -> ExportPlan:
    found = logs.sources(topics, partitions)
    sources = {
        each.topic_partition: each for each in found.partitions if each.topic_partition is not None
    }
    if len(sources) < len(found.partitions):
        raise UsageError(
            "export needs log directories or partition folders: name log directories, or partitions' folders"
        )
    named = {p.topic for p, each in sources.items() if each.folder in (*logs.given, *logs.absolute)}
    pattern = topics_pattern(topics, named)
    sources = {
        topic_partition: each
        for topic_partition, each in sources.items()
        if re.search(pattern, topic_partition.topic)
    }
    if found.partitions and not sources:
        raise UnknownPartitionError(
            "only internal topics of Kafka's are here: an export takes them by name, as in "
            f"topics={found.partitions[0].topic_partition.topic!r}"  # type: ignore[union-attr]  # each has one
        )
    options = {f"fs.{name}": value for name, value in logs.store.items()}
    options["paths"] = json.dumps(list(logs.absolute))
    if committed:
        options["isolationLevel"] = "read_committed"
    if allow_loss:
        options["failOnDataLoss"] = "false"
    options["onDamage"] = on_damage.value
    if partitions is not None:
        assigned: dict[str, list[int]] = {}
        for topic_partition in sorted(sources):
            assigned.setdefault(topic_partition.topic, []).append(topic_partition.partition)
        options["assign"] = json.dumps(assigned)
    else:
        options["subscribePattern"] = pattern
        options["includeInternal"] = "true"  # where the pattern takes them
    cache = EndsCache(logs.file_system, skips_damage=on_damage is OnDamagedBatch.SKIP)
    ends = {
        topic_partition: cache.ends_of(source, stable=committed)
        for topic_partition, source in sources.items()
    }
    reached = {
        topic_partition: each.end if each.stable is None else min(each.end, each.stable)
        for topic_partition, each in ends.items()
    }
    return ExportPlan(
        logs,
        options,
        sources,
        reached,
        {topic_partition: each.start for topic_partition, each in ends.items()},
        frozenset(
            topic_partition for topic_partition, each in ends.items() if each.damage is not None
        ),
        {topic_partition: each.end for topic_partition, each in ends.items()},
        cache,
    )
