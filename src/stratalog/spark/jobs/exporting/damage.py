"""Finds what is damaged in the partitions of an export, in tasks, so that the report can list it.

A task that meets damage can only fail, or log what it left out: nothing else reaches the driver from a data
source. So what is to be reported is looked for in a job of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from stratalog.errors import UsageError
from stratalog.inspect.file.skipped_damage import OnDamagedBatch, SkippedDamage
from stratalog.inspect.partition.sources import PartitionSource
from stratalog.inspect.range.offset_range import WHOLE
from stratalog.inspect.range.partition_reader import PartitionReader
from stratalog.records.columns import Selection
from stratalog.records.layout import Column
from stratalog.spark.jobs.run.file_parts import pack, part_size
from stratalog.spark.jobs.run.log_paths import LogPaths
from stratalog.spark.jobs.run.run_tasks import cores_of, run_tasks
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


__all__ = ["Damage", "OnDamagedPartition", "find_damage", "on_damaged_partition"]

_TASKS_PER_CORE = 4

#: What is left out of each partition that is damaged.
Damage = Mapping[TopicPartition, tuple[SkippedDamage, ...]]


class OnDamagedPartition(StrEnum):
    """What an export does with a partition that is damaged."""

    FAIL = "fail"  # nothing is written
    STOP = "stop"  # it is written up to the damage, and the others are written whole
    SKIP = "skip"  # it goes on at the next intact batch

    @property
    def of_batches(self) -> OnDamagedBatch:
        """What the tasks that read do at a damaged batch."""
        return OnDamagedBatch.SKIP if self is OnDamagedPartition.SKIP else OnDamagedBatch.FAIL


def on_damaged_partition(value: object) -> OnDamagedPartition:
    """Return the choice of this name; UsageError if there is none."""
    try:
        return OnDamagedPartition(value)  # type: ignore[arg-type]
    except ValueError:
        names = ", ".join(each.value for each in OnDamagedPartition)
        raise UsageError(f"on_damage is one of {names}, not {value!r}") from None


@dataclass(frozen=True, slots=True)
class _Sized:
    source: PartitionSource
    size_bytes: int


def find_damage(
    spark: SparkSession,
    logs: LogPaths,
    sources: Sequence[PartitionSource],
) -> Damage:
    """Read all partitions in tasks, and return what is damaged in those that are."""
    files = logs.file_system
    sized = []
    for source in sources:
        found = (files.stat(path) for path in source.segments)
        sized.append(_Sized(source, sum(each.size for each in found if each is not None)))
    total_bytes = sum(each.size_bytes for each in sized)
    size = part_size(total_bytes, cores_of(spark), _TASKS_PER_CORE)
    answers = run_tasks(
        spark,
        partial(_damage_of, logs),
        pack(sized, lambda each: each.size_bytes, size),
        name="find damage",
    )
    return {topic_partition: skipped for answer in answers for topic_partition, skipped in answer}


def _damage_of(
    logs: LogPaths, partitions: Sequence[_Sized]
) -> list[tuple[TopicPartition, tuple[SkippedDamage, ...]]]:
    found = []
    for each in partitions:
        reader = PartitionReader(
            Selection(columns=Column.OFFSET),
            WHOLE,
            logs.file_system,
            lambda _: None,
            OnDamagedBatch.SKIP,
        )
        for _ in reader.read(each.source):
            pass
        if reader.skipped and each.source.topic_partition is not None:
            found.append((each.source.topic_partition, tuple(reader.skipped)))
    return found
