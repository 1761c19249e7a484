"""The directories that a read is about, as the driver sees them: partitions, their ends, plans."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from stratalog.errors import (
    CorruptionError,
    OffsetOutOfRangeError,
    UnknownPartitionError,
    UsageError,
)
from stratalog.inspect.file.skipped_damage import OnDamagedBatch, with_advice
from stratalog.inspect.partition.ends import EndsCache, PartitionEnds
from stratalog.inspect.partition.offset_for_time import offset_for_time
from stratalog.inspect.partition.partition_filter import EVERYTHING, PartitionFilter
from stratalog.inspect.partition.sources import PartitionSource, find_sources
from stratalog.inspect.range.plan import CUT_BYTES, LogRange, plan_range
from stratalog.inspect.range.split import pack_ranges, piece_bytes, split_ranges
from stratalog.records.layout import INT64_MAX
from stratalog.spark.options.offsets import EARLIEST, LATEST, Kind, Offsets, Position
from stratalog.spark.options.read_options import ReadOptions
from stratalog.spark.read.skip_warnings import warn_of_skipped
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.files.object_store import is_uri
from stratalog.storage.views.log_view import Isolation
from stratalog.types import TopicPartition

__all__ = [
    "NO_TIMES",
    "LogDirectories",
    "TimeBounds",
    "check_partitions",
    "file_system_for",
    "with_way_out",
]


class TimeBounds(NamedTuple):
    """Times of records, in milliseconds: from, and up to but not including. ``lateness_ms`` is how much older
    than those before it a record can be, where the caller knows."""

    start_ms: int | None = None
    end_ms: int | None = None
    lateness_ms: int | None = None


NO_TIMES: Final = TimeBounds()

#: How many places to cut at lie within what a task is to read, at least.
_CUTS_A_PIECE: Final = 4


def file_system_for(options: ReadOptions) -> tuple[FileSystem, tuple[str, ...]]:
    """Where the files are read from, and their paths there."""
    remote = [path for path in options.paths if is_uri(path)]
    if not remote:
        return OsFileSystem(), options.paths
    if len(remote) < len(options.paths):
        raise UsageError("folders and object stores cannot be read as one: load them one by one")
    from stratalog.storage.files.object_store import open_store

    return open_store(remote, options.store)


class LogDirectories:
    """What the options name, listed anew whenever it is asked for."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._file_system, self._paths = file_system_for(options)
        for path in self._paths:
            self._file_system.list_dir(path)  # says what is wrong with one that is not there
        is_skipping = options.on_damage is OnDamagedBatch.SKIP
        self._cache = EndsCache(
            self._file_system, skips_damage=is_skipping, check_crc=options.check_crc
        )
        #: What was logged as left out, by file and position.
        self._warned: set[tuple[str, int]] = set()
        names = options.wanted.topic_names
        self._filter = EVERYTHING if names is None else PartitionFilter(names)

    def sources(self, *, may_miss: bool = False) -> dict[TopicPartition, PartitionSource]:
        """The partitions that are wanted, by name. UnknownPartitionError where one that was named is
        not there, unless it ``may_miss``."""
        wanted = replace(self._filter, may_miss=may_miss)
        found = find_sources(self._paths, wanted, self._file_system, cache=self._cache)
        for warning in found.warnings:
            warnings.warn(f"stratalog: {warning}", stacklevel=2)
        sources = {}
        for source in found.partitions:
            if source.topic_partition is None:
                raise UsageError(
                    f"{source.folder}: the name of a partition folder must be <topic>-<partition>"
                )
            if self._options.wanted.takes(source.topic_partition) or self._is_named(source):
                sources[source.topic_partition] = source
        if found.partitions and not sources and not self._options.wanted.is_given:
            raise UnknownPartitionError(
                f"only internal topics of Kafka's are in {', '.join(self._paths)}: subscribe names them, "
                "includeInternal=true takes them all"
            )
        for topic_partition in self._options.wanted.topic_partitions or ():
            if topic_partition not in sources and not may_miss:
                raise UnknownPartitionError(
                    f"no partition {topic_partition} in {', '.join(self._paths)}"
                )
        return sources

    def _is_named(self, source: PartitionSource) -> bool:
        """Whether a path is the partition's own folder, and no option chooses others."""
        return not self._options.wanted.is_given and source.folder in self._paths

    def ends(
        self, sources: Mapping[TopicPartition, PartitionSource]
    ) -> dict[TopicPartition, PartitionEnds]:
        """Where each starts and ends for this reader: at the last stable offset, where only what is
        committed counts."""
        is_committed = self._options.is_committed
        return {
            topic_partition: self._cache.ends_of(source, stable=is_committed)
            for topic_partition, source in sources.items()
        }

    def reader_end(self, ends: PartitionEnds) -> int:
        return ends.end if ends.stable is None else min(ends.end, ends.stable)

    def bounds(
        self,
        sources: Mapping[TopicPartition, PartitionSource],
        ends: Mapping[TopicPartition, PartitionEnds],
        *,
        among: Collection[TopicPartition] | None = None,
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where a read of what is there begins and ends. OffsetOutOfRangeError where it would begin behind
        its end. ``among`` are all partitions that the options speak of, where only some are read."""
        for position in (self._options.start, self._options.end):
            check_partitions(position, sources if among is None else among)
        start = self.resolve(self._options.start, sources, ends, is_start=True)
        end = self.resolve(self._options.end, sources, ends, is_start=False)
        for topic_partition in sources:
            if start[topic_partition] > end[topic_partition]:
                raise OffsetOutOfRangeError(
                    start[topic_partition], ends[topic_partition].start, end[topic_partition]
                )
        return start, end

    def resolve(
        self,
        position: Position,
        sources: Mapping[TopicPartition, PartitionSource],
        ends: Mapping[TopicPartition, PartitionEnds],
        *,
        is_start: bool,
    ) -> dict[TopicPartition, int]:
        """A position as an offset for each partition."""
        return {
            topic_partition: self._resolve_one(
                position, source, topic_partition, ends[topic_partition], is_start=is_start
            )
            for topic_partition, source in sources.items()
        }

    def _resolve_one(
        self,
        position: Position,
        source: PartitionSource,
        topic_partition: TopicPartition,
        ends: PartitionEnds,
        *,
        is_start: bool,
    ) -> int:
        latest = self.reader_end(ends)
        if position.kind is Kind.EARLIEST:
            return ends.start
        if position.kind is Kind.LATEST:
            return latest
        number = position.time_ms
        if position.numbers is not None:
            number = position.numbers[topic_partition]
        assert number is not None
        if position.kind is Kind.OFFSETS:
            if number in (EARLIEST, LATEST):
                return ends.start if number == EARLIEST else latest
            return self._in_range(number, ends, latest, is_start=is_start)
        found = offset_for_time(source, number, self._file_system)
        if found is not None and found < latest:
            return found
        if is_start and not self._options.latest_where_no_time:
            raise UsageError(
                f"{position.option}: {topic_partition} has no record of {number} or later; "
                "startingOffsetsByTimestampStrategy=latest starts it at its end"
            )
        return latest

    def warn_of_skipped(self, ends: Mapping[TopicPartition, PartitionEnds], end: Offsets) -> None:
        """Log what is left out at the end of the partitions that are read up to their end: no task meets
        it. Each is said once."""
        for topic_partition, each in ends.items():
            skipped = each.skipped
            if skipped is None or end.get(topic_partition, -1) < each.end:
                continue
            key = (skipped.path, skipped.position)
            if key not in self._warned:
                self._warned.add(key)
                warn_of_skipped(topic_partition, skipped)

    def check_end(
        self, position: Position, ends: Mapping[TopicPartition, PartitionEnds], end: Offsets
    ) -> None:
        """CorruptionError where a read that is to go to the end of a partition would stop at damage
        instead. Who names the offset there reads up to it."""
        for topic_partition, each in ends.items():
            if each.damage is None or end[topic_partition] < self.reader_end(each):
                continue
            numbers = position.numbers or {}
            if position.kind is not Kind.OFFSETS or numbers.get(topic_partition) == LATEST:
                raise with_way_out(each.damage, topic_partition, each.end)

    def _in_range(self, offset: int, ends: PartitionEnds, latest: int, *, is_start: bool) -> int:
        if ends.start <= offset <= latest:
            return offset
        if ends.damage is not None and offset > latest:
            raise with_way_out(ends.damage, None, ends.end)  # it may well be there
        if self._options.fail_on_data_loss or (is_start and offset > latest):
            raise OffsetOutOfRangeError(offset, ends.start, latest)
        return min(max(offset, ends.start), latest)

    def plan(
        self,
        sources: Mapping[TopicPartition, PartitionSource],
        start: Offsets,
        end: Offsets,
        times: TimeBounds = NO_TIMES,
    ) -> list[tuple[LogRange, ...]]:
        """The ranges from start to end, cut and packed for tasks. ``times`` bounds the records' own. Where
        only the newest records are wanted, a partition is not cut: all records of a key must meet."""
        options = self._options

        def ranges_cut_at(cut_bytes: int) -> list[LogRange]:
            return [
                self._range(source, start[topic_partition], end[topic_partition], times, cut_bytes)
                for topic_partition, source in sources.items()
                if start[topic_partition] < end[topic_partition]
            ]

        if options.latest is not None:
            return pack_ranges(ranges_cut_at(INT64_MAX), split_bytes=options.split_bytes)
        ranges = ranges_cut_at(CUT_BYTES)
        wanted = piece_bytes(
            ranges,
            split_bytes=options.split_bytes,
            min_splits=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        if wanted // _CUTS_A_PIECE < CUT_BYTES:
            # Each task would read up to the next place on either side of its own.
            ranges = ranges_cut_at(max(wanted // _CUTS_A_PIECE, 1))
        return split_ranges(
            ranges,
            split_bytes=options.split_bytes,
            min_splits=options.min_partitions,
            max_records=options.max_records_per_partition,
        )

    def _range(
        self,
        source: PartitionSource,
        start: int,
        end: int,
        times: TimeBounds = NO_TIMES,
        cut_bytes: int = CUT_BYTES,
    ) -> LogRange:
        isolation = Isolation.COMMITTED if self._options.is_committed else Isolation.UNCOMMITTED
        return plan_range(
            source,
            start,
            end,
            start_time=times.start_ms,
            end_time=times.end_ms,
            time_slack_ms=times.lateness_ms,
            isolation=isolation,
            file_system=self._file_system,
            cache=self._cache,
            cut_bytes=cut_bytes,
        )

    def limit_by_bytes(
        self,
        sources: Mapping[TopicPartition, PartitionSource],
        start: Offsets,
        end: Offsets,
        bytes_max: int,
    ) -> dict[TopicPartition, int]:
        """Ends that lie within so many bytes, each partition's share by how much it holds; every one that
        holds something moves by a place where it can be cut."""
        ranges = {
            topic_partition: self._range(source, start[topic_partition], end[topic_partition])
            for topic_partition, source in sources.items()
            if topic_partition in end and start[topic_partition] < end[topic_partition]
        }
        total = sum(each.size_bytes for each in ranges.values())
        if total <= bytes_max:
            return dict(end)
        limited = dict(end)
        for topic_partition, each in ranges.items():
            share = max(1, bytes_max * each.size_bytes // total)
            pieces = split_ranges([each], split_bytes=share)
            if pieces:  # of what retention has emptied since, there is nothing to cut
                limited[topic_partition] = pieces[0][-1].end
        return limited


def with_way_out(
    damage: CorruptionError, topic_partition: TopicPartition | None, offset: int
) -> CorruptionError:
    """The error of a read that stops at damage, with the offset it reached and what would let it go on."""
    where = "it" if topic_partition is None else str(topic_partition)
    advice = [] if damage.advice is None else [damage.advice]
    advice.append(
        f"{where} cannot be read from offset {offset} on; onDamage=skip continues at the next intact batch"
    )
    return with_advice(damage, "; ".join(advice))


def check_partitions(position: Position, there: Collection[TopicPartition]) -> None:
    """A position that goes partition by partition names every one, and no other."""
    if position.numbers is None:
        return
    missing = sorted(set(there) - set(position.numbers))
    surplus = sorted(set(position.numbers) - set(there))
    if missing:
        raise UsageError(
            f"{position.option} says nothing of {missing[0]}: it must list every partition"
        )
    if surplus:
        raise UnknownPartitionError(f"{position.option} names {surplus[0]}, which is not read here")
