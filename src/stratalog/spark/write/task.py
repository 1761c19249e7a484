"""What a task of the sink does: rows into finished batches, partition by partition, into pieces on the disk.

Memory stays bounded: rows are gathered up to ``stageBytes``, split by partition, encoded, written away.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from stratalog.clock import SYSTEM_CLOCK
from stratalog.manager.write.batches import fit_sizes
from stratalog.records import kernel
from stratalog.records.arrow import HEADERS_TYPE, rows_of
from stratalog.records.builder import BatchBuilder, BatchOptions
from stratalog.spark.write.row_groups import RowGroups
from stratalog.storage.commits.piece import Piece, PieceWriter
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.log_config import LogConfig
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    from stratalog.spark.write.plan import SinkPlan
    from stratalog.storage.commits.key import CommitKey

__all__ = ["OnTopic", "first_turn", "stage_rows"]

OnTopic = Callable[[str], None]

_OUT_BYTES: Final = 1 << 20
_KINDS: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "headers": HEADERS_TYPE,
}


def stage_rows(
    plan: SinkPlan,
    key: CommitKey,
    batches: Iterator[pa.RecordBatch],
    *,
    task: int,
    attempt: int,
    file_system: FileSystem | None = None,
    on_topic: OnTopic | None = None,
) -> tuple[Piece, ...]:
    """Write all rows into pieces that a commit can take; what there is. After an error nothing stays.
    ``on_topic`` is called with each topic before its first row is written, and may refuse it."""
    options = plan.options
    writer = PieceWriter(
        file_system or OsFileSystem(),
        options.root,
        key,
        task=task,
        attempt=attempt,
        configs=_Configs(plan),
    )
    groups = RowGroups(
        plan.counts,
        topic=options.topic,
        new_count=plan.new_count,
        by_key=options.by_key,
        turn=first_turn(key, task),
    )
    encoder = _Encoder(plan, writer, on_topic)
    try:
        for gathered in _gathered(batches, options.stage_bytes):
            now_ms = SYSTEM_CLOCK.now_ms()
            for topic_partition, order in groups.of(gathered):
                encoder.append(
                    topic_partition, rows_of(gathered, default_timestamp=now_ms, order=order)
                )
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


def first_turn(key: CommitKey, task: int) -> int:
    """The partition that a task begins with. Another one for each micro-batch: with a few rows each, all of
    a stream would go to one partition."""
    return zlib.crc32(key.owner.encode()) + key.version + task


class _Configs(Mapping[str, LogConfig]):
    """The configs of every topic, those that the write is to create included."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan
        self._new = LogConfig.of(plan.options.configs)

    def __getitem__(self, topic: str) -> LogConfig:
        return self._plan.configs.get(topic, self._new)

    def __iter__(self) -> Iterator[str]:
        return iter(self._plan.configs)

    def __len__(self) -> int:
        return len(self._plan.configs)


class _Encoder:
    """Rows of one partition after the other into batches."""

    def __init__(self, plan: SinkPlan, writer: PieceWriter, on_topic: OnTopic | None) -> None:
        self._plan = plan
        self._on_topic = on_topic
        self._writer = writer
        self._configs = _Configs(plan)
        self._options = BatchOptions(
            codec=plan.options.codec,
            level=plan.options.level,
            batch_bytes=plan.options.batch_bytes,
        )
        self._builders: dict[str, BatchBuilder] = {}

    def append(self, topic_partition: TopicPartition, rows: kernel.Rows) -> None:
        builder = self._builders.get(topic_partition.topic)
        if builder is None:
            self._plan.check_topic(topic_partition.topic)
            if self._on_topic is not None:
                self._on_topic(topic_partition.topic)
            sizes = fit_sizes(self._configs[topic_partition.topic], self._options)
            builder = BatchBuilder(replace(self._options, batch_bytes=sizes.batch_bytes))
            self._builders[topic_partition.topic] = builder
        row = 0
        while row < rows.count:
            row = builder.append(rows, row=row, out_bytes_max=_OUT_BYTES)
            self._writer.append(topic_partition, builder.out)
            builder.out.clear()
            builder.next_offset = 0


def _gathered(batches: Iterator[pa.RecordBatch], bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The batches that Spark sends, several as one: the more rows, the fuller each partition's batches."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(_plain(batch))
            size += held[-1].nbytes
        if size >= bytes_max:
            yield _joined(held)
            held, size = [], 0
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that are written, of the types that rows are taken out of: a session may send others."""
    columns = {}
    for name, kind in _KINDS.items():
        index = batch.schema.get_field_index(name)
        if index < 0:
            continue
        column = batch.column(index)
        if pa.types.is_null(column.type):
            column = pa.nulls(len(column), kind)
        columns[name] = column if column.type == kind else column.cast(kind)
    return pa.record_batch(columns)
