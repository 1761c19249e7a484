"""``stratalog count``: how many records log directories and log files hold."""

from __future__ import annotations

from typing import Any, Final

import click

from stratalog.cli.counting import counted, result_of
from stratalog.cli.options import OFFSETS, Chosen, limits, partitions
from stratalog.cli.reporter import Reporter
from stratalog.cli.verb import Verb
from stratalog.clock import SYSTEM_CLOCK
from stratalog.errors import StorageError
from stratalog.inspect.count.partition import PartitionCount, count_partition
from stratalog.inspect.partition.partition_filter import partition_filter
from stratalog.inspect.partition.sources import PartitionSource, find_sources
from stratalog.inspect.range.offset_range import WHOLE, parse_offsets
from stratalog.inspect.result import Field, Kind, Result

__all__ = ["BY", "FIELDS", "command"]

_COUNTS: Final = (
    Field("records", Kind.INTEGER),
    Field("control_records", Kind.INTEGER),
    Field("batches", Kind.INTEGER),
    Field("size_bytes", Kind.INTEGER),
)
_OFFSETS: Final = (Field("first_offset", Kind.INTEGER), Field("last_offset", Kind.INTEGER))
_PARTITION: Final = (Field("topic", Kind.TEXT), Field("partition", Kind.INTEGER))
_SEGMENTS: Final = Field("segments", Kind.INTEGER)
FIELDS: Final = {
    "file": (Field("path", Kind.TEXT), *_PARTITION, *_COUNTS, *_OFFSETS),
    "partition": (*_PARTITION, _SEGMENTS, *_COUNTS, *_OFFSETS),
    "topic": (Field("topic", Kind.TEXT), Field("partitions", Kind.INTEGER), _SEGMENTS, *_COUNTS),
}

BY: Final = click.option(
    "--by",
    type=click.Choice(list(FIELDS)),
    help="Print one row for each of these. Default: file if only files are named, otherwise partition.",
)


@click.command(
    "count",
    cls=Verb,
    short_help="Count records, batches and bytes.",
    examples=(
        ("Records per topic", "stratalog count logs --by topic -o table"),
        ("Records of the last two hours", "stratalog count logs -t orders --offsets @-2h"),
    ),
)
@partitions
@OFFSETS
@BY
@limits
@click.pass_obj
def command(
    reporter: Reporter,
    /,
    *,
    chosen: Chosen,
    offsets: str | None,
    by: str | None,
    **limits: Any,
) -> Result:
    """Count the records of log directories, partition folders or log files, exactly.

    Reads only batch headers. Segments that --offsets or the log start offset cut in two are decoded.
    If a file is damaged, counts the records before the damage; the exit code is then 1.
    """
    wanted = WHOLE if offsets is None else parse_offsets(offsets, SYSTEM_CLOCK.now_ms())
    refused: list[StorageError] = []
    sources = find_sources(
        chosen.paths,
        partition_filter(chosen.topics, chosen.partitions),
        on_refused=refused.append,
    )
    reporter.begin(sources)
    for error in refused:
        reporter.fail(error)
    by = by or ("partition" if sources.has_folders else "file")

    def count(source: PartitionSource, done: int) -> PartitionCount:
        return count_partition(
            source,
            wanted,
            **limits,
            progress=reporter.progress_behind(done),
            on_error=reporter.fail,
        )

    return result_of(by, FIELDS[by], counted(sources, count, reporter))
