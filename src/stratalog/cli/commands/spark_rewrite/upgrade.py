"""``stratalog spark upgrade``: messages of magic 0 and 1 become batches, with all cores of a cluster."""

from __future__ import annotations

import click

from stratalog.cli.commands.spark_rewrite.run import run_on_spark
from stratalog.cli.commands.spark_verb import SparkVerb
from stratalog.cli.rewrite_options import RewriteRequest, rewriting
from stratalog.inspect.result import Result

__all__ = ["command"]


@click.command(
    "upgrade",
    cls=SparkVerb,
    short_help="Upgrade messages of magic 0 and 1 to magic 2.",
    examples=(("Show what would be upgraded", "stratalog spark upgrade logs"),),
)
@rewriting
@click.pass_context
def command(ctx: click.Context, /, *, request: RewriteRequest) -> Result:
    """Turn messages of magic 0 and 1 into batches of magic 2, as 'stratalog upgrade' does.

    All segments of a log directory are replaced by one commit: once, or not at all. Without --write, prints
    the plan.
    """
    from stratalog.rewrite.upgrade import Upgrade
    from stratalog.spark.jobs.rewriting.segmentwise import Segmentwise

    return run_on_spark(ctx, request, Segmentwise(Upgrade()))
