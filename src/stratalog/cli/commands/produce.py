"""``stratalog produce``: standard input into a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final, cast

import click

from stratalog.cli.record_lines import INPUTS, RecordLine, Stream, read_records
from stratalog.cli.reporter import Reporter
from stratalog.cli.result import Chunk, Field, Kind, Result, chunk_of_rows
from stratalog.cli.verb import Verb
from stratalog.errors import InvalidRecordError, UsageError
from stratalog.manager.logs import Logs, open_logs

__all__ = ["command"]

#: A new topic gets no more than so many by itself: a wrong number must not fill the disk with folders.
_PARTITIONS_MAX: Final = 1000
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
    them are on the disk. A line that is no record ends it; those before it were appended.
    """
    wanted = _configs(configs)
    if sys.stdin is None:
        raise UsageError("there is no standard input to read records from")
    target = _Target(topic, partition, compression)
    with open_logs(directory) as logs:
        for damage in logs.damage:
            reporter.warn(str(damage))
        if topic not in logs.topics():
            logs.create(topic, partitions or 1 + (partition or 0), wanted)
            target.may_grow = partitions is None
        elif wanted or partitions:
            reporter.warn(f"topic {topic!r} is there already: its configs and partitions stay")
        try:
            for some in read_records(cast("Stream", sys.stdin.buffer), kind):
                target.append(logs, some)
        except UsageError as error:
            reporter.fail(error)
        for note in target.recovered(logs):
            reporter.warn(note)
    return Result(fields=_FIELDS, chunks=_chunks(target.rows()))


def _configs(given: Iterable[str]) -> dict[str, str]:
    configs: dict[str, str] = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise UsageError(f"{text!r} is no config: write name=value")
        if name in configs:
            raise UsageError(f"{name} is given twice")
        configs[name] = value
    return configs


class _Target:
    """The topic that records go to, and what went there."""

    def __init__(self, topic: str, partition: int | None, compression: str) -> None:
        self._topic = topic
        self._partition = partition
        self._compression = compression
        self._spans: dict[int, list[int]] = {}  # records, first and last offset
        #: A new topic of which nobody said how many partitions it has gets those that records name.
        self.may_grow = False

    def append(self, logs: Logs, lines: list[RecordLine]) -> None:
        if self._partition is None:
            lines, error = self._with_partitions(logs, lines)
        else:
            error = None
        if lines:
            self._append(logs, lines)
        if error is not None:
            raise error

    def _with_partitions(
        self, logs: Logs, lines: list[RecordLine]
    ) -> tuple[list[RecordLine], UsageError | None]:
        """The lines up to the first that names a partition which cannot be had, and that error."""
        known = set(logs.topic(self._topic).partitions)
        limit = _PARTITIONS_MAX if self.may_grow else 0
        for at, (number, fields) in enumerate(lines):
            named = fields.get("partition")
            if named is not None and named not in known and named >= limit:
                lines, error = lines[:at], self._no_partition(number, named, len(known))
                break
        else:
            error = None
        wanted = {fields["partition"] for _, fields in lines if "partition" in fields}
        if not wanted <= known:
            logs.add_partitions(self._topic, max(wanted) + 1)
        return lines, error

    def _no_partition(self, number: int, named: int, known: int) -> UsageError:
        if self.may_grow:
            return UsageError(
                f"line {number}: partition {named} is one of very many: say how many the topic is to "
                "have with --partitions"
            )
        return UsageError(
            f"line {number}: topic {self._topic!r} has no partition {named}: it has {known}; name one "
            "for all records with -p"
        )

    def _append(self, logs: Logs, lines: list[RecordLine]) -> None:
        try:
            written = logs.append_by_partition(
                self._topic,
                [fields for _, fields in lines],
                partition=self._partition,
                codec=self._compression,
                sync=False,  # closing does it, once
            )
        except InvalidRecordError as error:
            raise UsageError(f"line {lines[0].number} to {lines[-1].number}: {error}") from None
        for number, result in written.items():
            span = self._spans.setdefault(number, [0, result.first_offset, result.last_offset])
            span[0] += result.last_offset - result.first_offset + 1
            span[2] = result.last_offset

    def recovered(self, logs: Logs) -> Iterator[str]:
        """What recovery cut off the partitions, or split, before anything was appended."""
        for number in sorted(self._spans):
            log = logs.partition(self._topic, number)
            for base, parts in log.report.split_segments:
                yield (
                    f"{log.folder}: the segment at {base} held more offsets than its index can say, and "
                    f"was split before anything was appended; now there are segments at "
                    f"{', '.join(map(str, parts))}"
                )
            for cut in log.report.cuts:
                kept = "" if cut.kept_as is None else f"; the bytes are kept in {cut.kept_as}"
                yield (
                    f"{cut.path}: {cut.size_bytes} bytes were cut off at byte {cut.position}, offset "
                    f"{cut.from_offset}, before anything was appended: {cut.detail}{kept}"
                )

    def rows(self) -> list[tuple[object, ...]]:
        return [(self._topic, each, *span) for each, span in sorted(self._spans.items())]


def _chunks(rows: list[tuple[object, ...]]) -> Iterator[Chunk]:
    if rows:
        yield chunk_of_rows(rows)
