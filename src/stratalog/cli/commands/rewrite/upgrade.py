"""``stratalog upgrade``: old formats to record batches of magic 2."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import click

from stratalog.cli.reporter import Reporter
from stratalog.cli.rewrite_options import RewriteRequest, rewriting
from stratalog.cli.rewriting import run_rewrite, terminable
from stratalog.cli.verb import Verb
from stratalog.errors import UsageError
from stratalog.inspect.partition.partition_filter import partition_filter
from stratalog.inspect.partition.sources import find_sources
from stratalog.inspect.result import Chunk, Field, Kind, Result, chunk_of_rows
from stratalog.manager.rewrites import RewriteOptions
from stratalog.manager.upgrading_v07 import upgrade_v07_into
from stratalog.rewrite.limits import RewriteStoppedError
from stratalog.rewrite.upgrade import Upgrade
from stratalog.storage.names import V07_SUFFIX
from stratalog.types import TopicPartition

__all__ = ["V07_FIELDS", "command"]

#: A row for each partition of 0.7.
V07_FIELDS: Final = (
    Field("topic", Kind.TEXT),
    Field("partition", Kind.INTEGER),
    Field("status", Kind.TEXT),
    Field("files", Kind.INTEGER),
    Field("size_bytes", Kind.INTEGER),
    Field("records", Kind.INTEGER),
    Field("moved_records", Kind.INTEGER),
    Field("first_offset", Kind.INTEGER),
    Field("next_offset", Kind.INTEGER),
)


@click.command(
    "upgrade",
    cls=Verb,
    short_help="Turn old message formats into record batches.",
    examples=(
        ("Show which segments hold old formats", "stratalog upgrade logs"),
        ("Upgrade one topic", "stratalog upgrade logs -t orders --roll --write"),
    ),
)
@rewriting
@click.option(
    "--to",
    type=click.Path(),
    metavar="DIR",
    help="Upgrade the partitions of Kafka 0.7 into this new log directory.",
)
@click.pass_obj
def command(reporter: Reporter, /, *, request: RewriteRequest, to: str | None) -> Result:
    """Turn messages of magic 0 and 1 into record batches of magic 2.

    Offsets, timestamps and codecs are kept. Without --write, prints the plan. Files of Kafka 0.7 (.kafka)
    are left untouched, and upgraded into a new log directory with --to; their offsets, which are byte
    positions, are kept, too. Messages that were compressed together, and had one position, get those that
    follow it.
    """
    if to is None:
        return run_rewrite(reporter, request, Upgrade())
    if request.keep_undo or request.roll or request.manifest is not None or request.max_bytes:
        raise UsageError(
            "--to writes a new directory: --keep-undo, --roll, --manifest and --max-bytes have no meaning"
        )
    return _upgrade_v07(reporter, request, to)


def _upgrade_v07(reporter: Reporter, request: RewriteRequest, to: str) -> Result:
    found = _v07_files(request)
    reporter.start_work(sum(map(_size, found.values())))
    rows: dict[TopicPartition, tuple[object, ...]] = {
        each: (*each, "planned", len(paths), _size(paths), None, None, None, None)
        for each, paths in found.items()
    }
    if request.write:
        done = 0

        def note(size_bytes: int) -> None:
            nonlocal done
            done += size_bytes
            reporter.progress(done)

        options = RewriteOptions(
            configs=request.configs, max_seconds=request.max_seconds, progress=note
        )
        try:
            with terminable():
                for each, result in upgrade_v07_into(to, found, options):
                    counts = result.records, result.moved, result.first_offset, result.next_offset
                    rows[each] = (*rows[each][:2], "upgraded", *rows[each][3:5], *counts)
        except RewriteStoppedError as stopped:
            reporter.note(f"{stopped}: {to} is incomplete; delete it, and run the command again")
        except KeyboardInterrupt:
            reporter.interrupted()
            reporter.note(f"{to} is incomplete: delete it, and run the command again")
    return Result(fields=V07_FIELDS, chunks=_chunks(list(rows.values())))


def _v07_files(request: RewriteRequest) -> dict[TopicPartition, list[str]]:
    wanted = partition_filter(request.chosen.topics, request.chosen.partitions)
    sources = find_sources(request.chosen.paths, wanted)
    found: dict[TopicPartition, list[str]] = {}
    for source in sources.partitions:
        paths = [path for path in source.segments if path.endswith(V07_SUFFIX)]
        if paths and source.topic_partition is not None:
            if source.topic_partition in found:
                raise UsageError(f"{source.topic_partition} is in two of the directories")
            found[source.topic_partition] = paths
    if not found:
        raise UsageError("there is no partition of Kafka 0.7 here: leave --to out")
    return found


def _size(paths: list[str]) -> int:
    return sum(map(os.path.getsize, paths))


def _chunks(rows: list[tuple[object, ...]]) -> Iterator[Chunk]:
    if rows:
        yield chunk_of_rows(rows)
