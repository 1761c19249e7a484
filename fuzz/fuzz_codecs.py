"""Fuzz target: no payload makes a codec fail in any way but a typed one, or pass the limit.

The first byte picks the codec (low three bits, so that unknown ones come up too) and the magic; the rest
is the payload. It needs no fuzzer: call :func:`one_input` with any bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

import cramjam

from stratalog.errors import CorruptionError
from stratalog.records.compression import Decompressor, compress, snappy_raw
from stratalog.records.layout import Codec

TARGET_NAME = "codecs"
SIZE_MAX = 1 << 20

_decompressor = Decompressor(SIZE_MAX)


def one_input(data: bytes) -> None:
    if not data:
        return
    codec, magic = data[0] & 0x07, (data[0] >> 3) % 3
    payload = memoryview(data)[1:]
    try:
        # First in a buffer without a history, then in the one that all inputs before have used.
        fresh = bytes(Decompressor(SIZE_MAX).decompress(codec, payload, magic=magic))
        failure = None
    except CorruptionError as error:
        failure = error
    try:
        reused = _decompressor.decompress_owned(codec, payload, magic=magic)
    except CorruptionError as error:
        assert failure is not None, f"only the used buffer fails: {error}"
        assert (failure.reason, type(failure)) == (error.reason, type(error))
        return
    assert failure is None, f"only the fresh buffer fails: {failure}"
    assert reused == fresh
    assert codec == Codec.NONE or len(fresh) <= SIZE_MAX


def seeds() -> Iterable[bytes]:
    record = bytes.fromhex("10000000026b027600")
    for text in (b"", record, record * 40, bytes(range(256)) * 300):
        yield bytes((Codec.NONE,)) + text
        yield bytes((Codec.SNAPPY | 2 << 3,)) + snappy_raw(text)
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
            for magic in (0, 2):
                if codec != Codec.ZSTD or magic == 2:
                    payload = compress(codec, text, magic=magic)
                    yield bytes((codec | magic << 3,)) + payload
    yield bytes((7,)) + record
    # Linked blocks, block checksums and content checksum: only the library decodes these.
    for magic in (0, 2):
        yield bytes((Codec.LZ4 | magic << 3,)) + memoryview(cramjam.lz4.compress(record * 40))
    # A zstd frame of Java's, then a skippable one.
    yield bytes((Codec.ZSTD | 2 << 3,)) + bytes.fromhex(
        "28b52ffd005848000010000000026b0276000100005a2a4d1802000000ffff"
    )
