"""What a task does for a verification: parts of files; and the parts of a file put together again.

What comes of it is what one walk over the file would have said. Wherever the parts do not prove that, the
file is verified in one go.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stratalog.inspect.check.batch_facts import SegmentFacts
from stratalog.inspect.check.data_file import check_file
from stratalog.inspect.check.index_files import NO_INDEXES, load_indexes
from stratalog.inspect.verify import FileReport
from stratalog.records.compression import DECOMPRESSED_SIZE_MAX_DEFAULT
from stratalog.records.layout import BATCH_SIZE_MAX_DEFAULT, INT32_MAX
from stratalog.spark.jobs.run.file_parts import FilePart
from stratalog.spark.jobs.run.log_paths import LogPaths
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import parse_data_name

__all__ = [
    "PartToVerify",
    "VerifiedPart",
    "Verifying",
    "merge_facts",
    "merge_reports",
    "verify_part",
]


@dataclass(frozen=True, slots=True)
class Verifying:
    """How all tasks verify."""

    logs: LogPaths
    deep: bool = False
    gaps: bool = False
    max_batch_bytes: int = BATCH_SIZE_MAX_DEFAULT
    max_decompressed_bytes: int = DECOMPRESSED_SIZE_MAX_DEFAULT
    findings_max: int = 1000


@dataclass(frozen=True, slots=True)
class PartToVerify:
    """A part, the number of its file, and what is known of its place: no offset may lie below
    ``expected_offset``."""

    number: int
    part: FilePart
    is_last_segment: bool
    expected_offset: int = -1
    #: Whether the indexes of the segment are compared with the batches.
    with_indexes: bool = False


@dataclass(frozen=True, slots=True)
class VerifiedPart:
    """What was found in a part, as if the file ended with it."""

    number: int
    part: FilePart
    report: FileReport
    facts: SegmentFacts


def verify_part(verifying: Verifying, each: PartToVerify, file_system: FileSystem) -> VerifiedPart:
    """Verify one part of a file."""
    path = each.part.path
    name = parse_data_name(os.path.basename(path))
    indexes = NO_INDEXES
    if each.with_indexes and name is not None and not name.is_v07:
        indexes = load_indexes(file_system, path, name.base_offset)
    report, facts = check_file(
        path,
        indexes=indexes,
        deep=verifying.deep,
        gaps=verifying.gaps,
        is_last_segment=each.is_last_segment,
        expected_offset=each.expected_offset,
        file_system=file_system,
        max_batch_bytes=verifying.max_batch_bytes,
        max_decompressed_bytes=verifying.max_decompressed_bytes,
        findings_max=verifying.findings_max,
        start=each.part.start,
        end=each.part.end,
    )
    return VerifiedPart(each.number, each.part, report, facts)


def merge_reports(
    parts: Sequence[VerifiedPart], expected_offset: int, findings_max: int
) -> FileReport | None:
    """The parts of one file, in their order, as its report; of a file in which no offset may lie below
    ``expected_offset``. None where one walk might have said something else.

    A part was checked without knowing how the one before it ends. That makes no difference where its first
    batch is sound and lies above; where all of it was checked up to where the next part begins; and where
    nothing at an edge is damaged.
    """
    base_offset = _base_of(parts[0].report)
    expected = max(expected_offset, base_offset)
    for each in parts:
        part, report = each.part, each.report
        findings = report.findings
        if part.start > 0 or expected > base_offset:
            if findings and findings[0].position == part.start:
                return None
            if report.first_offset is not None and report.first_offset < expected:
                return None
        if part.end is not None and (
            report.size_bytes < part.end  # the file was cut meanwhile
            or report.unchecked_bytes
            or any(found.position + found.size_bytes >= part.end for found in findings)
        ):
            return None
        if report.first_offset is not None:
            expected = report.next_offset
    reports = [each.report for each in parts]
    found = tuple(finding for report in reports for finding in report.findings)
    if len(parts) > 1 and (
        len(found) > findings_max
        or 0 <= base_offset < expected - 1 - INT32_MAX  # a note of its own
    ):
        return None
    firsts = [n for report in reports if (n := report.first_offset) is not None]
    return replace(
        reports[-1],
        records=sum(report.records for report in reports),
        control_records=sum(report.control_records for report in reports),
        batches=sum(report.batches for report in reports),
        first_offset=firsts[0] if firsts else None,
        next_offset=expected,
        findings=found,
    )


def merge_facts(parts: Sequence[VerifiedPart]) -> SegmentFacts | None:
    """What the batches of a file say about its other files; None where only one walk could tell."""
    facts = parts[0].facts
    for each in parts[1:]:
        joined = facts.followed_by(each.facts)
        if joined is None:
            return None
        facts = joined
    return facts


def _base_of(report: FileReport) -> int:
    """The least offset that a file may hold, by its name; -1 where that does not tell."""
    name = parse_data_name(os.path.basename(report.path))
    return -1 if name is None else name.base_offset
