"""``stratalog spark mirror``: topics copied into another log directory, with every offset kept."""

from __future__ import annotations

from dataclasses import astuple
from typing import Final

import click

from stratalog.cli.commands.spark_verb import SparkVerb, result_of_rows, session_of
from stratalog.cli.options import Chosen, partitions
from stratalog.cli.reporter import Reporter
from stratalog.inspect.result import Field, Kind, Result

__all__ = ["command"]

_FIELDS: Final = (
    Field("topic", Kind.TEXT),
    Field("partition", Kind.INTEGER),
    Field("start_offset", Kind.INTEGER),
    Field("end_offset", Kind.INTEGER),
    Field("records", Kind.INTEGER),
    Field("batches", Kind.INTEGER),
    Field("size_bytes", Kind.INTEGER),
)


@click.command(
    "mirror",
    cls=SparkVerb,
    short_help="Copy topics to another log directory with all offsets.",
    examples=(
        (
            "Copy a log directory; run again to copy what is new",
            "stratalog spark mirror logs --to copy",
        ),
    ),
)
@partitions
@click.option("--to", required=True, metavar="DIR", help="Log directory to copy to.")
@click.option(
    "--allow-loss",
    is_flag=True,
    help="Continue if the source deleted records before they were copied.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be copied, and copy nothing.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    chosen: Chosen,
    to: str,
    allow_loss: bool,
    dry_run: bool,
) -> Result:
    """Copy topics to another log directory, batch for batch, with offsets, timestamps, headers, codecs and
    the gaps that compaction left.

    A further run copies what is new, even if an earlier one was killed. Prints one row per partition
    with the offsets that were copied.
    """
    from stratalog.spark.jobs.mirroring.mirror import mirror

    reporter: Reporter = ctx.obj
    with session_of(ctx) as spark:
        report = mirror(
            spark,
            chosen.paths,
            to,
            topics=chosen.topics,
            partitions=chosen.partitions,
            allow_loss=allow_loss,
            dry_run=dry_run,
            progress=reporter.progress,
            on_plan=reporter.start_work,
            on_error=reporter.fail,
        )
    for warning in report.warnings:
        reporter.warn(warning)
    if dry_run:
        reporter.note(f"a dry run: nothing was copied to {to}")
    return result_of_rows(_FIELDS, [astuple(each) for each in report.partitions])
