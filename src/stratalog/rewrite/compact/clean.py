"""Clean an open log: plan its sections, note the newest offsets, rewrite group after group of segments.

One cleaning takes one map of keys. If the keys of the dirty section do not fit, it ends where the map was
full, and the next one begins there: that offset is stored as the cleaner checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

from stratalog.errors import UsageError
from stratalog.records import kernel
from stratalog.records.layout import INT32_MAX, INT64_MAX, FilterCount
from stratalog.rewrite.compact.compaction import Compaction, CompactionRules
from stratalog.rewrite.compact.offset_map import build_offset_map
from stratalog.rewrite.compact.sections import (
    CleanableLog,
    CleanableSegment,
    plan_cleaning,
    plan_groups,
)
from stratalog.rewrite.limits import RewriteLimits, RewriteStoppedError
from stratalog.rewrite.operation import GroupRecorder, RewrittenGroup
from stratalog.rewrite.plan import PlannedGroup, SealedFacts
from stratalog.rewrite.rewriter import GroupResult, sources_of, stopped_by_deletion
from stratalog.rewrite.source import transform_segment
from stratalog.rewrite.space import check_space
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import FileKind
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.producers.entry import ProducerEntry
from stratalog.storage.segment.find import places_from
from stratalog.storage.segment.segment import Segment
from stratalog.storage.segment.txn_index import AbortedTxn
from stratalog.storage.views.log_view import LogView
from stratalog.types import NO_TIMESTAMP, Progress

__all__ = [
    "CleanerCheckpoint",
    "CleanerSettings",
    "Cleaning",
    "CleaningResult",
    "UnstoredCheckpoint",
    "clean_log",
    "clean_to_end",
    "find_cleanable",
    "planned_groups",
    "preview",
    "rounds",
    "rules_of",
    "segments_of",
]

#: The most that a map may take, as in Kafka.
_MAP_BYTES_MAX: Final = INT32_MAX


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """How much memory a map of keys takes (``log.cleaner.dedupe.buffer.size``, of one thread), and how much
    of it is used (``log.cleaner.io.buffer.load.factor``)."""

    dedupe_bytes: int = 128 << 20
    load_factor: float = 0.9

    def new_map(self) -> kernel.OffsetMap:
        """Return an empty map; UsageError if it would have no room for a key."""
        size = min(self.dedupe_bytes, _MAP_BYTES_MAX)
        try:
            return kernel.OffsetMap(size, self.load_factor)
        except ValueError:
            raise UsageError(
                f"log.cleaner.dedupe.buffer.size={self.dedupe_bytes} has no room for a single key: give it "
                "at least 1048577 bytes, as Kafka asks for"
            ) from None


@dataclass(frozen=True, slots=True)
class CleaningResult:
    """What one cleaning did. ``end_offset`` is where the next one begins; ``is_partial`` says that the keys
    did not fit the map, and that the dirty section goes on after it."""

    start_offset: int
    end_offset: int
    groups: tuple[GroupResult, ...]
    counts: dict[FilterCount, int]
    keys: int
    map_slots: int
    is_partial: bool

    @property
    def bytes_before(self) -> int:
        return sum(group.old_bytes for group in self.groups)

    @property
    def bytes_after(self) -> int:
        return sum(group.new_bytes for group in self.groups)


def find_cleanable(
    view: LogView,
    config: LogConfig,
    *,
    checkpoint: int | None,
    now_ms: int,
    limit: int | None = None,
) -> CleanableLog:
    """Return how dirty a log is, and whether it needs cleaning. ``checkpoint`` is where its last cleaning
    ended; nothing at or above ``limit`` may be cleaned."""
    stable = view.last_stable_offset
    return plan_cleaning(
        _facts(view, config),
        log_start=view.log_start,
        log_end=view.log_end,
        last_stable_offset=stable if limit is None else min(stable, limit),
        checkpoint=checkpoint,
        config=config,
        now_ms=now_ms,
    )


class CleanerCheckpoint(Protocol):
    """Where the last cleaning of a log ended, and what may be cleaned from there on."""

    def find(self, limit: int | None = None) -> CleanableLog:
        """Return how dirty the log is now, below ``limit``."""
        ...

    def store(self, end_offset: int) -> None:
        """Store where a cleaning ended."""
        ...


class UnstoredCheckpoint:
    """A checkpoint of an open log that is forgotten with the process."""

    def __init__(self, log: PartitionLog, offset: int | None = None, *, now_ms: int) -> None:
        self._log = log
        self.offset = offset
        self._now_ms = now_ms

    def find(self, limit: int | None = None) -> CleanableLog:
        log = self._log
        return find_cleanable(
            log.view, log.config, checkpoint=self.offset, now_ms=self._now_ms, limit=limit
        )

    def store(self, end_offset: int) -> None:
        self.offset = end_offset


class Cleaning:
    """One round of cleaning an open log, as far as its keys fit one map."""

    def __init__(
        self,
        log: PartitionLog,
        checkpoint: CleanerCheckpoint,
        settings: CleanerSettings,
        limits: RewriteLimits,
        *,
        now_ms: int,
        limit: int | None = None,
        config: LogConfig | None = None,
        recorder: GroupRecorder | None = None,
    ) -> None:
        """Nothing at or above ``limit`` is cleaned. ``config`` replaces the topic's configs: how long
        tombstones stay, how large segments become."""
        self._log = log
        self._checkpoint = checkpoint
        self._newest = settings.new_map()
        self._limits = limits
        self._limit = limit
        self._now_ms = now_ms
        self._config = config or log.config
        self._recorder = recorder or GroupRecorder()
        self._done: list[GroupResult] = []
        self._counts: dict[FilterCount, int] = {}
        self._cleanable: CleanableLog | None = None
        self._end = 0

    def groups(self) -> Iterator[RewrittenGroup]:
        """Clean; yield each group of segments when the new one is in its place. Raise RewriteStoppedError if
        a limit was reached; what was cleaned until then stays."""
        log, config = self._log, self._config
        # Planned and stored while no other rewrite can replace what the plan is about.
        with log.rewriting():
            cleanable = self._cleanable = self._checkpoint.find(self._limit)
            self._end = cleanable.first_dirty
            if cleanable.first_dirty >= cleanable.first_uncleanable:
                return
            end = _note_keys(log, cleanable, self._newest, self._limits.note)
            planned = planned_groups(log.view, config, cleanable, end)
            check_space(
                log.file_system, log.folder, max((g.size_bytes for g in planned), default=0)
            )
            producers = {each.producer_id: each for each in log.producers}
            rules = rules_of(log.view, config, cleanable, producers, self._now_ms)
            compaction = Compaction(self._newest, rules, partial(_aborted, log))
            self._recorder.begin_round()
            for group in planned:
                segments = segments_of(log.view, group)
                if not segments:  # retention has deleted them
                    continue
                rewritten = self._recorder.rewrite(
                    log,
                    group,
                    sources_of(log.view, segments),
                    compaction,
                    self._limits,
                    size_max=INT32_MAX,
                    index_limits=log.index_limits,
                )
                self._done.append(rewritten.result)
                self._counts = compaction.counts
                yield rewritten
            self._checkpoint.store(end)
            self._end = end

    def result(self) -> CleaningResult | None:
        """Return what was done, when all groups were taken; None if there was nothing to clean."""
        cleanable = self._cleanable
        if cleanable is None or cleanable.first_dirty >= cleanable.first_uncleanable:
            return None
        return CleaningResult(
            start_offset=cleanable.first_dirty,
            end_offset=self._end,
            groups=tuple(self._done),
            counts=self._counts,
            keys=len(self._newest),
            map_slots=self._newest.slots,
            is_partial=self._end < cleanable.first_uncleanable,
        )

    @property
    def round_limit(self) -> int:
        """Where the cleanable section ended when this round began."""
        assert self._cleanable is not None, "the round has begun"
        return self._cleanable.first_uncleanable


def clean_log(
    log: PartitionLog,
    checkpoint: CleanerCheckpoint,
    settings: CleanerSettings,
    limits: RewriteLimits,
    *,
    now_ms: int,
) -> CleaningResult | None:
    """Clean the dirty section of a log, as far as its keys fit one map; return None if there is none. Raise
    RewriteStoppedError if a limit was reached; what was cleaned until then stays."""
    cleaning = Cleaning(log, checkpoint, settings, limits, now_ms=now_ms)
    for _ in cleaning.groups():
        pass
    return cleaning.result()


def clean_to_end(
    log: PartitionLog,
    checkpoint: CleanerCheckpoint,
    settings: CleanerSettings,
    limits: RewriteLimits,
    *,
    now_ms: int,
) -> Iterator[CleaningResult]:
    """Clean a log in as many rounds as its keys need, up to where it was cleanable when the first began."""
    for cleaning in rounds(
        lambda limit: Cleaning(log, checkpoint, settings, limits, now_ms=now_ms, limit=limit)
    ):
        for _ in cleaning.groups():
            pass
        result = cleaning.result()
        if result is not None:
            yield result


def rounds(begin: Callable[[int | None], Cleaning]) -> Iterator[Cleaning]:
    """Yield the rounds of cleaning a log, each of which the caller carries out before it asks for the next.
    ``begin`` makes a round that ends at an offset, None for the first."""
    cleaning = begin(None)
    yield cleaning
    limit = cleaning.round_limit
    while (result := cleaning.result()) is not None and result.is_partial:
        cleaning = begin(limit)
        yield cleaning


def planned_groups(
    view: LogView, config: LogConfig, cleanable: CleanableLog, end: int
) -> list[PlannedGroup]:
    """Return the groups of segments that a cleaning up to ``end`` rewrites."""
    groups = plan_groups(
        _facts(view, config, with_times=False),
        end,
        segment_bytes=config.effective_segment_bytes,
        index_bytes=config.segment_index_bytes,
        first_uncleanable=cleanable.first_uncleanable,
    )
    return [_planned(group, cleanable) for group in groups]


def _planned(group: Sequence[CleanableSegment], cleanable: CleanableLog) -> PlannedGroup:
    segments = tuple(
        SealedFacts(
            each.base_offset,
            each.next_base,
            each.size_bytes,
            each.offset_index_bytes,
            each.time_index_bytes,
        )
        for each in group
    )
    size = sum(each.size_bytes for each in segments)
    is_dirty = segments[-1].next_base > cleanable.first_dirty
    reason = (
        "dirty: written since the last cleaning" if is_dirty else "clean: keys may be newer now"
    )
    return PlannedGroup(segments, reason, size)


def preview(
    view: LogView,
    config: LogConfig,
    cleanable: CleanableLog,
    settings: CleanerSettings,
    note_read: Progress,
    *,
    now_ms: int,
) -> list[PlannedGroup]:
    """Return the groups of the first round with what is left of each: bytes and records. Reads the log twice,
    and writes nothing. Headers that are kept only for a producer are not counted."""
    newest = settings.new_map()
    end = _map_keys(view, cleanable, _dirty_segments(view, cleanable), newest, note_read)
    rules = rules_of(view, config, cleanable, {}, now_ms)
    compaction = Compaction(newest, rules, view.aborted_between)
    found = []
    for group in planned_groups(view, config, cleanable, end):
        kept, size = compaction.counts[FilterCount.KEPT], 0

        def put(data: Any, _: Sequence[AbortedTxn]) -> None:
            nonlocal size
            size += len(data)

        for source in sources_of(view, segments_of(view, group)):
            transform_segment(source, compaction, put, note_read)
        records = compaction.counts[FilterCount.KEPT] - kept
        found.append(replace(group, new_bytes=size, records=records))
    return found


def _note_keys(
    log: PartitionLog, cleanable: CleanableLog, newest: kernel.OffsetMap, note_read: Progress
) -> int:
    _check_stable(log.view, cleanable)
    dirty = _dirty_segments(log.view, cleanable)
    with stopped_by_deletion(log, dirty):
        return _map_keys(log.view, cleanable, dirty, newest, note_read)


def _check_stable(view: LogView, cleanable: CleanableLog) -> None:
    """Raise RewriteStoppedError if transactions may be open below the end of what is to be cleaned: the log
    was truncated after that was planned."""
    if view.last_stable_offset < cleanable.first_uncleanable:
        raise RewriteStoppedError("the log was truncated after its cleaning was planned")


def _dirty_segments(view: LogView, cleanable: CleanableLog) -> list[Segment]:
    first = max(view.segments.floor(cleanable.first_dirty), 0)
    segments = view.segments.segments[first:-1]
    return [each for each in segments if each.base_offset < cleanable.first_uncleanable]


def _map_keys(
    view: LogView,
    cleanable: CleanableLog,
    dirty: Sequence[Segment],
    newest: kernel.OffsetMap,
    note_read: Progress,
) -> int:
    start, end = cleanable.first_dirty, cleanable.first_uncleanable
    return build_offset_map(
        newest,
        sources_of(view, dirty),
        start=start,
        end=end,
        aborted=view.aborted_between(start, end),
        note_read=note_read,
    )


def rules_of(
    view: LogView,
    config: LogConfig,
    cleanable: CleanableLog,
    producers: Mapping[int, ProducerEntry],
    now_ms: int,
) -> CompactionRules:
    """Return what a cleaning of a log goes by; ``producers`` are those that it knows."""
    retention_ms = config.delete_retention_ms
    clean = [each for each in view.segments.segments if each.base_offset < cleanable.first_dirty]
    return CompactionRules(
        now_ms=now_ms,
        delete_retention_ms=retention_ms,
        round_end=cleanable.first_uncleanable,
        legacy_horizon_ms=clean[-1].modified_ms() - retention_ms if clean else 0,
        producers=producers,
    )


def _aborted(log: PartitionLog, start: int, end: int) -> Sequence[AbortedTxn]:
    return log.view.aborted_between(start, end)


def segments_of(view: LogView, group: PlannedGroup) -> list[Segment]:
    """Return the segments of a planned group."""
    bases = {each.base_offset for each in group.segments}
    return [each for each in view.segments.segments if each.base_offset in bases]


def _facts(view: LogView, config: LogConfig, *, with_times: bool = True) -> list[CleanableSegment]:
    """Return what the rules of cleaning look at. Times, which must be read from files, are left out where no
    rule looks at them."""
    reads_largest = with_times and config.min_compaction_lag_ms > 0
    reads_first = with_times and config.max_compaction_lag_ms < INT64_MAX
    segments = view.segments.segments
    return [
        CleanableSegment(
            base_offset=segment.base_offset,
            next_base=view.segments.next_base(number, view.log_end),
            size_bytes=view.limit(number),
            largest_timestamp=segment.largest_timestamp if reads_largest else NO_TIMESTAMP,
            first_timestamp=_first_timestamp(segment) if reads_first else NO_TIMESTAMP,
            offset_index_bytes=segment.file_size(FileKind.OFFSET_INDEX),
            time_index_bytes=segment.file_size(FileKind.TIME_INDEX),
            is_active=number + 1 == len(segments),
        )
        for number, segment in enumerate(segments)
    ]


def _first_timestamp(segment: Segment) -> int:
    if segment.size_bytes == 0:
        return NO_TIMESTAMP
    return next(places_from(segment.log, 0, segment.size_bytes)).max_timestamp
