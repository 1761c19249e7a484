"""Which parts of which files are verified, and the reports of files put together, folder by folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from stratalog.errors import StorageError, StratalogError
from stratalog.inspect.segment_order import (
    SegmentSpan,
    is_last_segment,
    segment_spans,
    segments_in_order,
)
from stratalog.inspect.sources import Sources
from stratalog.inspect.verify import FileReport
from stratalog.spark.jobs.file_parts import FilePart, cut_file, pack, part_size
from stratalog.spark.jobs.refusals import in_plain_words
from stratalog.spark.jobs.spread import cores_of, spread
from stratalog.spark.jobs.verify_tasks import (
    PartToVerify,
    VerifiedPart,
    Verifying,
    merge_reports,
    verify_parts,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from stratalog.storage.walk_file import Progress

__all__ = ["verify_logs"]

#: Small enough that all cores are done at about the same time.
_TASKS_PER_CORE = 4


@dataclass(slots=True)
class _File:
    path: str
    is_last: bool
    size_bytes: int
    found: list[VerifiedPart] = field(default_factory=list)
    refused: StratalogError | None = None


def verify_logs(
    spark: SparkSession,
    sources: Sources,
    verifying: Verifying,
    *,
    progress: Progress | None = None,
    on_error: Callable[[StorageError], None] | None = None,
) -> Iterator[FileReport]:
    """Verify files, as ``inspect.verify_files`` does: the same reports, in the same order. A file that
    cannot be read is told ``on_error``, and left out; without it, that raises."""
    job = _VerifyJob(spark, verifying, progress)
    files = job.run(segments_in_order(sources.files))
    expected = -1
    for number, file in enumerate(files):
        report = None
        if file.refused is None:
            report = merge_reports(file.found, expected, verifying.findings_max)
            if report is None:
                report = job.verify_whole(number, expected)
        if report is not None:
            expected = max(expected, report.next_offset)
            yield report
        else:
            assert file.refused is not None
            if on_error is None or not isinstance(file.refused, StorageError):
                raise file.refused
            on_error(file.refused)
        if file.is_last:
            expected = -1


class _VerifyJob:
    def __init__(
        self, spark: SparkSession, verifying: Verifying, progress: Progress | None
    ) -> None:
        self._spark = spark
        self._verifying = verifying
        self._progress = progress
        self._file_system = verifying.logs.file_system
        self._files: list[_File] = []

    def run(self, paths: Sequence[str]) -> list[_File]:
        for number, path in enumerate(paths):
            found = self._file_system.stat(path)
            size = 0 if found is None else found.size
            self._files.append(_File(path, is_last_segment(paths, number), size))
        total = sum(file.size_bytes for file in self._files)
        size = part_size(total, cores_of(self._spark), _TASKS_PER_CORE)
        parts: list[PartToVerify] = []
        for number, file in enumerate(self._files):
            try:
                parts += [
                    PartToVerify(number, part, file.is_last) for part in self._cut(file, size)
                ]
            except StratalogError as error:
                file.refused = error
        self._verify(parts, size)
        for file in self._files:
            file.found.sort(key=lambda each: each.part.start)
        return self._files

    def _cut(self, file: _File, size: int) -> list[FilePart]:
        (span,) = segment_spans([file.path])
        if self._verifying.gaps:
            # Whether offsets are missing between two parts, neither of them sees.
            return [FilePart(file.path, 0, None, file.size_bytes)]
        return cut_file(SegmentSpan(*span), self._file_system, size, without_index=True)

    def verify_whole(self, number: int, expected_offset: int) -> FileReport | None:
        """One file in one go; None where it cannot be read any more."""
        file = self._files[number]
        file.found.clear()
        whole = FilePart(file.path, 0, None, file.size_bytes)
        self._verify([PartToVerify(number, whole, file.is_last, expected_offset)], file.size_bytes)
        return file.found[0].report if file.found else None

    def _verify(self, parts: list[PartToVerify], size: int) -> None:
        tasks = pack(parts, lambda each: each.part.size_bytes, size)
        with in_plain_words():
            answers = spread(
                self._spark,
                partial(verify_parts, self._verifying),
                tasks,
                name="verify",
                total_bytes=sum(each.part.size_bytes for each in parts),
                progress=self._progress,
            )
        for each in (each for answer in answers for each in answer):
            if isinstance(each, VerifiedPart):
                self._files[each.number].found.append(each)
            else:
                self._files[each[0]].refused = each[1]
