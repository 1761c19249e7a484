"""``stratalog spark import``: rows of any source that Spark reads, as records of a log directory."""

from __future__ import annotations

from dataclasses import astuple

import click

from stratalog.cli.commands.produce import FIELDS
from stratalog.cli.commands.spark_verb import (
    SparkVerb,
    pairs,
    result_of_rows,
    session_of,
)
from stratalog.cli.options import new_topic
from stratalog.cli.reporter import Reporter
from stratalog.inspect.result import Result

__all__ = ["command"]


@click.command(
    "import",
    cls=SparkVerb,
    short_help="Import Parquet, JSON, CSV or any Spark table into a topic.",
    examples=(
        (
            "Import JSON lines, each row as a JSON value",
            "stratalog spark import orders.json --format json --to logs -t imported --value '*'",
        ),
    ),
)
@click.argument("source", metavar="SOURCE...", nargs=-1, required=True)
@click.option("--to", required=True, metavar="DIR", help="Log directory to write to.")
@click.option("-t", "--topic", help="Topic to write to. Created if it does not exist.")
@click.option("--table", "is_table", is_flag=True, help="Treat SOURCE as the name of a table.")
@click.option(
    "--format", "format_", default="parquet", show_default=True, metavar="NAME",
    help="Any format that Spark reads: parquet, json, csv, ….",
)  # fmt: skip
@click.option("--schema", metavar="DDL", help="Schema of the source, if the format has none.")
@click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE",
    help="Option of the format, such as header=true. May be repeated.",
)  # fmt: skip
@click.option("--key", metavar="SQL", help="Expression for the key. Default: column key.")
@click.option(
    "--value", metavar="SQL",
    help="Expression for the value, or '*' for the whole row as JSON. Default: column value.",
)  # fmt: skip
@click.option(
    "--timestamp",
    metavar="SQL",
    help="Expression for the timestamp, or for milliseconds. Default: column timestamp.",
)
@click.option(
    "--headers", metavar="SQL", help="Expression for the headers, a map. Default: column headers."
)
@click.option(
    "--partition",
    metavar="SQL",
    help="Expression for the partition. Default: column partition, or hash of the key.",
)
@click.option(
    "--topic-from", metavar="SQL", help="Expression for the topic of each row. Only without -t."
)
@click.option(
    "--order-by", metavar="SQL", multiple=True,
    help="Order of the records. Default: offsets for an export, otherwise as Spark reads the files.",
)  # fmt: skip
@new_topic
@click.option(
    "--txn-app-id",
    metavar="NAME",
    help="Name of this import. With --txn-version, it is written once.",
)
@click.option(
    "--txn-version",
    type=click.IntRange(min=0),
    metavar="N",
    help="Version of this import. A version at or below the last one is not written.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be written, and write nothing.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    source: tuple[str, ...],
    to: str,
    topic: str | None,
    is_table: bool,
    format_: str,
    schema: str | None,
    options: tuple[str, ...],
    topic_from: str | None,
    order_by: tuple[str, ...],
    partitions: int | None,
    compression: str,
    configs: tuple[str, ...],
    txn_app_id: str | None,
    txn_version: int | None,
    dry_run: bool,
    **expressions: str | None,
) -> Result:
    """Import rows of Parquet, JSON, CSV, a table, or any other source of Spark into a log directory.

    All rows become visible together. With --txn-app-id and --txn-version, running the same import
    again writes nothing. Prints one row per partition with the offsets that were written.
    """
    from stratalog.spark.jobs.importing.import_rows import import_rows

    reporter: Reporter = ctx.obj
    columns = {name: text for name, text in expressions.items() if text is not None}
    if topic_from is not None:
        columns["topic"] = topic_from
    write_options = {**pairs(configs, "--topic-config"), "compression": compression}
    if partitions is not None:
        write_options["partitions"] = str(partitions)
    reading = pairs(options, "--option")
    with session_of(ctx) as spark:
        report = import_rows(
            spark,
            source[0] if is_table and len(source) == 1 else source,
            to,
            topic=topic,
            columns=columns,
            order_by=order_by or None,
            format=format_,
            is_table=is_table,
            schema=schema,
            options=reading,
            write_options=write_options,
            txn_app_id=txn_app_id,
            txn_version=txn_version,
            dry_run=dry_run,
            progress=reporter.progress,
            on_plan=reporter.start_work,
        )
    if report.was_done_before:
        reporter.note(f"{txn_app_id} {txn_version} was imported before: nothing was written")
    if dry_run:
        reporter.note(f"a dry run: nothing was written to {to}")
    if report.partitions is None and not report.was_done_before:
        reporter.note(
            "the import is committed; its offsets are unknown, because other commits ran at the same time"
        )
    return result_of_rows(FIELDS, [astuple(each) for each in report.partitions or ()])
