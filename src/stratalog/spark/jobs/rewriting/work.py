"""What the driver knows of a rewrite: partitions that are planned, and what tasks made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from stratalog.errors import StratalogError
from stratalog.manager.logs import Logs
from stratalog.manager.rewrites import PartitionRewrite, RewriteTarget
from stratalog.rewrite.plan import RewritePlan
from stratalog.spark.jobs.rewriting.staged_group import GroupDone, Staging
from stratalog.storage.commits.segment_groups import PartitionGroups
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stratalog.types import Progress

__all__ = ["PartitionOutcome", "PartitionPlan", "SparkRewrite"]


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """A partition that a rewrite is planned for. ``detail`` is what the tasks of its kind need.
    ``work_bytes`` are read by them, and ``space_bytes`` is what they may write."""

    topic_partition: TopicPartition
    root: str
    folder: str
    shown: RewritePlan
    detail: Any
    work_bytes: int
    space_bytes: int


@dataclass(slots=True)
class PartitionOutcome:
    """What tasks made of a partition. ``cleaned_to`` becomes its cleaner checkpoint. With an ``error``,
    nothing of it is committed."""

    plan: PartitionPlan
    shown: RewritePlan
    groups: list[GroupDone] = field(default_factory=list)
    cleaned_to: int | None = None
    error: StratalogError | None = None
    stopped: str | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return self.plan.topic_partition

    def replacement(self) -> PartitionGroups | None:
        """Return what a commit is to replace; None if there is nothing."""
        if self.error is not None or not self.groups:
            return None
        groups = sorted((each.group for each in self.groups), key=lambda group: group.start)
        return PartitionGroups(self.topic_partition, tuple(groups), self.cleaned_to)

    def report(self) -> PartitionRewrite:
        """Return the partition as every rewrite reports it."""
        is_done = self.error is None and self.stopped is None
        groups = sorted(self.groups, key=lambda each: each.group.start) if is_done else []
        rewritten = tuple(each.rewritten for each in groups)
        return PartitionRewrite(
            self.topic_partition, self.shown, rewritten, self.stopped, self.error
        )


class SparkRewrite(Protocol):
    """A kind of rewrite on Spark."""

    @property
    def verb(self) -> str: ...
    @property
    def judges_in_tasks(self) -> bool:
        """Whether ``judge`` needs Spark."""
        ...

    def options(self) -> Mapping[str, object]:
        """Return the options, as values of JSON, without anything that must not be stored."""
        ...

    def plan(self, logs: Logs, target: RewriteTarget) -> PartitionPlan:
        """Plan a partition on the driver, without reading its records."""
        ...

    def judge(
        self, spark: SparkSession | None, plans: Sequence[PartitionPlan], progress: Progress | None
    ) -> list[PartitionOutcome]:
        """Find out what would be rewritten, and write nothing."""
        ...

    def carry_out(
        self,
        spark: SparkSession,
        staging: Staging,
        plans: Sequence[PartitionPlan],
        progress: Progress | None,
    ) -> list[PartitionOutcome]:
        """Rewrite partitions of one log directory into staged segments."""
        ...
