"""Define a verb of the command line: a command that returns a :class:`Result`, which is printed for it."""

from __future__ import annotations

import sys
from typing import Any

import click

from stratalog.cli.examples import WithExamples
from stratalog.cli.render import FORMATS, check_output, choose_output, render
from stratalog.cli.reporter import Reporter
from stratalog.cli.terminal import forget_stdout
from stratalog.inspect.result import Result

__all__ = ["Verb"]


class Verb(WithExamples):
    """Add ``-o`` and ``--out``, pass a reporter to the command, and print the result that it returns.

    Without ``prints_to_file`` there is no ``--out``: a command that writes a directory has its own."""

    def __init__(self, *args: Any, prints_to_file: bool = True, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._prints_to_file = prints_to_file
        self.params.append(
            click.Option(
                ["-o", "--output"],
                type=click.Choice(list(FORMATS)),
                help="Output format. Default: table on a terminal, otherwise ndjson.",
            )
        )
        if prints_to_file:
            self.params.append(
                click.Option(
                    ["--out"],
                    type=click.Path(),
                    metavar="FILE",
                    help="Write to a new file. Without -o, its suffix selects the format.",
                )
            )

    def invoke(self, ctx: click.Context) -> None:
        output = choose_output(
            ctx.params.pop("output"),
            ctx.params.pop("out") if self._prints_to_file else None,
            is_terminal=sys.stdout is not None and sys.stdout.isatty(),
        )
        check_output(output)
        reporter = ctx.obj = Reporter()
        try:
            result: Result = super().invoke(ctx)
            try:
                render(result, output, before_output=reporter.erase_progress)
            except BrokenPipeError:
                # The reader is gone, as with head. The findings still decide the exit code.
                forget_stdout()
                if result.runs_to_its_end:
                    for _ in result.chunks:
                        pass
            except OSError:
                if result.done:
                    reporter.note(result.done)
                raise
        finally:
            reporter.erase_progress()
        ctx.exit(reporter.exit_code)
