"""``stratalog spark``: jobs on Spark, each a command of its own.

Nothing of Spark is imported before a job runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from stratalog.cli.examples import WithExamples

__all__ = ["Jobs", "command"]

#: Each job, and its module in this package.
JOBS: Final = {
    "count": "spark_count",
    "stat": "spark_stat",
    "verify": "spark_verify",
    "export": "spark_export",
    "import": "spark_import",
    "mirror": "spark_mirror",
    "compact": "spark_rewrite.compact",
    "erase": "spark_rewrite.erase",
    "recompress": "spark_rewrite.recompress",
    "upgrade": "spark_rewrite.upgrade",
    "salvage": "spark_rewrite.salvage",
}


class Jobs(WithExamples, click.Group):
    """Find jobs by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(JOBS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in JOBS:
            return None
        found: click.Command = import_module(f"stratalog.cli.commands.{JOBS[cmd_name]}").command
        return found


@click.command(
    "spark",
    cls=Jobs,
    no_args_is_help=True,
    short_help="Run jobs over whole log directories on Apache Spark.",
    examples=(("Count a log directory on all cores", "stratalog spark count logs"),),
)
def command() -> None:
    """Run jobs over whole log directories on Apache Spark, on all cores or on a cluster.

    Needs 'pip install stratalog[spark]' and Java 17 or newer. Without --master, a job runs on this
    machine. On a cluster, the package must be installed on the workers, and they must see the same
    paths.
    """
