"""Apply retention to named partitions, or say what it would delete and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stratalog.clock import Clock
from stratalog.errors import StratalogError
from stratalog.manager.append_gate import AppendGate
from stratalog.manager.open_partitions import OpenPartitions
from stratalog.manager.partition_views import PartitionViews
from stratalog.manager.rewrites import Rewrites
from stratalog.storage.log.retention import (
    RetentionPlan,
    RetentionPolicy,
    SegmentFacts,
    plan_retention,
    policies_for,
)
from stratalog.storage.log.retention_facts import retention_facts
from stratalog.types import TopicPartition

__all__ = ["PartitionRetention", "TopicRetention"]


@dataclass(frozen=True, slots=True)
class PartitionRetention:
    """What retention does to one partition. ``segments`` are all of it, before anything is deleted."""

    topic_partition: TopicPartition
    segments: tuple[SegmentFacts, ...] = ()
    plan: RetentionPlan = field(default_factory=RetentionPlan)
    error: StratalogError | None = None


class TopicRetention:
    """Retention of the partitions of open directories."""

    def __init__(
        self,
        partitions: OpenPartitions,
        views: PartitionViews,
        rewrites: Rewrites,
        gate: AppendGate,
        clock: Clock,
    ) -> None:
        self._partitions = partitions
        self._views = views
        self._rewrites = rewrites
        self._gate = gate
        self._clock = clock

    def plan(
        self, topic_partitions: Sequence[TopicPartition], configs: Mapping[str, object]
    ) -> Iterator[PartitionRetention]:
        """Return what retention would delete of each partition now, without changing anything. ``configs``
        replace those of the topic."""
        for each in topic_partitions:
            try:
                view = self._views.look([each])[0].view
                segments = retention_facts(view)
                policies = self._policies(each, view.log_start, configs)
                plan = plan_retention(segments, policies, high_watermark=view.high_watermark)
            except StratalogError as error:
                yield PartitionRetention(each, error=error)
            else:
                yield PartitionRetention(each, tuple(segments), plan)

    def apply(
        self, topic_partitions: Sequence[TopicPartition], configs: Mapping[str, object]
    ) -> Iterator[PartitionRetention]:
        """Delete what retention does not keep. An error in one partition does not stop the others."""
        for each in topic_partitions:
            try:
                log = self._partitions.get(each)
                segments = tuple(retention_facts(log.view))
                with self._gate:  # a commit counts on what it found in its logs
                    policies = self._policies(each, log.log_start, configs)
                    plan = self._partitions.retain_log(log, policies)
            except StratalogError as error:
                yield PartitionRetention(each, error=error)
            else:
                yield PartitionRetention(each, segments, plan)

    def _policies(
        self, topic_partition: TopicPartition, log_start: int, configs: Mapping[str, object]
    ) -> tuple[RetentionPolicy, ...]:
        config = self._rewrites.config_with(topic_partition.topic, configs)
        return policies_for(config, self._clock.now_ms(), log_start)
