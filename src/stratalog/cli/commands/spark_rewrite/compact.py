"""``stratalog spark compact``: keep the newest record of each key, where the keys outgrow one machine."""

from __future__ import annotations

import click

from stratalog.cli.commands.spark_rewrite.run import run_on_spark
from stratalog.cli.commands.spark_verb import SparkVerb
from stratalog.cli.rewrite_options import RewriteRequest, rewriting
from stratalog.errors import UsageError
from stratalog.inspect.result import Result

__all__ = ["command"]


@click.command(
    "compact",
    cls=SparkVerb,
    short_help="Keep the newest record of each key.",
    examples=(
        ("Show what would be compacted", "stratalog spark compact logs -t orders"),
        ("Compact the topic", "stratalog spark compact logs -t orders --roll --write"),
    ),
)
@rewriting
@click.pass_context
def command(ctx: click.Context, /, *, request: RewriteRequest) -> Result:
    """Compact topics as Kafka's log cleaner does: of each key only the newest record stays, at its offset.

    A shuffle finds the newest offset of each key, so that the keys need not fit in any one memory. The log
    directory is locked while the work is planned and while the new segments are put in place. If others
    change the segments in between, nothing is replaced. Without --write, prints the plan.
    """
    from stratalog.spark.jobs.rewriting.compacting import Compacting

    if request.chosen.topics is None:
        raise UsageError("compaction removes records: name the topics to compact with -t")
    return run_on_spark(ctx, request, Compacting())
