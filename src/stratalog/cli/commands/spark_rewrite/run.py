"""Run a rewrite on Spark for the command line: the plan's rows, or what was done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stratalog.cli.commands.spark_verb import session_of
from stratalog.cli.reporter import Reporter
from stratalog.cli.rewrite_options import RewriteRequest
from stratalog.cli.rewriting import done_result, plan_result, terminable
from stratalog.inspect.result import Result
from stratalog.manager.rewrites import RewriteOptions

if TYPE_CHECKING:
    from stratalog.spark.jobs.rewriting.work import SparkRewrite

__all__ = ["run_on_spark"]


def run_on_spark(ctx: click.Context, request: RewriteRequest, rewrite: SparkRewrite) -> Result:
    """Return the rows of the plan; with ``--write``, carry the rewrite out and return what was done."""
    from stratalog.spark.jobs.rewriting.rewrite import RewriteJob

    reporter: Reporter = ctx.obj
    done = 0

    def note(size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        reporter.progress(done)

    options = RewriteOptions(
        configs=request.configs,
        roll=request.roll,
        keep_undo=request.keep_undo,
        manifest=request.manifest,
        max_bytes=request.max_bytes,
        max_seconds=request.max_seconds,
        progress=note,
    )
    chosen = request.chosen
    job = RewriteJob(chosen.paths, rewrite, options, write=request.write)
    with terminable():
        # What is wrong is said before Java starts.
        job.plan(chosen.topics, chosen.partitions)
        reporter.start_work(job.work_bytes)
        if job.needs_spark:
            with session_of(ctx) as spark:
                report = job.run(spark)
        else:
            report = job.run(None)
    if request.write:
        return done_result(reporter, request, report)
    return plan_result(reporter, report.partitions)
