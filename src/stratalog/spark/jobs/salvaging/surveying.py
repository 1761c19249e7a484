"""Survey the data files of partitions in tasks, a file each, and read the headers of what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from stratalog.rewrite.salvage.candidates import SourceFile
from stratalog.rewrite.salvage.header_facts import (
    HeaderFacts,
    HeaderReader,
    HeaderTrail,
    LocalHeaders,
    join_trails,
    read_trail,
)
from stratalog.rewrite.salvage.plan import SalvageInput, survey_source
from stratalog.rewrite.salvage.runs import FileSurvey, Run
from stratalog.rewrite.salvage.steps import SurveyLimits
from stratalog.spark.jobs.run.file_parts import FilePart, part_size
from stratalog.spark.jobs.run.log_paths import LogPaths
from stratalog.spark.jobs.run.part_tasks import FailedPart, run_parts
from stratalog.spark.jobs.run.run_tasks import cores_of, run_tasks
from stratalog.spark.jobs.run.task_errors import in_plain_words
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.producers.trail import ProducerTrail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stratalog.types import Progress

__all__ = ["SourceSurvey", "Surveying", "TaskHeaders", "survey_on_spark", "task_size"]

_TASKS_PER_CORE: Final = 3


def task_size(spark: SparkSession, total_bytes: int) -> int:
    """Return how many bytes a task is to work on."""
    return part_size(total_bytes, cores_of(spark), _TASKS_PER_CORE)


@dataclass(frozen=True, slots=True)
class Surveying:
    """What all tasks of a survey go by."""

    logs: LogPaths
    limits: SurveyLimits


class _SourcePart(NamedTuple):
    """One data file to survey: the number of its partition, and its own number there."""

    number: int
    source_number: int
    source: SourceFile

    @property
    def part(self) -> FilePart:
        return FilePart(self.source.path, 0, None, self.source.size_bytes)


class SourceSurvey(NamedTuple):
    """What was found in one data file of a partition. The files come in their order."""

    number: int
    survey: FileSurvey
    headers: HeaderTrail


def survey_on_spark(
    spark: SparkSession,
    surveying: Surveying,
    inputs: Sequence[SalvageInput],
    progress: Progress | None,
) -> list[list[SourceSurvey | FailedPart]]:
    """Survey all sources of partitions, and return what was found in those of each."""
    parts = [
        _SourcePart(number, source_number, source)
        for number, each in enumerate(inputs)
        for source_number, source in enumerate(each.sources)
    ]
    total = sum(each.source.size_bytes for each in parts)
    found = run_parts(
        spark, _survey_part, surveying, parts, task_size(spark, total), name="salvage: survey",
        progress=progress,
    )  # fmt: skip
    surveyed: list[list[SourceSurvey | FailedPart]] = [[] for _ in inputs]
    for each in found:
        surveyed[each.number].append(each)
    return surveyed


def _survey_part(surveying: Surveying, part: _SourcePart, file_system: FileSystem) -> SourceSurvey:
    producers = ProducerTrail()
    reader = HeaderReader(producers)
    survey = survey_source(
        file_system, part.source_number, part.source, surveying.limits, lambda _: None, reader.seen
    )
    return SourceSurvey(part.number, survey, HeaderTrail(reader.epochs, producers))


class _Slice(NamedTuple):
    """Kept runs that follow each other, and the data files that they are in."""

    sources: dict[int, SourceFile]
    runs: tuple[Run, ...]


class TaskHeaders:
    """The headers of one partition: those that surveys have shown, and others read in tasks."""

    def __init__(
        self,
        spark: SparkSession,
        logs: LogPaths,
        sources: Sequence[SourceFile],
        surveyed: Sequence[HeaderTrail],
    ) -> None:
        self._spark = spark
        self._logs = logs
        self._sources = sources
        self._surveyed = surveyed

    def surveyed(self) -> HeaderFacts:
        return join_trails(self._surveyed)

    def read(self, kept: Sequence[Run]) -> HeaderFacts:
        """Read headers in tasks; in this process if there are few."""
        slices = self._slices(kept)
        if len(slices) <= 1:
            return LocalHeaders(self._logs.file_system, self._sources).read(kept)
        with in_plain_words():
            trails = run_tasks(
                self._spark, partial(_read_slice, self._logs), slices, name="salvage: headers"
            )
        return join_trails(trails)

    def _slices(self, kept: Sequence[Run]) -> list[_Slice]:
        task_bytes = task_size(self._spark, sum(run.size_bytes for run in kept))
        groups: list[list[Run]] = []
        held = 0
        for run in kept:
            if not groups or held >= task_bytes:
                groups.append([])
                held = 0
            groups[-1].append(run)
            held += run.size_bytes
        return [
            _Slice({run.source: self._sources[run.source] for run in group}, tuple(group))
            for group in groups
        ]


def _read_slice(logs: LogPaths, part: _Slice) -> HeaderTrail:
    return read_trail(logs.file_system, part.sources, part.runs)
