"""``stratalog verify``: whether every byte of log directories and log files is what it must be."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

import click

from stratalog.cli.options import limits, partitions
from stratalog.cli.reporter import Reporter
from stratalog.cli.result import Chunk, Field, Kind, Result, chunk_of_rows
from stratalog.cli.verb import Verb
from stratalog.errors import StorageError
from stratalog.inspect.partition_filter import partition_filter
from stratalog.inspect.sources import Sources, find_sources
from stratalog.inspect.verify import FileReport, Finding, verify_files

__all__ = ["FIELDS", "command", "row_of", "sentence_of"]

FIELDS: Final = (
    Field("path", Kind.TEXT),
    Field("topic", Kind.TEXT, in_table=False),
    Field("partition", Kind.INTEGER, in_table=False),
    Field("status", Kind.TEXT),
    Field("records", Kind.INTEGER),
    Field("control_records", Kind.INTEGER),
    Field("batches", Kind.INTEGER),
    Field("size_bytes", Kind.INTEGER),
    Field("unchecked_bytes", Kind.INTEGER),
    Field("findings", Kind.JSON, in_table=False),
)


@click.command("verify", cls=Verb)
@partitions
@click.option("--deep", is_flag=True, help="Decompress and decode every record, too.")
@click.option("--gaps", is_flag=True, help="Note missing offsets. Compaction leaves some, rightly.")
@limits
@click.pass_obj
def command(
    reporter: Reporter,
    /,
    *,
    paths: tuple[str, ...],
    topics: tuple[str, ...] | None,
    partitions: str | None,
    **settings: Any,
) -> Result:
    """Check every CRC, the order of offsets, and the lengths and counts of batches.

    One row a file, and every finding with its position. Exit code 1 where there is one, a torn tail
    included; notes are none. Segments of one folder are checked in the order of their offsets, records
    below a log's start, too.
    """
    reports: list[FileReport] = []
    sources = find_sources(paths, partition_filter(topics, partitions))
    reporter.begin(sources)
    for note in sources.notes:
        reporter.note(note)
    return Result(
        fields=FIELDS,
        chunks=_chunks(sources, settings, reports, reporter),
        notes=lambda: [sentence_of(finding) for report in reports for finding in report.findings],
    )


def _chunks(
    sources: Sources, settings: dict[str, Any], reports: list[FileReport], reporter: Reporter
) -> Iterator[Chunk]:
    listed = {path for each in sources.partitions if each.is_listed for path in each.segments}

    def refused(error: StorageError) -> None:
        if error.errno == errno.ENOENT and error.path in listed:
            reporter.warn_vanished(error.path)
        else:
            reporter.fail(error)

    for report in verify_files(
        sources.files, **settings, progress=reporter.progress, on_error=refused
    ):
        reports.append(report)
        if report.status != "ok":
            reporter.found()
        yield chunk_of_rows([row_of(report)])


def row_of(report: FileReport) -> tuple[Any, ...]:
    """A file as a row of these fields."""
    *names, _ = (field.name for field in FIELDS)
    return (*(getattr(report, name) for name in names), [_nested(f) for f in report.findings])


def _nested(finding: Finding) -> dict[str, Any]:
    values = asdict(finding)
    del values["path"]
    return values


def sentence_of(finding: Finding) -> str:
    """A finding for people."""
    offset = "" if finding.offset is None else f", offset {finding.offset}"
    advice = "" if finding.advice is None else f"; {finding.advice}"
    size = f", {finding.size_bytes} bytes" if finding.size_bytes else ""
    return (
        f"{finding.severity}: {finding.path} at byte {finding.position}{offset}{size}: "
        f"{finding.detail} ({finding.reason}){advice}"
    )
