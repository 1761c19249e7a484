"""Rows into one partition's log: in batches that the topic accepts, handed over in pieces."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from stratalog.errors import UsageError
from stratalog.records import kernel
from stratalog.records.builder import BatchBuilder, BatchOptions
from stratalog.records.layout import BATCH_HEADER_SIZE, CODECS, Codec
from stratalog.storage.admission.rules import AppendRules
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import AppendResult, PartitionLog
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from stratalog.manager.append_gate import AppendGate
    from stratalog.manager.write.transactions import Transaction

__all__ = ["append_rows", "batch_options", "fit_sizes"]

#: Batches of one append are handed to the log in pieces of about this size.
_PIECE_BYTES: Final = 1 << 20


def batch_options(codec: Codec | str, level: int | None, batch_bytes: int) -> BatchOptions:
    """Return the options of a caller's batches; UsageError if one is wrong."""
    named = CODECS.get(codec.lower()) if isinstance(codec, str) else codec
    if not isinstance(named, Codec):
        raise UsageError(f"no codec {codec!r}: there are {', '.join(CODECS)}")
    if level is not None and type(level) is not int:
        raise UsageError(f"a level is a whole number, not {level!r}")
    if type(batch_bytes) is not int or batch_bytes < 1:
        raise UsageError(f"batch_bytes is a number from 1 on, not {batch_bytes!r}")
    return BatchOptions(codec=named, level=level, batch_bytes=batch_bytes)


class _Sizes(NamedTuple):
    batch_bytes: int
    piece_bytes: int


def fit_sizes(config: LogConfig, options: BatchOptions) -> _Sizes:
    """Return how large batches and pieces may be, so that many small records are never rejected: a batch fits
    ``max.message.bytes``, and a piece ``segment.bytes``."""
    segment_bytes = config.effective_segment_bytes
    room = min(config.max_message_bytes, segment_bytes) - BATCH_HEADER_SIZE
    if options.codec or AppendRules.of(config).codec:
        room -= room // 32 + 64  # what cannot be compressed grows a little
    batch_bytes = max(1, min(options.batch_bytes, room))
    # A piece is full when it has reached its size: a last batch, of one large record, may go beyond.
    fits = segment_bytes >= _PIECE_BYTES + config.max_message_bytes
    return _Sizes(batch_bytes, _PIECE_BYTES if fits else 1)


def append_rows(
    log: PartitionLog,
    topic_partition: TopicPartition,
    rows: kernel.Rows,
    options: BatchOptions,
    transaction: Transaction | None,
    written: Callable[[AppendResult], None],
    gate: AppendGate,
) -> None:
    """Append all rows; call ``written`` with the result of every piece that is in the log. The gate is
    entered for each piece: a commit need not wait for a caller whose records come slowly."""
    sizes = fit_sizes(log.config, options)
    options = replace(options, batch_bytes=sizes.batch_bytes)
    builder = BatchBuilder(
        options if transaction is None else transaction.options(topic_partition, options)
    )
    row = 0
    while row < rows.count:
        row = builder.append(rows, row=row, out_bytes_max=sizes.piece_bytes)
        if transaction is not None:
            transaction.begin_write()
        with gate:
            result = log.append(builder.out, leader_epoch=log.latest_epoch)
        if transaction is not None:
            transaction.advance(topic_partition, builder.next_sequence)
        written(result)
        builder.out.clear()
        builder.next_offset = 0
