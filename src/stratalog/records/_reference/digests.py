"""The MD5 of every key with its offset, as columns."""

from __future__ import annotations

import hashlib
import struct
from array import array
from typing import Final

from stratalog.records._reference.cursor import Buffer, Cursor, Wrong
from stratalog.records._reference.headers import (
    Header,
    Stop,
    check_place,
    crc_matches,
    parse_header,
    region_of,
)
from stratalog.records._reference.keyed import payload_of, read_keyed
from stratalog.records._reference.transactions import AbortedTransactions, is_transactional
from stratalog.records.layout import INT32_MAX, Check, Ending, Reason

_HALVES: Final = struct.Struct("=qq")


class KeyDigests:
    """See ``_kernel.KeyDigests``."""

    def __init__(self, rows_max: int = 1 << 16) -> None:
        self._rows_max = max(rows_max, 1)
        self._rows: list[tuple[int, int, int]] = []
        self._events: list[tuple[int, int, bool]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def note(
        self,
        data: Buffer,
        position: int,
        limit: int,
        *,
        flags: int = 0,
        expected: int = -1,
        size_max: int = INT32_MAX,
        aborted: memoryview | None = None,
        guarded: bool = False,
    ) -> tuple[int, int, int, int]:
        view = region_of(data, position, limit)
        left_out = AbortedTransactions(aborted)
        try:
            while True:
                if len(self._rows) >= self._rows_max:
                    raise Stop(Ending.FULL)
                header = parse_header(view, position, limit, size_max)
                check_place(header, flags, expected)
                if flags & Check.CRC and not crc_matches(view, header):
                    raise Wrong(Reason.CRC_MISMATCH)
                if header.is_control:
                    raise Stop(Ending.CONTROL)
                is_aborted = header in left_out
                if not is_aborted:
                    if header.codec and header.payload[0] < header.payload[1]:
                        raise Stop(Ending.COMPRESSED)
                    self._note(view, header, payload_of(view, header), flags, expected)
                self._note_event(header, is_aborted=is_aborted)
                expected = header.after
                position += header.size
        except Wrong as wrong:
            return position, Ending.CORRUPT, wrong.reason, expected
        except Stop as stop:
            return position, stop.ending, stop.reason, expected

    def note_batch(
        self,
        data: Buffer,
        position: int,
        limit: int,
        payload: Buffer,
        *,
        flags: int = 0,
        expected: int = -1,
    ) -> tuple[int, int, int, int]:
        view = region_of(data, position, limit)
        inside = memoryview(payload).cast("B")
        try:
            header = parse_header(view, position, limit)
            self._note(view, header, Cursor(inside, 0, len(inside)), flags, expected)
        except Wrong as wrong:
            return position, Ending.CORRUPT, wrong.reason, expected
        except Stop as stop:
            return position, stop.ending, stop.reason, expected
        self._note_event(header, is_aborted=False)
        return position + header.size, Ending.END, Reason.NONE, header.after

    def _note(
        self, view: memoryview, header: Header, payload: Cursor, flags: int, expected: int
    ) -> None:
        """Add the keys of one batch: all of them, or none if it turns out to be wrong."""
        self._rows += [
            (*_HALVES.unpack(_digest(record.key)), record.offset)
            for record in read_keyed(view, header, payload, flags, expected)
            if record.key is not None
        ]

    def _note_event(self, header: Header, *, is_aborted: bool) -> None:
        if not is_transactional(header):
            return
        event = (header.producer_id, is_aborted)
        if not self._events or self._events[-1][1:] != event:
            self._events.append((header.last_offset, *event))

    def take(self) -> tuple[Buffer, Buffer, Buffer]:
        rows, self._rows = self._rows, []
        first, second, offsets = (array("q", (row[at] for row in rows)) for at in range(3))
        return (
            memoryview(first).cast("B"),
            memoryview(second).cast("B"),
            memoryview(offsets).cast("B"),
        )

    def take_events(self) -> list[tuple[int, int, bool]]:
        taken, self._events = self._events, []
        return taken


def _digest(key: bytes) -> bytes:
    return hashlib.md5(key, usedforsecurity=False).digest()
