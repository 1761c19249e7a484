"""``stratalog retain``: what retention removes, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import click

from stratalog.cli.options import Chosen, partitions
from stratalog.cli.reporter import Reporter
from stratalog.cli.rewrite_options import CONFIGS, WRITE, RewriteRequest, config_pairs
from stratalog.cli.rewriting import chosen_partitions, opened
from stratalog.cli.verb import Verb
from stratalog.inspect.result import Chunk, Field, Kind, Result, chunk_of_rows
from stratalog.manager.cleaning.retention import PartitionRetention
from stratalog.storage.log.retention import SegmentDeletion, SegmentFacts

__all__ = ["FIELDS", "command"]

#: A row for each segment.
FIELDS: Final = (
    Field("topic", Kind.TEXT),
    Field("partition", Kind.INTEGER),
    Field("base_offset", Kind.INTEGER),
    Field("size_bytes", Kind.INTEGER),
    Field("last_time", Kind.TIME),
    Field("status", Kind.TEXT),
    Field("policy", Kind.TEXT),
    Field("reason", Kind.TEXT),
)


@click.command(
    "retain",
    cls=Verb,
    short_help="Delete what retention does not keep.",
    examples=(
        ("Show which segments retention would delete now", "stratalog retain logs -o table"),
        (
            "Show what a week of retention would delete",
            "stratalog retain logs -t orders -c retention.ms=604800000",
        ),
    ),
)
@partitions
@CONFIGS
@WRITE
@click.pass_obj
def command(
    reporter: Reporter, /, *, chosen: Chosen, configs: tuple[str, ...], write: bool
) -> Result:
    """Apply retention by size, age and log start offset to partitions, or print what it would delete.

    Only whole segments are deleted, oldest first, and never beyond the high watermark. If Kafka created a
    topic, its configs are not known: only segments below the log start offset are deleted, unless limits are
    given with -c. Without --write, nothing is changed.
    """
    request = RewriteRequest(chosen, config_pairs(configs), write, False, None, False, None, None)
    request.check()
    with opened(reporter, request, read_only=not write) as logs:
        named = chosen_partitions(logs, request)
        if write:
            found: Sequence[PartitionRetention] = logs.retain_partitions(named, request.configs)
        else:
            found = list(logs.plan_retention(named, request.configs))
    for each in found:
        if each.error is not None:
            reporter.fail(each.error)
    unknown = sorted({each.topic_partition.topic for each in found if not each.has_limits})
    if unknown:
        reporter.warn(
            f"the configs of {', '.join(unknown)} are not known, because Kafka created them: only segments "
            "below the log start offset are deleted; to delete by age or size, give the limit with -c "
            "retention.ms=N or -c retention.bytes=N"
        )
    deletions = sum(len(each.plan.deletions) for each in found)
    done = "segments were deleted" if write and deletions else ""
    return Result(fields=FIELDS, chunks=_chunks(found, write), done=done)


def _chunks(found: Sequence[PartitionRetention], write: bool) -> Iterator[Chunk]:
    rows = [row for each in found for row in _rows(each, "deleted" if write else "planned")]
    if rows:
        yield chunk_of_rows(rows)


def _rows(each: PartitionRetention, gone: str) -> Iterator[tuple[object, ...]]:
    deletions = {deletion.base_offset: deletion for deletion in each.plan.deletions}
    for segment in each.segments:
        yield _row(each, segment, deletions.get(segment.base_offset), gone)


def _row(
    each: PartitionRetention, segment: SegmentFacts, deletion: SegmentDeletion | None, gone: str
) -> tuple[object, ...]:
    return (
        each.topic_partition.topic,
        each.topic_partition.partition,
        segment.base_offset,
        segment.size_bytes,
        segment.largest_timestamp if segment.largest_timestamp >= 0 else None,
        "kept" if deletion is None else gone,
        None if deletion is None else deletion.policy,
        None if deletion is None else deletion.reason,
    )
