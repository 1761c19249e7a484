"""``stratalog erase``: remove records by key, or by a condition on key, value or headers."""

from __future__ import annotations

import click

from stratalog.cli.key_options import keys_in_files
from stratalog.cli.reporter import Reporter
from stratalog.cli.rewrite_options import RewriteRequest, rewriting
from stratalog.cli.rewriting import run_rewrite
from stratalog.cli.verb import Verb
from stratalog.inspect.result import Result
from stratalog.rewrite.erase.condition import parse_condition
from stratalog.rewrite.erase.erasure import Erase
from stratalog.rewrite.erase.keys import KeySet
from stratalog.rewrite.erase.search import Targets

__all__ = ["command"]


@click.command(
    "erase",
    cls=Verb,
    short_help="Remove records by key, or by a condition.",
    examples=(
        (
            "Show how many records of a key there are",
            "stratalog erase logs -t orders --key customer-7",
        ),
        (
            "Erase them, also in the active segment",
            "stratalog erase logs -t orders --key customer-7 --roll --write",
        ),
        (
            "Erase by a condition",
            "stratalog erase logs --where \"value like '%apples' and not key = 'customer-1'\"",
        ),
    ),
)
@rewriting
@keys_in_files
@click.option(
    "--where",
    metavar="CONDITION",
    help="Also records that meet this condition, such as \"header.user = 'ada'\".",
)
@click.pass_obj
def command(
    reporter: Reporter, /, *, request: RewriteRequest, keys: KeySet, where: str | None
) -> Result:
    """Remove the records with certain keys, or that meet a condition.

    A condition compares key, value and header.NAME with =, !=, like, in and is null, combined by and, or
    and not. Tombstones, records of aborted transactions and messages inside compressed wrappers are
    removed, too. Without --write, prints how many records match. Afterwards, 'verify --absent' proves that
    no file holds the keys any more.
    """
    condition = None if where is None else parse_condition(where)
    return run_rewrite(reporter, request, Erase(Targets(keys, condition)))
