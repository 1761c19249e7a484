"""Define what all Spark jobs share: their options, the session they run in, and reports as rows."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from stratalog.cli.verb import Verb
from stratalog.errors import StorageError, StratalogError, UsageError
from stratalog.inspect.result import Chunk, Field, Result, chunk_of_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkVerb", "pairs", "result_of_rows", "session_of"]


class SparkVerb(Verb):
    """Add ``--master``, ``--conf`` and ``--json``."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params += [
            click.Option(
                ["--master"],
                metavar="URL",
                help="Spark master: spark://host:7077, yarn, k8s://…. Default: local[*], this machine.",
            ),
            click.Option(
                ["--conf"],
                multiple=True,
                metavar="NAME=VALUE",
                help="Spark configuration property. May be repeated.",
            ),
            click.Option(["--json"], is_flag=True, help="Same as -o json."),
        ]

    def invoke(self, ctx: click.Context) -> None:
        if ctx.params.pop("json"):
            if ctx.params["output"] not in (None, "json"):
                raise UsageError(f"--json and -o {ctx.params['output']}: use one of them")
            ctx.params["output"] = "json"
        ctx.meta["stratalog.spark"] = (
            ctx.params.pop("master"),
            pairs(ctx.params.pop("conf"), "--conf"),
        )
        super().invoke(ctx)


def pairs(given: Iterable[str], option: str) -> dict[str, str]:
    """``NAME=VALUE``, several of them."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} {text!r}: write NAME=VALUE")
        if name.strip() in found:
            raise UsageError(f"{option} {name.strip()} is given twice")
        found[name.strip()] = value.strip()
    return found


@contextmanager
def session_of(ctx: click.Context) -> Iterator[SparkSession]:
    """The session that the job runs in: one that is there, or one that ends with the job."""
    from stratalog.spark.session import session, session_class

    master, configs = ctx.meta["stratalog.spark"]
    if session_class().getActiveSession() is not None:
        yield session()
        return
    spark = _started(master, configs)
    try:
        yield spark
    finally:
        spark.stop()


def _started(master: str | None, configs: dict[str, str]) -> SparkSession:
    """A new session. What Java writes to stderr is nothing that a user can use, unless it does not start."""
    from stratalog.spark.jobs.run.task_errors import SPARK, in_plain_words
    from stratalog.spark.session import session

    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            with in_plain_words():
                return session("stratalog", master=master, configs=configs)
        except StratalogError as error:
            if isinstance(error, StorageError) and error.path == SPARK:
                raise StorageError(_last_line(said) or error.detail, path=SPARK) from None
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _last_line(said: Any) -> str:
    """The last thing that Java said before it gave up."""
    said.seek(0)
    lines = [line.strip() for line in said.read().decode("utf-8", "replace").splitlines()]
    wanted = [line for line in lines if line and not line.startswith(("WARNING", "at "))]
    return str(wanted[-1]) if wanted else ""


def result_of_rows(
    fields: tuple[Field, ...], rows: Sequence[tuple[Any, ...]], notes: Sequence[str] = ()
) -> Result:
    """Rows that are known already."""

    def chunks() -> Iterator[Chunk]:
        if rows:
            yield chunk_of_rows(rows)

    return Result(fields=fields, chunks=chunks(), notes=lambda: notes)
