"""Show examples at the end of a help text."""

from __future__ import annotations

from typing import Any

import click

__all__ = ["WithExamples"]


class WithExamples(click.Command):
    """A command whose help ends with examples: pairs of what it does and the command line, which a test
    runs."""

    def __init__(
        self, *args: Any, examples: tuple[tuple[str, str], ...] = (), **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if not self.examples:
            return
        with formatter.section("Examples"):
            for purpose, line in self.examples:
                formatter.write_text(f"{purpose}:")
                formatter.write(f"{'':>{formatter.current_indent}}  {line}\n")
