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
from stratalog.cli.options import SIZE, Chosen, partitions
from stratalog.cli.reporter import Reporter
from stratalog.inspect.result import Field, Kind, Result

__all__ = ["command"]

_FIELDS: Final = (
    Field("topic", Kind.TEXT),
    Field("partition", Kind.INTEGER),
    Field("start_offset", Kind.INTEGER),
    Field("end_offset", Kind.INTEGER),
    Field("log_bytes", Kind.INTEGER),
)


@click.command(
    "export",
    cls=SparkVerb,
    short_help="Export records as Parquet, JSON or any Spark table.",
    examples=(
        (
            "Export a topic as Parquet",
            "stratalog spark export logs -t orders --to out",
        ),
        (
            "Export what is new since the last run, exactly once",
            "stratalog spark export logs -t orders --to out --checkpoint out-checkpoint",
        ),
    ),
)
@partitions
@click.option(
    "--to", required=True, metavar="PATH", help="Target path, or table name with --table."
)
@click.option("--table", "is_table", is_flag=True, help="Treat --to as the name of a table.")
@click.option(
    "--format", "format_", default="parquet", show_default=True, metavar="NAME",
    help="Any format that Spark writes: parquet, json, orc, csv, ….",
)  # fmt: skip
@click.option(
    "--decode", type=click.Choice(("binary", "text", "json")), default="binary", show_default=True,
    help="Type of keys and values. Bytes that cannot be decoded are kept in key_raw and value_raw.",
)  # fmt: skip
@click.option("--schema", metavar="DDL", help="Schema of JSON values: 'id bigint, at timestamp'.")
@click.option("--where", metavar="SQL", help="Export only records for which this condition holds.")
@click.option(
    "--partition-by", default="topic,date", show_default=True, metavar="A,B",
    help="Partition the output by these columns, or '' for none.",
)  # fmt: skip
@click.option(
    "--checkpoint", metavar="PATH",
    help="Export only what is new since the last run with this checkpoint, each record once.",
)  # fmt: skip
@click.option(
    "--batch-bytes", type=SIZE, default="1GiB", show_default=True,
    help="Log bytes to export per batch. Only with --checkpoint.",
)  # fmt: skip
@click.option(
    "--mode", type=click.Choice(("errorifexists", "append", "overwrite")),
    help="What to do if the target exists. Only without --checkpoint. Default: errorifexists.",
)  # fmt: skip
@click.option("--committed", is_flag=True, help="Leave out aborted and open transactions.")
@click.option(
    "--allow-loss", is_flag=True,
    help="Continue if records were deleted before they were exported. Only with --checkpoint.",
)  # fmt: skip
@click.option(
    "--skip-damaged", is_flag=True,
    help="Continue at the next intact batch after damage. Default: stop a partition at its damage.",
)  # fmt: skip
@click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE",
    help="Option of the format, such as compression=zstd. May be repeated.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print what would be written, and write nothing.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    chosen: Chosen,
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
    """Export the records of log directories as Parquet, JSON, or any other format or table of Spark.

    Columns: topic, partition, offset, timestamp, timestampType, key, value, headers, and date, the
    record's day in UTC. With --checkpoint, each run exports what is new, exactly once, even if an
    earlier run was killed. Prints one row per partition with the offsets that were exported.

    If a partition is damaged, its records before the damage and all other partitions are exported.
    stderr lists what was left out and where reading can resume, and the exit code is 1. With
    --checkpoint, such a run fails unless --skip-damaged is given.
    """
    from stratalog.spark.jobs.exporting.export import export

    reporter: Reporter = ctx.obj
    given = pairs(options, "--option")
    with session_of(ctx) as spark:
        report = export(
            spark,
            chosen.paths,
            to,
            format=format_,
            is_table=is_table,
            topics=chosen.topics,
            partitions=chosen.partitions,
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
