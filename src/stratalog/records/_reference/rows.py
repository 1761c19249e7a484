"""The buffers of Arrow columns, or values of Python's, as rows to be written."""

from __future__ import annotations

import struct
from typing import Any

from stratalog.records._reference.cursor import Wrong, wrap64
from stratalog.records.layout import (
    INT64_MAX,
    Reason,
)


def _bytes_of(buffer: Any) -> memoryview:
    return memoryview(buffer).cast("B")


def _bit(bitmap: memoryview | None, row: int) -> bool:
    return bitmap is None or bool(bitmap[row // 8] >> row % 8 & 1)


class _Field:
    """A binary column of Arrow's, read only."""

    def __init__(self, parts: tuple[Any, Any, Any, int], count: int) -> None:
        valid, ends, data, first = parts
        if first < 0:
            raise ValueError("a column starts before its buffers")
        self.valid = None if valid is None else _hold(valid, (first + count + 7) // 8)
        self.ends = _hold(ends, (first + count + 1) * 4)
        self.data = _bytes_of(data)
        self.first = first

    def __getitem__(self, row: int) -> bytes | None:
        row += self.first
        if not _bit(self.valid, row):
            return None
        start, end = struct.unpack_from("=ii", self.ends, row * 4)
        if not 0 <= start <= end <= len(self.data):
            raise Wrong(Reason.FIELD_LENGTH)
        return bytes(self.data[start:end])


def _hold(buffer: Any, size: int) -> memoryview:
    view = _bytes_of(buffer)
    if len(view) < size:
        raise ValueError("a column is shorter than its row count")
    return view


class Rows:
    """See ``_kernel.Rows``."""

    def __init__(
        self,
        count: int,
        *,
        timestamps: tuple[Any, Any, int] | None = None,
        multiply: int = 1,
        divide: int = 1,
        default_timestamp: int = -1,
        offsets: tuple[Any, int] | None = None,
        key: tuple[Any, Any, Any, int] | None = None,
        value: tuple[Any, Any, Any, int] | None = None,
        headers: tuple[Any, Any, int, Any, Any] | None = None,
        order: Any = None,
    ) -> None:
        if count < 0 or multiply < 1 or divide < 1:
            raise ValueError("a count of rows and a scale are positive")
        self.count = count
        self._scale = (multiply, divide)
        self._default_timestamp = default_timestamp
        self._timestamps = timestamps
        if timestamps is not None:
            _starts_at(timestamps[2])
            if timestamps[0] is not None:
                _hold(timestamps[0], (timestamps[2] + count + 7) // 8)
            _hold(timestamps[1], (timestamps[2] + count) * 8)
        self._offsets = offsets
        if offsets is not None:
            _starts_at(offsets[1])
            _hold(offsets[0], (offsets[1] + count) * 8)
        self._key = None if key is None else _Field(key, count)
        self._value = None if value is None else _Field(value, count)
        self._headers = headers
        if headers is not None:
            valid, ends, first, keys, values = headers
            _starts_at(first)
            if valid is not None:
                _hold(valid, (first + count + 7) // 8)
            _hold(ends, (first + count + 1) * 4)
            self._header_count = min(len(_bytes_of(p[1])) // 4 - 1 - p[3] for p in (keys, values))
            if self._header_count < 0:
                raise ValueError("a column is shorter than its row count")
            self._header_key = _Field(keys, self._header_count)
            self._header_value = _Field(values, self._header_count)
        self._order = None
        if order is not None:
            if offsets is not None:
                raise ValueError("rows that bring their offsets have an order")
            data = _bytes_of(order)
            self._order = struct.unpack_from(f"={len(data) // 8}q", data)
            self.count = len(self._order)
            if any(not 0 <= row < count for row in self._order):
                raise ValueError("no such row")

    def _row(self, row: int) -> int:
        return row if self._order is None else self._order[row]

    @property
    def has_offsets(self) -> bool:
        return self._offsets is not None

    @property
    def has_headers(self) -> bool:
        return self._headers is not None and self._header_count > 0

    def timestamp(self, row: int) -> int:
        if self._timestamps is None:
            return self._default_timestamp
        valid, values, first = self._timestamps
        row = self._row(row)
        if not _bit(None if valid is None else _bytes_of(valid), first + row):
            return self._default_timestamp
        (value,) = struct.unpack_from("=q", _bytes_of(values), (first + row) * 8)
        multiply, divide = self._scale
        return wrap64(int(value) * multiply) // divide

    def offset(self, row: int, first_row: int, base_offset: int) -> int:
        if self._offsets is None:
            if not 0 <= base_offset <= INT64_MAX - (row - first_row):
                raise Wrong(Reason.OFFSET_RANGE)
            return base_offset + row - first_row
        values, first = self._offsets
        (offset,) = struct.unpack_from("=q", _bytes_of(values), (first + row) * 8)
        if offset < 0:
            raise Wrong(Reason.OFFSET_RANGE)
        if row > first_row and offset <= self.offset(row - 1, row - 1, 0):
            raise Wrong(Reason.OFFSET_ORDER)
        return int(offset)

    def key(self, row: int) -> bytes | None:
        return None if self._key is None else self._key[self._row(row)]

    def value(self, row: int) -> bytes | None:
        return None if self._value is None else self._value[self._row(row)]

    def headers(self, row: int) -> list[tuple[bytes, bytes | None]]:
        if self._headers is None:
            return []
        valid, ends, first, _, _ = self._headers
        row = self._row(row)
        if not _bit(None if valid is None else _bytes_of(valid), first + row):
            return []
        start, end = struct.unpack_from("=ii", _bytes_of(ends), (first + row) * 4)
        if not 0 <= start <= end <= self._header_count:
            raise Wrong(Reason.HEADER_COUNT)
        headers = []
        for i in range(start, end):
            key = self._header_key[i]
            if key is None:
                raise Wrong(Reason.HEADER_KEY_NULL)
            headers.append((key, self._header_value[i]))
        return headers


def _starts_at(first: int) -> None:
    if first < 0:
        raise ValueError("a column starts before its buffers")


def numbers_in(source: Any, least: int, *, writable: bool = False) -> memoryview:
    view = memoryview(source)
    if view.format not in ("q", "l") or view.itemsize != 8 or not 0 <= least <= view.nbytes // 8:
        raise ValueError(f"not a buffer of {least} 64-bit integers")
    if writable and view.readonly:
        raise ValueError("a buffer that may not be written")
    return view.cast("B").cast("q")
