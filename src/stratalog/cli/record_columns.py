"""Records as columns of plain Python values, from the buffers that the decoder fills; no Arrow involved."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, Literal

from stratalog.inspect.result import Chunk, Field, Kind, Same
from stratalog.inspect.scan import FILE_COLUMNS
from stratalog.records.columns import COLUMN_NAMES, DEFAULT_COLUMNS, DecodedColumns
from stratalog.records.layout import CODECS, Column
from stratalog.storage.segment.log_file import LogFile

__all__ = ["RECORD_COLUMNS", "record_chunk", "record_fields"]

#: What is shown of a record unless asked otherwise.
RECORD_COLUMNS: Final = (*FILE_COLUMNS, *DEFAULT_COLUMNS)

_KINDS: Final = {
    "topic": Kind.TEXT,
    "timestamp": Kind.TIME,
    "timestamp_ms": Kind.INTEGER,
    "key": Kind.BINARY,
    "value": Kind.BINARY,
    "headers": Kind.HEADERS,
    "codec": Kind.TEXT,
    "is_control": Kind.BOOLEAN,
    "is_transactional": Kind.BOOLEAN,
}
_FORMATS: Final[dict[Column, Literal["q", "i", "h", "b"]]] = {
    Column.OFFSET: "q",
    Column.TIMESTAMP_MS: "q",
    Column.TIMESTAMP_TYPE: "i",
    Column.POSITION: "q",
    Column.BASE_OFFSET: "q",
    Column.PRODUCER_ID: "q",
    Column.PRODUCER_EPOCH: "h",
    Column.SEQUENCE: "i",
    Column.LEADER_EPOCH: "i",
    Column.CODEC: "b",
}
_CODEC_NAMES: Final = tuple(CODECS)


def record_fields(names: Sequence[str] | None) -> tuple[Field, ...]:
    """The fields of the named columns; a table leaves the type of a timestamp out unless named."""
    return tuple(
        Field(
            name,
            _KINDS.get(name, Kind.INTEGER),
            in_table=names is not None or name != "timestamp_type",
        )
        for name in (RECORD_COLUMNS if names is None else names)
    )


def record_chunk(
    log_file: LogFile, taken: DecodedColumns, names: Sequence[str], rows_max: int
) -> Chunk:
    """The first ``rows_max`` records of what was taken. Timestamps are the stored milliseconds: taken
    must be ``timestamp_ms`` for ``timestamp``."""
    rows = min(taken.rows, rows_max)
    columns = [_column(log_file, taken, name) for name in names]
    if rows < taken.rows:
        columns = [values if isinstance(values, Same) else values[:rows] for values in columns]
    return Chunk(rows, columns)


def _column(log_file: LogFile, taken: DecodedColumns, name: str) -> Sequence[Any] | Same:
    if name == "topic":
        return Same(log_file.topic)
    if name == "partition":
        return Same(log_file.partition)
    column = Column.TIMESTAMP_MS if name == "timestamp" else COLUMN_NAMES[name]
    parts = taken.buffers[column]
    if column in (Column.KEY, Column.VALUE):
        return _binary_values(taken.rows, *parts)
    if column is Column.HEADERS:
        return _header_values(taken.rows, *parts)
    if column in _FORMATS:
        numbers = memoryview(parts[0]).cast("B").cast(_FORMATS[column])[: taken.rows].tolist()
        return [_CODEC_NAMES[number] for number in numbers] if column is Column.CODEC else numbers
    return _bits(taken.rows, parts[0])


def _binary_values(rows: int, valid: Any, ends: Any, data: Any) -> list[bytes | None]:
    data = bytes(data)
    bounds = memoryview(ends).cast("B").cast("i")[: rows + 1].tolist()
    values: list[bytes | None] = [data[start:end] for start, end in pairwise(bounds)]
    if valid is not None:
        bits = _bits(rows, valid)
        values = [value if bit else None for value, bit in zip(values, bits, strict=True)]
    return values


def _header_values(
    rows: int, ends: Any, count: int, keys: Any, values: Any
) -> Sequence[Any] | Same:
    if count == 0:
        return Same(())
    texts = [(key or b"").decode("utf-8") for key in _binary_values(count, None, *keys)]
    pairs = list(zip(texts, _binary_values(count, *values), strict=True))
    bounds = memoryview(ends).cast("B").cast("i")[: rows + 1].tolist()
    return [pairs[start:end] for start, end in pairwise(bounds)]


def _bits(rows: int, bitmap: Any) -> list[bool]:
    view = memoryview(bitmap).cast("B")
    return [bool(view[row >> 3] >> (row & 7) & 1) for row in range(rows)]
