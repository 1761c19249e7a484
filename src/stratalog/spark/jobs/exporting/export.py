"""``export``: records into Parquet, JSON, or whatever Spark writes; by topic and date.

With a checkpoint it is a stream that ends when everything is written that is there now: run again, it takes
what is new. What was written and what was not, Spark's own log in the target says: a batch that a killed run
had begun is written anew, and counts once. Without a checkpoint it is one write of all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from stratalog.errors import StorageError, StratalogError, UsageError
from stratalog.inspect.file.skipped_damage import (
    SkippedDamage,
    refuse_committed_skip,
)
from stratalog.inspect.partition.partition_filter import Partitions, Topics
from stratalog.inspect.partition.sources import Paths
from stratalog.spark.jobs.exporting.columns import COUNTED, SOURCE_COLUMNS, decoded
from stratalog.spark.jobs.exporting.damage import (
    Damage,
    OnDamagedPartition,
    find_damage,
    on_damaged_partition,
)
from stratalog.spark.jobs.exporting.folder import whole_folder
from stratalog.spark.jobs.exporting.note import has_batches
from stratalog.spark.jobs.exporting.plan import ExportedRecords, ExportPlan, Target, plan_export
from stratalog.spark.jobs.exporting.report import ExportedPartition, ExportReport
from stratalog.spark.jobs.exporting.stream import ExportStream
from stratalog.spark.jobs.exporting.stream_offsets import offsets_of_checkpoint
from stratalog.spark.jobs.run.log_paths import LogPaths, absolute
from stratalog.spark.jobs.run.targets import check_target, refuse_within
from stratalog.spark.jobs.run.task_errors import in_plain_words
from stratalog.spark.jobs.run.watching import watched
from stratalog.spark.options.offsets import LATEST, offsets_as_dict
from stratalog.spark.pushdown.scan import scan
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stratalog.types import Progress

__all__ = ["ExportOptions", "ExportReport", "ExportedPartition", "export"]

BATCH_BYTES: Final = 1 << 30
PARTITION_BY: Final = ("topic", "date")
MODES: Final = ("errorifexists", "append", "overwrite")


def export(
    spark: SparkSession,
    paths: Paths,
    to: str | os.PathLike[str],
    *,
    format: str = "parquet",  # noqa: A002  # Spark's own word
    is_table: bool = False,
    topics: Topics | None = None,
    partitions: Partitions | None = None,
    where: str | None = None,
    decode: str = "binary",
    schema: str | None = None,
    partition_by: Sequence[str] = PARTITION_BY,
    checkpoint: str | os.PathLike[str] | None = None,
    mode: str | None = None,
    committed: bool = False,
    allow_loss: bool = False,
    on_damage: str = "fail",
    batch_bytes: int = BATCH_BYTES,
    options: Mapping[str, str] | None = None,
    dry_run: bool = False,
    store: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    on_plan: Progress | None = None,
) -> ExportReport:
    """Write records to ``to``: a path, or with ``is_table`` a table, in any ``format`` that Spark has.

    ``decode`` makes text or JSON of keys and values; JSON of a ``schema`` (``"id bigint, at timestamp"``), or
    a variant without. ``where`` is a condition on the source's columns; without a checkpoint it prunes what
    is read. With a ``checkpoint`` only what is new since the last run with it is written, each record once,
    about ``batch_bytes`` at a time; without, everything is, and ``mode`` says what happens to what is there.
    ``committed`` leaves out transactions that were aborted or are open. Where records were deleted before
    they were exported, a run with a checkpoint is refused, unless ``allow_loss``. ``options`` are the
    format's.

    ``on_damage`` says what happens to a partition that is damaged: ``"fail"`` writes nothing at all,
    ``"stop"`` writes it up to the damage and the others whole (not with a checkpoint, where it fails),
    ``"skip"`` goes on at its next intact batch. ``left_out`` of the report lists what was not written.
    """
    chosen = ExportOptions(
        format=format,
        is_table=is_table,
        topics=topics if topics is None or isinstance(topics, str) else tuple(topics),
        partitions=_listed(partitions),
        where=where,
        decode=decode,
        schema=schema,
        partition_by=tuple(partition_by),
        checkpoint=None if checkpoint is None else absolute(os.fspath(checkpoint)),
        mode=mode,
        committed=committed,
        allow_loss=allow_loss,
        on_damage=on_damaged_partition(on_damage),
        batch_bytes=batch_bytes,
        options=dict(options or {}),
        dry_run=dry_run,
    )
    return _export(spark, LogPaths.of(paths, store), os.fspath(to), chosen, progress, on_plan)


def _listed(partitions: Partitions | None) -> Partitions | None:
    """The partitions such that they can be iterated more than once."""
    if partitions is None or isinstance(partitions, str | int):
        return partitions
    return tuple(partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The keyword parameters of ``export``, checked one by one. What they mean is said there."""

    format: str
    is_table: bool
    topics: str | tuple[str, ...] | None
    partitions: Partitions | None
    where: str | None
    decode: str
    schema: str | None
    partition_by: tuple[str, ...]
    checkpoint: str | None
    mode: str | None
    committed: bool
    allow_loss: bool
    on_damage: OnDamagedPartition
    batch_bytes: int
    options: Mapping[str, str]
    dry_run: bool

    def __post_init__(self) -> None:
        refuse_committed_skip(is_committed=self.committed, on_damage=self.on_damage.of_batches)
        if self.mode is not None and self.checkpoint is not None:
            raise UsageError("mode cannot be combined with a checkpoint")
        if self.mode is not None and self.mode not in MODES:
            raise UsageError(f"mode={self.mode!r}: one of {', '.join(MODES)}")

    @property
    def write_mode(self) -> str:
        return self.mode or MODES[0]

    @property
    def records(self) -> ExportedRecords:
        """Which records are written."""
        wanted = ExportedRecords.of(self.topics, self.partitions, self.where)
        return replace(wanted, committed=self.committed)

    def target(self, to: str) -> Target:
        """Where they are written to."""
        return Target(
            to=to if self.is_table else absolute(to),
            format=self.format,
            is_table=self.is_table,
            partition_by=self.partition_by,
            options=self.options,
            decode=self.decode,
            schema=self.schema,
        )

    def plan(self, logs: LogPaths) -> ExportPlan:
        """What of the logs is read for it."""
        return plan_export(
            logs,
            self.topics,
            self.partitions,
            self.committed,
            self.allow_loss,
            self.on_damage.of_batches,
        )


def _export(
    spark: SparkSession,
    logs: LogPaths,
    to: str,
    chosen: ExportOptions,
    progress: Progress | None,
    on_plan: Progress | None,
) -> ExportReport:
    target, plan = chosen.target(to), chosen.plan(logs)
    _check_partitions(target, plan, chosen)
    with in_plain_words():
        before: dict[TopicPartition, int] = {}
        if chosen.checkpoint is not None:
            before = offsets_of_checkpoint(spark, chosen.checkpoint)
        rows, losses = plan.rows(before), plan.losses(before)
        if losses and not chosen.allow_loss:
            losses = [f"{each}; allow_loss=True continues without them" for each in losses]
            if not chosen.dry_run:
                raise UsageError(losses[0])
        if on_plan is not None:
            on_plan(sum(each.size_bytes for each in rows))
        if chosen.dry_run:
            return ExportReport(
                target.to, target.format, rows, is_dry_run=True, warnings=tuple(losses)
            )
        run = _Run(spark, plan, target, chosen.where, chosen.write_mode, progress)
        if chosen.checkpoint is None:
            return run.write_all(chosen.on_damage)
        stream = ExportStream(
            spark, plan, chosen.records, target, chosen.checkpoint, chosen.batch_bytes, progress
        )
        left_out = run.damage_after(before) if chosen.on_damage is OnDamagedPartition.SKIP else ()
        report = stream.run(rows)
        return replace(report, warnings=tuple(losses), left_out=left_out, is_skipping=True)


def _check_partitions(target: Target, plan: ExportPlan, chosen: ExportOptions) -> None:
    """UsageError if the target or the checkpoint lies within the logs, or if the target holds other data."""
    if chosen.checkpoint is not None:
        refuse_within(chosen.checkpoint, plan.log_directories, "the checkpoint")
    if target.is_table:
        return
    refuse_within(target.to, plan.log_directories, "the target")
    is_new = None if chosen.checkpoint is None else not has_batches(chosen.checkpoint)
    check_target(target.to, target.format, checkpoint_is_new=is_new, mode=chosen.write_mode)


@dataclass(frozen=True, slots=True)
class _Run:
    """An export without a checkpoint."""

    spark: SparkSession
    plan: ExportPlan
    target: Target
    where: str | None
    mode: str
    progress: Progress | None

    def write_all(self, on_damaged: OnDamagedPartition) -> ExportReport:
        """Write everything, or what is intact of it."""
        if on_damaged is OnDamagedPartition.SKIP:
            return self.skipping()
        return self.up_to_damage(on_damaged)

    def skipping(self) -> ExportReport:
        """Write everything that is intact."""
        damage = self.find_damage()
        return replace(self._write(self.plan), left_out=_all_of(damage), is_skipping=True)

    def up_to_damage(self, on_damaged: OnDamagedPartition) -> ExportReport:
        """Write everything; where a partition is damaged, fail, or write it up to there."""
        if on_damaged is OnDamagedPartition.FAIL:
            return self._write(self.plan)
        if self.target.is_replaceable(self.mode):
            # Damage is rare: it is only looked for when it was met, and then nothing has been written.
            try:
                with in_plain_words():
                    return self._write(self.plan)
            except (StorageError, UsageError):
                raise
            except StratalogError as error:
                damage = self.find_damage()
                if not damage:
                    raise error from None
        else:
            damage = self.find_damage()
        if not damage:
            return self._write(self.plan)
        try:
            with in_plain_words():
                report = self._write(self.plan.up_to(damage))
        except (StorageError, UsageError):
            raise
        except StratalogError:
            # An offset that is wrong is noticed by the batch after it: what lies before cannot be trusted.
            report = self._write(self.plan.without(damage))
            damage = {
                topic_partition: self._all_from_start(topic_partition, damage[topic_partition])
                for topic_partition in damage
            }
        return replace(report, left_out=_all_of(damage))

    def damage_after(self, before: Mapping[TopicPartition, int]) -> tuple[SkippedDamage, ...]:
        """Return the damage that a run which has come so far before still has ahead."""
        return tuple(
            each
            for topic_partition, skipped in self.find_damage().items()
            for each in skipped
            if each.resume_offset is None or each.resume_offset > before.get(topic_partition, 0)
        )

    def _all_from_start(
        self, topic_partition: TopicPartition, skipped: tuple[SkippedDamage, ...]
    ) -> tuple[SkippedDamage, ...]:
        return (replace(skipped[0], start_offset=self.plan.starts[topic_partition]), *skipped[1:])

    def find_damage(self) -> Damage:
        return find_damage(self.spark, self.plan.logs, list(self.plan.sources.values()))

    def _write(self, plan: ExportPlan) -> ExportReport:
        rows = plan.rows({})
        return _export_all(
            self.spark, plan, self.target, self.where, self.mode, rows, self.progress
        )


def _all_of(damage: Damage) -> tuple[SkippedDamage, ...]:
    return tuple(each for skipped in damage.values() for each in skipped)


def _export_all(
    spark: SparkSession,
    plan: ExportPlan,
    target: Target,
    where: str | None,
    mode: str,
    rows: tuple[ExportedPartition, ...],
    progress: Progress | None,
) -> ExportReport:
    from pyspark.sql import Observation
    from pyspark.sql import functions as f
    from pyspark.sql.utils import is_remote

    # Both ends are said, so that the report is true of a log that grows meanwhile.
    options = {**plan.options, "startingOffsets": _as_json(plan.starts)}
    # Not of one that is damaged: that it goes no further is for the read to say, if it is to go so far.
    ends = {
        topic_partition: LATEST if topic_partition in plan.damaged else end
        for topic_partition, end in plan.ends.items()
    }
    options["endingOffsets"] = _as_json(ends)
    given = options.pop("paths")
    read = scan(spark, json.loads(given), where=where, columns=SOURCE_COLUMNS, options=options)
    counted = Observation(COUNTED)
    frame = decoded(read, target.decode, target.schema).observe(
        counted, f.count(f.lit(1)).alias("records")
    )
    is_whole = target.is_replaceable(mode)
    # Its long name is not known to Spark Connect.
    named = "append" if is_whole else "error" if mode == "errorifexists" else mode
    writer = frame.write.format(target.format).mode(named).options(**target.options)
    if target.partition_by:
        writer = writer.partitionBy(*target.partition_by)

    def write() -> None:
        if target.is_table:
            writer.saveAsTable(target.to)
        elif is_whole:
            with whole_folder(target.to) as folder:
                writer.save(folder)
        else:
            writer.save(target.to)

    total = sum(each.size_bytes for each in rows)
    if is_remote():
        write()
    else:
        with watched(
            spark.sparkContext, f"stratalog-export-{id(frame)}", "export", total, progress
        ):
            write()
    return ExportReport(target.to, target.format, rows, int(counted.get["records"]), 1)


def _as_json(offsets: Mapping[TopicPartition, int]) -> str:
    return json.dumps(offsets_as_dict(offsets))
