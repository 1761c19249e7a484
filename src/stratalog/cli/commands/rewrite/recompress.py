"""``stratalog recompress``: another codec for batches that are in the log already."""

from __future__ import annotations

import click

from stratalog.cli.reporter import Reporter
from stratalog.cli.rewrite_options import RewriteRequest, rewriting
from stratalog.cli.rewriting import run_rewrite
from stratalog.cli.verb import Verb
from stratalog.inspect.result import Result
from stratalog.records.layout import CODECS
from stratalog.rewrite.recompress import Recompress, codec_named

__all__ = ["command"]


@click.command(
    "recompress",
    cls=Verb,
    short_help="Compress batches with another codec or level.",
    examples=(
        ("Show what would be compressed", "stratalog recompress logs -t orders -z zstd"),
        (
            "Compress with zstd at level 9, and keep the originals",
            "stratalog recompress logs -t orders -z zstd --level 9 --write --keep-undo",
        ),
    ),
)
@rewriting
@click.option(
    "-z",
    "--compression",
    required=True,
    type=click.Choice(tuple(CODECS)),
    help="Codec that batches are to have; 'none' decompresses them.",
)
@click.option("--level", type=int, metavar="N", help="Level of gzip, lz4 or zstd.")
@click.option("--force", is_flag=True, help="Also compress batches that have the codec already.")
@click.pass_obj
def command(
    reporter: Reporter,
    /,
    *,
    request: RewriteRequest,
    compression: str,
    level: int | None,
    force: bool,
) -> Result:
    """Compress batches with another codec or level. The records inside stay byte for byte.

    Batches that have the codec already are copied, unless --force is given; control batches are never
    compressed. Messages of magic 0 and 1 keep their magic and cannot hold zstd: 'upgrade' them first.
    Without --write, prints the plan.
    """
    rewrite = Recompress(codec_named(compression), level, force=force)
    return run_rewrite(reporter, request, rewrite)
