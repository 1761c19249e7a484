"""``stratalog spark count``: how many records log directories hold, counted on all cores."""

from __future__ import annotations

from typing import Any

import click

from stratalog.cli.commands.count import BY, FIELDS
from stratalog.cli.commands.spark_verb import SparkVerb, session_of
from stratalog.cli.counting import counted, result_of
from stratalog.cli.options import OFFSETS, Chosen, limits, partitions
from stratalog.cli.reporter import Reporter
from stratalog.inspect.result import Result

__all__ = ["command"]


@click.command(
    "count",
    cls=SparkVerb,
    short_help="Count records, batches and bytes.",
    examples=(
        (
            "Records per topic",
            "stratalog spark count logs --by topic -o table",
        ),
    ),
)
@partitions
@OFFSETS
@BY
@limits
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    chosen: Chosen,
    offsets: str | None,
    by: str | None,
    **limits: Any,
) -> Result:
    """Count the records of log directories, exactly, and print the rows of 'stratalog count'.

    Reads only batch headers. Work is split by bytes, so that one large partition becomes many tasks.
    """
    from stratalog.spark.jobs.counting.plan import count_logs, offset_range
    from stratalog.spark.jobs.counting.tasks import Counting
    from stratalog.spark.jobs.run.log_paths import LogPaths

    reporter: Reporter = ctx.obj
    wanted = offset_range(offsets)
    logs = LogPaths.of(chosen.paths)
    sources = logs.sources(chosen.topics, chosen.partitions)
    reporter.begin(sources)
    by = by or ("partition" if sources.has_folders else "file")
    with session_of(ctx) as spark:
        reporter.start_work()
        found = count_logs(
            spark,
            sources,
            Counting(logs, **limits),
            wanted,
            progress=reporter.progress,
            on_error=reporter.fail,
        )
    each = iter(found)
    return result_of(by, FIELDS[by], counted(sources, lambda *_: next(each).count, reporter))
