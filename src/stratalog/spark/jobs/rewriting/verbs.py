"""The rewrites on Spark, one function each: the same as the local ones, with tasks that do the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.errors import UsageError
from stratalog.inspect.partition.partition_filter import Partitions, Topics
from stratalog.inspect.partition.sources import Paths
from stratalog.manager.rewrites import RewriteOptions, RewriteReport
from stratalog.rewrite.erase.condition import Condition
from stratalog.rewrite.erase.erasure import Erase
from stratalog.rewrite.erase.keys import KeySet
from stratalog.rewrite.erase.search import Targets
from stratalog.rewrite.recompress import Recompress, codec_named
from stratalog.rewrite.upgrade import Upgrade
from stratalog.spark.jobs.rewriting.compacting import Compacting
from stratalog.spark.jobs.rewriting.rewrite import rewrite_on_spark
from stratalog.spark.jobs.rewriting.segmentwise import Segmentwise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stratalog.types import Progress

__all__ = ["compact", "erase", "recompress", "upgrade"]


def compact(
    spark: SparkSession,
    paths: Paths,
    *,
    topics: Topics,
    partitions: Partitions | None = None,
    write: bool = False,
    options: RewriteOptions | None = None,
    on_plan: Progress | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> RewriteReport:
    """Compact topics as Kafka's log cleaner does, whatever their policy and dirty ratio, up to the active
    segment. A shuffle finds the newest offset of each key, so that keys need not fit in one memory. Without
    ``write``, return the plan.

    All new segments of a log directory are put in place by one commit: once, or not at all. StorageError if
    others change the segments meanwhile; then nothing is replaced.
    """
    if topics is None:
        raise UsageError("compaction removes records: name the topics to compact")
    return rewrite_on_spark(
        spark, paths, Compacting(), topics=topics, partitions=partitions, write=write,
        options=options, on_plan=on_plan, clock=clock,
    )  # fmt: skip


def erase(
    spark: SparkSession,
    paths: Paths,
    keys: KeySet,
    condition: Condition | None = None,
    *,
    topics: Topics | None = None,
    partitions: Partitions | None = None,
    write: bool = False,
    options: RewriteOptions | None = None,
    on_plan: Progress | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> RewriteReport:
    """Remove the records with these keys, and those that meet the condition, from sealed segments. Without
    ``write``, return how many match in each segment. Commits as :func:`compact` does."""
    return rewrite_on_spark(
        spark, paths, Segmentwise(Erase(Targets(keys, condition))), topics=topics,
        partitions=partitions, write=write, options=options, on_plan=on_plan, clock=clock,
    )  # fmt: skip


def recompress(
    spark: SparkSession,
    paths: Paths,
    codec: str,
    *,
    level: int | None = None,
    force: bool = False,
    topics: Topics | None = None,
    partitions: Partitions | None = None,
    write: bool = False,
    options: RewriteOptions | None = None,
    on_plan: Progress | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> RewriteReport:
    """Compress the batches of sealed segments with another codec or level; with ``force``, also those that
    have the codec already. Without ``write``, return the plan. Commits as :func:`compact` does."""
    rewrite = Recompress(codec_named(codec), level, force=force)
    return rewrite_on_spark(
        spark, paths, Segmentwise(rewrite), topics=topics, partitions=partitions, write=write,
        options=options, on_plan=on_plan, clock=clock,
    )  # fmt: skip


def upgrade(
    spark: SparkSession,
    paths: Paths,
    *,
    topics: Topics | None = None,
    partitions: Partitions | None = None,
    write: bool = False,
    options: RewriteOptions | None = None,
    on_plan: Progress | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> RewriteReport:
    """Turn messages of magic 0 and 1 in sealed segments into batches of magic 2. Without ``write``, return
    the plan. Commits as :func:`compact` does."""
    return rewrite_on_spark(
        spark, paths, Segmentwise(Upgrade()), topics=topics, partitions=partitions, write=write,
        options=options, on_plan=on_plan, clock=clock,
    )  # fmt: skip
