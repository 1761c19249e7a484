"""``stratalog verify``: check every file of log directories, and whether records are missing."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any, Final

import click

from stratalog.cli.absence import search_absent
from stratalog.cli.key_options import absent_keys
from stratalog.cli.options import Chosen, checks, limits, partitions
from stratalog.cli.reporter import Reporter
from stratalog.cli.verb import Verb
from stratalog.errors import StorageError
from stratalog.inspect.partition.partition_filter import partition_filter
from stratalog.inspect.partition.sources import Sources, find_sources
from stratalog.inspect.result import Chunk, Field, Kind, Result, chunk_of_rows
from stratalog.inspect.verify import FileReport, Finding
from stratalog.inspect.verify.directory import LocalCheck, metadata_sources, verify_sources
from stratalog.rewrite.erase.keys import KeySet
from stratalog.storage.files.filesystem import OsFileSystem

__all__ = ["FIELDS", "command", "errors_of", "row_of", "sentence_of"]

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
    Field("kind", Kind.TEXT),
)
_COUNTS: Final = ("records", "control_records", "batches")
_PLAIN: Final = tuple(field.name for field in FIELDS if field.name not in ("findings", "kind"))


@click.command(
    "verify",
    cls=Verb,
    short_help="Check every file, and whether records are missing.",
    examples=(
        ("Check a log directory", "stratalog verify logs -o table"),
        ("Also decode every record of one topic", "stratalog verify logs -t orders --deep"),
        ("Prove that no file holds a key", "printf 'ada\\n' | stratalog verify logs --absent -"),
    ),
)
@partitions
@checks
@limits
@absent_keys
@click.pass_obj
def command(
    reporter: Reporter,
    /,
    *,
    chosen: Chosen,
    absent: KeySet,
    **settings: Any,
) -> Result:
    """Check every file of log directories, and whether records are missing.

    In data files, checks every CRC, the order of offsets, and the lengths and counts of batches. In
    indexes, producer snapshots, leader epochs and checkpoints, checks the format and that they agree
    with the data. Prints a row for each file, and each finding with its position and remedy. The exit
    code is 1 if there is any finding, including a torn tail. Notes are not findings.

    With --absent, searches every file that may hold records for keys that must not be there instead, also
    deleted segments, originals that are kept for undo, and staged pieces.
    """
    if absent:
        return search_absent(reporter, chosen, absent)
    files = OsFileSystem()
    wanted = partition_filter(chosen.topics, chosen.partitions)
    refused: list[StorageError] = []
    sources = find_sources(chosen.paths, wanted, on_refused=refused.append)
    reporter.begin(sources)
    for error in refused:
        reporter.fail(error)
    for note in sources.notes:
        reporter.note(note)
    reports: list[FileReport] = []
    found = verify_sources(
        sources,
        LocalCheck(files, reporter.progress, **settings),
        wanted=wanted,
        refused=tuple(refused),
        metadata=metadata_sources(sources, wanted, files),
        file_system=files,
        on_error=errors_of(sources, reporter),
    )
    return Result(
        fields=FIELDS,
        chunks=_chunks(found, reports, reporter),
        notes=lambda: [sentence_of(finding) for report in reports for finding in report.findings],
        runs_to_its_end=True,
    )


def errors_of(sources: Sources, reporter: Reporter) -> Callable[[StorageError], None]:
    """Report what cannot be read: as a warning if it was deleted after its folder was listed."""
    listed = {path for each in sources.partitions if each.is_listed for path in each.segments}

    def refused(error: StorageError) -> None:
        if error.errno == errno.ENOENT and error.path in listed:
            reporter.warn_vanished(error.path)
        else:
            reporter.fail(error)

    return refused


def _chunks(
    found: Iterable[FileReport], reports: list[FileReport], reporter: Reporter
) -> Iterator[Chunk]:
    for report in found:
        reports.append(report)
        if report.status != "ok":
            reporter.found()
        yield chunk_of_rows([row_of(report)])


def row_of(report: FileReport) -> tuple[Any, ...]:
    """A file as a row of these fields."""
    values = {name: getattr(report, name) for name in _PLAIN}
    if not report.has_batches:
        values |= dict.fromkeys(_COUNTS)
    findings = [_nested(finding) for finding in report.findings]
    return (*values.values(), findings, report.kind.value)


def _nested(finding: Finding) -> dict[str, Any]:
    values = asdict(finding)
    del values["path"]
    return values


def sentence_of(finding: Finding) -> str:
    """A finding for people."""
    offset = "" if finding.offset is None else f", offset {finding.offset}"
    advice = "" if finding.advice is None else f"; {finding.advice}"
    size = f", {finding.size_bytes} bytes" if finding.size_bytes else ""
    # Without a size, the finding is about the file as a whole.
    at = f" at byte {finding.position}" if finding.position or size else ""
    return (
        f"{finding.severity}: {finding.path}{at}{offset}{size}: "
        f"{finding.detail} ({finding.reason}){advice}"
    )
