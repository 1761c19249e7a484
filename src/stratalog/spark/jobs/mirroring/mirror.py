"""``mirror``: topics of one directory copied into another, batch for batch, with every offset kept.

Run again, it copies what is new. See ``mirror_tasks`` for how, and why a crash does no harm.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from stratalog.errors import StorageError, UsageError
from stratalog.inspect.partition.ends import partition_ends
from stratalog.inspect.partition.partition_filter import Partitions, Topics
from stratalog.inspect.partition.sources import PartitionSource, Paths
from stratalog.inspect.range.plan import plan_range
from stratalog.manager.logs import open_logs
from stratalog.manager.root.lock_wait import wait_for_lock
from stratalog.manager.root.topic_listing import topic_configs
from stratalog.spark.jobs.mirroring.tasks import (
    Copied,
    Mirroring,
    PartitionToCopy,
    copy_partitions,
    ends_of_folder,
)
from stratalog.spark.jobs.run.file_parts import pack, part_size
from stratalog.spark.jobs.run.log_paths import LogPaths, absolute
from stratalog.spark.jobs.run.run_tasks import cores_of, run_tasks
from stratalog.spark.jobs.run.targets import refuse_within
from stratalog.spark.jobs.run.task_errors import OnError, in_plain_words, tell
from stratalog.spark.jobs.run.watching import ticking
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.files.object_store import is_uri
from stratalog.storage.names import LOG_SUFFIX, V07_SUFFIX, partition_dir_name
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stratalog.types import Progress

__all__ = ["MirrorReport", "MirroredPartition", "mirror"]

_TASKS_PER_CORE: Final = 2
_LOCK_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class MirroredPartition:
    """What was copied of a partition, or would be: the offsets from ``start_offset`` up to but not including
    ``end_offset``. Control records are records here; how many there are is known when they were copied."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    records: int | None
    batches: int | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """What a mirror did, a row for each partition. ``warnings`` are sentences for people."""

    partitions: tuple[MirroredPartition, ...]
    created: tuple[str, ...] = ()
    is_dry_run: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        return sum(each.records or 0 for each in self.partitions)

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.partitions)


def mirror(
    spark: SparkSession,
    paths: Paths,
    target: str | os.PathLike[str],
    *,
    topics: Topics | None = None,
    partitions: Partitions | None = None,
    allow_loss: bool = False,
    dry_run: bool = False,
    store: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    on_plan: Progress | None = None,
    on_error: OnError | None = None,
) -> MirrorReport:
    """Copy partitions into the log directory ``target``, from where its copies end.

    Batches are copied byte for byte: offsets, timestamps, headers, codecs, transactions and the gaps of
    compacted topics stay. Topics that are missing are created, with the configs that the source's
    directory knows. ``dry_run`` only says what would be copied. A partition of which records were deleted
    before they were copied is refused, unless ``allow_loss``. ``on_plan`` is told how many bytes there are.
    """
    job = _MirrorJob(LogPaths.of(paths, store), _target(target), allow_loss)
    planned = job.plan(topics, partitions)
    if on_plan is not None:
        on_plan(sum(each.size_bytes for each in planned))
    if dry_run:
        rows = tuple(job.planned_row(each) for each in planned)
        warnings = (*job.warnings, *job.losses)
        return MirrorReport(rows, tuple(job.missing), is_dry_run=True, warnings=warnings)
    work = [each for each in planned if job.is_behind(each) or each.damage is not None]
    if work or job.missing:
        job.create_topics()
    copied = job.copy(spark, work, progress)
    for each in copied.values():
        if each.refused is not None:
            tell(each.refused, on_error)
    return MirrorReport(
        tuple(job.row(each, copied.get(each.topic_partition)) for each in planned),
        tuple(job.missing),
        warnings=job.warnings,
    )


class _MirrorJob:
    def __init__(self, logs: LogPaths, target: str, allow_loss: bool) -> None:
        self._logs = logs
        self._target = target
        self._allow_loss = allow_loss
        self._files: FileSystem = logs.file_system
        self._starts: dict[TopicPartition, int] = {}
        self._ends_there: dict[TopicPartition, int] = {}
        #: Topics to create or to widen, and how many partitions each must have.
        self.missing: dict[str, int] = {}
        self._configs: dict[str, Mapping[str, object]] = {}
        self.warnings: tuple[str, ...] = ()
        #: Why a run would refuse partitions.
        self.losses: tuple[str, ...] = ()

    def plan(self, topics: Topics | None, partitions: Partitions | None) -> list[PartitionToCopy]:
        found = self._logs.sources(topics, partitions)
        self.warnings = found.warnings
        planned = []
        for source in found.partitions:
            topic_partition = self._checked(source)
            planned.append(self._plan_one(source, topic_partition))
        self._plan_topics(planned)
        return planned

    def _checked(self, source: PartitionSource) -> TopicPartition:
        if source.topic_partition is None or not source.is_listed:
            raise UsageError(
                f"{source.folder or '.'} is not a partition folder: a mirror copies partitions; "
                "name them or their log directory"
            )
        if any(path.endswith(V07_SUFFIX) for path in source.segments):
            raise UsageError(
                f"{source.folder} is of Kafka 0.7, whose offsets are positions in its files: read it "
                "with 'stratalog cat', and write it with 'produce'"
            )
        if not self._logs.is_remote:
            root = os.path.dirname(os.path.realpath(source.folder))
            if root == os.path.realpath(self._target):
                raise UsageError(f"{self._target} cannot be a mirror of itself")
            refuse_within(self._target, [root], "the copy")
        return source.topic_partition

    def _plan_one(
        self, source: PartitionSource, topic_partition: TopicPartition
    ) -> PartitionToCopy:
        ends = partition_ends(source, self._files)
        folder = os.path.join(self._target, partition_dir_name(topic_partition))
        there = ends_of_folder(folder, topic_partition)
        start = max(there.end, ends.start)
        self._starts[topic_partition] = start
        self._ends_there[topic_partition] = there.end
        if there.end > ends.end:
            self._warn(
                f"{topic_partition} ends at {there.end} in {self._target} and at {ends.end} in the source: "
                "nothing is copied until the source is longer"
            )
        if there.start < there.end < ends.start and not self._allow_loss:
            deleted = f"{topic_partition}: offsets {there.end} to {ends.start - 1} were deleted"
            advice = "allow_loss=True continues without them"
            self.losses += (f"{deleted} before they were copied; {advice}",)
        size = 0
        if start < ends.end:
            size = plan_range(source, start, ends.end, self._files).size_bytes
        return PartitionToCopy(source, topic_partition, ends.end, size, ends.damage)

    def _plan_topics(self, planned: Sequence[PartitionToCopy]) -> None:
        wanted: dict[str, set[int]] = {}
        for each in planned:
            wanted.setdefault(each.topic_partition.topic, set()).add(each.topic_partition.partition)
        for topic, numbers in wanted.items():
            gone = [n for n in sorted(numbers) if not os.path.isdir(self._folder(topic, n))]
            if not gone:
                continue
            self.missing[topic] = max(numbers) + 1
            empty = [
                n
                for n in range(max(numbers) + 1)
                if n not in numbers and not os.path.isdir(self._folder(topic, n))
            ]
            if empty:
                self._warn(
                    f"partitions {', '.join(map(str, empty))} of {topic} are not in the source: they "
                    f"are empty in {self._target}"
                )
        for root in {os.path.dirname(each.source.folder) for each in planned}:
            for topic, config in topic_configs(root, self._files).items():
                self._configs[topic] = config.overrides()

    def _warn(self, text: str) -> None:
        self.warnings = (*self.warnings, text)

    def _folder(self, topic: str, partition: int) -> str:
        return os.path.join(self._target, partition_dir_name(TopicPartition(topic, partition)))

    def is_behind(self, each: PartitionToCopy) -> bool:
        """Whether the copy ends before the source, also where nothing is left to copy: then it lacks the
        end."""
        return self._ends_there[each.topic_partition] < each.end

    def create_topics(self) -> None:
        wait_for_lock(self._target, timeout_s=_LOCK_SECONDS)
        if not self.missing:
            return
        with open_logs(self._target) as logs:
            there = logs.topics()
            for topic, count in self.missing.items():
                if topic in there:
                    logs.add_partitions(topic, count)
                else:
                    logs.create(topic, count, self._configs.get(topic, {}))

    def copy(
        self, spark: SparkSession, work: Sequence[PartitionToCopy], progress: Progress | None
    ) -> dict[TopicPartition, Copied]:
        total = sum(each.size_bytes for each in work)
        size = part_size(total, cores_of(spark), _TASKS_PER_CORE)
        tasks = pack(work, lambda each: each.size_bytes, size)
        mirroring = Mirroring(self._logs, self._target, allow_loss=self._allow_loss)
        folders = [self._folder(*each.topic_partition) for each in work]
        before = 0 if progress is None else _bytes_in(folders)

        def tick() -> None:
            if progress is not None:
                progress(_bytes_in(folders) - before)

        with in_plain_words(), ticking(tick):
            answers = run_tasks(spark, partial(copy_partitions, mirroring), tasks, name="mirror")
        return {each.topic_partition: each for answer in answers for each in answer}

    def planned_row(self, each: PartitionToCopy) -> MirroredPartition:
        """A partition with what would be copied of it."""
        start = self._starts[each.topic_partition]
        return MirroredPartition(
            *each.topic_partition, start, max(each.end, start), None, None, each.size_bytes
        )

    def row(self, each: PartitionToCopy, copied: Copied | None) -> MirroredPartition:
        """A partition with what was copied of it."""
        if copied is None or copied.start_offset is None or copied.end_offset is None:
            end = self._ends_there[each.topic_partition]
            return MirroredPartition(*each.topic_partition, end, end, 0, 0, 0)
        return MirroredPartition(
            *each.topic_partition,
            copied.start_offset,
            copied.end_offset,
            copied.records,
            copied.batches,
            copied.size_bytes,
        )


def _target(path: str | os.PathLike[str]) -> str:
    target = absolute(os.fspath(path))
    if is_uri(target):
        raise UsageError(f"{target}: logs are written to folders, not to an object store")
    if os.path.exists(target) and not os.path.isdir(target):
        raise StorageError("not a directory", path=target)
    return target


def _bytes_in(folders: Sequence[str]) -> int:
    """What the data files in these folders take now."""
    total = 0
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                total += sum(
                    entry.stat().st_size for entry in entries if entry.name.endswith(LOG_SUFFIX)
                )
        except OSError:
            continue
    return total
