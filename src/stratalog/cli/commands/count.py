"""``stratalog count``: how many records log files hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from stratalog.cli.options import FILES, limits
from stratalog.cli.reporter import Reporter
from stratalog.cli.result import Chunk, Field, Kind, Result, chunk_of_rows
from stratalog.cli.verb import Verb
from stratalog.errors import StorageError
from stratalog.inspect.count import FileCount, count_file
from stratalog.inspect.segment_order import is_last_segment
from stratalog.records.layout import Ending

__all__ = ["command"]

_FIELDS: Final = (
    Field("path", Kind.TEXT),
    Field("topic", Kind.TEXT),
    Field("partition", Kind.INTEGER),
    Field("records", Kind.INTEGER),
    Field("control_records", Kind.INTEGER),
    Field("batches", Kind.INTEGER),
    Field("size_bytes", Kind.INTEGER),
    Field("first_offset", Kind.INTEGER),
    Field("last_offset", Kind.INTEGER),
)


@click.command("count", cls=Verb)
@FILES
@limits
@click.pass_obj
def command(reporter: Reporter, /, *, files: tuple[str, ...], **limits: Any) -> Result:
    """Count the records of log files, exactly and from their headers.

    One row a file. Where a file is damaged, what stands before the damage is counted.
    """
    counts: list[FileCount] = []
    reporter.expect_files(files)
    return Result(
        fields=_FIELDS,
        chunks=_chunks(files, limits, counts, reporter),
        total=lambda: _total(counts) if len(counts) > 1 else None,
    )


def _chunks(
    files: tuple[str, ...], limits: dict[str, Any], counts: list[FileCount], reporter: Reporter
) -> Iterator[Chunk]:
    done = 0
    for number, path in enumerate(files):
        try:
            count = count_file(path, **limits, progress=reporter.progress_behind(done))
        except StorageError as error:
            reporter.fail(error)
            continue
        done += count.size_bytes
        counts.append(count)
        _report_end(count, is_last_segment(files, number), reporter)
        yield chunk_of_rows([_row(count)])


def _report_end(count: FileCount, is_last: bool, reporter: Reporter) -> None:
    if count.end.is_clean:
        return
    if is_last and count.end.pause.ending == Ending.INCOMPLETE:
        reporter.warn_torn(count.end)
    else:
        reporter.fail(count.end.error())


def _row(count: FileCount) -> tuple[Any, ...]:
    return tuple(getattr(count, field.name) for field in _FIELDS)


def _total(counts: list[FileCount]) -> tuple[Any, ...]:
    summed = ("records", "control_records", "batches", "size_bytes")
    sums = {name: sum(getattr(count, name) for count in counts) for name in summed}
    return ("total", *(sums.get(field.name) for field in _FIELDS[1:]))
