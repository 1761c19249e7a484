"""What a rewrite is: a plan, how it is carried out, and what it says of itself in the manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from stratalog.rewrite.limits import RewriteLimits
from stratalog.rewrite.manifest import GroupEntry, describe_all
from stratalog.rewrite.plan import PlannedGroup, RewritePlan
from stratalog.rewrite.rewriter import GroupResult, find_replaced, rewrite_group
from stratalog.rewrite.source import SourceSegment, Transform
from stratalog.rewrite.undo.keep import UndoKeeper
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import Stage
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.storage.views.log_view import LogView
from stratalog.types import Progress

__all__ = ["CountingTransform", "GroupRecorder", "Rewrite", "RewrittenGroup"]


class CountingTransform(Transform, Protocol):
    """A transform that counts what it does, by names that the manifest and the result show."""

    def counted(self) -> Mapping[str, int]:
        """Return the counts since the transform was made."""
        ...


class Rewrite(Protocol):
    """A rewrite of logs, with its options. The same one is planned for and applied to any number of logs."""

    @property
    def verb(self) -> str: ...
    def options(self) -> Mapping[str, object]:
        """Return the options, as values of JSON, without anything that must not be stored."""
        ...

    def plan(
        self,
        view: LogView,
        config: LogConfig,
        end: int,
        progress: Progress,
        *,
        counts: bool = True,
    ) -> RewritePlan:
        """Plan the rewrite of a log below offset ``end``. ``progress`` is called with the bytes read since
        the last call. Without ``counts``, what a plan shows and a rewrite does not need is left out.
        CorruptionError if a segment that had to be looked at is damaged."""
        ...

    def carry_out(
        self,
        log: PartitionLog,
        plan: RewritePlan,
        config: LogConfig,
        limits: RewriteLimits,
        recorder: GroupRecorder,
    ) -> Iterator[RewrittenGroup]:
        """Rewrite the groups of a plan; yield each when it is in its place. ``config`` says how large
        segments and indexes become. Raise RewriteStoppedError if a limit was reached; what was yielded
        stays. StorageError (ENOSPC), before anything is written, if the new segments may not fit on the
        disk."""
        ...


@dataclass(frozen=True, slots=True)
class RewrittenGroup:
    """What became of a planned group. ``entry`` is for the manifest; None if none was asked for."""

    planned: PlannedGroup
    result: GroupResult
    counts: Mapping[str, int]
    entry: GroupEntry | None


class GroupRecorder:
    """Rewrites groups of one log, describes them for the manifest, and keeps the originals if a ``keeper`` is
    given. With ``describes`` or a ``keeper``, old and new segments are read once more."""

    def __init__(self, keeper: UndoKeeper | None = None, *, describes: bool = False) -> None:
        self._keeper = keeper
        self._describes = describes or keeper is not None
        self._counted: Mapping[str, int] = {}
        self._entry: GroupEntry | None = None
        self._is_kept = False
        #: The groups whose new segments are in their place.
        self.done: list[RewrittenGroup] = []

    def rewrite(
        self,
        log: PartitionLog,
        planned: PlannedGroup,
        sources: Sequence[SourceSegment],
        transform: CountingTransform,
        limits: RewriteLimits,
        *,
        size_max: int,
        index_limits: IndexLimits,
    ) -> RewrittenGroup:
        """Rewrite one group, and put the new segments in the place of the old."""
        self._entry, self._is_kept = None, False
        result: GroupResult | None = None
        try:
            result = rewrite_group(
                log,
                sources,
                transform,
                limits,
                size_max=size_max,
                index_limits=index_limits,
                before_swap=partial(self._before_swap, log, planned, transform),
            )
        finally:
            # An interruption may come between the swap and the result.
            if result is None:
                result = find_replaced(log, sources)
            if result is not None:
                counts = self._counts(transform)
                self.done.append(RewrittenGroup(planned, result, counts, self._entry))
                self._counted = transform.counted()
            elif self._keeper is not None and self._is_kept and log.failure is None:
                # A log that failed may have the new segments when it is opened again.
                self._keeper.drop_last()
        return self.done[-1]

    def begin_round(self) -> None:
        """Count from zero again: another transform follows."""
        self._counted = {}

    def _before_swap(
        self,
        log: PartitionLog,
        planned: PlannedGroup,
        transform: CountingTransform,
        sources: Sequence[SourceSegment],
        new: Sequence[int],
    ) -> None:
        if not self._describes:
            return
        bases = [source.base_offset for source in sources]
        self._entry = GroupEntry(
            planned.segments[-1].next_base,
            planned.reason,
            describe_all(log.file_system, log.folder, bases),
            describe_all(log.file_system, log.folder, new, Stage.CLEANED),
            self._counts(transform),
        )
        if self._keeper is not None:
            self._is_kept = True
            self._keeper.keep(bases, self._entry)

    def _counts(self, transform: CountingTransform) -> dict[str, int]:
        """Return what was counted since the last group."""
        counted = transform.counted()
        return {name: count - self._counted.get(name, 0) for name, count in counted.items()}
