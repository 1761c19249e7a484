"""``stratalog reindex``: indexes, transaction indexes and producer snapshots, rebuilt from the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from stratalog.cli.reporter import Reporter
from stratalog.cli.rewrite_options import RewriteRequest, rewriting
from stratalog.cli.rewriting import Work, chosen_partitions, opened, terminable
from stratalog.cli.verb import Verb
from stratalog.errors import UsageError
from stratalog.inspect.result import Chunk, Field, Kind, Result, chunk_of_rows
from stratalog.manager.reindexing import PartitionReindex
from stratalog.manager.rewrites import RewriteOptions

__all__ = ["FIELDS", "command"]

#: A row for each file that is wrong, and one for each partition.
FIELDS: Final = (
    Field("topic", Kind.TEXT),
    Field("partition", Kind.INTEGER),
    Field("status", Kind.TEXT),
    Field("file", Kind.TEXT),
    Field("segments", Kind.INTEGER),
    Field("size_bytes", Kind.INTEGER),
    Field("replaced", Kind.INTEGER),
    Field("reason", Kind.TEXT),
)


@click.command(
    "reindex",
    cls=Verb,
    short_help="Rebuild indexes and snapshots from the log.",
    examples=(
        ("Show which index files are wrong", "stratalog reindex logs"),
        ("Rebuild them", "stratalog reindex logs -t orders --write"),
    ),
)
@rewriting
@click.option("--force", is_flag=True, help="Also rebuild files that are right.")
@click.pass_obj
def command(reporter: Reporter, /, *, request: RewriteRequest, force: bool) -> Result:
    """Rebuild indexes, transaction indexes and producer snapshots that are missing or wrong.

    Reads every sealed segment, checks its CRCs, and compares the files that point into it with what it
    says. Without --write, prints what is wrong. The active segment is included with --roll.
    """
    if request.keep_undo or request.manifest is not None or request.max_bytes is not None:
        raise UsageError(
            "reindex changes no records: --keep-undo, --manifest and --max-bytes have no meaning for it"
        )
    done: list[PartitionReindex] = []
    with opened(reporter, request, read_only=not request.write) as logs, terminable():
        named = chosen_partitions(logs, request)
        work = Work(reporter, logs, named)
        options = RewriteOptions(
            configs=request.configs,
            roll=request.roll,
            max_seconds=request.max_seconds,
            progress=work.note,
        )
        found = (
            logs.begin_reindex(named, force=force, options=options)
            if request.write
            else logs.plan_reindex(named, options=options)
        )
        try:
            done.extend(found)
        except KeyboardInterrupt:
            reporter.interrupted()
    for each in done:
        if each.error is not None:
            reporter.fail(each.error)
        elif each.stopped is not None:
            reporter.note(f"{each.topic_partition}: {each.stopped}; run the command again to go on")
        elif each.problems and not request.write:
            reporter.found()
    return Result(fields=FIELDS, chunks=_chunks(done, has_written=request.write))


def _chunks(done: list[PartitionReindex], *, has_written: bool) -> Iterator[Chunk]:
    for each in done:
        status = "rebuilt" if has_written else "wrong"
        rows = [_row(each, status, problem.name, problem.detail) for problem in each.problems]
        yield chunk_of_rows([*rows, _summary(each)])


def _row(each: PartitionReindex, status: str, name: str, detail: str) -> tuple[object, ...]:
    return (*each.topic_partition, status, name, None, None, None, detail)


def _summary(each: PartitionReindex) -> tuple[object, ...]:
    status = "failed" if each.error is not None else "stopped" if each.stopped else "ok"
    reason = str(each.error) if each.error is not None else each.stopped
    sizes = each.segments, each.size_bytes, each.replaced
    return (*each.topic_partition, status, None, *sizes, reason)
