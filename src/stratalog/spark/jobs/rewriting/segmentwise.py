"""Rewrite logs on Spark segment by segment: erasing, recompressing, upgrading.

A task finds out whether a segment has to be rewritten, and rewrites it, in the same process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from stratalog.errors import CorruptionError
from stratalog.manager.logs import Logs
from stratalog.manager.rewrites import RewriteTarget
from stratalog.rewrite.operation import CountingTransform, Rewrite
from stratalog.rewrite.plan import (
    LeftSegments,
    PlannedGroup,
    RewritePlan,
    find_rewritable,
    join_left,
    rewrite_end,
    segment_at,
)
from stratalog.rewrite.remote import RemoteSegment, remote_segments, view_of
from stratalog.rewrite.run import round_end
from stratalog.spark.jobs.rewriting.staged_group import GroupDone, Staging, stage_group
from stratalog.spark.jobs.rewriting.work import PartitionOutcome, PartitionPlan
from stratalog.spark.jobs.run.file_parts import pack, part_size
from stratalog.spark.jobs.run.run_tasks import cores_of, run_tasks
from stratalog.spark.jobs.run.task_errors import in_plain_words
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.log_config import LogConfig
from stratalog.storage.producers.entry import ProducerEntry
from stratalog.storage.segment.sparse_index import IndexLimits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stratalog.types import Progress

__all__ = ["SegmentRewrite", "SegmentToRewrite", "Segmentwise", "rewrite_segments"]

_TASKS_PER_CORE: Final = 3


@dataclass(frozen=True, slots=True)
class _Detail:
    segments: tuple[RemoteSegment, ...]
    end: int
    round_end: int
    config: LogConfig
    producers: tuple[ProducerEntry, ...]


@dataclass(frozen=True, slots=True)
class SegmentToRewrite:
    """A segment that may have to be rewritten. ``partition`` and ``number`` count those of the whole job;
    nothing at or above ``end`` is rewritten."""

    partition: int
    number: int
    segment: RemoteSegment
    end: int
    round_end: int
    config: LogConfig
    producers: tuple[ProducerEntry, ...]


class _Judged(NamedTuple):
    """What a task found out of a segment: it is rewritten, would be, or is left, or it is damaged."""

    partition: int
    planned: PlannedGroup | None = None
    left: tuple[LeftSegments, ...] = ()
    done: GroupDone | None = None
    error: CorruptionError | None = None


class SegmentRewrite(Rewrite, Protocol):
    """A rewrite whose segments go through a transform of their own, such as ``Erase``."""

    def size_max(self, config: LogConfig) -> int: ...
    def transform(self, producers: Iterable[ProducerEntry], end: int) -> CountingTransform: ...


class Segmentwise:
    """A rewrite that takes segments one by one, such as ``Erase``, on Spark."""

    judges_in_tasks: Final = True

    def __init__(self, rewrite: SegmentRewrite) -> None:
        self._rewrite = rewrite

    @property
    def verb(self) -> str:
        return self._rewrite.verb

    def options(self) -> Mapping[str, object]:
        return self._rewrite.options()

    def plan(self, logs: Logs, target: RewriteTarget) -> PartitionPlan:  # noqa: ARG002
        """Plan which segments are looked at."""
        view = target.view
        end = rewrite_end(view, view.log_end)
        facts, left = find_rewritable(view, end)
        segments = remote_segments(view, [segment_at(view, each) for each in facts])
        detail = _Detail(segments, end, round_end(view, end), target.config, target.producers)
        shown = RewritePlan(self.verb, end, (), join_left(left))
        folder = view.segments[0].folder
        size = sum(each.size_bytes for each in segments)
        return PartitionPlan(target.topic_partition, target.root, folder, shown, detail, size, size)

    def judge(
        self, spark: SparkSession | None, plans: Sequence[PartitionPlan], progress: Progress | None
    ) -> list[PartitionOutcome]:
        """Find the segments that would be rewritten."""
        assert spark is not None
        return self._run(spark, None, plans, progress)

    def carry_out(
        self,
        spark: SparkSession,
        staging: Staging,
        plans: Sequence[PartitionPlan],
        progress: Progress | None,
    ) -> list[PartitionOutcome]:
        """Rewrite the segments that have to be."""
        return self._run(spark, staging, plans, progress)

    def _run(
        self,
        spark: SparkSession,
        staging: Staging | None,
        plans: Sequence[PartitionPlan],
        progress: Progress | None,
    ) -> list[PartitionOutcome]:
        segments = _segments_of(plans)
        total = sum(each.segment.size_bytes for each in segments)
        size = part_size(total, cores_of(spark), _TASKS_PER_CORE)
        tasks = pack(segments, lambda each: each.segment.size_bytes, size)
        with in_plain_words():
            found = run_tasks(
                spark,
                partial(rewrite_segments, self._rewrite, staging),
                tasks,
                name=self.verb,
                total_bytes=total,
                progress=progress,
            )
        return _outcomes(plans, [each for some in found for each in some])


def _segments_of(plans: Sequence[PartitionPlan]) -> list[SegmentToRewrite]:
    segments: list[SegmentToRewrite] = []
    for partition, plan in enumerate(plans):
        detail: _Detail = plan.detail
        for segment in detail.segments:
            segments.append(
                SegmentToRewrite(
                    partition, len(segments), segment, detail.end, detail.round_end, detail.config,
                    detail.producers,
                )
            )  # fmt: skip
    return segments


def rewrite_segments(
    rewrite: SegmentRewrite, staging: Staging | None, segments: Sequence[SegmentToRewrite]
) -> list[_Judged]:
    """Rewrite the segments of one task that have to be; without ``staging``, only find out which."""
    return [_rewrite_segment(rewrite, staging, each) for each in segments]


def _rewrite_segment(
    rewrite: SegmentRewrite, staging: Staging | None, work: SegmentToRewrite
) -> _Judged:
    files: FileSystem = OsFileSystem() if staging is None else staging.file_system
    try:
        view = view_of(files, work.segment, work.end)
        plan = rewrite.plan(view, work.config, work.end, lambda _: None, counts=staging is None)
        view.segments[0].close()
        if staging is None or not plan.groups:
            planned = plan.groups[0] if plan.groups else None
            return _Judged(work.partition, planned, plan.left)
        return _Judged(work.partition, plan.groups[0], (), _staged(rewrite, staging, work, plan))
    except CorruptionError as error:
        return _Judged(work.partition, error=error)


def _staged(
    rewrite: SegmentRewrite, staging: Staging, work: SegmentToRewrite, plan: RewritePlan
) -> GroupDone:
    config = work.config
    return stage_group(
        staging,
        work.number,
        plan.groups[0],
        [work.segment],
        rewrite.transform(work.producers, work.round_end),
        IndexLimits(config.index_interval_bytes, config.segment_index_bytes),
        size_max=max(rewrite.size_max(config), 1),
    )


def _outcomes(plans: Sequence[PartitionPlan], found: Sequence[_Judged]) -> list[PartitionOutcome]:
    outcomes = []
    for partition, plan in enumerate(plans):
        judged = [each for each in found if each.partition == partition]
        groups = tuple(each.planned for each in judged if each.planned is not None)
        left = [*(left for each in judged for left in each.left), *plan.shown.left]
        shown = RewritePlan(plan.shown.verb, plan.shown.end, groups, join_left(left))
        outcome = PartitionOutcome(plan, shown)
        outcome.groups = [each.done for each in judged if each.done is not None]
        outcome.error = next((each.error for each in judged if each.error is not None), None)
        outcomes.append(outcome)
    return outcomes
