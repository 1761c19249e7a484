"""``stratalog spark verify``: every CRC and record of log directories, checked on all cores."""

from __future__ import annotations

import errno
from typing import Any

import click

from stratalog.cli.commands.spark_verb import SparkVerb, result_of_rows, session_of
from stratalog.cli.commands.verify import FIELDS, row_of, sentence_of
from stratalog.cli.options import limits, partitions
from stratalog.cli.reporter import Reporter
from stratalog.cli.result import Result
from stratalog.errors import StorageError

__all__ = ["command"]


@click.command("verify", cls=SparkVerb)
@partitions
@click.option("--deep", is_flag=True, help="Decompress and decode every record, too.")
@click.option("--gaps", is_flag=True, help="Note missing offsets. Compaction leaves some, rightly.")
@limits
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    paths: tuple[str, ...],
    topics: tuple[str, ...] | None,
    partitions: str | None,
    **settings: Any,
) -> Result:
    """Check every CRC, the order of offsets, and the lengths and counts of batches: what 'stratalog
    verify' answers.

    Tasks are cut by bytes, at batches: one large segment is several.
    """
    from stratalog.spark.jobs.log_paths import LogPaths
    from stratalog.spark.jobs.verify_plan import verify_logs
    from stratalog.spark.jobs.verify_tasks import Verifying

    reporter: Reporter = ctx.obj
    logs = LogPaths.of(paths)
    sources = logs.sources(topics, partitions)
    reporter.begin(sources)
    for note in sources.notes:
        reporter.note(note)
    listed = {path for each in sources.partitions if each.is_listed for path in each.segments}

    def refused(error: StorageError) -> None:
        if error.errno == errno.ENOENT and error.path in listed:
            reporter.warn_vanished(error.path)
        else:
            reporter.fail(error)

    with session_of(ctx) as spark:
        reporter.start_work()
        reports = list(
            verify_logs(
                spark,
                sources,
                Verifying(logs, **settings),
                progress=reporter.progress,
                on_error=refused,
            )
        )
    if any(report.status != "ok" for report in reports):
        reporter.found()
    notes = [sentence_of(finding) for report in reports for finding in report.findings]
    return result_of_rows(FIELDS, [row_of(report) for report in reports], notes)
