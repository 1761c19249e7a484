"""Rewrite groups of sealed segments of an open log: write the new ones, verify them, swap them in.

The log may be appended to and read meanwhile. The active segment is never touched. A group is swapped in
before the next one is written, so that a rewrite may be stopped between any two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from stratalog.errors import StorageError
from stratalog.records.layout import INT32_MAX
from stratalog.rewrite.cleaned import CleanedSegments, SegmentSize, cleaned_paths
from stratalog.rewrite.limits import RewriteLimits, RewriteStoppedError
from stratalog.rewrite.source import SourceSegment, Transform, transform_segment
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.segment.segment import Segment
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.storage.views.log_view import LogView
from stratalog.types import NO_TIMESTAMP

__all__ = [
    "GroupResult",
    "find_replaced",
    "rewrite_group",
    "sources_of",
    "stopped_by_deletion",
]


@dataclass(frozen=True, slots=True)
class GroupResult:
    """What became of one group of segments. ``records`` are those that were written; None if wrappers of the
    old formats are among them, which do not say how many they hold."""

    old: tuple[SegmentSize, ...]
    new: tuple[SegmentSize, ...]
    records: int | None

    @property
    def old_bytes(self) -> int:
        return sum(each.size_bytes for each in self.old)

    @property
    def new_bytes(self) -> int:
        return sum(each.size_bytes for each in self.new)


def sources_of(view: LogView, segments: Sequence[Segment]) -> list[SourceSegment]:
    """Return sealed segments of a log with what a rewrite must know of each."""
    sources = []
    for segment in segments:
        modified_ms = segment.modified_ms()
        if modified_ms == NO_TIMESTAMP:
            raise RewriteStoppedError(
                f"the segment at {segment.base_offset} was deleted before it could be rewritten"
            )
        number = view.segments.floor(segment.base_offset)
        next_base = view.segments.next_base(number, view.log_end)
        sources.append(SourceSegment(segment, next_base, modified_ms))
    return sources


@contextmanager
def stopped_by_deletion(log: PartitionLog, segments: Sequence[Segment]) -> Iterator[None]:
    """Turn an error into RewriteStoppedError if the log has deleted one of the segments that were read."""
    try:
        yield
    except StorageError as error:
        present = log.view.segments.segments
        gone = [each.base_offset for each in segments if each not in present]
        if not gone or log.is_closed:
            raise
        raise RewriteStoppedError(
            f"the segments from {gone[0]} on were deleted while they were rewritten"
        ) from error


def rewrite_group(
    log: PartitionLog,
    sources: Sequence[SourceSegment],
    transform: Transform,
    limits: RewriteLimits,
    *,
    size_max: int = INT32_MAX,
    index_limits: IndexLimits | None = None,
    before_swap: Callable[[Sequence[SourceSegment], Sequence[int]], None] | None = None,
) -> GroupResult:
    """Rewrite neighbouring sealed segments into new ones, and put these in their place.

    ``before_swap`` is called with the old segments and the base offsets of the new ones, which are complete
    then. ``index_limits`` replace the log's own. Raise RewriteStoppedError if a limit was reached, or if the
    segments were deleted meanwhile. Whatever is raised, the log is unchanged.
    """
    limits.check()
    cleaned = CleanedSegments(
        log.file_system,
        cleaned_paths(log.folder),
        sources[0].base_offset,
        index_limits or log.index_limits,
        size_max=size_max,
    )
    segments = [source.segment for source in sources]
    try:
        with stopped_by_deletion(log, segments):
            cleaned.begin()
            _write(sources, transform, cleaned, limits)
            new = list(cleaned.finish(sources[-1].modified_ms))
            if before_swap is not None:
                before_swap(sources, new)
        if not log.replace_segments(segments, new, records=cleaned.records):
            raise RewriteStoppedError(
                f"the segments from {sources[0].base_offset} on were deleted while they were rewritten"
            )
    except BaseException:
        _discard(cleaned)
        raise
    return GroupResult(
        _sizes(source.segment for source in sources),
        cleaned.sizes(),
        cleaned.records,
    )


def find_replaced(log: PartitionLog, sources: Sequence[SourceSegment]) -> GroupResult | None:
    """Return what stands in the place of segments; None if it is still these, or nothing. For a caller that
    was interrupted and does not know how far :func:`rewrite_group` came."""
    first, end = sources[0].segment, sources[-1].next_base
    new = [
        each for each in log.view.segments.segments if first.base_offset <= each.base_offset < end
    ]
    if not new or new[0] is first or new[0].base_offset != first.base_offset:
        return None
    return GroupResult(_sizes(source.segment for source in sources), _sizes(new), None)


def _sizes(segments: Iterable[Segment]) -> tuple[SegmentSize, ...]:
    return tuple(SegmentSize(each.base_offset, each.size_bytes) for each in segments)


def _write(
    sources: Sequence[SourceSegment],
    transform: Transform,
    cleaned: CleanedSegments,
    limits: RewriteLimits,
) -> None:
    for source in sources:
        transform_segment(source, transform, cleaned.put, limits.note)


def _discard(cleaned: CleanedSegments) -> None:
    """Remove the new segments. If that fails too, the next load does it, and the first error is the one that
    counts."""
    try:
        cleaned.discard()
    except StorageError:
        return
