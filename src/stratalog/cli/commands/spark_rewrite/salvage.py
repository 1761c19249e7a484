"""``stratalog spark salvage``: save what is intact of damaged partitions, with all cores of a cluster."""

from __future__ import annotations

import click

from stratalog.cli.commands.spark_verb import SparkVerb, session_of
from stratalog.cli.reporter import Reporter
from stratalog.cli.rewriting import terminable
from stratalog.cli.salvaging import SalvageRequest, salvage_result, salvaging
from stratalog.inspect.result import Result

__all__ = ["command"]


@click.command(
    "salvage",
    cls=SparkVerb,
    prints_to_file=False,
    short_help="Save what is intact of damaged partitions elsewhere.",
    examples=(
        ("Show what would be kept and lost", "stratalog spark salvage logs -o table"),
        (
            "Write a new log directory without the damage",
            "stratalog spark salvage logs -t orders --out salvaged --write",
        ),
    ),
)
@salvaging
@click.pass_context
def command(ctx: click.Context, /, *, request: SalvageRequest) -> Result:
    """Save what is intact of damaged partitions into a new log directory, as 'stratalog salvage' does.

    Tasks read and write one segment each, so that a partition is salvaged by many of them. The new directory
    gets its name when it is complete. The original never changes. The exit code is 1 if anything is lost.
    """
    from stratalog.spark.jobs.salvaging.salvage import SalvageJob

    reporter: Reporter = ctx.obj
    chosen = request.chosen
    job = SalvageJob(chosen.paths, request.target, request.options)
    # What is wrong is said before Java starts.
    job.find(chosen.topics, chosen.partitions)
    with terminable(), session_of(ctx) as spark:
        reporter.start_work(job.survey_bytes)
        job.plan(spark, reporter.fail, reporter.progress)
        if request.write and reporter.error is None:
            reporter.start_work(job.write_bytes)
            job.write(spark, reporter.progress)
    return salvage_result(reporter, request, job.plans)
