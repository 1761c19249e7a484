"""``stratalog spark export``: records into Parquet, JSON or a table."""

from __future__ import annotations

from dataclasses import astuple
from typing import Final

import click

from stratalog.cli.commands.spark_verb import (
    SparkVerb,
    pairs,
    result_of_rows,
    session_of,
)
from stratalog.cli.options import SIZE, partitions
from stratalog.cli.reporter import Reporter
from stratalog.cli.result import Field, Kind, Result

__all__ = ["command"]

_FIELDS: Final = (
    Field("topic", Kind.TEXT),
    Field("partition", Kind.INTEGER),
    Field("start_offset", Kind.INTEGER),
    Field("end_offset", Kind.INTEGER),
    Field("log_bytes", Kind.INTEGER),
)


@click.command("export", cls=SparkVerb)
@partitions
@click.option("--to", required=True, metavar="PATH", help="Where to: a path, or a table.")
@click.option("--table", "is_table", is_flag=True, help="--to is the name of a table.")
@click.option(
    "--format", "format_", default="parquet", show_default=True, metavar="NAME",
    help="Any format of Spark's: parquet, json, orc, csv, ….",
)  # fmt: skip
@click.option(
    "--decode", type=click.Choice(("binary", "text", "json")), default="binary", show_default=True,
    help="What keys and values become. Bytes that are none of it stand in key_raw and value_raw.",
)  # fmt: skip
@click.option("--schema", metavar="DDL", help="Of JSON values: 'id bigint, at timestamp'.")
@click.option("--where", metavar="SQL", help="Only records for which this is true.")
@click.option(
    "--partition-by", default="topic,date", show_default=True, metavar="A,B",
    help="Folders by these columns; '' for none.",
)  # fmt: skip
@click.option(
    "--checkpoint", metavar="PATH",
    help="Write only what is new since the last run with this checkpoint, each record once.",
)  # fmt: skip
@click.option(
    "--batch-bytes", type=SIZE, default="1GiB", show_default=True,
    help="With a checkpoint: how much of the log is written at a time.",
)  # fmt: skip
@click.option(
    "--mode", type=click.Choice(("errorifexists", "append", "overwrite")),
    help="Without a checkpoint: what to do where something is there. Default: errorifexists.",
)  # fmt: skip
@click.option(
    "--committed", is_flag=True, help="Leave out transactions that were aborted, or are open."
)
@click.option(
    "--allow-loss", is_flag=True,
    help="With a checkpoint: go on where records were deleted before they were exported.",
)  # fmt: skip
@click.option(
    "--skip-damaged", is_flag=True,
    help="Go on at the next intact batch after damage. Default: write a damaged partition up to the damage.",
)  # fmt: skip
@click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE",
    help="An option of the format, such as compression=zstd; may be repeated.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only say what would be written.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    paths: tuple[str, ...],
    topics: tuple[str, ...] | None,
    partitions: str | None,
    to: str,
    is_table: bool,
    format_: str,
    decode: str,
    schema: str | None,
    where: str | None,
    partition_by: str,
    checkpoint: str | None,
    batch_bytes: int,
    mode: str | None,
    committed: bool,
    allow_loss: bool,
    skip_damaged: bool,
    options: tuple[str, ...],
    dry_run: bool,
) -> Result:
    """Write the records of log directories as Parquet, JSON, or whatever else Spark writes.

    Columns: topic, partition, offset, timestamp, timestampType, key, value, headers, and date, the
    record's day in UTC. With --checkpoint a run writes what is new, exactly once, also when one
    was killed before. A row a partition says which offsets were written.

    A damaged partition is written up to the damage and the others whole; stderr says what was left
    out and where reading can resume, and the exit code is 1. With --checkpoint such a run fails, unless
    --skip-damaged is given.
    """
    from stratalog.spark.jobs.exporting.export import export

    reporter: Reporter = ctx.obj
    given = pairs(options, "--option")
    with session_of(ctx) as spark:
        report = export(
            spark,
            paths,
            to,
            format=format_,
            is_table=is_table,
            topics=topics,
            partitions=partitions,
            where=where,
            decode=decode,
            schema=schema,
            partition_by=[name.strip() for name in partition_by.split(",") if name.strip()],
            checkpoint=checkpoint,
            mode=mode,
            committed=committed,
            allow_loss=allow_loss,
            on_damage="skip" if skip_damaged else "fail" if checkpoint else "stop",
            batch_bytes=batch_bytes,
            options=given,
            dry_run=dry_run,
            progress=reporter.progress,
            on_plan=reporter.start_work,
        )
    rows = [astuple(each) for each in report.partitions]
    for warning in report.warnings:
        reporter.warn(warning)
    for damage in report.left_out:
        reporter.left_out(damage, is_skipping=report.is_skipping)
    if dry_run:
        reporter.note(f"a dry run: nothing was written to {to}")
    else:
        reporter.note(f"{report.records} records were written to {to}")
    return result_of_rows(_FIELDS, rows)
