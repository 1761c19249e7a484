"""``stratalog spark verify``: every file of log directories, checked on all cores."""

from __future__ import annotations

from typing import Any

import click

from stratalog.cli.commands.spark_verb import SparkVerb, result_of_rows, session_of
from stratalog.cli.commands.verify import FIELDS, errors_of, row_of, sentence_of
from stratalog.cli.options import Chosen, checks, limits, partitions
from stratalog.cli.reporter import Reporter
from stratalog.errors import StorageError
from stratalog.inspect.partition.partition_filter import partition_filter
from stratalog.inspect.result import Result

__all__ = ["command"]


@click.command(
    "verify",
    cls=SparkVerb,
    short_help="Check every file, and whether records are missing.",
    examples=(
        (
            "Check a log directory and decode every record",
            "stratalog spark verify logs --deep -o table",
        ),
    ),
)
@partitions
@checks
@limits
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    chosen: Chosen,
    **settings: Any,
) -> Result:
    """Check every file of log directories, and whether records are missing, and print the rows of
    'stratalog verify'.

    Data files are checked in tasks of about the same size; a large segment becomes several. The other
    files are checked on the driver.
    """
    from stratalog.spark.jobs.run.log_paths import LogPaths
    from stratalog.spark.jobs.verifying.plan import verify_logs
    from stratalog.spark.jobs.verifying.tasks import Verifying

    reporter: Reporter = ctx.obj
    logs = LogPaths.of(chosen.paths)
    wanted = partition_filter(chosen.topics, chosen.partitions)
    refused: list[StorageError] = []
    sources = logs.sources_of(wanted, refused.append)
    reporter.begin(sources)
    for error in refused:
        reporter.fail(error)
    for note in sources.notes:
        reporter.note(note)
    with session_of(ctx) as spark:
        reporter.start_work()
        reports = list(
            verify_logs(
                spark,
                sources,
                Verifying(logs, **settings),
                wanted=wanted,
                refused=tuple(refused),
                progress=reporter.progress,
                on_error=errors_of(sources, reporter),
            )
        )
    if any(report.status != "ok" for report in reports):
        reporter.found()
    notes = [sentence_of(finding) for report in reports for finding in report.findings]
    return result_of_rows(FIELDS, [row_of(report) for report in reports], notes)
