"""Apply retention to partitions, or say what it would delete and why.

If Kafka created a topic, its configs are in Kafka's metadata, and not known here. Such a topic may be meant
to be kept: it is retained only by its log start offset, and by limits that the caller gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from stratalog.clock import Clock
from stratalog.errors import StratalogError
from stratalog.manager.append_gate import AppendGate
from stratalog.manager.open_partitions import OpenPartitions
from stratalog.manager.partition_views import PartitionViews
from stratalog.manager.rewrites import Rewrites
from stratalog.manager.root.topic_configs import altered_config
from stratalog.storage.log.retention import (
    RetentionPlan,
    RetentionPolicy,
    SegmentFacts,
    plan_retention,
    policies_for,
)
from stratalog.storage.log.retention_facts import retention_facts
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import PartitionLog
from stratalog.types import TopicPartition

__all__ = ["PartitionRetention", "TopicRetention"]

#: What a topic has whose configs are not known.
_UNLIMITED: Final = {"retention.ms": -1, "retention.bytes": -1}


@dataclass(frozen=True, slots=True)
class PartitionRetention:
    """What retention does to one partition. ``segments`` are all of it, before anything is deleted.
    ``has_limits`` is False if the configs of the topic are not known, and the caller gave no limit."""

    topic_partition: TopicPartition
    segments: tuple[SegmentFacts, ...] = ()
    plan: RetentionPlan = field(default_factory=RetentionPlan)
    error: StratalogError | None = None
    has_limits: bool = True


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
                policies = self._policies(each.topic, view.log_start, configs)
                plan = plan_retention(segments, policies, high_watermark=view.high_watermark)
            except StratalogError as error:
                yield PartitionRetention(each, error=error)
            else:
                has_limits = self._has_limits(each.topic, configs)
                yield PartitionRetention(each, tuple(segments), plan, has_limits=has_limits)

    def apply(
        self, topic_partitions: Sequence[TopicPartition], configs: Mapping[str, object]
    ) -> Iterator[PartitionRetention]:
        """Delete what retention does not keep. An error in one partition does not stop the others."""
        for each in topic_partitions:
            try:
                log = self._partitions.get(each)
                segments = tuple(retention_facts(log.view))
                with self._gate:  # a commit counts on what it found in its logs
                    policies = self._policies(each.topic, log.log_start, configs)
                    plan = self._partitions.retain_log(log, policies)
            except StratalogError as error:
                yield PartitionRetention(each, error=error)
            else:
                has_limits = self._has_limits(each.topic, configs)
                yield PartitionRetention(each, segments, plan, has_limits=has_limits)

    def apply_to_all(self, failures: list[StratalogError]) -> int:
        """Apply retention to every partition, remove files whose delay is over, and expire producers. Return
        how many segments were deleted. Errors are added to ``failures`` and stop nothing else."""
        gone = 0

        def retain(topic: str, log: PartitionLog) -> None:
            nonlocal gone
            policies = self._policies(topic, log.log_start, {})
            gone += len(self._partitions.retain_log(log, policies).deletions)
            log.remove_due()
            log.expire_producers()

        with self._gate:
            for each in list(self._rewrites.catalogue.directory_of):
                self._partitions.attempt(each, partial(retain, each.topic), failures)
        return gone

    def _policies(
        self, topic: str, log_start: int, configs: Mapping[str, object]
    ) -> tuple[RetentionPolicy, ...]:
        return policies_for(self._config(topic, configs), self._clock.now_ms(), log_start)

    def _config(self, topic: str, configs: Mapping[str, object]) -> LogConfig:
        catalogue = self._rewrites.catalogue
        if catalogue.has_configs(topic):
            return self._rewrites.config_with(topic, configs)
        return catalogue.in_effect(altered_config(LogConfig.of(_UNLIMITED), configs))

    def _has_limits(self, topic: str, configs: Mapping[str, object]) -> bool:
        """Return whether it is known how long a topic is kept, from its configs or from those given."""
        given = map(LogConfig.name_of, configs)
        return self._rewrites.catalogue.has_configs(topic) or any(
            name in _UNLIMITED for name in given
        )
