"""Rewrite log directories on Spark: plan on the driver, rewrite in tasks, replace by one commit.

The directory is locked while the rewrite is planned, and while it is committed. In between others may write:
if they change the segments that are rewritten, the commit says so, and nothing is replaced.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.errors import StorageError, StratalogError, UsageError
from stratalog.inspect.partition.partition_filter import (
    PartitionFilter,
    Partitions,
    Topics,
    partition_filter,
)
from stratalog.inspect.partition.sources import Paths, path_list
from stratalog.manager.commits.commits import ReplaceResult, discard_staged
from stratalog.manager.logs import Logs, open_logs
from stratalog.manager.rewrites import PartitionRewrite, RewriteOptions, RewriteReport
from stratalog.manager.root.lock_wait import when_unlocked
from stratalog.rewrite.manifest import Manifest, ManifestFile, PartitionEntry
from stratalog.rewrite.space import check_space
from stratalog.rewrite.undo.keep import UndoKeeper
from stratalog.rewrite.undo.kept import KeptOriginals, forget_kept, read_kept
from stratalog.spark.jobs.rewriting.staged_group import Staging
from stratalog.spark.jobs.rewriting.work import PartitionOutcome, PartitionPlan, SparkRewrite
from stratalog.spark.jobs.run.log_paths import absolute
from stratalog.storage.commits.journal import read_journal
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.files.object_store import is_uri
from stratalog.storage.names import partition_dir_name
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stratalog.types import Progress

__all__ = ["RewriteJob", "rewrite_on_spark"]

_LOCK_SECONDS: Final = 10.0
#: Groups that are checked at once before a commit is decided.
_CHECK_THREADS: Final = 4


def rewrite_on_spark(
    spark: SparkSession,
    paths: Paths,
    rewrite: SparkRewrite,
    *,
    topics: Topics | None = None,
    partitions: Partitions | None = None,
    write: bool = False,
    options: RewriteOptions | None = None,
    on_plan: Progress | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> RewriteReport:
    """Rewrite the partitions of log directories, all of each directory in one commit. Without ``write``, find
    out what would be rewritten.

    A partition that is damaged is left out, and the report says why. StorageError if others have changed the
    segments meanwhile: then nothing of that directory is replaced. ``on_plan`` is called with the bytes of
    work that there are.
    """
    job = RewriteJob(paths, rewrite, options or RewriteOptions(), write=write, clock=clock)
    job.plan(topics, partitions)
    if on_plan is not None:
        on_plan(job.work_bytes)
    return job.run(spark)


class RewriteJob:
    """A rewrite of log directories that is planned first, without Spark, and then run."""

    def __init__(
        self,
        paths: Paths,
        rewrite: SparkRewrite,
        options: RewriteOptions,
        *,
        write: bool,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if options.max_bytes is not None or options.max_seconds is not None:
            raise UsageError(
                "a rewrite on Spark is committed as a whole, and has no limits of bytes or time: "
                "name fewer topics or partitions"
            )
        self._paths = [absolute(path) for path in path_list(paths)]
        for path in self._paths:
            if is_uri(path):
                raise UsageError(f"{path}: logs are rewritten in folders, not in an object store")
            if not os.path.isdir(path):
                raise StorageError("no such log directory", path=path)
        self._rewrite = rewrite
        self._write = write
        self._options = options
        self._progress = None if options.progress is None else _Steps(options.progress).reach
        self._clock = clock
        self._files = OsFileSystem()
        self._id = ""
        self._time_ms = 0
        self._planned: list[PartitionPlan] = []
        self._failed: list[PartitionRewrite] = []
        self._manifest_file: ManifestFile | None = None
        if write and options.manifest is not None:
            self._manifest_file = ManifestFile(self._files, options.manifest)

    @property
    def work_bytes(self) -> int:
        """How many bytes there are to read."""
        return sum(each.work_bytes for each in self._planned)

    @property
    def needs_spark(self) -> bool:
        """Whether tasks have anything to do."""
        return self._write or self._rewrite.judges_in_tasks

    # On the driver, with the lock.

    def plan(self, topics: Topics | None, partitions: Partitions | None) -> None:
        """Plan every partition. What cannot be planned is in the report."""
        if self._manifest_file is not None:
            self._manifest_file.check(self._paths)
        with self._opened(read_only=not self._write) as logs:
            chosen = _chosen(logs, partition_filter(topics, partitions))
            self._id = logs.new_rewrite_id(self._rewrite.verb, chosen)
            self._time_ms = logs.now_ms()
            for each in chosen:
                try:
                    self._planned.append(
                        self._rewrite.plan(logs, logs.rewrite_target(each, self._options))
                    )
                except StratalogError as error:
                    if isinstance(error, UsageError):
                        raise
                    self._failed.append(PartitionRewrite(each, None, error=error))

    def _opened(self, *, read_only: bool = False) -> Logs:
        return when_unlocked(
            lambda: open_logs(self._paths, read_only=read_only, clock=self._clock), _LOCK_SECONDS
        )

    # In tasks.

    def run(self, spark: SparkSession | None) -> RewriteReport:
        """Carry the plan out, or find out what would be done. ``spark`` may be missing if it is not
        needed."""
        if not self._write:
            return self._report(self._rewrite.judge(spark, self._planned, self._progress))
        assert spark is not None
        if self._manifest_file is not None:
            self._manifest_file.create(self._manifest())
        outcomes: list[PartitionOutcome] = []
        for root in dict.fromkeys(each.root for each in self._planned):
            here = [each for each in self._planned if each.root == root]
            outcomes += self._carry_out_root(spark, root, here)
        return self._report(outcomes)

    def _carry_out_root(
        self, spark: SparkSession, root: str, planned: Sequence[PartitionPlan]
    ) -> list[PartitionOutcome]:
        check_space(self._files, root, sum(each.space_bytes for each in planned))
        key = CommitKey.fresh()
        options = self._options
        describes = options.keep_undo or options.manifest is not None
        staging = Staging(root, key, describes=describes)
        try:
            outcomes = self._rewrite.carry_out(spark, staging, planned, self._progress)
            self._commit(staging, outcomes)
        except BaseException:
            with suppress(StratalogError):  # of a commit that is decided nothing is removed
                discard_staged(root, key)
            raise
        return outcomes

    # On the driver again, with the lock.

    def _commit(self, staging: Staging, outcomes: Sequence[PartitionOutcome]) -> None:
        replaced = [each.replacement() for each in outcomes]
        partitions = [each for each in replaced if each is not None]
        if not partitions:
            discard_staged(staging.root, staging.key)
            return
        with self._opened() as logs:
            kept = self._keep_originals(outcomes) if self._options.keep_undo else []
            try:
                result = logs.replace_segments(staging.key, partitions, threads=_CHECK_THREADS)
            except BaseException:
                self._drop_originals(staging, kept)
                raise
        _note_result(outcomes, result)

    def _keep_originals(self, outcomes: Sequence[PartitionOutcome]) -> list[KeptOriginals]:
        """Keep the originals of all groups, before the first is replaced; return where they are kept."""
        kept = []
        for outcome in outcomes:
            if outcome.replacement() is None:
                continue
            keeper = UndoKeeper(
                self._files, outcome.plan.folder, outcome.topic_partition, self._manifest()
            )
            for done in sorted(outcome.groups, key=lambda each: each.group.start):
                bases = [each.base_offset for each in done.group.old]
                assert done.rewritten.entry is not None
                keeper.keep(bases, done.rewritten.entry)
            kept.append(read_kept(self._files, outcome.plan.folder, self._id))
        return kept

    def _drop_originals(self, staging: Staging, kept: Sequence[KeptOriginals]) -> None:
        state = read_journal(self._files, staging.root)
        if not any(each.intent.key == staging.key for each in state.open):
            for each in kept:
                forget_kept(self._files, each)

    # At the end.

    def _manifest(self) -> Manifest:
        configs = {str(name): str(value) for name, value in self._options.configs.items()}
        options = {**self._rewrite.options(), **configs}
        return Manifest(self._id, self._rewrite.verb, self._time_ms, options)

    def _report(self, outcomes: Sequence[PartitionOutcome]) -> RewriteReport:
        """Return what was done, and write the manifest if there is to be one."""
        done = [each.report() for each in outcomes]
        error = self._write_manifest(done)
        partitions = sorted((*done, *self._failed), key=lambda each: each.topic_partition)
        return RewriteReport(self._id, self._rewrite.verb, tuple(partitions), error)

    def _write_manifest(self, done: Sequence[PartitionRewrite]) -> StratalogError | None:
        if self._manifest_file is None:
            return None
        manifest = self._manifest()
        for each in done:
            entries = tuple(group.entry for group in each.groups if group.entry is not None)
            if entries:
                manifest = manifest.with_partition(PartitionEntry(*each.topic_partition, entries))
        try:
            self._manifest_file.write(manifest)
        except StratalogError as error:
            return error
        return None


class _Steps:
    """Turns how far a job is into steps, as the progress of a rewrite is told."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._done = 0

    def reach(self, done: int) -> None:
        """Report what was done since the last call."""
        if done > self._done:
            self._progress(done - self._done)
            self._done = done


def _chosen(logs: Logs, wanted: PartitionFilter) -> list[TopicPartition]:
    there = [
        TopicPartition(topic.name, number)
        for topic in logs.topics().values()
        for number in topic.partitions
    ]
    wanted.check(there)
    return sorted(filter(wanted.takes, there), key=partition_dir_name)


def _note_result(outcomes: Sequence[PartitionOutcome], result: ReplaceResult) -> None:
    """Say of each partition whose groups were not all replaced why that is so."""
    for each in result.replaced or ():
        if each.done < each.planned:
            outcome = next(o for o in outcomes if o.topic_partition == each.topic_partition)
            outcome.stopped = (
                f"{each.planned - each.done} of {each.planned} groups of segments were changed by others "
                "after the commit was decided, and stay as they are"
            )
