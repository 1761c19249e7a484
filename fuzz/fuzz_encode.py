"""Fuzz target: columns that lie into batches and messages.

The first bytes choose the row count, which columns there are, where each starts, and how they are encoded;
the rest is the columns' buffers, each behind one byte of length, as they come: offsets that go backwards or
point anywhere, bitmaps that are too short, starts beyond the end. The answer is a refusal, the same of both
kernels, or bytes that decode to equal rows.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator
from typing import Any, Final

from fuzz.twins import REFUSED, Selectors, agree, exact
from stratalog.errors import InvalidRecordError
from stratalog.records import _kernel, _reference
from stratalog.records.builder import BatchBuilder, BatchOptions
from stratalog.records.columns import Selection, decode_records
from stratalog.records.layout import (
    INT64_MAX,
    INT64_MIN,
    ROW_WIDTH,
    Check,
    Codec,
    Column,
    Reason,
    Row,
)
from stratalog.records.legacy import MessageBuilder, MessageOptions

TARGET_NAME = "encode"
SELECTORS: Final = 24
TIMES: Final = (None, -1, 0, 5, 1_700_000_000_000, INT64_MAX, INT64_MIN)
OFFSETS: Final = (0, 7, 1 << 40, INT64_MAX - 3, INT64_MAX, -1)
FIRSTS: Final = (0, 0, 0, 0, 1, 2, 9, -1, 1 << 40, INT64_MAX // 8)
CODECS: Final = (Codec.NONE, Codec.SNAPPY, Codec.NONE, Codec.GZIP)
TIMESTAMPS, TIMESTAMPS_VALID, HAS_OFFSETS, KEY, KEY_VALID, VALUE, VALUE_VALID = range(7)
HEADERS, HEADERS_VALID, HEADER_KEY_VALID, HEADER_VALUE_VALID, ORDER = range(7, 12)


class Parts:
    """Buffers off the input, one after the other."""

    def __init__(self, data: bytes, shift: int) -> None:
        self._data = data
        self._shift = shift  # off the alignment that Arrow's own buffers have

    def take(self) -> memoryview:
        size = self._data[0] if self._data else 0
        part, self._data = self._data[1 : 1 + size], self._data[1 + size :]
        return exact(bytes(self._shift) + part)[self._shift :]


def one_input(data: bytes) -> object:
    selectors = Selectors(data, SELECTORS)
    count = selectors.byte() % 20
    columns = read_columns(selectors) | {"count": count}
    lane = selectors.byte()
    target = selectors.choice((1 << 20, 0, 1, 60, 300))
    next_offset = selectors.choice(OFFSETS)
    time = selectors.choice(TIMES)
    codec = selectors.choice(CODECS)
    made = agree(lambda kernel: kernel.Rows(**columns).count)
    if made == REFUSED:
        return REFUSED
    assert isinstance(made, int)
    count = made  # with an order there may be more rows than the columns have, or less
    twin = _reference.Rows(**columns)
    if lane & 1:
        reason = check_records(count, columns, target, time)
        options = BatchOptions(codec=codec, batch_bytes=target, delete_horizon_ms=time)
        batches = BatchBuilder(options, next_offset=next_offset)
        written = append(batches, count, columns, twin, next_offset)
        return "records", reason, written
    magic = lane >> 1 & 1
    relative = bool(lane & 4)
    reason = check_messages(count, columns, target, magic, relative, next_offset, time)
    message_options = MessageOptions(
        magic=magic, codec=codec, wrapper_bytes=target, append_time=time if magic else None
    )
    messages = MessageBuilder(message_options, next_offset=next_offset)
    return "messages", magic, reason, append(messages, count, columns, twin, next_offset)


def read_columns(selectors: Selectors) -> dict[str, Any]:
    mask = selectors.number()
    multiply = selectors.choice((1, 1, 1000, INT64_MAX))
    divide = selectors.choice((1, 1, 1000, 1_000_000, INT64_MAX))
    default = selectors.choice((-1, 0, INT64_MIN))
    firsts = [selectors.choice(FIRSTS) for _ in range(6)]
    parts = Parts(selectors.rest, selectors.choice((0, 0, 0, 1)))

    def valid(bit: int) -> memoryview | None:
        return parts.take() if mask >> bit & 1 else None

    def binary(bit: int, first: int) -> tuple[Any, Any, Any, int]:
        return valid(bit), parts.take(), parts.take(), first

    columns: dict[str, Any] = {
        "multiply": multiply,
        "divide": divide,
        "default_timestamp": default,
    }
    if mask >> TIMESTAMPS & 1:
        columns["timestamps"] = (valid(TIMESTAMPS_VALID), parts.take(), firsts[0])
    if mask >> HAS_OFFSETS & 1:
        columns["offsets"] = (parts.take(), firsts[1])
    if mask >> KEY & 1:
        columns["key"] = binary(KEY_VALID, firsts[2])
    if mask >> VALUE & 1:
        columns["value"] = binary(VALUE_VALID, firsts[3])
    if mask >> HEADERS & 1:
        columns["headers"] = (
            valid(HEADERS_VALID),
            parts.take(),
            firsts[4],
            binary(HEADER_KEY_VALID, firsts[5]),
            binary(HEADER_VALUE_VALID, firsts[5]),
        )
    if mask >> ORDER & 1:
        columns["order"] = parts.take()
    return columns


def check_records(count: int, columns: dict[str, Any], target: int, time: int | None) -> object:
    def encoded(kernel: Any) -> list[Any]:
        rows = kernel.Rows(**columns)
        out = bytearray(b"before")
        seen: list[Any] = []
        row = 0
        while row < count and not (seen and seen[-1]):
            row, *facts, reason = kernel.encode_records(out, rows, row, count, target, time)
            seen += [row, *facts, len(out), int(reason)]
        return [*seen, out]

    answer = agree(encoded)
    return answer[-2] if len(answer) > 1 else None


def check_messages(
    count: int,
    columns: dict[str, Any],
    target: int,
    magic: int,
    relative: bool,
    base_offset: int,
    time: int | None,
) -> object:
    def encoded(kernel: Any) -> list[Any]:
        rows = kernel.Rows(**columns)
        out = bytearray(b"before")
        if count == 0:
            return [0, out]
        *facts, reason = kernel.encode_messages(
            out, rows, 0, count, target, magic, 8, base_offset, relative, time
        )
        return [*facts, int(reason), out]

    return agree(encoded)[-2]


def append(
    builder: BatchBuilder | MessageBuilder,
    count: int,
    columns: dict[str, Any],
    twin: _reference.Rows,
    next_offset: int,
) -> object:
    """What a builder makes of the rows, read back."""
    try:
        builder.append(_kernel.Rows(**columns))
    except InvalidRecordError:
        return REFUSED
    time = builder.options.append_time
    expected = []
    magic = 2 if isinstance(builder, BatchBuilder) else builder.options.magic
    for row in range(count):
        timestamp = twin.timestamp(row) if time is None else time
        expected.append(
            (
                twin.offset(row, 0, next_offset),
                timestamp if magic else -1,
                twin.key(row),
                twin.value(row),
                headers_of(twin, row) if magic == 2 else [],
            )
        )
    assert list(read_back(bytes(builder.out))) == expected
    check_offsets(builder.out)
    return min(count, 3)


def headers_of(twin: _reference.Rows, row: int) -> list[tuple[str, bytes | None]]:
    return [(key.decode("utf-8", "replace"), value) for key, value in twin.headers(row)]


def read_back(region: bytes) -> Iterator[tuple[Any, ...]]:
    every = Selection(
        columns=Column.OFFSET
        | Column.TIMESTAMP_MS
        | Column.TIMESTAMP_TYPE
        | Column.KEY
        | Column.VALUE
        | Column.HEADERS,
        check=Check.CRC | Check.ORDER | Check.COUNTS,
    )
    for r in decode_records(region, every):
        yield r.offset, r.timestamp, r.key, r.value, [(h.key, h.value) for h in r.headers]


def check_offsets(region: bytearray) -> None:
    rows = array("q", [0]) * (20 * ROW_WIDTH)
    flags = Check.CRC | Check.ORDER | Check.COUNTS
    written, *_, reason, _ = _kernel.walk(region, 0, len(region), memoryview(rows), flags)
    assert reason == Reason.NONE
    assert all(rows[at * ROW_WIDTH + Row.LAST_OFFSET] >= 0 for at in range(written))


def seeds() -> Iterable[bytes]:
    ends = struct.pack("=4i", 0, 1, 1, 4)
    field = (b"\x05", ends, b"abcd")
    times = struct.pack("=3q", 1_700_000_000_000, -1, INT64_MAX)
    offsets = struct.pack("=3q", 3, 4, 9)
    headers = (struct.pack("=4i", 0, 1, 1, 2), struct.pack("=3i", 0, 1, 3), b"abc")
    values = (b"\x02", struct.pack("=3i", 0, 0, 4), b"wxyz")
    lists = (b"\x07", headers[0], b"\x03", *headers[1:], *values)
    everything = (b"\x07", times, offsets, *field, *field, *lists)
    for lane in (1, 0, 2, 4, 6):
        for codec in range(4):
            for target in (0, 3):
                tail = bytes((lane, target, codec % 2, 0, codec))
                if lane & 1:
                    yield seed(3, 0x7FF, everything, tail)
                yield seed(3, 0x7B, (b"\x07", times, *field, *field), tail)
        order = struct.pack("=4q", 2, 0, 2, 1)
        yield seed(3, 0x87B, (b"\x07", times, *field, *field, order), bytes((lane, 0, 0, 0, 0)))
        yield seed(3, 0x07, (b"\x06", times, offsets), bytes((lane, 0, 0, 3, 0)))
        yield seed(2, 0, (), bytes((lane, 2, 3, 4, 0)))
        yield seed(3, 0x28, (*field[1:], *field[1:]), bytes((lane, 0, 1, 0, 0)))


def seed(count: int, mask: int, parts: Iterable[bytes], tail: bytes) -> bytes:
    head = bytes((count, mask >> 8, mask & 0xFF, 0, 0, 0)) + bytes(6) + b"\0" + tail
    return head.ljust(SELECTORS, b"\0") + b"".join(bytes((len(p),)) + p for p in parts)
