"""``stratalog spark import``: rows of any source that Spark reads, as records of a log directory."""

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
from stratalog.cli.reporter import Reporter
from stratalog.cli.result import Field, Kind, Result

__all__ = ["command"]

_FIELDS: Final = (
    Field("topic", Kind.TEXT),
    Field("partition", Kind.INTEGER),
    Field("records", Kind.INTEGER),
    Field("first_offset", Kind.INTEGER),
    Field("last_offset", Kind.INTEGER),
)


@click.command("import", cls=SparkVerb)
@click.argument("source", metavar="SOURCE...", nargs=-1, required=True)
@click.option("--to", required=True, metavar="DIR", help="The log directory.")
@click.option("-t", "--topic", help="The topic; created where it is missing.")
@click.option("--table", "is_table", is_flag=True, help="SOURCE is the name of a table.")
@click.option(
    "--format", "format_", default="parquet", show_default=True, metavar="NAME",
    help="Any format of Spark's: parquet, json, csv, ….",
)  # fmt: skip
@click.option("--schema", metavar="DDL", help="Of the source, where the format does not tell.")
@click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE",
    help="An option of the format, such as header=true; may be repeated.",
)  # fmt: skip
@click.option("--key", metavar="SQL", help="The key, as an expression. Default: the column key.")
@click.option(
    "--value", metavar="SQL",
    help="The value; '*' is the whole row as JSON. Default: the column value.",
)  # fmt: skip
@click.option("--timestamp", metavar="SQL", help="A time, or milliseconds. Default: the column.")
@click.option("--headers", metavar="SQL", help="A map, or what the source's column headers is.")
@click.option("--partition", metavar="SQL", help="The partition. Default: by the key.")
@click.option("--topic-from", metavar="SQL", help="The topic of each row, where -t names none.")
@click.option(
    "--order-by", metavar="SQL", multiple=True,
    help="In which order records are written. Default: of an export by offsets, else as Spark reads.",
)  # fmt: skip
@click.option(
    "--partitions", type=click.IntRange(min=1), metavar="N", help="How many a new topic gets."
)
@click.option(
    "-z", "--compression", type=click.Choice(("none", "gzip", "snappy", "lz4", "zstd")),
    default="none", help="Compress the batches.",
)  # fmt: skip
@click.option(
    "-c", "--config", "configs", multiple=True, metavar="NAME=VALUE",
    help="A config of a new topic; may be repeated.",
)  # fmt: skip
@click.option("--txn-app-id", metavar="NAME", help="With --txn-version: this import happens once.")
@click.option(
    "--txn-version", type=click.IntRange(min=0), metavar="N", help="Rises from import to import."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be written.")
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
    """Write the rows of Parquet, JSON, CSV, a table, or whatever else Spark reads, into a log directory.

    All rows become visible together. With --txn-app-id and --txn-version a second try of the same
    import finds the first, and writes nothing. A row a partition says what it got.
    """
    from stratalog.spark.jobs.importing.import_rows import import_rows

    reporter: Reporter = ctx.obj
    columns = {name: text for name, text in expressions.items() if text is not None}
    if topic_from is not None:
        columns["topic"] = topic_from
    write_options = {**pairs(configs, "--config"), "compression": compression}
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
        reporter.note("it is done; where its records are is not told apart from what others wrote")
    return result_of_rows(_FIELDS, [astuple(each) for each in report.partitions or ()])
