"""The newest offset of each key, as far as the log was noted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
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
from stratalog.records._reference.keyed import KeyedRecord, payload_of, read_keyed
from stratalog.records._reference.transactions import AbortedTransactions
from stratalog.records.layout import INT32_MAX, INT64_MAX, KEYS_AT_ONCE, Check, Ending, Reason

_SLOT_BYTES: Final = 24
_MD5_BYTES: Final = 16


class OffsetMap:
    """See ``_kernel.OffsetMap``: the same limits, and a dictionary for the table."""

    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None:
        self.slots = memory_bytes // _SLOT_BYTES
        if not 0 < load_factor <= 1 or self.slots * load_factor < 1:
            raise ValueError(
                f"no room for a key: {memory_bytes} bytes, of which {load_factor} may be used"
            )
        self.keys_max = int(self.slots * load_factor)
        self.latest_offset = -1
        self.records = 0
        self._newest: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._newest)

    @property
    def is_full(self) -> bool:
        return len(self) >= self.keys_max

    def put(self, key: Buffer, offset: int) -> bool:
        return self.put_digest(_digest(key), offset)

    def put_digest(self, digest: Buffer, offset: int) -> bool:
        if len(digest) != _MD5_BYTES:
            raise ValueError(f"not an MD5: {len(digest)} bytes, instead of {_MD5_BYTES}")
        if not 0 <= offset < INT64_MAX:
            raise ValueError(f"not an offset: {offset}")
        return self._put(bytes(digest), offset)

    def _put(self, digest: bytes, offset: int) -> bool:
        if self.is_full:  # before every put, as in Kafka: even of a key that is there
            return False
        self._newest[digest] = offset
        self.latest_offset = offset
        return True

    def get(self, key: Buffer) -> int:
        return self._newest.get(_digest(key), -1)

    def note(
        self,
        data: Buffer,
        position: int,
        limit: int,
        *,
        first_offset: int = 0,
        flags: int = 0,
        expected: int = -1,
        below: int = -1,
        size_max: int = INT32_MAX,
        aborted: memoryview | None = None,
        guarded: bool = False,
    ) -> tuple[int, int, int, int]:
        view = region_of(data, position, limit)
        left_out = AbortedTransactions(aborted)
        try:
            while True:
                header = parse_header(view, position, limit, size_max)
                check_place(header, flags, expected)
                if flags & Check.CRC and not crc_matches(view, header):
                    raise Wrong(Reason.CRC_MISMATCH)
                if flags & Check.ORDER and 0 <= below <= header.last_offset:
                    raise Wrong(Reason.OFFSET_ORDER)
                if not header.is_control and header not in left_out:
                    if header.codec and header.payload[0] < header.payload[1]:
                        raise Stop(Ending.COMPRESSED)
                    payload = payload_of(view, header)
                    self._note(read_keyed(view, header, payload, flags, expected), first_offset)
                    self.records += header.count
                expected = self._note_end(header, first_offset)
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
        first_offset: int = 0,
        flags: int = 0,
        expected: int = -1,
    ) -> tuple[int, int, int, int]:
        view = region_of(data, position, limit)
        inside = memoryview(payload).cast("B")
        try:
            header = parse_header(view, position, limit)
            cursor = Cursor(inside, 0, len(inside))
            self._note(read_keyed(view, header, cursor, flags, expected), first_offset)
        except Wrong as wrong:
            return position, Ending.CORRUPT, wrong.reason, expected
        except Stop as stop:
            return position, stop.ending, stop.reason, expected
        self.records += header.count
        return (
            position + header.size,
            Ending.END,
            Reason.NONE,
            self._note_end(header, first_offset),
        )

    def _note(self, records: Iterator[KeyedRecord], first_offset: int) -> None:
        """Put the keys of one batch, so many at once: one that turns out to be wrong was noted in part."""
        waiting: list[tuple[bytes, int]] = []
        for record in records:
            if record.key is None or record.offset < first_offset:
                continue
            waiting.append((record.key, record.offset))
            if len(waiting) == KEYS_AT_ONCE:
                self._put_all(waiting)
                waiting = []
        self._put_all(waiting)

    def _put_all(self, waiting: list[tuple[bytes, int]]) -> None:
        for key, offset in waiting:
            if not self._put(_digest(key), offset):
                raise Stop(Ending.FULL)

    def _note_end(self, header: Header, first_offset: int) -> int:
        if header.last_offset >= first_offset:
            self.latest_offset = header.last_offset
        return header.after


def _digest(key: Buffer) -> bytes:
    return hashlib.md5(key, usedforsecurity=False).digest()
