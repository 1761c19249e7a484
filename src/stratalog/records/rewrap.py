"""Give messages of magic 0 and 1 another codec: wrap them, unwrap them, or change how they are wrapped."""

from __future__ import annotations

from typing import Any, Final

from stratalog.records.columns import Selection
from stratalog.records.convert import columns_of, rows_with_offsets
from stratalog.records.layout import INT32_MAX, Column
from stratalog.records.legacy import MessageBuilder, MessageOptions

__all__ = ["rewrap_messages"]

_COLUMNS: Final = Column.OFFSET | Column.TIMESTAMP_MS | Column.KEY | Column.VALUE


def rewrap_messages(out: bytearray, region: Any, options: MessageOptions) -> None:
    """Append the messages of a region, plain or in wrappers, to ``out`` as ``options`` say. Offsets and
    timestamps are kept. CorruptionError if the region is not sound."""
    selection = Selection(columns=_COLUMNS, batch_rows=INT32_MAX)
    for taken in columns_of(memoryview(region).cast("B"), selection):
        MessageBuilder(options, out=out).append(rows_with_offsets(taken))
