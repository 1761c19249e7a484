"""The newest offset of every key: a table of digests that is spilled when it is full."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from stratalog.records._reference.cursor import Buffer, Wrong
from stratalog.records._reference.rows import Rows, numbers_in
from stratalog.records.layout import Reason

_ENTRY: Final = struct.Struct("=QQq")  # the two halves of the key's digest, its newest offset
_FANOUT_BITS: Final = 5
_FANOUT: Final = 1 << _FANOUT_BITS
_LEVEL_MAX: Final = 11
_SLOTS_MAX: Final = 0xFFFFFFFF
_WORD: Final = 0xFFFFFFFFFFFFFFFF


def siphash(seed: Buffer, data: Buffer) -> tuple[int, int]:
    """The two halves of the 128-bit SipHash-1-3 of ``data`` under a seed of 16 bytes."""
    return siphash_rounds(seed, data, 1, 3)


def siphash_rounds(
    seed: Buffer, data: Buffer, word_rounds: int, last_rounds: int
) -> tuple[int, int]:
    """The 128-bit SipHash of Aumasson and Bernstein, with so many rounds for each word and at the end."""
    if len(memoryview(seed)) != 16:
        raise ValueError("a seed has 16 bytes")
    first, second = struct.unpack("<QQ", seed)
    v = [
        first ^ 0x736F6D6570736575,
        second ^ 0x646F72616E646F6D ^ 0xEE,
        first ^ 0x6C7967656E657261,
        second ^ 0x7465646279746573,
    ]
    for word in _words(bytes(data)):
        v[3] ^= word
        _mix(v, word_rounds)
        v[0] ^= word
    v[2] ^= 0xEE
    _mix(v, last_rounds)
    high = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    _mix(v, last_rounds)
    return high, v[0] ^ v[1] ^ v[2] ^ v[3]


def _words(data: bytes) -> Iterator[int]:
    """Words of eight bytes, the lowest first; the last one has the size in its highest byte."""
    whole = len(data) - len(data) % 8
    yield from struct.unpack(f"<{whole // 8}Q", data[:whole])
    yield int.from_bytes(data[whole:], "little") | (len(data) & 0xFF) << 56


def _mix(v: list[int], rounds: int) -> None:
    for _ in range(rounds):
        v[0] = (v[0] + v[1]) & _WORD
        v[2] = (v[2] + v[3]) & _WORD
        v[1] = _rotated(v[1], 13) ^ v[0]
        v[3] = _rotated(v[3], 16) ^ v[2]
        v[0] = _rotated(v[0], 32)
        v[2] = (v[2] + v[1]) & _WORD
        v[0] = (v[0] + v[3]) & _WORD
        v[1] = _rotated(v[1], 17) ^ v[2]
        v[3] = _rotated(v[3], 21) ^ v[0]
        v[2] = _rotated(v[2], 32)


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _WORD


def sort_offsets(offsets: memoryview) -> None:
    """Sort offsets, none of them negative, in place."""
    numbers = numbers_in(offsets, 0, writable=True)
    for i, offset in enumerate(sorted(numbers)):
        numbers[i] = offset


class LatestKeys:
    """See ``_kernel.LatestKeys``."""

    def __init__(self, seed: Buffer, memory: int) -> None:
        siphash(seed, b"")  # says what is wrong with a seed
        slots = min(memory // 5 * 4 // _ENTRY.size, _SLOTS_MAX)
        if slots < 4:
            raise ValueError("a table of keys takes at least 120 bytes")
        self._seed = bytes(seed)
        self._newest: dict[tuple[int, int], int] = {}
        self.count_max = slots // 4 * 3
        self.keyless = 0

    @property
    def count(self) -> int:
        return len(self._newest)

    def note(self, rows: Rows, row: int = 0) -> tuple[int, int]:
        if not rows.has_offsets or not 0 <= row <= rows.count:
            raise ValueError("rows bring their offsets, and there is such a row")
        while row < rows.count and self.count < self.count_max:
            try:
                offset, key = rows.offset(row, row, 0), rows.key(row)
            except Wrong as wrong:
                return row, int(wrong.reason)
            if key is None:
                self.keyless += 1
            else:
                self._put(siphash(self._seed, key), offset)
            row += 1
        return row, int(Reason.NONE)

    def load(self, entries: Buffer, entry: int = 0) -> int:
        view = memoryview(entries).cast("B")
        count = len(view) // _ENTRY.size
        if not 0 <= entry <= count or len(view) % _ENTRY.size:
            raise ValueError("entries are whole, and there is such an entry")
        while entry < count and self.count < self.count_max:
            high, low, offset = _ENTRY.unpack_from(view, entry * _ENTRY.size)
            if offset >= 0:
                self._put((high, low), offset)
            entry += 1
        return entry

    def _put(self, digest: tuple[int, int], offset: int) -> None:
        self._newest[digest] = max(offset, self._newest.get(digest, -1))

    def spill(self, level: int) -> tuple[bytes, list[int]]:
        """The entries of a part come in any order."""
        if not 0 <= level <= _LEVEL_MAX:
            raise ValueError("a digest has bits for levels 0 to 11")
        parts: list[list[bytes]] = [[] for _ in range(_FANOUT)]
        shift = 64 - _FANOUT_BITS * (level + 1)
        for (high, low), offset in self._newest.items():
            parts[high >> shift & (_FANOUT - 1)].append(_ENTRY.pack(high, low, offset))
        self._newest.clear()
        starts = [0, *accumulate(map(len, parts))]
        return b"".join(entry for part in parts for entry in part), starts

    def take_offsets(self) -> bytes:
        offsets = sorted(self._newest.values())
        self._newest.clear()
        return struct.pack(f"={len(offsets)}q", *offsets)
