"""A verb of the command line: a command that returns a :class:`Result`; showing it is not its business."""

from __future__ import annotations

import sys
from typing import Any

import click

from stratalog.cli.render import FORMATS, check_output, choose_output, render
from stratalog.cli.reporter import Reporter
from stratalog.cli.result import Result
from stratalog.cli.terminal import forget_stdout

__all__ = ["Verb"]


class Verb(click.Command):
    """Adds ``-o`` and ``--out``, hands the command a reporter, shows what it returns."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params += [
            click.Option(
                ["-o", "--output"],
                type=click.Choice(list(FORMATS)),
                help="How to show it. Default: table on a terminal, ndjson elsewhere.",
            ),
            click.Option(
                ["--out"],
                type=click.Path(),
                metavar="FILE",
                help="Write to a new file; its suffix says how, where -o does not.",
            ),
        ]

    def invoke(self, ctx: click.Context) -> None:
        output = choose_output(
            ctx.params.pop("output"),
            ctx.params.pop("out"),
            is_terminal=sys.stdout is not None and sys.stdout.isatty(),
        )
        check_output(output)
        reporter = ctx.obj = Reporter()
        try:
            result: Result = super().invoke(ctx)
            try:
                render(result, output, before_output=reporter.erase_progress)
            except BrokenPipeError:
                # As with head: nothing more is shown, but what was found decides the exit code.
                forget_stdout()
                if result.runs_to_its_end:
                    for _ in result.chunks:
                        pass
        finally:
            reporter.erase_progress()
        ctx.exit(reporter.exit_code)
