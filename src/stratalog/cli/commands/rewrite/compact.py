"""``stratalog compact``: keep the newest record of each key."""

from __future__ import annotations

import click

from stratalog.cli.reporter import Reporter
from stratalog.cli.rewrite_options import RewriteRequest, rewriting
from stratalog.cli.rewriting import run_rewrite
from stratalog.cli.verb import Verb
from stratalog.errors import UsageError
from stratalog.inspect.result import Result
from stratalog.manager.logs import Logs

__all__ = ["command"]


@click.command(
    "compact",
    cls=Verb,
    short_help="Keep the newest record of each key.",
    examples=(
        ("Show what would be left of each segment", "stratalog compact logs -t orders -o table"),
        (
            "Compact the topic, with everything written so far",
            "stratalog compact logs -t orders --roll --write",
        ),
    ),
)
@rewriting
@click.pass_obj
def command(reporter: Reporter, /, *, request: RewriteRequest) -> Result:
    """Compact topics as Kafka's log cleaner does: of each key only the newest record stays, at its offset.

    Cleans the named topics whatever their cleanup.policy and dirty ratio, up to the active segment (--roll
    includes it). Records without a key are removed. Tombstones stay for delete.retention.ms. Without --write,
    reads the log and prints what would be left.
    """
    if request.chosen.topics is None:
        raise UsageError("compaction removes records: name the topics to compact with -t")
    if request.max_bytes is not None:
        raise UsageError(
            "--max-bytes has no meaning for compaction, which is complete only when all segments were read: "
            "limit it by --max-seconds, or name fewer partitions"
        )
    return run_rewrite(reporter, request, Logs.compaction)
