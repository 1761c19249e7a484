"""Write a new log directory in tasks, a segment or a damaged range each, and put it together on the driver.

Every attempt of a task writes into a folder of its own. The driver moves the files of the attempts that Spark
has chosen into place, and writes the files that depend on several segments. The directory gets its name last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from stratalog.errors import StratalogError
from stratalog.rewrite.limits import RewriteLimits
from stratalog.rewrite.salvage.candidates import SourceFile
from stratalog.rewrite.salvage.damaged_files import RangeToStore, ranges_to_store, store_ranges
from stratalog.rewrite.salvage.directory import NewDirectory
from stratalog.rewrite.salvage.incomplete import make_attempt, make_attempts, remove_attempt
from stratalog.rewrite.salvage.plan import SalvagePlan
from stratalog.rewrite.salvage.segments import NewSegment, segments_of
from stratalog.rewrite.salvage.write import PartitionFiles, WrittenSegment, write_segment
from stratalog.spark.jobs.run.file_parts import pack
from stratalog.spark.jobs.run.log_paths import LogPaths
from stratalog.spark.jobs.run.run_tasks import run_tasks
from stratalog.spark.jobs.run.task_errors import in_plain_words
from stratalog.spark.jobs.salvaging.surveying import task_size
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import DAMAGED_DIR, partition_dir_name
from stratalog.storage.producers.trail import ProducerTrail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stratalog.types import Progress

__all__ = ["Writing", "items_to_write", "write_items", "write_on_spark"]


@dataclass(frozen=True, slots=True)
class Writing:
    """What all tasks that write go by: the originals, and the directory that is not complete yet."""

    logs: LogPaths
    incomplete: str


class _SegmentItem(NamedTuple):
    """A segment to write: the name of its partition's folder, and the data files that its batches are in."""

    partition: int
    folder: str
    sources: dict[int, SourceFile]
    segment: NewSegment

    @property
    def size_bytes(self) -> int:
        return self.segment.size_bytes


class _RangeItem(NamedTuple):
    """A damaged range to store: the name of its partition's folder."""

    partition: int
    folder: str
    stored: RangeToStore

    @property
    def size_bytes(self) -> int:
        return 0 if self.stored.damaged.is_blank else self.stored.damaged.size_bytes


_Item = _SegmentItem | _RangeItem


class _SegmentDone(NamedTuple):
    """A segment that a task wrote into a folder of its attempt."""

    partition: int
    folder: str
    written: WrittenSegment
    producers: ProducerTrail


class _RangeDone(NamedTuple):
    """A damaged range that a task stored in a folder of its attempt."""

    partition: int
    folder: str
    name: str


_Done = _SegmentDone | _RangeDone


def write_on_spark(
    spark: SparkSession,
    file_system: FileSystem,
    logs: LogPaths,
    plans: Sequence[SalvagePlan],
    target: str,
    progress: Progress | None,
) -> None:
    """Write the partitions of some plans into a new log directory, as ``write_directory`` does."""
    new = NewDirectory(file_system, plans, target)
    new.begin()
    make_attempts(file_system, new.incomplete)
    segments = [segments_of(plan) for plan in plans]
    items = list(items_to_write(plans, segments))
    total = sum(each.size_bytes for each in items)
    writing = Writing(logs, os.path.abspath(new.incomplete))
    with in_plain_words():
        answers = run_tasks(
            spark,
            partial(write_items, writing),
            pack(items, lambda each: each.size_bytes, task_size(spark, total)),
            name="salvage: write",
            total_bytes=total,
            progress=progress,
        )
    done: list[list[_Done]] = [[] for _ in plans]
    for each in (each for answer in answers for each in answer):
        done[each.partition].append(each)
    for plan, new_segments, own in zip(plans, segments, done, strict=True):
        _put_together(file_system, new, plan, new_segments, own)
    new.finish()


def items_to_write(
    plans: Sequence[SalvagePlan], segments: Sequence[Sequence[NewSegment]]
) -> Iterator[_Item]:
    """Return what tasks write: for each partition its new segments, in their order, and its ranges."""
    for number, plan in enumerate(plans):
        folder = partition_dir_name(plan.topic_partition)
        for segment in segments[number]:
            sources = {run.source: plan.sources[run.source] for run in segment.runs}
            yield _SegmentItem(number, folder, sources, segment)
        for each in ranges_to_store(plan):
            yield _RangeItem(number, folder, each)


# In tasks.


def write_items(writing: Writing, items: Sequence[_Item]) -> list[_Done]:
    """Write segments and ranges into a folder that no other attempt has, and fsync them. After an error
    nothing stays."""
    file_system = writing.logs.file_system
    attempt = make_attempt(file_system, writing.incomplete)
    try:
        for folder in dict.fromkeys(each.folder for each in items):
            file_system.make_dir(os.path.join(attempt, folder))
            file_system.make_dir(os.path.join(attempt, folder, DAMAGED_DIR))
        return [
            _write_item(file_system, each, os.path.join(attempt, each.folder)) for each in items
        ]
    except BaseException:
        with suppress(StratalogError):  # the next salvage removes it
            remove_attempt(file_system, attempt)
        raise


def _write_item(file_system: FileSystem, item: _Item, folder: str) -> _Done:
    if isinstance(item, _RangeItem):
        damaged = os.path.join(folder, DAMAGED_DIR)
        store_ranges(file_system, [item.stored], damaged, RewriteLimits())
        return _RangeDone(item.partition, damaged, item.stored.name)
    producers = ProducerTrail()
    written = write_segment(
        file_system, item.sources, item.segment, folder, producers, RewriteLimits()
    )
    return _SegmentDone(item.partition, folder, written, producers)


# On the driver.


def _put_together(
    file_system: FileSystem,
    new: NewDirectory,
    plan: SalvagePlan,
    segments: Sequence[NewSegment],
    done: Sequence[_Done],
) -> None:
    """Move the files of a partition into its folder, and write those that depend on several segments."""
    folder = new.folder_of(plan)
    files = PartitionFiles(file_system, plan, folder)
    files.begin()
    written = [each for each in done if isinstance(each, _SegmentDone)]
    for segment, each in zip(segments, written, strict=True):
        files.begin_segment(segment)
        _move(file_system, each.folder, each.written.names, folder)
        files.end_segment(segment, each.written, each.producers.replay_to(files.producers))
    for stored in done:
        if isinstance(stored, _RangeDone):
            _move(file_system, stored.folder, (stored.name,), files.damaged_folder)
    files.finish(new.topic_id(plan))


def _move(file_system: FileSystem, folder: str, names: Sequence[str], to: str) -> None:
    for name in names:
        file_system.rename(os.path.join(folder, name), os.path.join(to, name))
