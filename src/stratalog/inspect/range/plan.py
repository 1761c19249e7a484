"""Which bytes of a partition hold a range of offsets: planned in one place, read anywhere.

A plan is a value that can be sent to another process or machine. What it promises are offsets. Its positions
are where these lay when it was made: a reader looks before it believes them, because a live partition is
compacted, cut and deleted from at any time.

Times cut a plan only where that is proved. The time index has the largest time so far, so that what lies
before a position is proved to be too early. Nothing in a log says that what lies *behind* a position is too
late: times are the producers', and the next record may be older than all before it. So an upper bound of
times leaves out nothing, unless the caller says how far times may fall back (``time_slack_ms``). Who means
"up to the first record of this time", as Kafka's own look-up does, asks ``offset_for_time`` and gives an
offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from stratalog.errors import UsageError
from stratalog.inspect.file.search import CutPoint, SegmentSearch
from stratalog.inspect.file.skip_by_time import ends_before
from stratalog.inspect.file.span import SegmentSpan, segment_spans
from stratalog.inspect.partition.ends import EndsCache
from stratalog.inspect.partition.offset_for_time import first_of_time
from stratalog.inspect.partition.source_segments import sealed_segment
from stratalog.inspect.partition.sources import PartitionSource, with_fresh_listing
from stratalog.records.layout import INT64_MAX
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.names import V07_SUFFIX, FileKind
from stratalog.storage.segment.segment import read_aborted
from stratalog.storage.segment.txn_index import AbortedTxn, collect_aborted
from stratalog.storage.views.log_view import Isolation

__all__ = [
    "CUT_BYTES",
    "LogRange",
    "SegmentSlice",
    "aborted_within",
    "plan_range",
    "plan_slices",
]

#: How far the places are apart where a slice may be cut: fine enough for tasks of tens of megabytes, and
#: a terabyte has a quarter of a million of them.
CUT_BYTES: Final = 4 << 20


class SegmentSlice(NamedTuple):
    """The offsets from ``start`` up to but not including ``end`` of one segment, and where they lay: in the
    batches from ``position`` up to ``end_position``."""

    path: str
    start: int
    end: int
    position: int
    end_position: int
    #: Where the segment behind begins; None where there was none.
    next_offset: int | None = None
    #: How large the file was: one of another size is another file, or the last one that grew.
    file_size: int = 0
    #: Where it may be cut in two.
    cuts: tuple[CutPoint, ...] = ()

    @property
    def size_bytes(self) -> int:
        return self.end_position - self.position


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """The offsets of a partition from ``start`` up to but not including ``end``, of these only the times
    from ``start_time`` up to but not including ``end_time`` (milliseconds; None is no bound), and the slices
    of segments that can hold them.

    ``aborted`` are the transactions whose records are left out; None: nothing is, the range was planned
    for read_uncommitted.
    """

    folder: str
    topic: str | None
    partition: int | None
    start: int
    end: int
    start_time: int | None = None
    end_time: int | None = None
    slices: tuple[SegmentSlice, ...] = ()
    aborted: tuple[AbortedTxn, ...] | None = None
    #: Whether the folder was listed, so that it may be listed anew where a segment is gone.
    is_listed: bool = True

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.slices)

    @property
    def name(self) -> str:
        return self.folder if self.topic is None else f"{self.topic}-{self.partition}"


def plan_range(
    source: PartitionSource,
    start: int | None = None,
    end: int | None = None,
    file_system: FileSystem | None = None,
    *,
    start_time: int | None = None,
    end_time: int | None = None,
    time_slack_ms: int | None = None,
    isolation: Isolation = Isolation.UNCOMMITTED,
    cache: EndsCache | None = None,
    cut_bytes: int = CUT_BYTES,
) -> LogRange:
    """The offsets of a partition from ``start`` (its first) up to ``end`` (its end), as far as it holds
    them now; under read_committed up to its last stable offset, and without aborted transactions.

    Times bound the records by their own timestamps. ``time_slack_ms`` says that no record is older by more
    than this than any before it: then what lies behind the first record of ``end_time`` and this much is
    left out. ``cache`` is the caller's, where the ends are known already.
    """
    if start is not None and end is not None and end < start:
        raise UsageError(f"a range from offset {start} to {end} ends before it begins")
    files = file_system or OsFileSystem()
    planning = _Planning(files, cache or EndsCache(files), isolation, cut_bytes)

    def plan(each: PartitionSource) -> LogRange:
        return planning.plan(each, start, end, start_time, end_time, time_slack_ms)

    return with_fresh_listing(source, files, plan)


def aborted_within(
    source: PartitionSource, start: int, end: int, file_system: FileSystem, cache: EndsCache
) -> tuple[AbortedTxn, ...]:
    """Return the aborted transactions with records from ``start`` up to ``end``. If a file of the partition
    vanished since it was listed, they are taken from a new listing."""
    planning = _Planning(file_system, cache, Isolation.COMMITTED, INT64_MAX)
    return with_fresh_listing(source, file_system, lambda each: planning.aborted(each, start, end))


def plan_slices(
    source: PartitionSource,
    start: int,
    end: int,
    start_time: int | None,
    file_system: FileSystem,
    cache: EndsCache,
) -> tuple[SegmentSlice, ...]:
    """The slices of a partition that can hold these offsets now, without places to cut them at."""
    planning = _Planning(file_system, cache, Isolation.UNCOMMITTED, INT64_MAX)
    return tuple(planning.slices(source, start, end, start_time))


@dataclass(frozen=True, slots=True)
class _Planning:
    files: FileSystem
    cache: EndsCache
    isolation: Isolation
    cut_bytes: int

    def plan(
        self,
        source: PartitionSource,
        start: int | None,
        end: int | None,
        start_time: int | None,
        end_time: int | None,
        time_slack_ms: int | None,
    ) -> LogRange:
        is_committed = self.isolation is Isolation.COMMITTED
        ends = self.cache.ends_of(source, stable=is_committed)
        visible = ends.end if ends.stable is None else ends.stable
        if ends.damage is not None and (end is None or end > visible):
            raise ends.damage  # what follows the damage may well be wanted
        first = ends.start if start is None else max(start, ends.start)
        last = visible if end is None else min(end, visible)
        if end_time is not None and time_slack_ms is not None and first < last:
            bound = first_of_time(source, end_time + time_slack_ms, self.files, start=first)
            last = last if bound is None else min(last, bound)
        last = max(first, last)
        slices = tuple(self.slices(source, first, last, start_time))
        topic_partition = source.topic_partition
        return LogRange(
            folder=source.folder,
            topic=None if topic_partition is None else topic_partition.topic,
            partition=None if topic_partition is None else topic_partition.partition,
            start=first,
            end=last,
            start_time=start_time,
            end_time=end_time,
            slices=slices,
            aborted=self.aborted(source, first, last) if is_committed else None,
            is_listed=source.is_listed,
        )

    def slices(
        self, source: PartitionSource, start: int, end: int, start_time: int | None
    ) -> Iterator[SegmentSlice]:
        if start >= end:
            return
        for span in segment_spans(source.segments):
            base, behind = span.base_offset, span.next_offset
            if base is not None and base >= end:
                continue
            if behind is not None and behind <= start:
                continue
            if start_time is not None and ends_before(span, start_time, self.files):
                continue
            found = self._slice(source, span, start, end, start_time)
            if found is not None:
                yield found

    def _slice(
        self,
        source: PartitionSource,
        span: SegmentSpan,
        start: int,
        end: int,
        start_time: int | None,
    ) -> SegmentSlice | None:
        base, behind = span.base_offset or 0, span.next_offset
        with SegmentSearch(span, self.files) as search:
            limit = search.size
            if span.path == source.segments[-1]:
                tail = self.cache.tail(source)
                limit = limit if tail is None else min(tail.position, limit)
            if not search.is_searchable:
                return SegmentSlice(span.path, start, end, 0, limit, None, search.size)
            first, last = max(start, base), end if behind is None else min(end, behind)
            position = search.position_before(first) if first > base else 0
            if start_time is not None:
                early = search.batch_before_time(start_time)
                if early is not None and early.last_offset >= first:
                    first, position = early.last_offset + 1, early.position
            if first >= last:
                return None
            end_position = limit
            if last < (behind if behind is not None else self._written(source)):
                end_position = search.position_behind(last, limit)
            if position >= limit:
                return None
            if position >= end_position:  # an offset before it is wrong: whoever reads will meet it
                end_position = limit
            cuts = tuple(search.cuts(position, end_position, self.cut_bytes))
        return SegmentSlice(
            span.path,
            first,
            last,
            position,
            end_position,
            behind,
            search.size,
            tuple(cut for cut in cuts if first < cut.offset < last),
        )

    def _written(self, source: PartitionSource) -> int:
        tail = self.cache.tail(source)
        return 0 if tail is None else tail.next_offset

    def aborted(self, source: PartitionSource, start: int, end: int) -> tuple[AbortedTxn, ...]:
        """The aborted transactions with records in a range. Their markers lie in it or behind it, each in
        the index of its segment."""
        found: list[AbortedTxn] = []
        if start >= end:
            return ()
        for span in segment_spans(source.segments):
            if span.base_offset is None or span.path.endswith(V07_SUFFIX):
                continue  # no segment by its name, or of 0.7: neither has an index, nor transactions
            if span.next_offset is not None and span.next_offset <= start:
                continue
            some, is_complete = collect_aborted(self._aborted_in(source, span), start, end)
            found += some
            if is_complete:
                break
        return tuple(found)

    def _aborted_in(self, source: PartitionSource, span: SegmentSpan) -> tuple[AbortedTxn, ...]:
        if span.path == source.segments[-1]:
            return self.cache.aborted(source)
        segment = sealed_segment(source, span, self.files)
        if segment.lacks_indexes:
            return self.cache.sealed_aborted(source)[segment.base_offset]
        return read_aborted(self.files, segment.path(FileKind.TXN_INDEX), segment)
