"""``salvage``: save what is intact of damaged partitions, with tasks that read and write a segment each.

The driver lists files, decides what is kept from what the tasks have found, and puts the new directory
together. Both use the functions of the local salvage, so that the result is the same, byte for byte.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from stratalog.errors import StorageError, UsageError
from stratalog.inspect.partition.partition_filter import Partitions, Topics, partition_filter
from stratalog.inspect.partition.sources import Paths, path_list
from stratalog.rewrite.salvage.directory import check_target
from stratalog.rewrite.salvage.folders import PartitionFolder, find_folders
from stratalog.rewrite.salvage.plan import (
    DEFAULT_OPTIONS,
    SalvageInput,
    SalvageOptions,
    SalvagePlan,
    find_input,
    plan_from,
)
from stratalog.spark.jobs.run.log_paths import LogPaths
from stratalog.spark.jobs.run.part_tasks import FailedPart
from stratalog.spark.jobs.run.task_errors import OnError, tell
from stratalog.spark.jobs.salvaging.surveying import (
    SourceSurvey,
    Surveying,
    TaskHeaders,
    survey_on_spark,
)
from stratalog.spark.jobs.salvaging.writing import write_on_spark
from stratalog.spark.options.paths import local_path
from stratalog.storage.files.filesystem import OsFileSystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stratalog.types import Progress

__all__ = ["SalvageJob", "salvage"]


def salvage(
    spark: SparkSession,
    paths: Paths,
    target: str | os.PathLike[str] | None = None,
    *,
    topics: Topics | None = None,
    partitions: Partitions | None = None,
    write: bool = False,
    options: SalvageOptions = DEFAULT_OPTIONS,
    on_error: OnError | None = None,
    progress: Progress | None = None,
) -> tuple[SalvagePlan, ...]:
    """Find out what of damaged partitions is intact; with ``write``, save it into a new log directory,
    ``target``. Return what is kept and lost of each partition. The original never changes.

    ``on_error`` is called with the StorageError of each partition that cannot be read, and nothing is written
    then; without ``on_error``, the first one is raised. ``progress`` is called with the number of bytes that
    were read and written.
    """
    if write and target is None:
        raise UsageError("write=True needs a target, the log directory to write")
    job = SalvageJob(paths, None if target is None else os.fspath(target), options)
    job.find(topics, partitions)
    failed: list[StorageError] = []

    def fail(error: StorageError) -> None:
        tell(error, on_error)
        failed.append(error)

    job.plan(spark, fail, progress)
    if write and not failed:
        job.write(spark, _after(job.survey_bytes, progress))
    return job.plans


def _after(done_bytes: int, progress: Progress | None) -> Progress | None:
    return None if progress is None else lambda size: progress(done_bytes + size)


class SalvageJob:
    """A salvage in steps: ``find`` needs no Spark, ``plan`` reads everything in tasks, ``write`` writes in
    tasks."""

    def __init__(self, paths: Paths, target: str | None, options: SalvageOptions) -> None:
        self._paths = [local_path(path) for path in path_list(paths)]
        self._target = None if target is None else local_path(target)
        self._options = options
        self._files = OsFileSystem()
        self._logs = LogPaths(tuple(self._paths), folder=os.getcwd())
        self._found: list[SalvageInput | StorageError] = []
        self.plans: tuple[SalvagePlan, ...] = ()

    def find(self, topics: Topics | None, partitions: Partitions | None) -> None:
        """List the partitions and their files. Raise UsageError if something that was named is missing, or if
        the target cannot be one."""
        wanted = partition_filter(topics, partitions)
        folders = find_folders(self._files, self._paths, wanted)
        if self._target is not None:
            check_target(self._files, [each.path for each in folders], self._target)
        self._found = [self._input_of(each) for each in folders]

    def _input_of(self, folder: PartitionFolder) -> SalvageInput | StorageError:
        try:
            return find_input(self._files, folder.path, self._options)
        except StorageError as error:
            return error

    @property
    def _inputs(self) -> list[SalvageInput]:
        return [each for each in self._found if isinstance(each, SalvageInput)]

    @property
    def survey_bytes(self) -> int:
        """How many bytes there are to read."""
        return sum(source.size_bytes for each in self._inputs for source in each.sources)

    @property
    def write_bytes(self) -> int:
        """How many bytes there are to write, once it is planned."""
        return sum(plan.kept_bytes + plan.lost_bytes for plan in self.plans)

    def plan(
        self,
        spark: SparkSession,
        on_error: Callable[[StorageError], None],
        progress: Progress | None,
    ) -> None:
        """Plan every partition. ``on_error`` is called with the error of one that cannot be read."""
        surveying = Surveying(self._logs, self._options.limits)
        surveyed = survey_on_spark(spark, surveying, self._inputs, progress)
        plans: list[SalvagePlan] = []
        own = iter(surveyed)
        for each in self._found:
            try:
                if isinstance(each, StorageError):
                    raise each
                plans.append(self._plan_of(spark, each, next(own)))
            except StorageError as error:
                on_error(error)
        self.plans = tuple(plans)

    def _plan_of(
        self,
        spark: SparkSession,
        given: SalvageInput,
        surveyed: Sequence[SourceSurvey | FailedPart],
    ) -> SalvagePlan:
        done: list[SourceSurvey] = []
        for each in surveyed:
            if isinstance(each, FailedPart):
                raise each.error
            done.append(each)
        headers = TaskHeaders(spark, self._logs, given.sources, [each.headers for each in done])
        return plan_from(self._files, given, [each.survey for each in done], headers)

    def write(self, spark: SparkSession, progress: Progress | None) -> None:
        """Write the planned partitions into the target. Raise UsageError if it cannot be one, StorageError if
        the disk has no room. Whatever is raised, the target is complete or does not exist."""
        assert self._target is not None
        write_on_spark(spark, self._files, self._logs, self.plans, self._target, progress)
