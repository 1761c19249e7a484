"""``stratalog delete-records``: raise the log start offset of a partition."""

from __future__ import annotations

from typing import Final

import click

from stratalog.cli.options import Chosen, partitions
from stratalog.cli.reporter import Reporter
from stratalog.cli.rewrite_options import WRITE, RewriteRequest
from stratalog.cli.rewriting import chosen_partitions, opened
from stratalog.cli.verb import Verb
from stratalog.errors import UsageError
from stratalog.inspect.result import Field, Kind, Result, chunk_of_rows
from stratalog.manager.logs import Logs
from stratalog.types import TopicPartition

__all__ = ["FIELDS", "command"]

FIELDS: Final = (
    Field("topic", Kind.TEXT),
    Field("partition", Kind.INTEGER),
    Field("status", Kind.TEXT),
    Field("start_offset", Kind.INTEGER),
    Field("new_start_offset", Kind.INTEGER),
    Field("end_offset", Kind.INTEGER),
)


@click.command(
    "delete-records",
    cls=Verb,
    short_help="Delete the records before an offset.",
    examples=(
        (
            "Show what deleting the records before offset 2 would do",
            "stratalog delete-records logs -t orders -p 0 --before 2",
        ),
    ),
)
@partitions
@click.option(
    "--before",
    "offset",
    type=click.IntRange(min=-1),
    required=True,
    metavar="OFFSET",
    help="The new log start offset; -1 is the high watermark, and deletes everything.",
)
@WRITE
@click.pass_obj
def command(reporter: Reporter, /, *, chosen: Chosen, offset: int, write: bool) -> Result:
    """Raise the log start offset of partitions, as Kafka's delete-records does.

    Records before it are not shown any more, and the next retention deletes the segments that hold only such
    records. If one of the partitions does not have the offset, or its topic is compacted and its
    cleanup.policy lacks delete, nothing is deleted. Without --write, nothing is changed.
    """
    if chosen.topics is None:
        raise UsageError("name the topic whose records are to be deleted with -t")
    request = RewriteRequest(chosen, {}, write, False, None, False, None, None)
    request.check()
    with opened(reporter, request, read_only=not write) as logs:
        named = chosen_partitions(logs, request)
        # All are checked before the first is changed.
        starts = [logs.plan_delete_records(*each, offset) for each in named]
        rows = [_row(logs, each, start, write) for each, start in zip(named, starts, strict=True)]
    done = "records were deleted" if any(row[2] == "deleted" for row in rows) else ""
    return Result(fields=FIELDS, chunks=iter([chunk_of_rows(rows)] if rows else []), done=done)


def _row(
    logs: Logs, topic_partition: TopicPartition, wanted: int, write: bool
) -> tuple[object, ...]:
    start, end = logs.earliest(*topic_partition), logs.latest(*topic_partition)
    new = logs.delete_records(*topic_partition, wanted) if write else wanted
    status = "unchanged" if new == start else "deleted" if write else "planned"
    return (*topic_partition, status, start, new, end)
