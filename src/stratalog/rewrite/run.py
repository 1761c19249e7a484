"""Carry out a plan on an open log: group after group, each of them complete before the next one begins."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from stratalog.rewrite.limits import RewriteLimits, RewriteStoppedError
from stratalog.rewrite.operation import CountingTransform, GroupRecorder, RewrittenGroup
from stratalog.rewrite.plan import PlannedGroup, RewritePlan
from stratalog.rewrite.rewriter import sources_of
from stratalog.rewrite.space import check_space
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.producers.entry import ProducerEntry
from stratalog.storage.segment.segment import Segment
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.storage.views.log_view import LogView

__all__ = ["TransformRewrite", "round_end", "segments_of"]


class TransformRewrite(ABC):
    """A rewrite that takes all segments of a plan through one transform."""

    @abstractmethod
    def size_max(self, config: LogConfig) -> int:
        """Return how large a new segment may become."""

    @abstractmethod
    def transform(self, producers: Iterable[ProducerEntry], end: int) -> CountingTransform:
        """Return a transform for the segments of a log below ``end``, in their order. ``producers`` are
        those that the log knows."""

    def carry_out(
        self,
        log: PartitionLog,
        plan: RewritePlan,
        config: LogConfig,
        limits: RewriteLimits,
        recorder: GroupRecorder,
    ) -> Iterator[RewrittenGroup]:
        """Rewrite the groups of a plan; see ``Rewrite.carry_out``."""
        with log.rewriting():
            check_space(log.file_system, log.folder, plan.new_bytes)
            transform = self.transform(log.producers, round_end(log.view, plan.end))
            index_limits = IndexLimits(config.index_interval_bytes, config.segment_index_bytes)
            for planned in plan.groups:
                yield recorder.rewrite(
                    log,
                    planned,
                    sources_of(log.view, segments_of(log, planned)),
                    transform,
                    limits,
                    size_max=max(self.size_max(config), 1),
                    index_limits=index_limits,
                )


def segments_of(log: PartitionLog, planned: PlannedGroup) -> list[Segment]:
    """Return the segments of a group as the log has them now. RewriteStoppedError if it has others."""
    found = {each.base_offset: each for each in log.view.segments.segments[:-1]}
    segments = [found.get(each.base_offset) for each in planned.segments]
    present = [each for each in segments if each is not None]
    if [each.size_bytes for each in present] != [each.size_bytes for each in planned.segments]:
        raise RewriteStoppedError(
            f"the segments from {planned.base_offset} on were deleted or replaced after the rewrite was "
            "planned"
        )
    return present


def round_end(view: LogView, end: int) -> int:
    """Return where the last segment ends that may be rewritten."""
    ends = [
        view.segments.next_base(number, view.log_end) for number in range(len(view.segments) - 1)
    ]
    return max((each for each in ends if each <= end), default=end)
