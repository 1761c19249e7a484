"""What a task of a mirror does: it follows partitions of one directory in another, as a replica its leader.

Batches are taken as they lie, some megabytes at a time, and appended with the offsets that they have. Whoever
appends holds the target's own lock while he does, in the very process that writes: a task that is left over
from a driver that died, or a second try of the same task, can be in nobody's way, and finds by the log's end
what is there already. So a mirror needs no journal: wherever it was killed, the next run goes on at the end.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stratalog.errors import (
    CorruptionError,
    OffsetOrderError,
    StorageError,
    StratalogError,
    UnknownPartitionError,
    UsageError,
)
from stratalog.inspect.partition.ends import PartitionEnds, partition_ends
from stratalog.inspect.partition.sources import PartitionSource, relisted
from stratalog.manager.logs import Logs, open_logs
from stratalog.manager.root.lock_wait import when_unlocked
from stratalog.records import kernel
from stratalog.records.layout import INT32_MAX, ROW_WIDTH, Check, Ending, Row
from stratalog.records.reasons import corruption
from stratalog.spark.jobs.mirroring.history import is_another_history
from stratalog.spark.jobs.run.log_paths import LogPaths
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.names import FileKind, partition_dir_name
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.views.log_view import Isolation, LogView
from stratalog.storage.views.read_only import open_view
from stratalog.storage.views.refresh import ViewRefresher
from stratalog.types import TopicPartition

__all__ = [
    "Copied",
    "Mirroring",
    "PartitionToCopy",
    "copy_partitions",
    "ends_of_folder",
    "whole_batches",
]

#: What one append takes: as much as a follower fetches.
_APPEND_BYTES: Final = 4 << 20
_ROWS_AT_ONCE: Final = 512
#: How often a task finds another end than the one that it has read for: a sibling may have been faster.
_IDLE_ROUNDS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Mirroring:
    """How all tasks copy. ``hold_bytes`` is what a task has in memory, and appends under one lock."""

    logs: LogPaths
    target: str
    hold_bytes: int = 64 << 20
    lock_timeout_s: float = 600.0
    allow_loss: bool = False


@dataclass(frozen=True, slots=True)
class PartitionToCopy:
    """A partition, and the end up to which it is copied: what comes later is for the next run. ``damage`` is
    what the source goes on with there, where that is not its end: it is told when all before it is copied."""

    source: PartitionSource
    topic_partition: TopicPartition
    end: int
    size_bytes: int
    damage: CorruptionError | None = None


@dataclass(slots=True)
class Copied:
    """What was copied of one partition; ``refused`` is why it was not all."""

    topic_partition: TopicPartition
    start_offset: int | None = None
    end_offset: int | None = None
    records: int = 0
    batches: int = 0
    size_bytes: int = 0
    refused: StratalogError | None = None


@dataclass(frozen=True, slots=True)
class _Region:
    """Batches as they lie in one segment of the source: what follows offset ``follows`` of the target, up to
    ``next_offset``. Without data it is an end that no batch reaches: everything before it was deleted."""

    data: bytes
    follows: int
    next_offset: int
    segment_base: int
    source_start: int


def copy_partitions(mirroring: Mirroring, items: Sequence[PartitionToCopy]) -> list[Copied]:
    """Copy some partitions, one after the other; several small ones under one lock."""
    files = mirroring.logs.file_system
    followers = [_Follower(mirroring, item, files) for item in items]
    waiting = followers
    while waiting:
        held: list[tuple[_Follower, _Region]] = []
        size = 0
        for follower in waiting:
            if size < mirroring.hold_bytes:
                for region in follower.next_regions(mirroring.hold_bytes - size):
                    held.append((follower, region))
                    size += len(region.data)
        if held:
            try:
                _append_all(mirroring, held)
            except StratalogError as error:
                for follower, _ in held:
                    follower.refuse(error)
        waiting = [each for each in waiting if not each.is_done]
    return [follower.copied for follower in followers]


def _append_all(mirroring: Mirroring, held: Sequence[tuple[_Follower, _Region]]) -> None:
    # Other tasks of this mirror are soon done with it.
    logs = when_unlocked(lambda: open_logs(mirroring.target), mirroring.lock_timeout_s)
    try:
        for follower, region in held:
            follower.append(logs, region)
    finally:
        logs.close()


class _Follower:
    """One partition that is copied."""

    def __init__(self, mirroring: Mirroring, item: PartitionToCopy, files: FileSystem) -> None:
        self._mirroring = mirroring
        self._item = item
        self._files = files
        self._folder = os.path.join(mirroring.target, partition_dir_name(item.topic_partition))
        self._view: LogView | None = None
        self._damage: CorruptionError | None = None
        self._idle_rounds = 0
        self.copied = Copied(item.topic_partition)
        self.is_done = False

    def next_regions(self, bytes_max: int) -> list[_Region]:
        """What comes next, from the end of the target on; nothing where all is there."""
        try:
            return self._next_regions(bytes_max)
        except StratalogError as error:
            self.refuse(error)
            return []

    def _next_regions(self, bytes_max: int) -> list[_Region]:
        view = self._source_view()
        target = ends_of_folder(self._folder, self._item.topic_partition)
        offset = target.end
        if offset >= self._item.end:
            if self._item.damage is not None:
                raise self._item.damage
            self.is_done = True
            return []
        if offset < view.log_start:
            if target.start < target.end and not self._mirroring.allow_loss:
                raise UsageError(
                    f"{self._item.topic_partition}: offsets {offset} to {view.log_start - 1} were deleted "
                    "from the source before they were copied; allow_loss=True continues without them"
                )
            offset = view.log_start
        self._idle_rounds += 1
        if self._idle_rounds > _IDLE_ROUNDS_MAX:
            raise StorageError(
                "another writer appends to the target: stop it, and try again",
                path=self._folder,
            )
        regions = self._regions(view, offset, target.end, bytes_max)
        if not regions:
            if self._damage is not None:
                raise self._damage
            regions = self._bare_end(view, target)
            self.is_done = not regions  # nothing but gaps is left
        return regions

    def _bare_end(self, view: LogView, target: PartitionEnds) -> list[_Region]:
        """The end of a source that holds nothing before it: an empty copy goes on there, too. One that holds
        records keeps them, and its end."""
        end = min(self._item.end, view.log_end)
        if target.start < target.end or target.end >= end:
            return []
        return [_Region(b"", target.end, end, end, end)]

    def _regions(self, view: LogView, offset: int, follows: int, bytes_max: int) -> list[_Region]:
        regions: list[_Region] = []
        refresher = ViewRefresher(self._refresh)
        while bytes_max > 0 and offset < self._item.end:
            try:
                found = view.find(offset)
                region = None if found is None else self._region(view, offset, found[0], follows)
            except CorruptionError:
                if not regions:
                    raise
                break  # what stands before the damage goes first
            except StorageError as error:
                view = refresher.after(error, offset)
                continue
            refresher.found()
            if region is None:
                break
            regions.append(region)
            bytes_max -= len(region.data)
            offset = follows = region.next_offset
        return regions

    def _refresh(self) -> LogView:
        self._view = None
        return self._source_view()

    def _source_view(self) -> LogView:
        if self._view is None:
            source = self._item.source
            self._view, self._damage = open_view(
                source.folder,
                self._files,
                log_start=source.log_start,
            )
        return self._view

    def _region(self, view: LogView, offset: int, number: int, follows: int) -> _Region | None:
        part = view.read(offset, _APPEND_BYTES, Isolation.LOG_END).region
        if part is None:
            return None
        data = part.read()
        segment = view.segments[number]
        try:
            size, next_offset = whole_batches(data, self._item.end)
        except CorruptionError as error:
            position = part.position + (error.position or 0)
            raise CorruptionError(
                error.reason,
                error.detail,
                position=position,
                path=segment.path(FileKind.LOG),
                advice=error.advice,
            ) from None
        if not size:
            return None
        return _Region(data[:size], follows, next_offset, segment.base_offset, view.log_start)

    def append(self, logs: Logs, region: _Region) -> None:
        """Append what was read, unless the log has moved on meanwhile: then it is read anew."""
        if self.copied.refused is not None:
            return
        try:
            log = logs.partition(*self._item.topic_partition)
            if log.log_end == region.follows:
                if region.data:
                    self._append(log, region)
                elif not log.size_bytes:
                    log.restart(region.next_offset)
                    self.copied.start_offset = self.copied.end_offset = region.next_offset
                self._idle_rounds = 0
        except UnknownPartitionError:
            name = partition_dir_name(self._item.topic_partition)
            self.refuse(
                UsageError(
                    f"{self._folder} is gone, while other partitions of its topic are there: bring it "
                    f"back, or make an empty folder {name}, and it is copied again"
                )
            )
        except OffsetOrderError:
            self.refuse(
                UsageError(
                    f"{self._item.topic_partition} ends at {region.follows} in {self._mirroring.target}, in "
                    "the middle of a batch of the source: it is not a copy; mirror into another directory"
                )
            )
        except StratalogError as error:
            self.refuse(error)

    def _append(self, log: PartitionLog, region: _Region) -> None:
        if not log.size_bytes:
            if region.segment_base > log.log_end:
                log.restart(region.segment_base)
        elif self.copied.start_offset is None:
            self._check_same_history(log)
        if region.segment_base >= log.log_end and log.segments[-1].size_bytes:
            log.roll()  # where the source has it, so that retention takes the same away
        records, control, batches, *_ = kernel.count(region.data, 0, len(region.data))
        result = log.append_as_follower(region.data)
        assert result is not None, "whole batches"
        copied = self.copied
        if copied.start_offset is None:
            copied.start_offset = result.first_offset
        copied.end_offset = result.next_offset
        copied.records += records + control
        copied.batches += batches
        copied.size_bytes += len(region.data)
        _settle_start(log, region.source_start)

    def _check_same_history(self, log: PartitionLog) -> None:
        """The last batch that is there must be the one that the source has in its place."""
        last = log.log_end - 1
        if is_another_history(log.view, self._source_view(), last):
            raise UsageError(
                f"{self._item.topic_partition} has another batch up to offset {last} in "
                f"{self._mirroring.target} than in the source: the target is not a copy of the "
                "source; mirror into another directory"
            )

    def refuse(self, error: StratalogError) -> None:
        self.copied.refused = error
        self.is_done = True


def ends_of_folder(folder: str, topic_partition: TopicPartition) -> PartitionEnds:
    """Where a partition of the target begins and ends, without its lock."""
    files = OsFileSystem()
    there = PartitionSource(
        folder=folder, topic_partition=topic_partition, segments=(), is_listed=True
    )
    return partition_ends(relisted(there, files), files)


def whole_batches(data: bytes, end: int) -> tuple[int, int]:
    """How many bytes of whole, sound batches that lie below offset ``end`` the data begins with, and the
    offset behind them. CorruptionError where already the first batch is damaged."""
    rows = memoryview(array("q", bytes(8 * ROW_WIDTH * _ROWS_AT_ONCE)))
    at, size, next_offset = 0, 0, -1
    while True:
        held, at, ending, reason, _ = kernel.walk(
            data, at, len(data), rows, Check.CRC | Check.ORDER, next_offset, INT32_MAX
        )
        for row in range(0, held * ROW_WIDTH, ROW_WIDTH):
            if rows[row + Row.LAST_OFFSET] >= end:
                return size, next_offset
            size = rows[row + Row.POSITION] + rows[row + Row.SIZE]
            next_offset = rows[row + Row.LAST_OFFSET] + 1
        if ending == Ending.CORRUPT and size == 0:
            raise corruption(reason, at)
        if ending != Ending.FULL or not held:
            return size, next_offset


def _settle_start(log: PartitionLog, source_start: int) -> None:
    """The log starts where the source does, if that is before or within its first batch. What else the
    source has deleted stays: a copy may keep more."""
    if source_start > log.log_start:
        found = log.view.find(log.log_start)
        if found is not None and source_start <= found[1].last_offset:
            log.sync()  # a start lies below the high watermark
            log.advance_start(source_start)
