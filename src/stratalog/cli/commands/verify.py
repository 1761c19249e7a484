"""``stratalog verify``: whether every byte of log files is what it must be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

import click

from stratalog.cli.options import FILES, limits
from stratalog.cli.reporter import Reporter
from stratalog.cli.result import Chunk, Field, Kind, Result, chunk_of_rows
from stratalog.cli.verb import Verb
from stratalog.inspect.verify import FileReport, Finding, verify_files

__all__ = ["command"]

_FIELDS: Final = (
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
@FILES
@click.option("--deep", is_flag=True, help="Decompress and decode every record, too.")
@click.option("--gaps", is_flag=True, help="Note missing offsets. Compaction leaves some, rightly.")
@limits
@click.pass_obj
def command(reporter: Reporter, /, *, files: tuple[str, ...], **settings: Any) -> Result:
    """Check every CRC, the order of offsets, and the lengths and counts of batches.

    One row a file, and every finding with its position. Exit code 1 where there is one, a torn tail
    included; notes are none. Segments of one folder are checked in the order of their offsets.
    """
    reports: list[FileReport] = []
    reporter.expect_files(files)
    return Result(
        fields=_FIELDS,
        chunks=_chunks(files, settings, reports, reporter),
        notes=lambda: [_sentence(finding) for report in reports for finding in report.findings],
    )


def _chunks(
    files: tuple[str, ...], settings: dict[str, Any], reports: list[FileReport], reporter: Reporter
) -> Iterator[Chunk]:
    for report in verify_files(
        files, **settings, progress=reporter.progress, on_error=reporter.fail
    ):
        reports.append(report)
        if report.status != "ok":
            reporter.found()
        yield chunk_of_rows([_row(report)])


def _row(report: FileReport) -> tuple[Any, ...]:
    *names, _ = (field.name for field in _FIELDS)
    return (*(getattr(report, name) for name in names), [_nested(f) for f in report.findings])


def _nested(finding: Finding) -> dict[str, Any]:
    values = asdict(finding)
    del values["path"]
    return values


def _sentence(finding: Finding) -> str:
    offset = "" if finding.offset is None else f", offset {finding.offset}"
    advice = "" if finding.advice is None else f"; {finding.advice}"
    size = f", {finding.size_bytes} bytes" if finding.size_bytes else ""
    return (
        f"{finding.severity}: {finding.path} at byte {finding.position}{offset}{size}: "
        f"{finding.detail} ({finding.reason}){advice}"
    )
