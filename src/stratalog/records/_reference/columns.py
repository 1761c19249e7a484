"""Decoded records as the buffers of Arrow columns."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from stratalog.records._reference.cursor import Buffer, Cursor, Span, Wrong
from stratalog.records._reference.decode import Decoded, decode_entry
from stratalog.records._reference.headers import (
    Header,
    Stop,
    check_place,
    crc_matches,
    parse_header,
    region_of,
)
from stratalog.records._reference.transactions import AbortedTransactions, is_transactional
from stratalog.records._reference.v07 import crc_matches_v07, decode_entry_v07, parse_entry_v07
from stratalog.records.layout import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    Check,
    Column,
    Ending,
    Reason,
    TimestampType,
)

MICROSECONDS_MAX_MS: Final = 9223372036854775


def _bitmap(bits: Sequence[bool]) -> bytes:
    out = bytearray((len(bits) + 7) // 8)
    for i, bit in enumerate(bits):
        out[i // 8] |= bit << i % 8
    return bytes(out)


def _validity(present: Sequence[bool]) -> bytes | None:
    return None if all(present) else _bitmap(present)


def _pack(code: str, values: Sequence[int]) -> bytes:
    return struct.pack(f"={len(values)}{code}", *values)


def _ends(parts: Sequence[bytes | None]) -> bytes:
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part or b""))
    return _pack("i", ends)


def _binary(parts: Sequence[bytes | None]) -> tuple[bytes | None, bytes, bytes]:
    present = [part is not None for part in parts]
    return _validity(present), _ends(parts), b"".join(part or b"" for part in parts)


@dataclass(slots=True)
class _Filled:
    """A decoded record among others of a column set, with what its batch says."""

    record: Decoded
    header: Header
    timestamp_type: int
    codec: int
    position: int
    key: bytes | None
    value: bytes | None
    key_view: bytes
    value_view: bytes


class Columns:
    """See ``_kernel.Columns``: fill, add, take."""

    def __init__(
        self,
        want: int,
        flags: int = 0,
        *,
        views: bool = False,
        rows_max: int = 65536,
        bytes_max: int = 8 << 20,
        bounds: tuple[int, int, int, int] | None = None,
        aborted: Sequence[int] | None = None,
        keep: Sequence[int] | None = None,
        tombstones: bool = True,
    ) -> None:
        self._want = want
        self._flags = flags
        self._views = views
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._bounds = bounds or (INT64_MIN, INT64_MAX, INT64_MIN, INT64_MAX)
        self._aborted = AbortedTransactions(aborted)
        #: The offsets of the only records that are wanted, in order; None: all are.
        self._kept = None if keep is None else list(keep)
        self._with_tombstones = tombstones
        self._filled: list[_Filled] = []
        self.tombstones = 0
        self.expected = -1
        self.below = -1
        self.skipped = 0

    @property
    def rows(self) -> int:
        return len(self._filled)

    @property
    def used(self) -> int:
        total = 0
        for row in self._filled:
            if self._want & Column.KEY and not self._views:
                total += len(row.key or b"")
            if self._want & Column.VALUE and not self._views:
                total += len(row.value or b"")
            if self._want & Column.HEADERS:
                total += sum(len(k) + len(v or b"") for k, v in row.record.headers)
        return total

    def _full(self, header: Header) -> bool:
        payload_size = header.payload[1] - header.payload[0]
        return bool(self._filled) and (
            self.rows + max(header.count, 1) > self._rows_max
            or self.used + payload_size > self._bytes_max
        )

    def _outside(self, header: Header) -> bool:
        first, last, first_time, last_time = self._bounds
        # What a wrapper holds, only its contents tell: a CRC covers them, and none its own offset.
        if (header.count >= 0 and header.last_offset < first) or header.base_offset > last:
            return True
        if header.max_timestamp < first_time:
            return True
        return header.is_append_time and header.max_timestamp > last_time

    def _holds_nothing_to_keep(self, header: Header) -> bool:
        if self._kept is None or header.count < 0:  # what a wrapper holds, only its contents tell
            return False
        slot = bisect_left(self._kept, header.base_offset)
        return slot == len(self._kept) or self._kept[slot] > header.last_offset

    def _needs_crc_to_skip(self, header: Header) -> bool:
        # No CRC covers the size of a batch: a wrong one hides what follows, or makes a batch of what is none.
        # A wrong magic byte makes one message of many records. Each would leave out offsets that are wanted.
        first, last, *_ = self._bounds
        if header.magic < 2 or header.last_offset < first:
            return True
        return self.expected <= last < header.base_offset

    def _left_out(self, header: Header) -> bool:
        if header.is_control:
            return not self._flags & Check.INCLUDE_CONTROL
        return header in self._aborted

    def fill(
        self,
        data: Buffer,
        position: int,
        limit: int,
        *,
        size_max: int = INT32_MAX,
        position_base: int = 0,
        buffer_index: int = 0,
        guarded: bool = False,
    ) -> tuple[int, int, int]:
        view = self._aim(data, position, limit)
        try:
            while True:
                header = parse_header(view, position, limit, size_max)
                check_place(header, self._flags, self.expected)
                if self._flags & Check.ORDER and 0 <= self.below <= header.last_offset:
                    raise Wrong(Reason.OFFSET_ORDER)
                if self._outside(header):
                    if self._needs_crc_to_skip(header):
                        self._check_crc(view, header)
                    self.skipped += 1
                elif self._holds_nothing_to_keep(header):
                    self._check_crc(view, header)
                    self.skipped += 1
                else:
                    if self._full(header):
                        raise Stop(Ending.FULL)
                    self._check_crc(view, header)
                    # Only now: a flipped bit must not hide records by calling them control records.
                    if not self._left_out(header):
                        if header.codec and header.payload[0] < header.payload[1]:
                            raise Stop(Ending.COMPRESSED)
                        payload = Cursor(view, *header.payload)
                        self._decode(header, payload, position_base + position, buffer_index)
                self.expected = header.after
                position += header.size
        except Wrong as wrong:
            return position, Ending.CORRUPT, wrong.reason
        except Stop as stop:
            return position, stop.ending, stop.reason

    def _check_crc(self, view: memoryview, header: Header) -> None:
        if self._flags & Check.CRC and not crc_matches(view, header):
            raise Wrong(Reason.CRC_MISMATCH)

    def add(
        self,
        data: Buffer,
        position: int,
        limit: int,
        payload: Buffer,
        *,
        position_base: int = 0,
        buffer_index: int = 0,
    ) -> tuple[int, int, int]:
        view = self._aim(data, position, limit)
        inside = self._aim(payload, 0, len(memoryview(payload).cast("B")))
        try:
            header = parse_header(view, position, limit)
            cursor = Cursor(inside, 0, len(inside))
            self._decode(header, cursor, position_base + position, buffer_index)
        except Wrong as wrong:
            return position, Ending.CORRUPT, wrong.reason
        except Stop as stop:
            return position, stop.ending, stop.reason
        self.expected = header.after
        return position + header.size, Ending.END, Reason.NONE

    def _decode(self, header: Header, payload: Cursor, position: int, buffer_index: int) -> None:
        records = decode_entry(header, payload, self._flags, self.expected)
        if header.magic == 0:
            timestamp_type = TimestampType.NONE
        elif header.is_append_time:
            timestamp_type = TimestampType.APPEND_TIME
        else:
            timestamp_type = TimestampType.CREATE_TIME
        self._keep(records, header, timestamp_type, header.codec, position, buffer_index)

    def fill_v07(
        self,
        data: Buffer,
        position: int,
        limit: int,
        *,
        base_offset: int = 0,
        buffer_index: int = 0,
    ) -> tuple[int, int, int]:
        view = self._aim(data, position, limit)
        try:
            while True:
                header = parse_entry_v07(view, position, limit, base_offset + position)
                if not self._bounds[0] <= header.base_offset <= self._bounds[1]:
                    self.skipped += 1
                else:
                    if self._full(header):
                        raise Stop(Ending.FULL)
                    if self._flags & Check.CRC and not crc_matches_v07(view, header):
                        raise Wrong(Reason.CRC_MISMATCH)
                    if header.codec:
                        raise Stop(Ending.COMPRESSED)
                    self._decode_v07(header, Cursor(view, *header.payload), buffer_index)
                position += header.size
        except Wrong as wrong:
            return position, Ending.CORRUPT, wrong.reason
        except Stop as stop:
            return position, stop.ending, stop.reason

    def add_v07(
        self,
        data: Buffer,
        position: int,
        limit: int,
        payload: Buffer,
        *,
        base_offset: int = 0,
        buffer_index: int = 0,
    ) -> tuple[int, int, int]:
        view = self._aim(data, position, limit)
        inside = self._aim(payload, 0, len(memoryview(payload).cast("B")))
        try:
            header = parse_entry_v07(view, position, limit, base_offset + position)
            self._decode_v07(header, Cursor(inside, 0, len(inside)), buffer_index)
        except Wrong as wrong:
            return position, Ending.CORRUPT, wrong.reason
        except Stop as stop:
            return position, stop.ending, stop.reason
        return position + header.size, Ending.END, Reason.NONE

    def _decode_v07(self, header: Header, payload: Cursor, buffer_index: int) -> None:
        records = decode_entry_v07(header, payload, self._flags)
        self._keep(
            records, header, TimestampType.NONE, header.codec, header.base_offset, buffer_index
        )

    def _aim(self, data: Buffer, position: int, limit: int) -> memoryview:
        view = region_of(data, position, limit)
        if self._views and limit > INT32_MAX:
            raise ValueError("a view reaches 2 GiB at most: map the region in parts")
        return view

    def _keep(
        self,
        records: list[Decoded],
        header: Header,
        timestamp_type: int,
        codec: int,
        position: int,
        buffer_index: int,
    ) -> None:
        first, last, first_time, last_time = self._bounds
        for record in records:
            is_within = first <= record.offset <= last
            if is_within and first_time <= record.timestamp <= last_time and self._is_kept(record):
                self._filled.append(
                    _Filled(
                        record,
                        header,
                        timestamp_type,
                        codec,
                        position,
                        None if record.key is None else bytes(record.key),
                        None if record.value is None else bytes(record.value),
                        _view(record.key, buffer_index),
                        _view(record.value, buffer_index),
                    )
                )

    def _is_kept(self, record: Decoded) -> bool:
        if self._kept is None:
            return True
        slot = bisect_left(self._kept, record.offset)
        if slot == len(self._kept) or self._kept[slot] != record.offset:
            return False
        is_tombstone = record.value is None and not self._with_tombstones
        self.tombstones += is_tombstone
        return not is_tombstone

    def take(self) -> tuple[int, dict[int, Any]]:
        rows, self._filled = self._filled, []
        taken: dict[int, Any] = {}
        for column in Column:
            if self._want & column:
                taken[int(column)] = self._column(column, rows)
        return len(rows), taken

    def _column(self, column: Column, rows: list[_Filled]) -> tuple[Any, ...]:
        match column:
            case Column.TIMESTAMP:
                times = [row.record.timestamp for row in rows]
                fits = [abs(time) <= MICROSECONDS_MAX_MS for time in times]
                micros = [time * 1000 if fit else 0 for time, fit in zip(times, fits, strict=True)]
                return _validity(fits), _pack("q", micros)
            case Column.KEY:
                return self._fields([row.key for row in rows], [row.key_view for row in rows])
            case Column.VALUE:
                return self._fields([row.value for row in rows], [row.value_view for row in rows])
            case Column.HEADERS:
                return _headers_column([row.record.headers for row in rows])
            case Column.IS_CONTROL:
                return (_bitmap([row.header.is_control for row in rows]),)
            case Column.IS_TRANSACTIONAL:
                return (_bitmap([is_transactional(row.header) for row in rows]),)
            case _:
                code, value = _FIXED[column]
                return (_pack(code, [value(row) for row in rows]),)

    def _fields(self, parts: list[bytes | None], views: list[bytes]) -> tuple[Any, ...]:
        if not self._views:
            return _binary(parts)
        return _validity([part is not None for part in parts]), b"".join(views)


def _sequence(row: _Filled) -> int:
    base = row.header.base_sequence
    return -1 if base < 0 else (base + row.record.offset - row.header.base_offset) & INT32_MAX


_FIXED: Final[dict[Column, tuple[str, Any]]] = {
    Column.OFFSET: ("q", lambda row: row.record.offset),
    Column.TIMESTAMP_MS: ("q", lambda row: row.record.timestamp),
    Column.TIMESTAMP_TYPE: ("i", lambda row: row.timestamp_type),
    Column.POSITION: ("q", lambda row: row.position),
    Column.BASE_OFFSET: ("q", lambda row: row.header.base_offset),
    Column.PRODUCER_ID: ("q", lambda row: row.header.producer_id),
    Column.PRODUCER_EPOCH: ("h", lambda row: row.header.producer_epoch),
    Column.SEQUENCE: ("i", _sequence),
    Column.LEADER_EPOCH: ("i", lambda row: row.header.leader_epoch),
    Column.CODEC: ("b", lambda row: row.codec),
}


def _headers_column(all_headers: list[list[tuple[bytes, bytes | None]]]) -> tuple[Any, ...]:
    ends = [0]
    for headers in all_headers:
        ends.append(ends[-1] + len(headers))
    flat = [header for headers in all_headers for header in headers]
    keys = _binary([key for key, _ in flat])[1:]
    values = _binary([value for _, value in flat])
    return _pack("i", ends), len(flat), keys, values


def _view(part: Span | None, buffer_index: int) -> bytes:
    """A 16-byte view of Arrow's: short bytes inside it, long ones by buffer and position."""
    if part is None:
        return bytes(16)
    data = bytes(part)
    if len(data) <= 12:
        return struct.pack("=i12s", len(data), data)
    return struct.pack("=i4sii", len(data), data[:4], buffer_index, part.start)
