"""Compact logs on Spark: a shuffle finds the superseded records, and tasks rewrite groups of segments.

Groups, rules and order are those of the cleaner in one process, and so is what becomes of each segment, byte
for byte. What one process learns about transactions on its way through the log is computed on the driver from
what tasks have read, so that every group can be rewritten by itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from stratalog.errors import CorruptionError
from stratalog.manager.logs import Logs
from stratalog.manager.rewrites import RewriteTarget
from stratalog.rewrite.compact.compaction import Compaction, CompactionRules, Superseded
from stratalog.rewrite.compact.key_scan import follow, scan_keys
from stratalog.rewrite.compact.plan import CleaningPlan, SegmentToClean, plan_remote_cleaning
from stratalog.rewrite.compact.transactions import CleanedTransactions
from stratalog.rewrite.plan import PlannedGroup, rewrite_end
from stratalog.spark.jobs.rewriting.key_rows import GroupFound, SegmentKeys
from stratalog.spark.jobs.rewriting.staged_group import GroupDone, Staging, stage_group
from stratalog.spark.jobs.rewriting.superseded import find_superseded
from stratalog.spark.jobs.rewriting.work import PartitionOutcome, PartitionPlan
from stratalog.spark.jobs.run.run_tasks import run_tasks
from stratalog.spark.jobs.run.task_errors import in_plain_words
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.storage.segment.txn_index import AbortedTxn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stratalog.types import Progress

__all__ = ["Compacting", "GroupToCompact", "compact_group", "plan_groups_to_compact"]


@dataclass(frozen=True, slots=True)
class _Detail:
    cleaning: CleaningPlan
    limits: IndexLimits


@dataclass(frozen=True, slots=True)
class GroupToCompact:
    """A group of segments with all that a task must know to compact it. ``partition`` and ``number`` count
    partitions and groups of the whole job; ``end`` is where the cleaned section of the log ends. A group that
    ``is_damaged`` is only looked at again, for the error that its partition is reported with."""

    partition: int
    number: int
    planned: PlannedGroup
    segments: tuple[SegmentToClean, ...]
    end: int
    rules: CompactionRules
    limits: IndexLimits
    transactions: CleanedTransactions
    offsets: str | None
    is_damaged: bool = False

    @property
    def size_bytes(self) -> int:
        return sum(each.segment.size_bytes for each in self.segments)


class Compacting:
    """The rewrite ``compact``."""

    verb: Final = "compact"
    judges_in_tasks: Final = False

    def options(self) -> Mapping[str, object]:
        return {}

    def plan(self, logs: Logs, target: RewriteTarget) -> PartitionPlan:
        """Plan the groups of a partition as the cleaner does with a map for all keys."""
        compact = logs.compaction()
        view, config = target.view, target.config
        end = rewrite_end(view, view.log_end)
        shown = compact.plan(view, config, end, lambda _: None, counts=False)
        cleanable = compact.cleanable(view, config, end)
        cleaning = plan_remote_cleaning(
            view, config, cleanable, shown.groups, target.producers, compact.now_ms
        )
        return PartitionPlan(
            target.topic_partition,
            target.root,
            view.segments[0].folder,
            shown,
            _Detail(cleaning, target.index_limits),
            2 * shown.size_bytes,  # its keys are read first
            shown.size_bytes,
        )

    def judge(
        self,
        spark: SparkSession | None,  # noqa: ARG002
        plans: Sequence[PartitionPlan],
        progress: Progress | None,  # noqa: ARG002
    ) -> list[PartitionOutcome]:
        """Return the plan as it is: what would be left of a group is known when it is compacted."""
        return [PartitionOutcome(each, each.shown) for each in plans]

    def carry_out(
        self,
        spark: SparkSession,
        staging: Staging,
        plans: Sequence[PartitionPlan],
        progress: Progress | None,
    ) -> list[PartitionOutcome]:
        """Compact partitions into staged segments."""
        outcomes = [
            PartitionOutcome(each, each.shown, cleaned_to=each.detail.cleaning.end)
            for each in plans
        ]
        keys = _keys_to_read(plans)
        if not keys:
            return outcomes
        total = sum(each.segment.segment.size_bytes for each in keys)
        found = find_superseded(spark, staging, keys, progress)
        groups = plan_groups_to_compact(plans, found)
        groups.sort(
            key=lambda each: -each.size_bytes
        )  # the largest first, so that no core waits long
        with in_plain_words():
            done = run_tasks(
                spark,
                partial(compact_group, staging),
                groups,
                name="compact: groups",
                total_bytes=total,
                progress=None if progress is None else lambda size: progress(total + size),
            )
        for group, result in zip(groups, done, strict=True):
            outcome = outcomes[group.partition]
            if isinstance(result, GroupDone):
                outcome.groups.append(result)
            else:
                outcome.error = outcome.error or result
        return outcomes


def _keys_to_read(plans: Sequence[PartitionPlan]) -> list[SegmentKeys]:
    keys = []
    number = 0
    for partition, plan in enumerate(plans):
        cleaning: CleaningPlan = plan.detail.cleaning
        for group in cleaning.groups:
            keys += [SegmentKeys(partition, number, cleaning.start, each) for each in group]
            number += 1
    return keys


def plan_groups_to_compact(
    plans: Sequence[PartitionPlan], found: Mapping[int, GroupFound]
) -> list[GroupToCompact]:
    """Return the groups of all partitions, each with the transactions that are open where it begins. Of a
    partition with damage, the groups that have it are returned and no others."""
    groups: list[GroupToCompact] = []
    first = 0
    for partition, plan in enumerate(plans):
        count = len(plan.shown.groups)
        known = [found.get(number, GroupFound()) for number in range(first, first + count)]
        of_partition = list(_groups_of(partition, first, plan, known))
        damaged = [each for each in of_partition if each.is_damaged]
        groups += damaged or of_partition
        first += count
    return groups


def _groups_of(
    partition: int, first: int, plan: PartitionPlan, known: Sequence[GroupFound]
) -> Iterator[GroupToCompact]:
    detail: _Detail = plan.detail
    cleaning = detail.cleaning
    transactions = CleanedTransactions()
    for number, (found, segments) in enumerate(zip(known, cleaning.groups, strict=True)):
        yield GroupToCompact(
            partition, first + number, plan.shown.groups[number], segments, cleaning.end,
            cleaning.rules, detail.limits, transactions.fork(), found.name, found.is_damaged,
        )  # fmt: skip
        for each in segments if not found.is_damaged else ():
            span = range(each.segment.base_offset, each.segment.next_base)
            follow(transactions, each.aborted, [e for e in found.events if e.offset in span])


def compact_group(staging: Staging, group: GroupToCompact) -> GroupDone | CorruptionError:
    """Compact one group of segments into staged ones. Damage is returned, not raised: another try would find
    the same."""
    if group.is_damaged:
        return _damage_of(staging, group)
    aborted = {each.segment.base_offset: each.aborted for each in group.segments}

    def find_aborted(base_offset: int, _: int) -> Sequence[AbortedTxn]:
        return aborted[base_offset]

    superseded = Superseded(_offsets(staging, group.offsets), group.end - 1)
    compaction = Compaction(superseded, group.rules, find_aborted, group.transactions.fork())
    try:
        return stage_group(
            staging,
            group.number,
            group.planned,
            [each.segment for each in group.segments],
            compaction,
            group.limits,
        )
    except CorruptionError as error:
        return error


def _damage_of(staging: Staging, group: GroupToCompact) -> CorruptionError:
    """Return the error that reading a damaged group ends with."""
    for each in group.segments:
        source = each.segment.source(staging.file_system)
        try:
            for _ in scan_keys(source, each.aborted, [], lambda _: None):
                pass
        except CorruptionError as error:
            return error
        finally:
            source.segment.close()
    return CorruptionError(
        "unstable", "was damaged when its keys were read, and is not any more: run the job again"
    )


def _offsets(staging: Staging, name: str | None) -> Any:
    """Return the offsets of superseded records, mapped: they are many, and are looked up in place."""
    if name is None:
        return None
    file = staging.file_system.open_readable(os.path.join(staging.root, name))
    try:
        return file.map(0, file.size()).cast("q")
    finally:
        file.close()
