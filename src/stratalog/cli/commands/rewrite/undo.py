"""``stratalog undo``: restore, or drop, the originals that a rewrite has kept."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Final

import click

from stratalog.cli.options import Chosen, partitions
from stratalog.cli.reporter import Reporter
from stratalog.cli.rewrite_options import RewriteRequest
from stratalog.cli.rewriting import Work, chosen_partitions, opened, terminable
from stratalog.cli.verb import Verb
from stratalog.errors import UsageError
from stratalog.inspect.result import Chunk, Field, Kind, Result, chunk_of_rows
from stratalog.manager.rewrites import RewriteOptions
from stratalog.manager.undoing import KeptRewrite

__all__ = ["FIELDS", "command"]

_ID: Final = re.compile(r"[0-9]{8}T[0-9]{9}-[a-z0-9-]+")

#: A row for each partition in which originals are kept.
FIELDS: Final = (
    Field("id", Kind.TEXT),
    Field("topic", Kind.TEXT),
    Field("partition", Kind.INTEGER),
    Field("verb", Kind.TEXT),
    Field("time", Kind.TIME),
    Field("segments", Kind.INTEGER),
    Field("size_bytes", Kind.INTEGER),
    Field("status", Kind.TEXT),
    Field("reason", Kind.TEXT),
)


@click.command(
    "undo",
    cls=Verb,
    short_help="Restore what a rewrite has replaced, or drop it.",
    examples=(
        ("List the rewrites that can be undone", "stratalog undo logs -o table"),
        ("List those of one topic", "stratalog undo logs -t orders -o json"),
    ),
)
@partitions
@click.option("--write", is_flag=True, help="Restore the originals of the rewrite ID.")
@click.option("--forget", is_flag=True, help="Drop the originals of the rewrite ID, for good.")
@click.pass_obj
def command(
    reporter: Reporter,
    /,
    *,
    chosen: Chosen,
    write: bool,
    forget: bool,
) -> Result:
    """List the rewrites whose originals are kept, restore them, or drop them.

    With the ID of a rewrite after the log directories, as in 'undo DIR ID', prints whether it can be undone:
    it cannot if a partition has changed since. With --write, restores the originals, as safely as they were
    replaced. With --forget, drops them.
    """
    chosen, rewrite_id = _split(chosen)
    if (write or forget) and rewrite_id is None:
        raise UsageError("name the rewrite by its id, after the log directories")
    if write and forget:
        raise UsageError("--write restores the originals and --forget drops them: give one of them")
    request = RewriteRequest(chosen, {}, True, False, None, False, None, None)
    request.check()
    if write or forget:
        rows = _change(reporter, request, str(rewrite_id), forget=forget)
        done = "the originals were dropped" if forget else "the originals were restored"
        done = done if rows else ""
        return Result(fields=FIELDS, chunks=_chunks(rows), done=done)
    with opened(reporter, request, read_only=True) as logs:
        named = chosen_partitions(logs, request)
        if rewrite_id is None:
            found = logs.kept_rewrites(named)
        else:
            found = logs.plan_undo(rewrite_id, named)
    refused = [each for each in found if each.plan is not None and each.plan.refusal]
    if refused:
        reporter.found()
    return Result(fields=FIELDS, chunks=_chunks([_row(each) for each in found]))


def _split(chosen: Chosen) -> tuple[Chosen, str | None]:
    """Return the log directories, and the id of the rewrite if the last path is one."""
    *others, last = chosen.paths
    if _ID.fullmatch(last) and not os.path.isdir(last):
        if not others:
            raise UsageError(f"name the log directory before {last}")
        return chosen._replace(paths=tuple(others)), last
    return chosen, None


def _change(
    reporter: Reporter, request: RewriteRequest, rewrite_id: str, *, forget: bool
) -> list[tuple[object, ...]]:
    with opened(reporter, request) as logs, terminable():
        named = chosen_partitions(logs, request)
        if forget:
            found = logs.forget_rewrite(rewrite_id, named)
            return [_row(each, "dropped") for each in found]
        work = Work(reporter, logs, named)
        try:
            found = logs.undo(rewrite_id, named, options=RewriteOptions(progress=work.note))
        except KeyboardInterrupt:
            reporter.interrupted()
            reporter.note(
                f"interrupted: not everything is restored, and the log is sound; run the command again to go "
                f"on ('stratalog undo DIR {rewrite_id}' lists what is left)"
            )
            return []
        return [_row(each, "restored") for each in found]


def _row(each: KeptRewrite, status: str | None = None) -> tuple[object, ...]:
    kept, manifest = each.kept, each.kept.manifest
    return (
        kept.id,
        *each.topic_partition,
        None if manifest is None else manifest.verb,
        None if manifest is None else manifest.time_ms,
        kept.segments,
        kept.size_bytes,
        status or _status(each),
        kept.problem if each.plan is None else each.plan.refusal,
    )


def _status(each: KeptRewrite) -> str:
    if each.kept.manifest is None:
        return "incomplete"
    if each.plan is None:
        return "kept"
    return "refused" if each.plan.refusal is not None else "planned"


def _chunks(rows: Sequence[tuple[object, ...]]) -> Iterator[Chunk]:
    if rows:
        yield chunk_of_rows(rows)
