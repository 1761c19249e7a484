"""Columns as Arrow, both ways: what the decoder took becomes record batches, Arrow becomes rows to write.

The types are those that Spark's Python data sources accept (binary, not large_binary; timestamps in
microseconds, UTC; every field nullable). With views, keys and values are ``binary_view`` instead, and
point into the mapped log. Imports pyarrow: nothing that must start fast imports this module at its top.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from stratalog.errors import UsageError
from stratalog.records import kernel
from stratalog.records.arrow_values import repeat_value, string_array
from stratalog.records.columns import COLUMN_NAMES, DecodedColumns
from stratalog.records.layout import CODECS, INT64_MAX, Column

__all__ = ["HEADERS_TYPE", "HEADER_TYPE", "ArrowBatches", "arrow_schema", "as_list", "rows_of"]

_STRING: Final = pa.string()
_BINARY: Final = pa.binary()
HEADER_TYPE: Final = pa.struct([("key", _STRING), ("value", _BINARY)])
HEADERS_TYPE: Final = pa.list_(HEADER_TYPE)
_CODEC_NAMES: Final = string_array(list(CODECS))

_TYPES: Final[dict[Column, pa.DataType]] = {
    Column.OFFSET: pa.int64(),
    Column.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Column.TIMESTAMP_TYPE: pa.int32(),
    Column.KEY: pa.binary(),
    Column.VALUE: pa.binary(),
    Column.HEADERS: HEADERS_TYPE,
    Column.POSITION: pa.int64(),
    Column.BASE_OFFSET: pa.int64(),
    Column.PRODUCER_ID: pa.int64(),
    Column.PRODUCER_EPOCH: pa.int16(),
    Column.SEQUENCE: pa.int32(),
    Column.LEADER_EPOCH: pa.int32(),
    Column.CODEC: pa.string(),
    Column.IS_CONTROL: pa.bool_(),
    Column.IS_TRANSACTIONAL: pa.bool_(),
    Column.TIMESTAMP_MS: pa.int64(),
}

assert set(_TYPES) == set(Column)

_NULLABLE: Final = frozenset((Column.KEY, Column.VALUE, Column.TIMESTAMP))


def arrow_schema(names: tuple[str, ...], *, views: bool = False) -> pa.Schema:
    """The schema of the named columns, in their order."""
    return pa.schema([(name, _type_of(COLUMN_NAMES[name], views)) for name in names])


def _type_of(column: Column, views: bool) -> pa.DataType:
    if views and column in (Column.KEY, Column.VALUE):
        return pa.binary_view()
    return _TYPES[column]


class ArrowBatches:
    """Makes record batches of one schema over what the decoder took; nothing is copied."""

    def __init__(self, schema: pa.Schema, *, rows_max: int) -> None:
        self.schema = schema
        self._rows_max = rows_max
        self._repeated: dict[str, tuple[str | int | None, pa.Array]] = {}
        # Asking a schema for its fields costs more than making an array: ask once.
        self._fields = [(field.name, COLUMN_NAMES.get(field.name), field.type) for field in schema]

    def of(
        self, taken: DecodedColumns, constants: dict[str, Any] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Record batches of at most ``rows_max`` rows. ``constants`` are columns of the schema that
        have one value throughout (a topic, a partition)."""
        sources = [pa.py_buffer(source) for source in taken.sources]
        arrays = []
        for name, column, kind in self._fields:
            if column is None:
                arrays.append(self._repeat((constants or {})[name], name, kind, taken.rows))
            else:
                arrays.append(_array(column, kind, taken, sources))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if taken.rows <= self._rows_max:
            yield batch
            return
        for start in range(0, taken.rows, self._rows_max):
            yield batch.slice(start, self._rows_max)

    def _repeat(self, value: str | int | None, name: str, kind: pa.DataType, rows: int) -> pa.Array:
        """A constant column: one batch's is the next one's, as far as it reaches."""
        known, column = self._repeated.get(name, (None, None))
        if column is None or known != value or len(column) < rows:
            column = repeat_value(value, kind, rows)
            self._repeated[name] = value, column
        return column.slice(0, rows)


def _array(
    column: Column, kind: pa.DataType, taken: DecodedColumns, sources: list[pa.Buffer]
) -> pa.Array:
    parts = taken.buffers[column]
    if column is Column.HEADERS:
        return _headers_array(taken.rows, *parts)
    if column in _NULLABLE:
        buffers = [_buffer(part) for part in parts]
        if sources and column is not Column.TIMESTAMP:
            buffers += sources
        return pa.Array.from_buffers(kind, taken.rows, buffers)
    if column is Column.CODEC:
        numbers = pa.Array.from_buffers(pa.int8(), taken.rows, [None, pa.py_buffer(parts[0])])
        return _CODEC_NAMES.take(numbers)
    return pa.Array.from_buffers(kind, taken.rows, [None, pa.py_buffer(parts[0])])


def _buffer(part: Any) -> pa.Buffer | None:
    return None if part is None else pa.py_buffer(part)


_NO_HEADERS: Final = pa.nulls(0, HEADER_TYPE)


def _headers_array(rows: int, ends: Any, count: int, keys: Any, values: Any) -> pa.Array:
    buffers = [None, pa.py_buffer(ends)]
    if count == 0:  # as nearly always
        return pa.Array.from_buffers(HEADERS_TYPE, rows, buffers, children=[_NO_HEADERS])
    key = pa.Array.from_buffers(_STRING, count, [None, *(pa.py_buffer(part) for part in keys)])
    value = pa.Array.from_buffers(_BINARY, count, [_buffer(part) for part in values])
    entries = pa.Array.from_buffers(HEADER_TYPE, count, [None], children=[key, value])
    return pa.Array.from_buffers(HEADERS_TYPE, rows, buffers, children=[entries])


# ---------------------------------------------------------------------------------------------


def rows_of(
    data: pa.RecordBatch,
    *,
    keep_offsets: bool = False,
    default_timestamp: int = -1,
    order: Any = None,
) -> kernel.Rows:
    """Arrow columns as rows for the builder; columns of other names are left alone. With ``order``, a
    buffer of int64, the rows of those numbers, in that order.

    ``key`` and ``value`` may be any binary or string type, ``timestamp`` a timestamp of any unit or
    int64 milliseconds (``timestamp_ms`` wins where both are there: it is exact), ``headers`` a list or
    map of text to binary. ``offset`` is used with ``keep_offsets``.
    """
    names = set(data.schema.names)
    if not names & {"key", "value"}:
        raise UsageError(f"no column 'key' or 'value' to write: there are {sorted(names)}")
    timestamps, multiply, divide = _timestamps(data)
    offsets = None
    if keep_offsets:
        column = _column(data, "offset", pa.int64())
        if column is None or column.null_count:
            raise UsageError("to keep offsets, a column 'offset' of int64 without nulls is needed")
        offsets = (column.buffers()[1], column.offset)
    return kernel.Rows(
        data.num_rows,
        timestamps=timestamps,
        multiply=multiply,
        divide=divide,
        default_timestamp=default_timestamp,
        offsets=offsets,
        key=_binary(_column(data, "key", pa.binary())),
        value=_binary(_column(data, "value", pa.binary())),
        headers=_headers(data),
        order=order,
    )


def _column(data: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array | None:
    index = data.schema.get_field_index(name)
    if index < 0:
        return None
    column = data.column(index)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowException as error:
        raise UsageError(f"column {name!r} is {column.type}, not {kind}: {error}") from None


_UNITS: Final = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}


def _timestamps(data: pa.RecordBatch) -> tuple[tuple[Any, Any, int] | None, int, int]:
    name = "timestamp_ms" if "timestamp_ms" in data.schema.names else "timestamp"
    index = data.schema.get_field_index(name)
    if index < 0:
        return None, 1, 1
    column = data.column(index)
    multiply, divide = 1, 1
    if pa.types.is_null(column.type):
        return None, 1, 1
    if pa.types.is_timestamp(column.type):
        multiply, divide = _UNITS[column.type.unit]
    elif pa.types.is_integer(column.type):
        try:
            column = column.cast(pa.int64())
        except pa.ArrowException as error:
            raise UsageError(f"column {name!r} holds a time beyond int64: {error}") from None
    else:
        raise UsageError(f"column {name!r} is {column.type}: a timestamp or int64 milliseconds")
    if multiply > 1:
        _check_range(column, INT64_MAX // multiply, name)
    valid, values = column.buffers()
    return (valid, values, column.offset), multiply, divide


def _check_range(column: pa.Array, largest: int, name: str) -> None:
    import pyarrow.compute as pc

    bounds = pc.min_max(column.cast(pa.int64()))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is not None and (low < -largest or high > largest):
        raise UsageError(f"column {name!r} holds a time beyond 64 bits of milliseconds")


def _binary(column: pa.Array | None) -> tuple[Any, Any, Any, int] | None:
    if column is None:
        return None
    valid, ends, data = column.buffers()
    if ends is None:  # no rows: Arrow may leave the buffers out
        ends = bytes(4 * (column.offset + len(column) + 1))
    return valid, ends, b"" if data is None else data, column.offset


def _headers(data: pa.RecordBatch) -> tuple[Any, Any, int, Any, Any] | None:
    index = data.schema.get_field_index("headers")
    if index < 0:
        return None
    column = data.column(index)
    if pa.types.is_null(column.type):
        return None
    try:
        column = as_list(column).cast(HEADERS_TYPE)
    except pa.ArrowException as error:
        raise UsageError(
            f"column 'headers' is {column.type}, not {HEADERS_TYPE}: {error}"
        ) from None
    entries = column.values
    if entries.null_count:
        raise UsageError("column 'headers' holds a header that is null")
    valid, ends = column.buffers()[:2]
    if ends is None:
        ends = bytes(4 * (column.offset + len(column) + 1))
    # field() of a sliced struct array does not know the slice: flatten() does.
    keys, values = entries.flatten()
    return valid, ends, column.offset, _binary(keys.cast(pa.binary())), _binary(values)


def as_list(column: pa.Array) -> pa.Array:
    """A column of headers as one of lists: a map is one of pairs, and a list view need not be in order."""
    kind = column.type
    if pa.types.is_map(kind):
        return _list_of_map(column)
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return _list_of_view(column)
    return column


def _list_of_map(column: pa.Array) -> pa.Array:
    entries = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
    valid, ends = column.buffers()[:2]
    return pa.Array.from_buffers(
        pa.list_(entries.type), len(column), [valid, ends], offset=column.offset, children=[entries]
    )


def _list_of_view(column: pa.Array) -> pa.Array:
    # Not by a cast: what pyarrow 26 makes of one has no end of its last list.
    import pyarrow.compute as pc

    sizes = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int32())
    ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(sizes)])
    return pa.ListArray.from_arrays(ends, column.flatten(), mask=column.is_null())
