"""``stratalog merge``: small segments into full ones."""

from __future__ import annotations

import click

from stratalog.cli.reporter import Reporter
from stratalog.cli.rewrite_options import RewriteRequest, rewriting
from stratalog.cli.rewriting import run_rewrite
from stratalog.cli.verb import Verb
from stratalog.inspect.result import Result
from stratalog.rewrite.merge import Merge

__all__ = ["command"]


@click.command(
    "merge",
    cls=Verb,
    short_help="Merge small segments into full ones.",
    examples=(
        ("Show which segments would become one", "stratalog merge logs -t orders"),
        (
            "Merge them, up to 512 MiB each",
            "stratalog merge logs -t orders -c segment.bytes=536870912 --write",
        ),
    ),
)
@rewriting
@click.pass_obj
def command(reporter: Reporter, /, *, request: RewriteRequest) -> Result:
    """Merge small neighbouring segments into full ones, of at most segment.bytes.

    Batches are copied byte for byte: every record keeps its offset. The active segment is not touched,
    and neither is anything that readers do not see yet. Without --write, prints the plan.
    """
    return run_rewrite(reporter, request, Merge())
