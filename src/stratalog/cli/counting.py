"""Counts of partitions as rows, by file, by partition or by topic: what ``count`` and ``ls`` share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any, Final

from stratalog.cli.reporter import Reporter
from stratalog.errors import StorageError
from stratalog.inspect.count.partition import PartitionCount, tally
from stratalog.inspect.partition.sources import PartitionSource, Sources, vanished
from stratalog.inspect.result import Chunk, Field, Kind, Result, chunk_of_rows

__all__ = ["SUMMED", "counted", "result_of"]

Count = Callable[[PartitionSource, int], PartitionCount]
Rows = Callable[[Iterable[PartitionCount]], Iterator[dict[str, Any]]]

#: What the last row of a table adds up.
SUMMED: Final = frozenset(
    {"partitions", "segments", "records", "control_records", "batches", "size_bytes", "log_bytes"}
)


def counted(sources: Sources, count: Count, reporter: Reporter) -> Iterator[PartitionCount]:
    """The partitions counted one after the other, and told what is wrong with them. ``count`` gets a
    partition, and the bytes of those before it."""
    done = 0
    for source in sources.partitions:
        try:
            partition = count(source, done)
        except StorageError as error:
            if vanished(source, error):
                reporter.warn_vanished(error.path)
                continue
            reporter.fail(error)
            partition = _unread(source)
        for segment in partition.segments:
            done += segment.file.size_bytes
            if segment.status == "torn":
                reporter.warn_torn(segment.file.end)
            elif segment.status == "damaged":
                reporter.fail(segment.file.end.error())
        yield partition


def _unread(source: PartitionSource) -> PartitionCount:
    """A partition of which nothing could be read."""
    return PartitionCount(
        source=source,
        segments=(),
        start_offset=0,
        end_offset=0,
        unread_files=max(1, len(source.segments)),
    )


def _is_unread(count: PartitionCount) -> bool:
    """Whether nothing was counted, which is not zero."""
    return bool(count.unread_files) and not count.segments


def _file_rows(counts: Iterable[PartitionCount]) -> Iterator[dict[str, Any]]:
    for count in counts:
        for segment in count.segments:
            names = segment.file.__dataclass_fields__
            values = {name: getattr(segment.file, name) for name in names}
            yield {**values, "log_bytes": segment.file.log_bytes, "status": segment.status}


def _partition_rows(counts: Iterable[PartitionCount]) -> Iterator[dict[str, Any]]:
    for count in counts:
        if _is_unread(count):
            continue
        topic_partition = count.source.topic_partition
        yield {
            "topic": None if topic_partition is None else topic_partition.topic,
            "partition": None if topic_partition is None else topic_partition.partition,
            "start_offset": count.start_offset,
            "end_offset": count.end_offset,
            **asdict(tally(count.segments, count.unread_files)),
        }


def _topic_rows(counts: Iterable[PartitionCount]) -> Iterator[dict[str, Any]]:
    topics: dict[str | None, list[PartitionCount]] = {}
    for count in counts:
        topic_partition = count.source.topic_partition
        topics.setdefault(None if topic_partition is None else topic_partition.topic, []).append(
            count
        )
    for topic, held in topics.items():
        read = [count for count in held if not _is_unread(count)]
        if not read:
            continue
        segments = chain.from_iterable(count.segments for count in read)
        sums = tally(segments, sum(count.unread_files for count in held))
        yield {"topic": topic, "partitions": len(read), **asdict(sums)}


ROWS: Final[dict[str, Rows]] = {
    "file": _file_rows,
    "segment": _file_rows,
    "partition": _partition_rows,
    "topic": _topic_rows,
}


def result_of(by: str, fields: Sequence[Field], counts: Iterable[PartitionCount]) -> Result:
    """The counts as rows of these fields; more than one row have a total."""
    sums = dict.fromkeys((field.name for field in fields if field.name in SUMMED), 0)
    shown = 0

    def chunks() -> Iterator[Chunk]:
        nonlocal shown
        for row in ROWS[by](counts):
            shown += 1
            for name in sums:
                sums[name] += row[name]
            yield chunk_of_rows([tuple(row[field.name] for field in fields)])

    def total() -> tuple[Any, ...] | None:
        if shown < 2:
            return None
        return ("total", *(sums.get(field.name) for field in fields[1:]))

    assert fields[0].kind is Kind.TEXT, "the total stands there"
    return Result(fields=tuple(fields), chunks=chunks(), total=total, runs_to_its_end=True)
