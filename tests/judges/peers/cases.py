"""Random batches that reach into the corners of the formats; the same seed, the same case.

    rng = random.Random(7)
    case = random_case(rng)
    if aiokafka_peer.cannot_parse(case) is None: ...

What a peer can do with a case is asked of the peer: `cannot_build(case)` and `cannot_parse(case)`
give None or the reason.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.judges.peers.model import (
    CODECS,
    CREATE_TIME,
    INT64_MAX,
    INT64_MIN,
    MAGICS,
    NO_TIMESTAMP_TYPE,
    Case,
    Headers,
    PeerRecord,
)

NOW = 1_710_304_000_000
HEADER_KEYS = ("", "h", "trace-id", "klíč", "日本", "🗝", "a" * 200)
WORDS = (b"amber", b"basin", b"cedar", b"delta", b"ember", b"fjord", b"grove", b"harbor")


def random_case(rng: random.Random) -> Case:
    magic = rng.choice((*MAGICS, 2, 2))
    codec = rng.choice([codec for codec in CODECS if magic == 2 or codec != "zstd"])
    count = rng.choice((1, 1, 2, 3, 10, rng.randint(1, 150)))
    with_headers = magic == 2 and rng.random() < 0.5
    size = rng.choice(_SIZES)
    records = tuple(
        PeerRecord(
            offset,
            timestamp if magic else -1,
            CREATE_TIME if magic else NO_TIMESTAMP_TYPE,
            random_bytes(rng, rng.choice(_SIZES)(rng) % 300) if rng.random() < 0.8 else None,
            random_bytes(rng, size(rng)) if rng.random() < 0.9 else None,
            random_headers(rng) if with_headers else (),
        )
        for offset, timestamp in zip(
            random_offsets(rng, count), random_timestamps(rng, count), strict=True
        )
    )
    if magic < 2 or rng.random() < 0.5:
        return Case(magic, codec, records)
    return Case(
        magic,
        codec,
        records,
        producer_id=rng.choice((0, 1, 2**31, rng.randrange(2**62), INT64_MAX)),
        producer_epoch=rng.choice((0, 1, rng.randrange(2**15), 2**15 - 1)),
        base_sequence=rng.choice((0, 1, rng.randrange(2**31), 2**31 - 1)),
        transactional=rng.random() < 0.5,
    )


def random_cases(seed: int, count: int) -> list[Case]:
    """`count` cases from one seed; case number i does not depend on the others."""
    return [random_case(random.Random(f"{seed}/{number}")) for number in range(count)]


def random_offsets(rng: random.Random, count: int) -> list[int]:
    """Ascending, mostly without gaps; deltas fit an int32 and every offset is below 2^63 - 1."""
    base = rng.choice((0, 0, 1, rng.randrange(1000), 2**31 - 1, 2**32, rng.randrange(2**62), 2**62))
    if rng.random() < 0.85:
        return list(range(base, base + count))
    widest = rng.choice((2, 1000, (2**31 - 1) // count))
    offsets = [base]
    while len(offsets) < count:
        offsets.append(offsets[-1] + rng.randint(1, widest))
    return offsets


def random_timestamps(rng: random.Random, count: int) -> list[int]:
    return rng.choice(_TIMESTAMPS)(rng, count)


def random_headers(rng: random.Random) -> Headers:
    count = rng.choice((0, 1, 1, 2, 5, rng.randint(0, 130)))
    return tuple(
        (
            rng.choice(HEADER_KEYS),
            random_bytes(rng, rng.choice((0, 1, 63, 64, 200))) if rng.random() < 0.8 else None,
        )
        for _ in range(count)
    )


def random_bytes(rng: random.Random, size: int) -> bytes:
    """Half of them compress well, half do not at all."""
    if rng.random() < 0.5:
        return rng.randbytes(size)
    text = b" ".join(rng.choices(WORDS, k=size // 5 + 1))
    return text[:size]


_SIZES: tuple[Callable[[random.Random], int], ...] = (
    lambda rng: 0,
    lambda rng: rng.choice((1, 62, 63, 64, 65, 127, 128)),  # about a varint's first byte
    lambda rng: rng.randint(0, 100),
    lambda rng: rng.randint(0, 100),
    lambda rng: rng.randint(0, 2000),
    lambda rng: rng.choice((8190, 8192, 8193)) if rng.random() < 0.1 else 20,
    lambda rng: rng.randint(60_000, 150_000) if rng.random() < 0.02 else 30,  # over a codec's block
)


def _ascending(rng: random.Random, count: int) -> list[int]:
    start = NOW
    return [start := start + rng.randint(0, 2000) for _ in range(count)]


def _equal(rng: random.Random, count: int) -> list[int]:
    return [rng.choice((NOW, 1, 0, -1, -2, INT64_MAX, INT64_MIN + 1))] * count


def _descending(rng: random.Random, count: int) -> list[int]:
    return sorted((NOW + rng.randint(-(10**13), 10**13) for _ in range(count)), reverse=True)


def _before_1970(rng: random.Random, count: int) -> list[int]:
    return [rng.randint(-(10**13), -1) for _ in range(count)]


def _around_zero(rng: random.Random, count: int) -> list[int]:
    return [rng.randint(-3, 3) for _ in range(count)]


def _huge(rng: random.Random, count: int) -> list[int]:
    """Far apart, but no two further than an int64 can say."""
    return [rng.randint(-(2**62), 2**62 - 1) for _ in range(count)]


def _whole_range(rng: random.Random, count: int) -> list[int]:
    """Deltas that wrap around, as they do in Java."""
    return [
        rng.choice((INT64_MIN, INT64_MAX, 0, rng.randint(INT64_MIN, INT64_MAX)))
        for _ in range(count)
    ]


_TIMESTAMPS: tuple[Callable[[random.Random, int], list[int]], ...] = (
    _ascending,
    _ascending,
    _ascending,
    _equal,
    _descending,
    _before_1970,
    _around_zero,
    _huge,
    _whole_range,
)
