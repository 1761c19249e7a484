"""``stratalog spark recompress``: another codec for batches, with all cores of a cluster."""

from __future__ import annotations

import click

from stratalog.cli.commands.spark_rewrite.run import run_on_spark
from stratalog.cli.commands.spark_verb import SparkVerb
from stratalog.cli.rewrite_options import RewriteRequest, rewriting
from stratalog.inspect.result import Result
from stratalog.records.layout import CODECS

__all__ = ["command"]


@click.command(
    "recompress",
    cls=SparkVerb,
    short_help="Compress batches with another codec or level.",
    examples=(
        ("Show what would be compressed", "stratalog spark recompress logs -t orders -z zstd"),
        (
            "Compress with zstd at level 9",
            "stratalog spark recompress logs -t orders -z zstd --level 9 --write",
        ),
    ),
)
@rewriting
@click.option(
    "-z",
    "--compression",
    required=True,
    type=click.Choice(tuple(CODECS)),
    help="Codec that batches are to have; 'none' decompresses them.",
)
@click.option("--level", type=int, metavar="N", help="Level of gzip, lz4 or zstd.")
@click.option("--force", is_flag=True, help="Also compress batches that have the codec already.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    request: RewriteRequest,
    compression: str,
    level: int | None,
    force: bool,
) -> Result:
    """Compress batches with another codec or level, as 'stratalog recompress' does.

    All segments of a log directory are replaced by one commit: once, or not at all. Without --write, prints
    the plan.
    """
    from stratalog.rewrite.recompress import Recompress, codec_named
    from stratalog.spark.jobs.rewriting.segmentwise import Segmentwise

    rewrite = Recompress(codec_named(compression), level, force=force)
    return run_on_spark(ctx, request, Segmentwise(rewrite))
