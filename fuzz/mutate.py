"""Mutations for formats made of lengths, counts and checksums. Needs no fuzzer, and the same random numbers
give the same inputs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

SIZE_MAX = 8192
INTERESTING = (0, 1, 2, 7, 16, 17, 60, 61, 127, 128, 255, 256, 2**15, 2**16, 2**31, 2**32, 2**63)


def mutate(
    rng: random.Random,
    pool: Sequence[bytes],
    repair: Callable[[bytes], bytes] | None = None,
) -> bytes:
    """One of ``pool``, changed one to six times, and mostly repaired."""
    out = bytearray(rng.choice(pool))
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4, 6))):
        rng.choice(OPERATIONS)(rng, out, pool)
        del out[SIZE_MAX:]
    data = bytes(out)
    return repair(data) if repair is not None and rng.random() < 0.7 else data


def _place(rng: random.Random, out: bytearray) -> int:
    return rng.randrange(len(out) + 1)


def _flip(rng: random.Random, out: bytearray, _: Sequence[bytes]) -> None:
    if out:
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)


def _set(rng: random.Random, out: bytearray, _: Sequence[bytes]) -> None:
    if out:
        out[rng.randrange(len(out))] = rng.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFE, 0xFF))


def _step(rng: random.Random, out: bytearray, _: Sequence[bytes]) -> None:
    if out:
        at = rng.randrange(len(out))
        out[at] = (out[at] + rng.choice((-2, -1, 1, 2))) & 0xFF


def _cut(rng: random.Random, out: bytearray, _: Sequence[bytes]) -> None:
    del out[_place(rng, out) :]


def _remove(rng: random.Random, out: bytearray, _: Sequence[bytes]) -> None:
    at = _place(rng, out)
    del out[at : at + rng.choice((1, 1, 2, 4, 8, 61))]


def _insert(rng: random.Random, out: bytearray, _: Sequence[bytes]) -> None:
    at = _place(rng, out)
    size = rng.choice((1, 1, 2, 4, 8, 40))
    out[at:at] = bytes(size) if rng.random() < 0.3 else rng.randbytes(size)


def _repeat(rng: random.Random, out: bytearray, _: Sequence[bytes]) -> None:
    at = _place(rng, out)
    out[at:at] = out[at : at + rng.choice((1, 4, 9, 61, 200))] * rng.choice((1, 1, 2, 30))


def _splice(rng: random.Random, out: bytearray, pool: Sequence[bytes]) -> None:
    other = rng.choice(pool)
    out[_place(rng, out) :] = other[rng.randrange(len(other) + 1) :]


def _number(rng: random.Random, out: bytearray, _: Sequence[bytes]) -> None:
    """An interesting integer over what stands there, in either byte order."""
    size = rng.choice((1, 2, 4, 4, 8))
    if len(out) >= size:
        at = rng.randrange(len(out) - size + 1)
        value = rng.choice((rng.choice(INTERESTING), len(out), len(out) - at - size))
        value = value * rng.choice((1, -1)) + rng.choice((0, 0, -1, 1))
        order = rng.choice(("big", "big", "little"))
        out[at : at + size] = (value % 2 ** (8 * size)).to_bytes(size, order)


def _length(rng: random.Random, out: bytearray, _: Sequence[bytes]) -> None:
    """A number of four bytes that tells, nearly, how much follows: what a length field is."""
    if len(out) >= 4:
        at = rng.randrange(len(out) - 3)
        value = len(out) - at - 4 + rng.choice((0, 0, -1, 1, -8, 8))
        out[at : at + 4] = (value % 2**32).to_bytes(4, "big")


def _varint(rng: random.Random, out: bytearray, _: Sequence[bytes]) -> None:
    """Another varint in the place of one byte."""
    at = _place(rng, out)
    value = rng.choice((rng.choice(INTERESTING), len(out) - at)) + rng.choice((0, -1, 1))
    raw = (value << 1 if value >= 0 else (-value << 1) - 1) & (2**64 - 1)
    groups = []
    while raw >= 0x80:
        groups.append(raw & 0x7F | 0x80)
        raw >>= 7
    groups.append(raw)
    if rng.random() < 0.1:  # longer than it needs to be
        groups[-1] |= 0x80
        groups.append(0)
    out[at : at + 1] = bytes(groups)


OPERATIONS: Sequence[Callable[[random.Random, bytearray, Sequence[bytes]], None]] = (
    _flip, _flip, _set, _step, _step, _cut, _remove, _insert, _repeat, _splice, _number, _number,
    _length, _varint,
)  # fmt: skip
