"""Bytes that are read up to a limit and no further, and the two ways in which that ends."""

from __future__ import annotations

from typing import NamedTuple

from stratalog.records.layout import (
    Reason,
)

Buffer = bytes | bytearray | memoryview


class Wrong(Exception):
    """What is being read is not what it must be; the reason says what."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class Span(NamedTuple):
    """Some bytes, and where they lie in the buffer they come from."""

    data: memoryview
    start: int
    end: int

    def __bytes__(self) -> bytes:
        return bytes(self.data[self.start : self.end])

    def __len__(self) -> int:
        return self.end - self.start


class Cursor:
    """A place in some bytes, and the limit that reading never passes."""

    def __init__(self, data: memoryview, position: int, limit: int) -> None:
        assert 0 <= position <= limit <= len(data)
        self.data = data
        self.position = position
        self.limit = limit

    @property
    def remaining(self) -> int:
        return self.limit - self.position

    def take(self, size: int) -> Span:
        if not 0 <= size <= self.remaining:
            raise Wrong(Reason.FIELD_LENGTH)
        self.position += size
        return Span(self.data, self.position - size, self.position)

    def int32(self) -> int:
        return int.from_bytes(bytes(self.take(4)), "big", signed=True)

    def varint(self) -> int:
        return self._number(groups_max=5, bits=32)

    def varlong(self) -> int:
        return self._number(groups_max=10, bits=64)

    def _number(self, groups_max: int, bits: int) -> int:
        raw = 0
        for group in range(groups_max):
            if self.remaining == 0:
                raise Wrong(Reason.VARINT)
            byte = self.data[self.position]
            self.position += 1
            raw |= (byte & 0x7F) << 7 * group
            if byte < 0x80:
                raw &= (1 << bits) - 1  # bits beyond the type are dropped, as Kafka does
                return raw >> 1 ^ -(raw & 1)
        raise Wrong(Reason.VARINT)

    def field(self) -> Span | None:
        """A varint size, -1 for null, and as many bytes."""
        return self._nullable(self.varint())

    def message_field(self) -> Span | None:
        """An int32 size, -1 for null, and as many bytes."""
        return self._nullable(self.int32())

    def _nullable(self, size: int) -> Span | None:
        if size == -1:
            return None
        return self.take(size)


def wrap64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63
