"""``stratalog spark stat``: what every header of log directories tells, partition by partition."""

from __future__ import annotations

from typing import Any, Final

import click

from stratalog.cli.commands.spark_verb import SparkVerb, result_of_rows, session_of
from stratalog.cli.counting import counted
from stratalog.cli.options import Chosen, limits, partitions
from stratalog.cli.reporter import Reporter
from stratalog.inspect.result import Field, Kind, Result

__all__ = ["command"]

_KINDS: Final = {
    "string": Kind.TEXT,
    "int": Kind.INTEGER,
    "bigint": Kind.INTEGER,
    "map<string,bigint>": Kind.JSON,
}
_TIMES: Final = ("first_time", "last_time")
#: What a table has room for.
_SHOWN: Final = frozenset(
    {
        "topic", "partition", "segments", "records", "start_offset", "end_offset", "log_bytes",
        "last_time", "codecs", "batches", "batch_bytes_mean", "batch_records_mean", "status",
    }
)  # fmt: skip


@click.command(
    "stat",
    cls=SparkVerb,
    short_help="Summarize batch headers: sizes, times, codecs, formats.",
    examples=(
        (
            "Summarize one topic",
            "stratalog spark stat logs -t orders -o table",
        ),
    ),
)
@partitions
@limits
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    chosen: Chosen,
    **limits: Any,
) -> Result:
    """Summarize the batch headers of each partition: records, bytes, offsets, timestamps, codecs, formats,
    batch sizes and transactions.

    Prints one row per partition. A table shows some of the columns; the other outputs have all.
    """
    from stratalog.spark.jobs.counting.plan import count_logs
    from stratalog.spark.jobs.counting.stat import COLUMNS, row_of
    from stratalog.spark.jobs.counting.tasks import Counting
    from stratalog.spark.jobs.run.log_paths import LogPaths

    reporter: Reporter = ctx.obj
    logs = LogPaths.of(chosen.paths)
    sources = logs.sources(chosen.topics, chosen.partitions)
    reporter.begin(sources)
    for note in sources.notes:
        reporter.note(note)
    with session_of(ctx) as spark:
        reporter.start_work()
        found = count_logs(
            spark,
            sources,
            Counting(logs, times=True, stats=True, **limits),
            every_segment=True,
            name="stat",
            progress=reporter.progress,
            on_error=reporter.fail,
        )
    fields = tuple(
        Field(name, Kind.TIME if name in _TIMES else _KINDS[kind], in_table=name in _SHOWN)
        for name, kind in COLUMNS.items()
    )
    each, by_count = iter(found), {id(log.count): log for log in found}
    told = counted(sources, lambda *_: next(each).count, reporter)
    return result_of_rows(fields, [tuple(row_of(by_count[id(count)]).values()) for count in told])
