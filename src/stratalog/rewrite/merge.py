"""Merge small neighbouring segments into full ones. Batches are copied byte for byte."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from stratalog.records.layout import INT32_MAX, ROW_WIDTH, Row
from stratalog.rewrite.batchwise import OUTPUT_BYTES, BatchwiseTransform
from stratalog.rewrite.compact.sections import CleanableSegment, plan_groups
from stratalog.rewrite.plan import (
    PlannedGroup,
    RewritePlan,
    SealedFacts,
    find_rewritable,
    plan_each,
)
from stratalog.rewrite.run import TransformRewrite
from stratalog.storage.log_config import LogConfig
from stratalog.storage.producers.entry import ProducerEntry
from stratalog.storage.segment.log_file import Window
from stratalog.storage.views.log_view import LogView
from stratalog.types import NO_TIMESTAMP, Progress

__all__ = ["Copying", "Merge"]

_POSITION: Final = int(Row.POSITION)
_SIZE: Final = int(Row.SIZE)


class Merge(TransformRewrite):
    """The rewrite ``merge``."""

    verb: Final = "merge"

    def options(self) -> Mapping[str, object]:
        return {}

    def plan(
        self,
        view: LogView,
        config: LogConfig,
        end: int,
        progress: Progress,  # noqa: ARG002
        *,
        counts: bool = True,  # noqa: ARG002
    ) -> RewritePlan:
        """Put neighbours together as long as they fit ``segment.bytes``, ``segment.index.bytes`` and the 31
        bits that an index has for offsets."""
        segments, left = find_rewritable(view, end)
        groups = plan_groups(
            [_cleanable(each) for each in segments],
            end,
            segment_bytes=config.effective_segment_bytes,
            index_bytes=config.segment_index_bytes,
            first_uncleanable=end,
        )
        found = iter(segments)
        planned: list[PlannedGroup] = []
        alone: list[tuple[SealedFacts, PlannedGroup | str]] = []
        reason = f"no neighbour fits: segment.bytes={config.effective_segment_bytes}"
        for group in groups:
            members = tuple(next(found) for _ in group)
            if len(members) == 1:
                alone.append((members[0], reason))
            else:
                planned.append(_group(members))
        plan = plan_each(self.verb, end, alone, left)
        return RewritePlan(self.verb, end, tuple(planned), plan.left)

    def size_max(self, config: LogConfig) -> int:  # noqa: ARG002
        return INT32_MAX  # a group fits by the plan

    def transform(self, producers: Iterable[ProducerEntry], end: int) -> Copying:  # noqa: ARG002
        return Copying()


def _cleanable(facts: SealedFacts) -> CleanableSegment:
    return CleanableSegment(
        base_offset=facts.base_offset,
        next_base=facts.next_base,
        size_bytes=facts.size_bytes,
        largest_timestamp=NO_TIMESTAMP,
        first_timestamp=NO_TIMESTAMP,
        offset_index_bytes=facts.offset_index_bytes,
        time_index_bytes=facts.time_index_bytes,
        is_active=False,
    )


def _group(members: tuple[SealedFacts, ...]) -> PlannedGroup:
    size = sum(each.size_bytes for each in members)
    return PlannedGroup(members, f"{len(members)} segments become one", size)


class Copying(BatchwiseTransform):
    """Copies batches in large runs."""

    def __init__(self) -> None:
        super().__init__()
        self._batches = 0

    def take_batches(self, window: Window, rows: memoryview, count: int) -> int:
        start = rows[_POSITION]
        taken = 1
        while taken < count and rows[taken * ROW_WIDTH + _POSITION] - start < OUTPUT_BYTES:
            taken += 1
        last = (taken - 1) * ROW_WIDTH
        self.out += window.copy(start, rows[last + _POSITION] + rows[last + _SIZE])
        self._batches += taken
        return taken

    def counted(self) -> Mapping[str, int]:
        return {"batches": self._batches}
