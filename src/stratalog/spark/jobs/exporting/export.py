"""``export``: records into Parquet, JSON, or whatever Spark writes; by topic and date.

With a checkpoint it is a stream that ends when everything is written that is there now: run again, it takes
what is new. What was written and what was not, Spark's own log in the target says: a batch that a killed run
had begun is written anew, and counts once. Without a checkpoint it is one write of all.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Self

from stratalog.errors import StorageError, StratalogError, UnknownPartitionError, UsageError
from stratalog.inspect.file.skipped_damage import (
    OnDamagedBatch,
    SkippedDamage,
    refuse_committed_skip,
)
from stratalog.inspect.partition.ends import EndsCache
from stratalog.inspect.partition.partition_filter import Partitions, Topics
from stratalog.inspect.partition.sources import PartitionSource, Paths
from stratalog.inspect.range.plan import plan_range
from stratalog.spark.jobs.exporting.columns import SOURCE_COLUMNS, decoded
from stratalog.spark.jobs.exporting.damage import (
    Damage,
    OnDamagedPartition,
    find_damage,
    on_damaged_partition,
)
from stratalog.spark.jobs.exporting.folder import can_be_renamed, whole_folder
from stratalog.spark.jobs.exporting.note import check_note, has_batches
from stratalog.spark.jobs.exporting.stream_offsets import offsets_of_checkpoint
from stratalog.spark.jobs.exporting.topics import topics_pattern
from stratalog.spark.jobs.run.log_paths import LogPaths, absolute
from stratalog.spark.jobs.run.targets import check_target, refuse_within
from stratalog.spark.jobs.run.task_errors import in_plain_words
from stratalog.spark.jobs.run.watching import watched
from stratalog.spark.options.columns import COLUMNS
from stratalog.spark.options.offsets import LATEST, offsets_as_dict, parse_offsets_dict
from stratalog.spark.pushdown.scan import scan
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stratalog.types import Progress

__all__ = ["ExportReport", "ExportedPartition", "export"]

BATCH_BYTES: Final = 1 << 30
PARTITION_BY: Final = ("topic", "date")
MODES: Final = ("errorifexists", "append", "overwrite")
_COUNTED: Final = "stratalog export"


@dataclass(frozen=True, slots=True)
class ExportedPartition:
    """The offsets that were written, or would be: from ``start_offset`` up to but not including
    ``end_offset``. ``size_bytes`` is what they take in the log, about."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export did. ``records`` is how many were written; None where nothing was. ``warnings`` are
    sentences for people. ``left_out`` is what could not be written because it is damaged: with
    ``is_skipping`` only the damage itself, else everything in the partition from there on."""

    to: str
    format: str
    partitions: tuple[ExportedPartition, ...]
    records: int | None = None
    batches: int | None = None
    is_dry_run: bool = False
    warnings: tuple[str, ...] = ()
    left_out: tuple[SkippedDamage, ...] = ()
    is_skipping: bool = False


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which records are, as a checkpoint writes it down."""

    topics: list[str] | None
    partitions: str | None
    where: str | None
    committed: bool = False

    @classmethod
    def of(cls, topics: Topics | None, partitions: Partitions | None, where: str | None) -> Self:
        named = None if topics is None else [topics] if isinstance(topics, str) else sorted(topics)
        if partitions is None or isinstance(partitions, str | int):
            return cls(named, None if partitions is None else str(partitions), where)
        return cls(named, ",".join(map(str, sorted(partitions))), where)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    to: str
    format: str
    is_table: bool
    partition_by: tuple[str, ...]
    options: Mapping[str, str]
    decode: str
    schema: str | None

    def is_replaceable(self, mode: str) -> bool:
        """Whether the target is written under another name first, so that a failed write leaves nothing."""
        return not self.is_table and can_be_renamed(self.to, self.format, mode)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be read, and by which options of the source."""

    logs: LogPaths
    options: Mapping[str, str]
    sources: Mapping[TopicPartition, PartitionSource]
    ends: Mapping[TopicPartition, int]
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    #: Those that go on behind their end with damage.
    damaged: frozenset[TopicPartition] = frozenset()
    #: Where the logs end, also behind what is committed.
    log_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    cache: EndsCache | None = None

    @property
    def log_directories(self) -> set[str]:
        """Those on this machine."""
        if self.logs.is_remote:
            return set()
        return {os.path.dirname(os.path.abspath(each.folder)) for each in self.sources.values()}

    def up_to(self, damage: Damage) -> _Plan:
        """The same plan, with every partition read up to its first damage."""
        ends = dict(self.ends)
        for place, skipped in damage.items():
            ends[place] = max(self.starts[place], min(ends[place], skipped[0].start_offset))
        return replace(self, ends=ends, damaged=frozenset())

    def without(self, damage: Damage) -> _Plan:
        """The same plan, with nothing of the partitions that are damaged."""
        ends = {
            place: self.starts[place] if place in damage else end
            for place, end in self.ends.items()
        }
        return replace(self, ends=ends, damaged=frozenset())

    def losses(self, before: Mapping[TopicPartition, int]) -> list[str]:
        """What a run that has come so far before will not find any more: sentences."""
        lost = []
        for place, start in self.starts.items():
            # What came after the first run is new from its beginning on.
            reached, end = before.get(place, 0 if before else start), self.log_ends[place]
            if reached < start:
                lost.append(
                    f"{place}: offsets {reached} to {start - 1} were deleted before they were exported"
                )
            elif reached > end and place not in self.damaged:
                lost.append(
                    f"{place} ends at {end}, and was exported up to {reached}: it was cut, or made anew"
                )
        return lost

    def rows(self, before: Mapping[TopicPartition, int]) -> tuple[ExportedPartition, ...]:
        files = self.logs.file_system
        rows = []
        for place, source in self.sources.items():
            reached = before.get(place, 0)
            if reached > self.log_ends[place] and place not in self.damaged:
                reached = 0  # a log that was made anew is read from its beginning
            start = min(max(reached, self.starts[place]), self.ends[place])
            size = 0
            if start < self.ends[place]:
                end = self.ends[place]
                size = plan_range(source, start, end, files, cache=self.cache).size_bytes
            rows.append(ExportedPartition(*place, start, self.ends[place], size))
        return tuple(rows)


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
    topics = topics if topics is None or isinstance(topics, str) else tuple(topics)
    if partitions is not None and not isinstance(partitions, str | int):
        partitions = tuple(partitions)
    on_damaged = on_damaged_partition(on_damage)
    refuse_committed_skip(is_committed=committed, on_damage=on_damaged.of_batches)
    wanted = _Wanted.of(topics, partitions, where)
    target = _Target(
        to=os.fspath(to) if is_table else absolute(os.fspath(to)),
        format=format,
        is_table=is_table,
        partition_by=tuple(partition_by),
        options=dict(options or {}),
        decode=decode,
        schema=schema,
    )
    plan = _plan(
        LogPaths.of(paths, store),
        topics,
        partitions,
        committed,
        allow_loss,
        on_damaged.of_batches,
    )
    if mode is not None and (mode not in MODES or checkpoint is not None):
        raise UsageError(
            "with a checkpoint new records are added: leave the mode out"
            if checkpoint is not None
            else f"mode={mode!r}: one of {', '.join(MODES)}"
        )
    if checkpoint is not None:
        checkpoint = absolute(os.fspath(checkpoint))
        refuse_within(checkpoint, plan.log_directories, "the checkpoint")
    if not is_table:
        refuse_within(target.to, plan.log_directories, "the target")
        is_new = None if checkpoint is None else not has_batches(checkpoint)
        check_target(target.to, format, checkpoint_is_new=is_new, mode=mode or MODES[0])
    with in_plain_words():
        before: dict[TopicPartition, int] = {}
        if checkpoint is not None:
            before = offsets_of_checkpoint(spark, checkpoint)
        rows, losses = plan.rows(before), plan.losses(before)
        if losses and not allow_loss:
            losses = [f"{each}; --allow-loss goes on without" for each in losses]
            if not dry_run:
                raise UsageError(losses[0])
        if on_plan is not None:
            on_plan(sum(each.size_bytes for each in rows))
        if dry_run:
            return ExportReport(
                target.to, target.format, rows, is_dry_run=True, warnings=tuple(losses)
            )
        run = _Run(spark, plan, target, where, mode or MODES[0], progress)
        if checkpoint is None:
            return (
                run.skipping()
                if on_damaged is OnDamagedPartition.SKIP
                else run.up_to_damage(on_damaged)
            )
        wanted = replace(wanted, committed=committed)
        stream = _Stream(spark, plan, wanted, target, checkpoint, batch_bytes, progress)
        damage = run.find_damage() if on_damaged is OnDamagedPartition.SKIP else {}
        left_out = tuple(
            each
            for place, skipped in damage.items()
            for each in skipped
            if each.resume_offset is None or each.resume_offset > before.get(place, 0)
        )
        report = replace(stream.run(rows), warnings=tuple(losses))
        return replace(report, left_out=left_out, is_skipping=True)


@dataclass(frozen=True, slots=True)
class _Run:
    """An export without a checkpoint."""

    spark: SparkSession
    plan: _Plan
    target: _Target
    where: str | None
    mode: str
    progress: Progress | None

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
            damage = {place: self._all_from_start(place, damage[place]) for place in damage}
        return replace(report, left_out=_all_of(damage))

    def _all_from_start(
        self, place: TopicPartition, skipped: tuple[SkippedDamage, ...]
    ) -> tuple[SkippedDamage, ...]:
        return (replace(skipped[0], start_offset=self.plan.starts[place]), *skipped[1:])

    def find_damage(self) -> Damage:
        return find_damage(self.spark, self.plan.logs, list(self.plan.sources.values()))

    def _write(self, plan: _Plan) -> ExportReport:
        rows = plan.rows({})
        return _export_all(
            self.spark, plan, self.target, self.where, self.mode, rows, self.progress
        )


def _all_of(damage: Damage) -> tuple[SkippedDamage, ...]:
    return tuple(each for skipped in damage.values() for each in skipped)


def _plan(
    logs: LogPaths,
    topics: Topics | None,
    partitions: Partitions | None,
    committed: bool,
    allow_loss: bool,
    on_damage: OnDamagedBatch,
) -> _Plan:
    found = logs.sources(topics, partitions)
    sources = {each.place: each for each in found.partitions if each.place is not None}
    if len(sources) < len(found.partitions):
        raise UsageError("an export is of partitions: name log directories, or partitions' folders")
    named = {p.topic for p, each in sources.items() if each.folder in (*logs.given, *logs.absolute)}
    pattern = topics_pattern(topics, named)
    sources = {place: each for place, each in sources.items() if re.search(pattern, place.topic)}
    if found.partitions and not sources:
        raise UnknownPartitionError(
            "only internal topics of Kafka's are here: an export takes them by name, as in "
            f"-t {found.partitions[0].place.topic}"  # type: ignore[union-attr]  # every one has a place
        )
    options = {f"fs.{name}": value for name, value in logs.store.items()}
    options["paths"] = json.dumps(list(logs.absolute))
    if committed:
        options["isolationLevel"] = "read_committed"
    if allow_loss:
        options["failOnDataLoss"] = "false"
    options["onDamage"] = on_damage.value
    if partitions is not None:
        assigned: dict[str, list[int]] = {}
        for place in sorted(sources):
            assigned.setdefault(place.topic, []).append(place.partition)
        options["assign"] = json.dumps(assigned)
    else:
        options["subscribePattern"] = pattern
        options["includeInternal"] = "true"  # where the pattern takes them
    cache = EndsCache(logs.file_system, skips_damage=on_damage is OnDamagedBatch.SKIP)
    ends = {place: cache.ends_of(source, stable=committed) for place, source in sources.items()}
    reached = {
        place: each.end if each.stable is None else min(each.end, each.stable)
        for place, each in ends.items()
    }
    return _Plan(
        logs,
        options,
        sources,
        reached,
        {place: each.start for place, each in ends.items()},
        frozenset(place for place, each in ends.items() if each.damage is not None),
        {place: each.end for place, each in ends.items()},
        cache,
    )


def _export_all(
    spark: SparkSession,
    plan: _Plan,
    target: _Target,
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
    ends = {place: LATEST if place in plan.damaged else end for place, end in plan.ends.items()}
    options["endingOffsets"] = _as_json(ends)
    given = options.pop("paths")
    read = scan(spark, json.loads(given), where=where, columns=SOURCE_COLUMNS, options=options)
    counted = Observation(_COUNTED)
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


class _Stream:
    """An export with a checkpoint."""

    def __init__(
        self,
        spark: SparkSession,
        plan: _Plan,
        wanted: _Wanted,
        target: _Target,
        checkpoint: str,
        batch_bytes: int,
        progress: Progress | None,
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._wanted = wanted
        self._target = target
        self._checkpoint = checkpoint
        self._batch_bytes = batch_bytes
        self._progress = progress
        self._seen: dict[int, Mapping[str, Any]] = {}  # progress by batch

    def run(self, rows: tuple[ExportedPartition, ...]) -> ExportReport:
        check_note(self._checkpoint, self._note())
        query = self._writer(self._frame())
        query = (
            query.toTable(self._target.to)
            if self._target.is_table
            else query.start(self._target.to)
        )
        starts = {TopicPartition(each.topic, each.partition): each for each in rows}
        total = sum(each.size_bytes for each in rows)
        try:
            while not query.awaitTermination(0.2):
                self._look(query)
                if self._progress is not None:
                    self._progress(self._bytes_done(starts, total))
        finally:
            if query.isActive:
                query.stop()
        self._look(query)
        reached = self._reached()
        return ExportReport(
            self._target.to,
            self._target.format,
            tuple(
                ExportedPartition(
                    *place,
                    # One that is gone has nothing to be read any more.
                    starts[place].start_offset if place in starts else end,
                    max(end, starts[place].start_offset if place in starts else end),
                    starts[place].size_bytes if place in starts else 0,
                )
                for place, end in sorted(reached.items())
            ),
            sum(map(_records_written, self._seen.values())),
            sum(1 for each in self._seen.values() if _records_written(each)),
        )

    def _frame(self) -> DataFrame:
        from pyspark.sql import functions as f

        reader = self._spark.readStream.format("stratalog")
        options = {
            **self._plan.options,
            "startingOffsets": "earliest",
            "maxBytesPerTrigger": str(self._batch_bytes),
            "columns": ",".join((*SOURCE_COLUMNS, *_others_in(self._wanted.where or ""))),
        }
        read = reader.options(**options).load()
        if self._wanted.where is not None:
            read = read.where(self._wanted.where)
        frame = decoded(read, self._target.decode, self._target.schema)
        return frame.observe(_COUNTED, f.count(f.lit(1)).alias("records"))

    def _writer(self, frame: DataFrame) -> Any:
        writer = (
            frame.writeStream.format(self._target.format)
            .outputMode("append")
            .options(**self._target.options)
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
        )
        by = self._target.partition_by
        return writer.partitionBy(*by) if by else writer

    def _look(self, query: Any) -> None:
        for each in query.recentProgress:
            progress = json.loads(each.json) if hasattr(each, "json") else each
            self._seen[int(progress["batchId"])] = progress

    def _reached(self) -> dict[TopicPartition, int]:
        """How far the last batch went; where there was none, nothing is new."""
        for number in sorted(self._seen, reverse=True):
            end = self._seen[number]["sources"][0]["endOffset"]
            if end is not None:
                reached = json.loads(end) if isinstance(end, str) else end
                return parse_offsets_dict(reached, "the checkpoint")
        return {}

    def _bytes_done(self, starts: Mapping[TopicPartition, ExportedPartition], total: int) -> int:
        wanted = sum(each.end_offset - each.start_offset for each in starts.values())
        done = sum(
            max(0, end - starts[place].start_offset)
            for place, end in self._reached().items()
            if place in starts
        )
        return total * min(done, wanted) // wanted if wanted else total

    def _note(self) -> dict[str, Any]:
        """What the checkpoint belongs to."""
        target, wanted = self._target, self._wanted
        return {
            "to": target.to,
            "format": target.format,
            "decode": target.decode,
            "schema": target.schema,
            "where": wanted.where,
            "topics": wanted.topics,
            "partitions": wanted.partitions,
            "partition_by": list(target.partition_by),
            "committed": wanted.committed,
            "source": list(self._plan.logs.absolute),
        }


def _records_written(progress: Mapping[str, Any]) -> int:
    """What came out behind the condition: Spark itself counts what went in."""
    counted = progress.get("observedMetrics", {}).get(_COUNTED)
    if counted is None:
        return 0
    # Spark Connect has the row as its values, and its schema beside them.
    return int(counted["records"] if "records" in counted else counted["values"][0])


def _others_in(where: str) -> list[str]:
    """The columns beyond those that are written which a condition may speak of."""
    words = {word.lower() for word in re.findall(r"\w+", where)}
    return [name for name in COLUMNS if name not in SOURCE_COLUMNS and name.lower() in words]


def _as_json(offsets: Mapping[TopicPartition, int]) -> str:
    return json.dumps(offsets_as_dict(offsets))
