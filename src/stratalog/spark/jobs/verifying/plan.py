"""Which parts of which files are verified, and the reports of files put together, folder by folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stratalog.errors import StorageError, StratalogError
from stratalog.inspect.check.data_file import CheckedFile
from stratalog.inspect.check.index_files import SegmentIndexes
from stratalog.inspect.check.small_files import kind_of_name
from stratalog.inspect.file.span import (
    SegmentSpan,
    is_last_segment,
    segment_spans,
)
from stratalog.inspect.partition.partition_filter import EVERYTHING, PartitionFilter
from stratalog.inspect.partition.sources import PartitionSource, Sources
from stratalog.inspect.verify import FileReport
from stratalog.inspect.verify.directory import metadata_sources, verify_sources
from stratalog.spark.jobs.run.file_parts import FilePart, cut_file, part_size
from stratalog.spark.jobs.run.part_tasks import FailedPart, run_parts
from stratalog.spark.jobs.run.run_tasks import cores_of
from stratalog.spark.jobs.verifying.tasks import (
    PartToVerify,
    VerifiedPart,
    Verifying,
    merge_facts,
    merge_reports,
    verify_part,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from stratalog.types import Progress

__all__ = ["verify_logs"]

#: Small enough that all cores are done at about the same time.
_TASKS_PER_CORE = 4


@dataclass(slots=True)
class _File:
    path: str
    is_last: bool
    size_bytes: int
    with_indexes: bool
    found: list[VerifiedPart] = field(default_factory=list)
    refused: StratalogError | None = None

    def part(self, number: int, part: FilePart, expected_offset: int = -1) -> PartToVerify:
        return PartToVerify(number, part, self.is_last, expected_offset, self.with_indexes)


def verify_logs(
    spark: SparkSession,
    sources: Sources,
    verifying: Verifying,
    *,
    wanted: PartitionFilter = EVERYTHING,
    refused: tuple[StorageError, ...] = (),
    progress: Progress | None = None,
    on_error: Callable[[StorageError], None] | None = None,
) -> Iterator[FileReport]:
    """Verify everything, as ``stratalog verify`` does: the same reports, in the same order. Data files are
    checked in tasks, the other files on the driver. ``on_error`` is called with every file that cannot be
    read; it has a report, too."""
    file_system = verifying.logs.file_system
    metadata = metadata_sources(sources, wanted, file_system)
    job = _VerifyJob(spark, verifying, progress)
    job.run((*sources.partitions, *metadata))
    yield from verify_sources(
        sources,
        job.checked,
        wanted=wanted,
        refused=refused,
        metadata=metadata,
        file_system=file_system,
        on_error=_ignored if on_error is None else on_error,
    )


def _ignored(_: StorageError) -> None:
    """The report says it."""


class _VerifyJob:
    def __init__(
        self, spark: SparkSession, verifying: Verifying, progress: Progress | None
    ) -> None:
        self._spark = spark
        self._verifying = verifying
        self._progress = progress
        self._file_system = verifying.logs.file_system
        self._files: list[_File] = []
        self._numbers: dict[str, int] = {}

    def checked(
        self,
        path: str,
        *,
        is_last: bool,  # noqa: ARG002 - known when the tasks were cut
        expected_offset: int,
        indexes: SegmentIndexes,  # noqa: ARG002 - the tasks have read them
    ) -> CheckedFile:
        """What the tasks found in a file; where its parts do not prove it, what one task finds."""
        number = self._numbers[path]
        file = self._files[number]
        if file.refused is None:
            report = merge_reports(file.found, expected_offset, self._verifying.findings_max)
            facts = merge_facts(file.found)
            if report is not None and facts is not None:
                return CheckedFile(report, facts)
            self._verify_whole(number, expected_offset)
        if file.refused is not None:
            raise file.refused
        return CheckedFile(file.found[0].report, file.found[0].facts)

    def run(self, sources: Sequence[PartitionSource]) -> None:
        """Verify the data files of all sources in tasks."""
        for source in sources:
            paths = [path for path in source.segments if _is_data(path)]
            for number, path in enumerate(paths):
                self._numbers[path] = len(self._files)
                is_last = is_last_segment(paths, number)
                self._files.append(_File(path, is_last, self._size(path), source.is_listed))
        total = sum(file.size_bytes for file in self._files)
        size = part_size(total, cores_of(self._spark), _TASKS_PER_CORE)
        parts: list[PartToVerify] = []
        for number, file in enumerate(self._files):
            try:
                parts += [file.part(number, part) for part in self._cut(file, size)]
            except StratalogError as error:
                file.refused = error
        self._verify(parts, size)
        for file in self._files:
            file.found.sort(key=lambda each: each.part.start)

    def _size(self, path: str) -> int:
        try:
            found = self._file_system.stat(path)
        except StorageError:
            return 0  # opening it says why
        return 0 if found is None else found.size

    def _cut(self, file: _File, size: int) -> list[FilePart]:
        (span,) = segment_spans([file.path])
        if self._verifying.gaps:
            # Whether offsets are missing between two parts, neither of them sees.
            return [FilePart(file.path, 0, None, file.size_bytes)]
        return cut_file(SegmentSpan(*span), self._file_system, size, without_index=True)

    def _verify_whole(self, number: int, expected_offset: int) -> None:
        """Verify one file in one go."""
        file = self._files[number]
        file.found.clear()
        whole = FilePart(file.path, 0, None, file.size_bytes)
        self._verify([file.part(number, whole, expected_offset)], file.size_bytes)

    def _verify(self, parts: list[PartToVerify], size: int) -> None:
        for each in run_parts(
            self._spark, verify_part, self._verifying, parts, size,
            name="verify", progress=self._progress,
        ):  # fmt: skip
            if isinstance(each, FailedPart):
                self._files[each.number].refused = each.error
            else:
                self._files[each.number].found.append(each)


def _is_data(path: str) -> bool:
    return kind_of_name(os.path.basename(path)) is None
