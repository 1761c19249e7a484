"""``stratalog produce``: standard input into a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import click

from stratalog.cli.record_lines import INPUTS, RecordFields, read_records
from stratalog.cli.reporter import Reporter
from stratalog.cli.result import Chunk, Field, Kind, Result, chunk_of_rows
from stratalog.cli.verb import Verb
from stratalog.errors import UnknownPartitionError, UsageError
from stratalog.manager.logs import Logs, open_logs

__all__ = ["command"]

_RECORDS_AT_ONCE: Final = 8192
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

_FIELDS: Final = (
    Field("topic", Kind.TEXT),
    Field("partition", Kind.INTEGER),
    Field("records", Kind.INTEGER),
    Field("first_offset", Kind.INTEGER),
    Field("last_offset", Kind.INTEGER),
)


@click.command("produce", cls=Verb)
@click.argument("directory", metavar="DIR", type=click.Path())
@click.option("-t", "--topic", required=True, help="The topic; created where it is missing.")
@click.option(
    "-p", "--partition", type=click.IntRange(min=0), metavar="N", help="Only this partition."
)
@click.option(
    "--partitions", type=click.IntRange(min=1), metavar="N", help="How many a new topic gets."
)
@click.option(
    "-z", "--compression", type=click.Choice(_CODECS), default="none", help="Compress the batches."
)
@click.option(
    "-c", "--config", "configs", multiple=True, metavar="NAME=VALUE",
    help="A config of a new topic; may be repeated.",
)  # fmt: skip
@click.option(
    "-i", "--input", "kind", type=click.Choice(tuple(INPUTS)), default="lines", show_default=True,
    help="What a line is: a value, or a record as 'cat -o ndjson' prints it.",
)  # fmt: skip
@click.pass_obj
def command(
    reporter: Reporter,
    /,
    *,
    directory: str,
    topic: str,
    partition: int | None,
    partitions: int | None,
    compression: str,
    configs: tuple[str, ...],
    kind: str,
) -> Result:
    """Append standard input to a topic of a log directory, one record a line.

    With '-i ndjson' each record keeps its partition, timestamp, key, value and headers, so that
    'cat -o ndjson | produce -i ndjson' gives the same records back. When the command is done, all of
    them are on the disk.
    """
    wanted = dict(_pair(each) for each in configs)
    with open_logs(directory) as logs:
        is_new = topic not in logs.topics()
        if is_new:
            logs.create(topic, partitions or 1 + (partition or 0), wanted)
        elif wanted or partitions:
            reporter.warn(f"topic {topic!r} is there already: its configs and partitions stay")
        grows = is_new and partitions is None
        spans: dict[int, list[int]] = {}
        records = read_records(sys.stdin.buffer, kind)
        while some := list(islice(records, _RECORDS_AT_ONCE)):
            _append(logs, topic, some, partition, compression, spans, grows=grows)
    rows = [
        (topic, each, records_count, first, last)
        for each, (records_count, first, last) in sorted(spans.items())
    ]
    return Result(fields=_FIELDS, chunks=_chunks(rows))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{text!r} is no config: write name=value")
    return name.strip(), value.strip()


def _append(
    logs: Logs,
    topic: str,
    records: list[RecordFields],
    partition: int | None,
    compression: str,
    spans: dict[int, list[int]],
    *,
    grows: bool,
) -> None:
    named = [each["partition"] for each in records if "partition" in each]
    if partition is None and named and grows:
        logs.add_partitions(topic, max(named) + 1)
    known = logs.topic(topic).partitions
    missing = sorted(set(named) - set(known)) if partition is None else []
    if missing:
        raise UnknownPartitionError(
            f"topic {topic!r} has no partition {missing[0]}: it has {len(known)}; "
            "name one for all with -p"
        )
    for number, result in logs.append_by_partition(
        topic, records, partition=partition, codec=compression, sync=False
    ).items():
        span = spans.setdefault(number, [0, result.first_offset, result.last_offset])
        span[0] += result.last_offset - result.first_offset + 1
        span[2] = result.last_offset


def _chunks(rows: Sequence[tuple[object, ...]]) -> Iterator[Chunk]:
    if rows:
        yield chunk_of_rows(rows)
