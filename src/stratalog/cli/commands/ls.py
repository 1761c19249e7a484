"""``stratalog ls``: what lies in log directories."""

from __future__ import annotations

from typing import Any, Final

import click

from stratalog.cli.counting import counted, result_of
from stratalog.cli.options import Chosen, limits, partitions
from stratalog.cli.reporter import Reporter
from stratalog.cli.verb import Verb
from stratalog.errors import StorageError
from stratalog.inspect.count.partition import PartitionCount, count_partition, size_partition
from stratalog.inspect.partition.partition_filter import partition_filter
from stratalog.inspect.partition.sources import PartitionSource, find_sources
from stratalog.inspect.result import Field, Kind, Result

__all__ = ["command"]

_PARTITION: Final = (Field("topic", Kind.TEXT), Field("partition", Kind.INTEGER))
_SEGMENTS: Final = Field("segments", Kind.INTEGER)
_RECORDS: Final = Field("records", Kind.INTEGER)
_SEEN: Final = (
    Field("log_bytes", Kind.INTEGER),
    Field("first_time", Kind.TIME),
    Field("last_time", Kind.TIME),
    Field("status", Kind.TEXT),
)
_OFFSETS: Final = (Field("start_offset", Kind.INTEGER), Field("end_offset", Kind.INTEGER))
_FIELDS: Final = {
    "topic": (
        Field("topic", Kind.TEXT), Field("partitions", Kind.INTEGER), _SEGMENTS, _RECORDS, *_SEEN,
    ),
    "partition": (*_PARTITION, _SEGMENTS, _RECORDS, *_OFFSETS, *_SEEN),
    "segment": (
        Field("path", Kind.TEXT), *_PARTITION, _RECORDS,
        Field("first_offset", Kind.INTEGER), Field("last_offset", Kind.INTEGER), *_SEEN,
    ),
}  # fmt: skip
#: What is known of a log whose files were not opened.
_UNOPENED: Final = frozenset(
    {"path", "topic", "partition", "partitions", "segments", "start_offset", "log_bytes"}
)


@click.command(
    "ls",
    cls=Verb,
    short_help="List topics, partitions or segments.",
    examples=(
        ("List the partitions of a log directory", "stratalog ls logs -o table"),
        ("List the segments of one topic", "stratalog ls logs -t orders --by segment -o table"),
    ),
)
@partitions
@click.option(
    "--by",
    type=click.Choice(list(_FIELDS)),
    default="partition",
    show_default=True,
    help="Print one row for each of these.",
)
@click.option(
    "--no-records", is_flag=True, help="Print only names and sizes, without opening the files."
)
@limits
@click.pass_obj
def command(
    reporter: Reporter,
    /,
    *,
    chosen: Chosen,
    by: str,
    no_records: bool,
    **limits: Any,
) -> Result:
    """List the topics, partitions or segments of log directories, with exact record counts.

    start_offset is the first offset that can be read, end_offset that of the next record. first_time
    is the earliest timestamp of the first batches of all segments, last_time the latest of all
    records. Unknown files are listed on stderr.
    """
    refused: list[StorageError] = []
    sources = find_sources(
        chosen.paths,
        partition_filter(chosen.topics, chosen.partitions),
        on_refused=refused.append,
    )
    reporter.begin(sources)
    for error in refused:
        reporter.fail(error)
    for note in sources.notes:
        reporter.note(note)

    def count(source: PartitionSource, done: int) -> PartitionCount:
        if no_records:
            return size_partition(source)
        return count_partition(
            source,
            every_segment=True,
            times=True,
            **limits,
            progress=reporter.progress_behind(done),
            on_error=reporter.fail,
        )

    fields = _FIELDS[by]
    if no_records:
        fields = tuple(field for field in fields if field.name in _UNOPENED)
    return result_of(by, fields, counted(sources, count, reporter))
