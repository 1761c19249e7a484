"""What a reader took from the log as the record batches that Spark accepts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from stratalog.records.arrow import HEADERS_TYPE, ArrowBatches, arrow_schema
from stratalog.records.arrow_values import int32_array
from stratalog.records.columns import DecodedColumns, column_mask
from stratalog.records.layout import Column
from stratalog.spark.options.columns import COLUMNS
from stratalog.types import TopicPartition

__all__ = ["SparkBatches", "scan_mask"]

_TOPIC: Final = pa.string()
_PARTITION: Final = pa.int32()
_NOTHING: Final = int32_array([0])[0]


def scan_mask(names: Sequence[str]) -> Column:
    """The columns that must be decoded for these. Where none is, the offset is: rows must be counted."""
    below = [COLUMNS[name].scan_name for name in names]
    return column_mask([name for name in below if name is not None] or ["offset"])


class SparkBatches:
    """Makes record batches with our columns by their names in Spark."""

    def __init__(self, names: Sequence[str], *, rows_max: int) -> None:
        below = tuple(COLUMNS[name].scan_name or name for name in names)
        kinds = {"topic": _TOPIC, "partition": _PARTITION}
        schema = pa.schema(
            [(name, kinds[name]) if name in kinds else arrow_schema((name,))[0] for name in below]
        )
        self._batches = ArrowBatches(schema, rows_max=rows_max)
        self._headers_at = names.index("headers") if "headers" in names else None
        self.schema = pa.schema(
            [pa.field(name, field.type) for name, field in zip(names, schema, strict=True)]
        )

    def of(
        self, taken: DecodedColumns, topic_partition: TopicPartition | None
    ) -> Iterator[pa.RecordBatch]:
        topic, partition = (None, None) if topic_partition is None else topic_partition
        for batch in self._batches.of(taken, {"topic": topic, "partition": partition}):
            columns = batch.columns
            if self._headers_at is not None:
                columns[self._headers_at] = _null_where_empty(columns[self._headers_at])
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _null_where_empty(headers: pa.ListArray) -> pa.ListArray:
    """Spark's Kafka source says null, not an empty list, of a record without headers."""
    import pyarrow.compute as pc

    if len(headers.flatten()) == 0:
        return pa.nulls(len(headers), HEADERS_TYPE)
    is_empty = pc.equal(pc.list_value_length(headers), _NOTHING)
    if not is_empty.true_count:
        return headers
    return pa.ListArray.from_arrays(
        headers.offsets, headers.values, type=HEADERS_TYPE, mask=is_empty
    )
