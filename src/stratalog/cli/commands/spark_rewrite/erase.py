"""``stratalog spark erase``: remove records by key or condition, with all cores of a cluster."""

from __future__ import annotations

import click

from stratalog.cli.commands.spark_rewrite.run import run_on_spark
from stratalog.cli.commands.spark_verb import SparkVerb
from stratalog.cli.key_options import keys_in_files
from stratalog.cli.rewrite_options import RewriteRequest, rewriting
from stratalog.inspect.result import Result
from stratalog.rewrite.erase.keys import KeySet

__all__ = ["command"]


@click.command(
    "erase",
    cls=SparkVerb,
    short_help="Remove records by key, or by a condition.",
    examples=(
        (
            "Show how many records of a key there are",
            "stratalog spark erase logs -t orders --key customer-7",
        ),
        (
            "Erase them, also in the active segment",
            "stratalog spark erase logs -t orders --key customer-7 --roll --write",
        ),
    ),
)
@rewriting
@keys_in_files
@click.option(
    "--where",
    metavar="CONDITION",
    help="Also records that meet this condition, such as \"header.user = 'ada'\".",
)
@click.pass_context
def command(
    ctx: click.Context, /, *, request: RewriteRequest, keys: KeySet, where: str | None
) -> Result:
    """Remove the records with certain keys, or that meet a condition, as 'stratalog erase' does.

    All segments of a log directory are replaced by one commit: once, or not at all. Without --write, prints
    how many records match.
    """
    from stratalog.rewrite.erase.condition import parse_condition
    from stratalog.rewrite.erase.erasure import Erase
    from stratalog.rewrite.erase.search import Targets
    from stratalog.spark.jobs.rewriting.segmentwise import Segmentwise

    condition = None if where is None else parse_condition(where)
    return run_on_spark(ctx, request, Segmentwise(Erase(Targets(keys, condition))))
