"""Rebuild the indexes and snapshots of partitions of open log directories from their logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stratalog.errors import StratalogError
from stratalog.manager.rewrites import RewriteOptions, Rewrites
from stratalog.rewrite.limits import RewriteLimits, RewriteStoppedError
from stratalog.rewrite.reindex.examine import IndexProblem, SegmentIndexes, examine_log
from stratalog.rewrite.reindex.replace import replace_indexes
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.storage.views.log_view import LogView
from stratalog.storage.views.read_only import open_view
from stratalog.types import Progress, TopicPartition

__all__ = ["PartitionReindex", "Reindexing"]


@dataclass(frozen=True, slots=True)
class PartitionReindex:
    """What is wrong with the files that point into a log, and how many were replaced. ``segments`` and
    ``size_bytes`` say how much was examined. ``error`` is what failed, and ``stopped`` why the rest was not
    examined."""

    topic_partition: TopicPartition
    problems: tuple[IndexProblem, ...] = ()
    segments: int = 0
    size_bytes: int = 0
    replaced: int = 0
    stopped: str | None = None
    error: StratalogError | None = None


class Reindexing:
    """Examines partitions, and replaces what is wrong."""

    def __init__(self, rewrites: Rewrites, options: RewriteOptions, *, force: bool) -> None:
        """With ``force``, files that are right are rebuilt, too."""
        self._rewrites = rewrites
        self._options = options
        self._force = force
        self._limits = options.limits(rewrites.clock)

    def plan(self, topic_partitions: Sequence[TopicPartition]) -> Iterator[PartitionReindex]:
        """Examine partitions, one after the other, without changing anything."""
        for each in topic_partitions:
            try:
                yield self._examined(each)
            except StratalogError as error:
                yield PartitionReindex(each, error=error)

    def _examined(self, topic_partition: TopicPartition) -> PartitionReindex:
        looked = self._rewrites.views.look([topic_partition])[0]
        found = list(self._examine(topic_partition, looked.view, self._options.note))
        return _result(topic_partition, found)

    def _examine(
        self, topic_partition: TopicPartition, view: LogView, progress: Progress
    ) -> Iterator[SegmentIndexes]:
        rewrites = self._rewrites
        config = rewrites.config(topic_partition.topic, self._options)
        return examine_log(
            rewrites.file_system,
            rewrites.folder(topic_partition),
            view,
            IndexLimits(config.index_interval_bytes, config.segment_index_bytes),
            progress,
            rebuilds_all=self._force,
        )

    def run(self, topic_partitions: Sequence[TopicPartition]) -> Iterator[PartitionReindex]:
        """Examine partitions, and replace what is wrong. All segments of a partition are examined before the
        first file is replaced."""
        for each in topic_partitions:
            try:
                yield self._reindexed(each)
            except RewriteStoppedError as stopped:
                yield PartitionReindex(each, stopped=str(stopped))
                return
            except StratalogError as error:
                yield PartitionReindex(each, error=error)

    def _reindexed(self, topic_partition: TopicPartition) -> PartitionReindex:
        # Opening a log rebuilds some of what is wrong: it is listed before.
        earlier = [] if self._is_open(topic_partition) else self._before_opening(topic_partition)
        log = self._rewrites.partitions.get(topic_partition)
        if self._options.roll:
            with self._rewrites.gate:
                log.roll()
        with log.rewriting():
            found = list(self._examine(topic_partition, log.view, self._limits.note))
            replaced = _replace(log, found, self._limits)
        return _result(topic_partition, found, earlier, replaced)

    def _is_open(self, topic_partition: TopicPartition) -> bool:
        return self._rewrites.partitions.is_open(topic_partition)

    def _before_opening(self, topic_partition: TopicPartition) -> list[IndexProblem]:
        rewrites = self._rewrites
        directory = rewrites.catalogue.directory(topic_partition)
        found = open_view(
            directory.folder(topic_partition),
            rewrites.file_system,
            log_start=directory.log_starts.of(topic_partition),
            config=rewrites.catalogue.config(topic_partition.topic),
        )
        examined = self._examine(topic_partition, found.view, _silent)
        return [problem for each in examined for problem in each.problems]


def _silent(_: int) -> None:
    return


def _replace(log: PartitionLog, found: Sequence[SegmentIndexes], limits: RewriteLimits) -> int:
    return sum(replace_indexes(log, each, limits) for each in found)


def _result(
    topic_partition: TopicPartition,
    found: Sequence[SegmentIndexes],
    earlier: Sequence[IndexProblem] = (),
    replaced: int = 0,
) -> PartitionReindex:
    listed = {problem.name: problem for each in found for problem in each.problems}
    repaired = {problem.name for problem in earlier} - listed.keys()
    listed |= {problem.name: problem for problem in earlier}
    return PartitionReindex(
        topic_partition,
        tuple(listed[name] for name in sorted(listed)),
        len(found),
        sum(each.segment.size_bytes for each in found),
        replaced + len(repaired),
    )
