"""Columns of records as a stream of Arrow batches: what a scan and a read of open logs have in common.

pyarrow is imported only when a schema or a table is asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowStream"]


class ArrowStream(ABC):
    """Record batches of one schema. Arrow's C stream interface makes it readable for polars, DuckDB and
    others."""

    #: The columns in their order: those of the decoder, and ``topic`` and ``partition``.
    columns: tuple[str, ...]
    _has_views = False  # whether keys and values are views into what was read

    @abstractmethod
    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of every batch."""
        import pyarrow as pa

        from stratalog.records.arrow import arrow_schema

        kinds = {"topic": pa.string(), "partition": pa.int32()}
        return pa.schema(
            [
                pa.field(name, kinds[name])
                if name in kinds
                else arrow_schema((name,), views=self._has_views)[0]
                for name in self.columns
            ]
        )

    def to_table(self) -> pa.Table:
        """Return everything as one table."""
        import pyarrow as pa

        return pa.Table.from_batches(self, schema=self.schema)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(self.schema, iter(self))
        return reader.__arrow_c_stream__(requested_schema)
