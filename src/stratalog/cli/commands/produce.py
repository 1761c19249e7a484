"""``stratalog produce``: append standard input to a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Final, cast

import click

from stratalog.cli.options import Roots, new_topic, roots
from stratalog.cli.record_lines import INPUTS, Stream, read_records
from stratalog.cli.record_target import PARTITIONS_MAX, RecordTarget, very_many
from stratalog.cli.reporter import Reporter
from stratalog.cli.rewrite_options import config_pairs
from stratalog.cli.verb import Verb
from stratalog.errors import StorageError, StratalogError, UsageError
from stratalog.inspect.result import Chunk, Field, Kind, Result, chunk_of_rows
from stratalog.manager.logs import Logs, open_logs
from stratalog.manager.root.catalogue import check_partition_count
from stratalog.storage.formats.topic_entries import Topic
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import check_own_topic
from stratalog.storage.recovery.report import LoadReport

__all__ = ["FIELDS", "command"]


#: A row for each partition that was written.
FIELDS: Final = (
    Field("topic", Kind.TEXT),
    Field("partition", Kind.INTEGER),
    Field("records", Kind.INTEGER),
    Field("first_offset", Kind.INTEGER),
    Field("last_offset", Kind.INTEGER),
)


@click.command(
    "produce",
    cls=Verb,
    short_help="Append standard input to a topic, one record per line.",
    examples=(
        (
            "Append lines to a topic, created with three partitions if missing",
            "printf 'one\\ntwo\\n' | stratalog produce logs -t numbers --partitions 3",
        ),
        (
            "Append to a directory with the defaults of a broker",
            "printf 'three\\n' | stratalog produce logs -t numbers --config server.properties",
        ),
        (
            "Copy a topic into another directory, compressed",
            "stratalog cat logs -t orders -o ndjson | stratalog produce copy -t orders -i ndjson -z zstd",
        ),
    ),
)
@roots
@click.option(
    "-t", "--topic", required=True, help="Topic to append to. Created if it does not exist."
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(min=0),
    metavar="N",
    help="Append everything to this partition.",
)
@new_topic
@click.option(
    "-i", "--input", "kind", type=click.Choice(tuple(INPUTS)), default="lines", show_default=True,
    help="Meaning of a line: a value, or a record as printed by 'cat -o ndjson'.",
)  # fmt: skip
@click.pass_obj
def command(
    reporter: Reporter,
    /,
    *,
    roots: Roots,
    topic: str,
    partition: int | None,
    partitions: int | None,
    compression: str,
    configs: tuple[str, ...],
    kind: str,
) -> Result:
    """Append standard input to a topic of a log directory, one record per line.

    The log directory and the topic are created if they do not exist. Without DIR, the log directories
    are the log.dirs of '--config'. With '-i ndjson', each record
    keeps its partition, timestamp, key, value and headers: 'cat -o ndjson | produce -i ndjson' copies
    records. The command returns when all of them are fsynced. It stops at the first invalid line; the
    lines before it are appended, and the rows printed say which offsets they got.
    """
    wanted = config_pairs(configs)
    _check(topic, partition, partitions, wanted)
    if sys.stdin is None:
        raise UsageError("standard input is closed: pipe records into the command")
    target = RecordTarget(topic, partition, compression)
    rows: list[tuple[object, ...]] = []
    try:
        with open_logs(
            roots.directories,
            config=roots.broker,
            on_recovery=partial(_warn_of_recovery, reporter),
        ) as logs:
            for damage in logs.damage:
                reporter.warn(str(damage))
            if topic not in logs.topics():
                count = partitions or _partitions_for(partition, roots.broker.num_partitions)
                logs.create(topic, count, wanted)
                target.may_grow = partitions is None
            elif _differs(logs.topic(topic), partitions, wanted):
                reporter.warn(f"topic {topic!r} already exists: its configs and partitions stay")
            _append_input(logs, target, kind, reporter)
            rows = target.rows(logs)
    except StorageError as error:
        if not rows:
            raise
        reporter.fail(error)  # the closing failed: who has to mend it must know what was appended
    done = "the records were appended: do not run the command again" if rows else ""
    return Result(fields=FIELDS, chunks=_chunks(rows), done=done)


def _warn_of_recovery(reporter: Reporter, folder: str, report: LoadReport) -> None:
    for sentence in report.warnings(folder):
        reporter.warn(sentence)


def _check(
    topic: str, partition: int | None, partitions: int | None, configs: dict[str, str]
) -> None:
    """Check what can be checked before anything is opened: a wrong command line changes nothing."""
    LogConfig.of(configs)
    check_own_topic(topic)
    if partitions is not None:
        check_partition_count(partitions)
    if partition is not None and partitions is not None and partition >= partitions:
        raise UsageError(
            f"-p {partition} is not among --partitions {partitions}: they count from 0"
        )


def _differs(topic: Topic, partitions: int | None, configs: dict[str, str]) -> bool:
    """Return whether a topic is not what the options ask for."""
    wanted, there = LogConfig.of(configs).overrides(), topic.config.overrides()
    return partitions not in (None, len(topic.partitions)) or not wanted.items() <= there.items()


def _partitions_for(partition: int | None, default: int) -> int:
    """How many a new topic needs for the one that was named; the default, if that is more."""
    if partition is None:
        return default
    if partition >= PARTITIONS_MAX:
        raise UsageError(very_many(partition))
    return max(partition + 1, default)


def _append_input(logs: Logs, target: RecordTarget, kind: str, reporter: Reporter) -> None:
    """Append until the end, or until something fails: the rows are shown then, too."""
    try:
        for some in read_records(cast("Stream", sys.stdin.buffer), kind):
            target.append(logs, some)
    except StratalogError as error:
        reporter.fail(error)
    except KeyboardInterrupt:
        reporter.interrupted()


def _chunks(rows: list[tuple[object, ...]]) -> Iterator[Chunk]:
    if rows:
        yield chunk_of_rows(rows)
