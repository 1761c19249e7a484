"""Codecs: round trips, bytes that others wrote, every damage, and payloads that lie about their size."""

from __future__ import annotations

import gc
import gzip
import json
import pathlib
import random
import re
import struct
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.errors import (
    CorruptionError,
    InvalidRecordError,
    LimitExceededError,
    StratalogError,
    UsageError,
)
from stratalog.records.codecs import lz4 as lz4_codec
from stratalog.records.compression import (
    DECOMPRESSED_SIZE_MAX_DEFAULT,
    Decompressor,
    compress,
    snappy_raw,
)
from stratalog.records.layout import Codec

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORD = bytes.fromhex("10000000026b027600")
REAL = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MIB = 1 << 20


def text(size: int, seed: int = 7) -> bytes:
    """Something like records: compressible, not trivially, and with runs that are not."""
    choose = random.Random(seed)
    words = [choose.randbytes(choose.randint(2, 9)) for _ in range(200)]
    parts = bytearray()
    while len(parts) < size:
        parts += b"\x80\x01\x00\x02" + b" ".join(choose.choices(words, k=12))
        if choose.random() < 0.02:
            parts += choose.randbytes(300)
    return bytes(parts[:size])


def read(codec: int, payload: Any, *, magic: int = 2, size_max: int = 64 * MIB) -> bytes:
    return bytes(Decompressor(size_max).decompress(codec, payload, magic=magic))


def refusal(codec: int, payload: Any, *, magic: int = 2, size_max: int = 64 * MIB) -> str:
    """The detail of the error for a damaged payload, after checking all the rest of it."""
    with pytest.raises(CorruptionError) as caught:
        read(codec, payload, magic=magic, size_max=size_max)
    error = caught.value
    assert type(error) is CorruptionError
    assert error.reason == "compressed_data"
    assert error.advice
    assert Codec(codec).name.lower() in error.detail
    return error.detail


def too_large(codec: int, payload: Any, size_max: int) -> None:
    with pytest.raises(LimitExceededError) as caught:
        read(codec, payload, size_max=size_max)
    assert caught.value.reason == "decompressed_too_large"
    assert "raise max_decompressed_bytes" in str(caught.value)
    assert str(size_max) in caught.value.detail


def lz4_frame(
    blocks: bytes, *, flags: int = 0x60, code: int = 0x40, size: bytes = b"", tail: bytes = bytes(4)
) -> bytes:
    """A frame with a right header checksum around any bytes."""
    descriptor = bytes((flags, code)) + size
    checksum = lz4_codec._header_checksum(descriptor)
    return b"\x04\x22\x4d\x18" + descriptor + bytes((checksum,)) + blocks + tail


def stored(data: bytes) -> bytes:
    return struct.pack("<I", len(data) | 1 << 31) + data


# --- round trips --------------------------------------------------------------------------------

SIZES = [0, 1, 7, 32767, 32768, 32769, 65535, 65536, 65537, 131072, 200_001, MIB]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", Codec)
def test_compress_then_decompress_gives_the_same_bytes(codec: Codec, size: int) -> None:
    data = text(size)
    payload = compress(codec, data)
    reader = Decompressor()
    assert reader.decompress(codec, payload) == data
    assert reader.decompress_owned(codec, payload) == data


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", REAL)
def test_incompressible_bytes_come_back_and_hardly_grow(codec: Codec, size: int) -> None:
    data = random.Random(size).randbytes(size)
    payload = compress(codec, data)
    assert read(codec, payload) == data
    assert len(payload) <= size + 64 + size // 500


@pytest.mark.parametrize(
    ("codec", "level"),
    [(Codec.GZIP, level) for level in (-1, 1, 5, 9)]
    + [(Codec.LZ4, level) for level in range(1, 18)]
    + [(Codec.ZSTD, level) for level in (-131072, -5, 0, 1, 3, 9, 19, 22)],
)
def test_every_level_is_readable_and_keeps_the_framing(codec: Codec, level: int) -> None:
    for size in (0, 9, 70_000):
        data = text(size)
        payload = bytes(compress(codec, data, level=level))
        assert read(codec, payload) == data
        if codec == Codec.LZ4:
            assert payload[:7].hex() == "04224d18604082"
            assert payload[-4:] == bytes(4)
        if codec == Codec.GZIP:
            assert payload[:10].hex() == "1f8b08000000000000ff"


def test_lz4_default_level_is_the_fast_one_and_others_compress_higher() -> None:
    data = text(200_000)
    fast = len(compress(Codec.LZ4, data))
    assert len(compress(Codec.LZ4, data, level=9)) == fast
    assert len(compress(Codec.LZ4, data, level=8)) < fast
    assert len(compress(Codec.LZ4, data, level=17)) < fast


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=5000), repeat=st.integers(1, 50), codec=st.sampled_from(Codec))
def test_any_bytes_round_trip(data: bytes, repeat: int, codec: Codec) -> None:
    assert read(codec, compress(codec, data * repeat)) == data * repeat


@pytest.mark.parametrize("codec", Codec)
def test_every_kind_of_buffer_is_taken(codec: Codec) -> None:
    data = text(5000)
    payload = bytes(compress(codec, data))
    around = b"xx" + payload + b"yy"
    for given_data in (data, bytearray(data), memoryview(b"x" + data)[1:]):
        assert read(codec, compress(codec, given_data)) == data
    signed = memoryview(bytearray(payload)).cast("b")
    for given_payload in (bytearray(payload), memoryview(around)[2:-2], signed):
        assert read(codec, given_payload) == data


# --- what others wrote, and what we write -------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "magic", "payload"),
    [
        (Codec.LZ4, 2, "04224d18604082 09000080 10000000026b027600 00000000"),
        (Codec.LZ4, 1, "04224d18604082 09000080 10000000026b027600 00000000"),
        (Codec.LZ4, 0, "04224d1860401a 09000080 10000000026b027600 00000000"),
        (Codec.SNAPPY, 2, "82534e4150505900 00000001 00000001 0000000b 0920 10000000026b027600"),
        (Codec.SNAPPY, 0, "82534e4150505900 00000001 00000001 0000000b 0920 10000000026b027600"),
    ],
)
def test_written_payload_is_byte_equal_to_kafka(codec: Codec, magic: int, payload: str) -> None:
    assert compress(codec, RECORD, magic=magic) == bytes.fromhex(payload)


@pytest.mark.parametrize(
    ("codec", "payload"),
    [
        (Codec.GZIP, "1f8b08000000000000ff 1360606060ca662a630000 a37fcfa6 09000000"),
        (Codec.ZSTD, "28b52ffd 0058 480000 10000000026b027600 010000"),
        (Codec.LZ4, "04224d18604082 09000080 10000000026b027600 00000000"),
        (Codec.SNAPPY, "82534e4150505900 00000001 00000001 0000000b 0920 10000000026b027600"),
        (Codec.SNAPPY, "0920 10000000026b027600"),
    ],
)
def test_payload_of_the_java_client_is_read(codec: Codec, payload: str) -> None:
    assert read(codec, bytes.fromhex(payload)) == RECORD


def test_snappy_blocks_are_32_kib_and_lz4_blocks_64_kib() -> None:
    data = text(150_000)
    payload = memoryview(compress(Codec.SNAPPY, data))
    sizes, at = [], 16
    while at < len(payload):
        (size,) = struct.unpack_from(">i", payload, at)
        sizes.append(cramjam.snappy.decompress_raw_len(payload[at + 4 : at + 4 + size]))
        at += 4 + size
    assert sizes == [32768] * 4 + [150_000 - 4 * 32768]

    frame = memoryview(compress(Codec.LZ4, data))
    header = lz4_codec._read_header(frame, 2)
    ends = [end for _, end, _, _ in lz4_codec._blocks(frame, header)]
    assert len(ends) == 3
    first = lz4_frame(bytes(frame[7 : ends[0]]))
    assert read(Codec.LZ4, first) == data[:65536]


def test_lz4_stores_what_would_not_shrink() -> None:
    data = random.Random(1).randbytes(65536) + bytes(65536)
    payload = bytes(compress(Codec.LZ4, data))
    assert struct.unpack_from("<I", payload, 7) == (65536 | 1 << 31,)
    assert struct.unpack_from("<I", payload, 11 + 65536)[0] < 1000
    assert read(Codec.LZ4, payload) == data


@pytest.mark.parametrize(
    ("data", "value"),
    [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF), (b"abcd", 0xA3643705)],
)
def test_header_checksum_is_the_second_byte_of_xxh32(data: bytes, value: int) -> None:
    """The published values; longer headers are those of the lz4 frames that others write."""
    assert lz4_codec._header_checksum(data) == value >> 8 & 0xFF


def snappy_stream(data: bytes, block: int) -> bytes:
    parts = [bytes.fromhex("82534e41505059000000000100000001")]
    for start in range(0, len(data), block):
        raw = bytes(cramjam.snappy.compress_raw(data[start : start + block]))
        parts += [struct.pack(">i", len(raw)), raw]
    return b"".join(parts)


@pytest.mark.parametrize("block", [1, 100, 1024, 32768, 65536, MIB])
def test_snappy_blocks_of_any_size_are_read(block: int) -> None:
    data = text(3000 if block < 1024 else 200_000)
    assert read(Codec.SNAPPY, snappy_stream(data, block)) == data


def test_snappy_raw_block_and_streams_behind_each_other_are_read() -> None:
    data = text(100_000)
    assert read(Codec.SNAPPY, snappy_raw(data)) == data
    assert read(Codec.SNAPPY, snappy_raw(b"")) == b""
    one, two = snappy_stream(data, 5000), snappy_stream(b"second", 32768)
    assert read(Codec.SNAPPY, one + two + one) == data + b"second" + data


def test_gzip_members_and_headers_of_any_kind_are_read() -> None:
    data = text(30_000)
    plain = gzip.compress(data, mtime=1_600_000_000)
    body = plain[10:]
    flags_all = b"\x1f\x8b\x08\x1e" + plain[4:10]
    optional = struct.pack("<H", 5) + b"extra" + b"name\x00" + b"comment\x00"
    optional += struct.pack("<H", zlib.crc32(flags_all + optional) & 0xFFFF)
    assert read(Codec.GZIP, plain) == data
    assert read(Codec.GZIP, flags_all + optional + body) == data
    for level, system in ((0, 3), (1, 0), (9, 11)):
        member = bytearray(gzip.compress(data, level))
        member[9] = system
        assert read(Codec.GZIP, member) == data
    assert read(Codec.GZIP, plain + gzip.compress(b"tail") + plain) == data + b"tail" + data
    assert read(Codec.GZIP, gzip.compress(b"")) == b""


def test_gzip_ignores_what_follows_but_not_a_damaged_member() -> None:
    data = text(3000)
    member = bytes(compress(Codec.GZIP, data))
    for trailing in (b"\x00", bytes(100), b"junk", b"\x1f\x8b\x08", b"\x1f\x8b" + bytes(60)):
        assert read(Codec.GZIP, member + trailing) == data
    assert "inside a member" in refusal(Codec.GZIP, member + member[:-1])
    refusal(Codec.GZIP, member + member[:30] + bytes(4) + member[34:])


def test_gzip_highly_compressed_beyond_the_believed_ratio_is_read() -> None:
    data = bytes(5 * MIB)
    assert read(Codec.GZIP, compress(Codec.GZIP, data), size_max=len(data)) == data


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("block_checksum", [False, True])
@pytest.mark.parametrize("content_checksum", [False, True])
@pytest.mark.parametrize("store_size", [False, True])
@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
def test_lz4_frames_of_every_kind_are_read(
    linked: bool, block_checksum: bool, content_checksum: bool, store_size: bool, block_size: int
) -> None:
    frame = pytest.importorskip("lz4.frame")
    data = text(300_000)
    payload = frame.compress(
        data,
        block_size=block_size,
        block_linked=linked,
        block_checksum=block_checksum,
        content_checksum=content_checksum,
        store_size=store_size,
    )
    assert read(Codec.LZ4, payload) == data
    header = 15 if store_size else 7
    wrong = bytearray(payload)
    wrong[header - 1] ^= 0x55
    assert "header" in refusal(Codec.LZ4, wrong)
    assert "header" in refusal(Codec.LZ4, wrong, magic=1)
    assert read(Codec.LZ4, wrong, magic=0) == data
    assert read(Codec.LZ4, payload + b"behind the end mark") == data
    if block_checksum:
        wrong = bytearray(payload)
        wrong[header + 4 + (struct.unpack_from("<I", payload, header)[0] & ~(1 << 31))] ^= 1
        refusal(Codec.LZ4, wrong)
    if content_checksum:
        assert read(Codec.LZ4, payload[:-1] + bytes((payload[-1] ^ 1,))) == data
        assert "content checksum" in refusal(Codec.LZ4, payload[:-1])


def test_lz4_content_size_is_not_believed() -> None:
    for size in (0, 9, 10, 2**60, 2**64 - 1):
        payload = lz4_frame(stored(RECORD), flags=0x68, size=struct.pack("<Q", size))
        assert read(Codec.LZ4, payload, size_max=9) == RECORD


@pytest.mark.parametrize(
    ("payload", "cause"),
    [
        (b"\x04\x22\x4d\x18\x60\x40", "header"),
        (b"\x04\x22\x4d\x18\x68\x40\x00", "header"),
        (b"\x05\x22\x4d\x18\x60\x40\x82" + bytes(4), "magic"),
        (lz4_frame(b"", flags=0x20), "flags"),
        (lz4_frame(b"", flags=0xE0), "flags"),
        (lz4_frame(b"", flags=0x61), "flags"),
        (lz4_frame(b"", flags=0x62), "flags"),
        (lz4_frame(b"", code=0x30), "block size"),
        (lz4_frame(b"", code=0x41), "block size"),
        (lz4_frame(b"", code=0xC0), "block size"),
        (lz4_frame(stored(RECORD), tail=b""), "end mark"),
        (lz4_frame(stored(RECORD), tail=bytes(3)), "end mark"),
        (lz4_frame(stored(RECORD)[:-1], tail=b""), "block"),
        (lz4_frame(stored(bytes(65537))), "65536"),
        (lz4_frame(struct.pack("<I", 3) + b"\x10a\x00"), "lz4"),
    ],
)
def test_lz4_frame_that_java_refuses_is_refused(payload: bytes, cause: str) -> None:
    assert cause in refusal(Codec.LZ4, payload)


def test_lz4_block_above_the_block_size_when_decompressed_is_refused() -> None:
    block = bytes(cramjam.lz4.compress_block(bytes(65537), store_size=False))
    assert "65536" in refusal(Codec.LZ4, lz4_frame(struct.pack("<I", len(block)) + block))
    block = bytes(cramjam.lz4.compress_block(bytes(65536), store_size=False))
    assert read(Codec.LZ4, lz4_frame(struct.pack("<I", len(block)) + block)) == bytes(65536)


def test_lz4_end_mark_with_the_top_bit_is_one() -> None:
    assert read(Codec.LZ4, lz4_frame(stored(RECORD), tail=b"\x00\x00\x00\x80")) == RECORD
    assert read(Codec.LZ4, lz4_frame(b"")) == b""


def test_zstd_frames_of_every_kind_are_read() -> None:
    zstandard = pytest.importorskip("zstandard")
    data = text(400_000)
    for sized in (False, True):
        for checksum in (False, True):
            writer = zstandard.ZstdCompressor(write_content_size=sized, write_checksum=checksum)
            assert read(Codec.ZSTD, writer.compress(data)) == data
            assert read(Codec.ZSTD, writer.compress(b"")) == b""
    stream = zstandard.ZstdCompressor(level=22).compressobj()
    flushed = b"".join(
        stream.compress(data[at : at + 1000]) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        for at in range(0, 10_000, 1000)
    )
    assert read(Codec.ZSTD, flushed + stream.flush()) == data[:10_000]
    damaged = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(data))
    damaged[-1] ^= 1
    refusal(Codec.ZSTD, damaged)


def test_zstd_frames_behind_each_other_are_read_and_junk_is_not() -> None:
    data = text(200_000)
    frame = bytes(compress(Codec.ZSTD, data))
    skippable = b"\x5a\x2a\x4d\x18" + struct.pack("<I", 7) + b"ignored"
    assert read(Codec.ZSTD, skippable + frame + skippable + frame) == data + data
    for trailing in (b"\x00", b"junk", bytes(20), frame[:3], frame[:-1], skippable[:-1]):
        refusal(Codec.ZSTD, frame + trailing)
    assert "frame magic" in refusal(Codec.ZSTD, b"\x27" + frame[1:])


# --- other libraries ----------------------------------------------------------------------------


def other_readers() -> dict[Codec, Callable[[bytes], bytes]]:
    lz4 = pytest.importorskip("lz4.frame")
    zstandard = pytest.importorskip("zstandard")
    snappy = pytest.importorskip("snappy")

    def xerial(payload: bytes) -> bytes:
        parts, at = [], 16
        while at < len(payload):
            (size,) = struct.unpack_from(">i", payload, at)
            parts.append(snappy.decompress(payload[at + 4 : at + 4 + size]))
            at += 4 + size
        return b"".join(parts)

    return {
        Codec.GZIP: gzip.decompress,
        Codec.SNAPPY: xerial,
        Codec.LZ4: lz4.decompress,
        Codec.ZSTD: lambda payload: (
            zstandard.ZstdDecompressor().decompressobj().decompress(payload)
        ),
    }


@pytest.mark.parametrize("codec", REAL)
def test_other_libraries_read_what_we_write(codec: Codec) -> None:
    reader = other_readers()[codec]
    for size in (0, 9, 65537, 300_000):
        data = text(size)
        assert reader(bytes(compress(codec, data))) == data


def test_stdlib_reads_our_gzip_as_one_member() -> None:
    data = text(100_000)
    inflater = zlib.decompressobj(wbits=31)
    assert inflater.decompress(compress(Codec.GZIP, data)) == data
    assert inflater.eof
    assert not inflater.unused_data


def test_raw_snappy_agrees_with_the_other_library() -> None:
    snappy = pytest.importorskip("snappy")
    data = text(100_000)
    assert snappy.decompress(bytes(snappy_raw(data))) == data
    assert read(Codec.SNAPPY, snappy.compress(data)) == data


# --- golden sets --------------------------------------------------------------------------------


def golden_payloads() -> Iterator[tuple[int, int, bytes, int]]:
    """Magic, codec, payload and record count (magic 2) of every compressed entry on real disks."""
    for path in sorted((ROOT / "tests/golden").glob("**/*.log")):
        if "v2-torn" in path.parts:
            continue
        log, at = path.read_bytes(), 0
        while len(log) - at >= 17:
            (size,) = struct.unpack_from(">i", log, at + 8)
            if size <= 0 or at + 12 + size > len(log):
                break
            entry, at = log[at : at + 12 + size], at + 12 + size
            magic = entry[16]
            if magic == 2 and entry[22] & 7:
                yield magic, entry[22] & 7, entry[61:], struct.unpack_from(">i", entry, 57)[0]
            elif magic < 2 and entry[17] & 7:
                key_at = 26 if magic else 18
                value_at = key_at + 4 + max(0, struct.unpack_from(">i", entry, key_at)[0])
                yield magic, entry[17] & 7, entry[value_at + 4 :], 0


def record_count(data: memoryview) -> int:
    count = at = 0
    while at < len(data):
        length = shift = 0
        while True:
            byte = data[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        at += length >> 1
        count += 1
    assert at == len(data)
    return count


def test_every_compressed_entry_of_the_golden_sets_is_read() -> None:
    """Records must fill the bytes exactly (magic 2), and every inner CRC be right (magic 0, 1)."""
    if not (ROOT / "tests/golden").is_dir():
        pytest.skip("the golden sets are not here")
    reader = Decompressor()
    seen = set()
    for magic, codec, payload, count in golden_payloads():
        data = reader.decompress(codec, payload, magic=magic)
        seen.add((magic, codec))
        if magic == 2:
            assert record_count(data) == count
            continue
        at = 0
        while at < len(data):
            _, size, crc = struct.unpack_from(">qiI", data, at)
            assert zlib.crc32(data[at + 16 : at + 12 + size]) == crc
            at += 12 + size
        assert at == len(data)
    assert seen == {(magic, codec) for magic in (0, 1) for codec in (1, 2, 3)} | {
        (2, codec) for codec in (1, 2, 3, 4)
    }


# --- damage -------------------------------------------------------------------------------------


def small_payloads() -> list[tuple[str, Codec, int, bytes, bytes]]:
    data = b"".join(b"key-%d value-%d;" % (n % 3, n % 7) for n in range(20)) + bytes(range(40))
    linked = bytes(cramjam.lz4.compress(data))
    skippable = b"\x50\x2a\x4d\x18\x01\x00\x00\x00x"
    return [
        ("gzip", Codec.GZIP, 2, bytes(compress(Codec.GZIP, data)), data),
        ("snappy", Codec.SNAPPY, 2, bytes(compress(Codec.SNAPPY, data)), data),
        ("snappy-raw", Codec.SNAPPY, 2, bytes(snappy_raw(data)), data),
        ("lz4", Codec.LZ4, 2, bytes(compress(Codec.LZ4, data)), data),
        ("lz4-magic-0", Codec.LZ4, 0, bytes(compress(Codec.LZ4, data, magic=0)), data),
        ("lz4-linked", Codec.LZ4, 2, linked, data),
        ("lz4-linked-magic-0", Codec.LZ4, 0, linked, data),
        ("zstd", Codec.ZSTD, 2, bytes(compress(Codec.ZSTD, data)), data),
        ("zstd-two", Codec.ZSTD, 2, bytes(compress(Codec.ZSTD, data)) + skippable, data),
    ]


PAYLOADS = small_payloads()
ALL_PAYLOADS = pytest.mark.parametrize(
    ("codec", "magic", "payload", "data"),
    [case[1:] for case in PAYLOADS],
    ids=[case[0] for case in PAYLOADS],
)


def outcome(
    reader: Decompressor, codec: int, payload: bytes | bytearray, magic: int
) -> bytes | None:
    """The decoded bytes, or None for the one kind of error that there may be."""
    try:
        return bytes(reader.decompress(codec, payload, magic=magic))
    except CorruptionError as caught:
        error = caught
    assert error.reason in {"compressed_data", "decompressed_too_large"}
    assert isinstance(error, LimitExceededError) == (error.reason != "compressed_data")
    return None


@ALL_PAYLOADS
def test_payload_cut_anywhere_is_refused(
    codec: Codec, magic: int, payload: bytes, data: bytes
) -> None:
    reader = Decompressor(MIB)
    assert outcome(reader, codec, payload, magic) == data
    for size in range(len(payload)):
        got = outcome(reader, codec, payload[:size], magic)
        # A snappy stream has no end: between blocks it is whole, and less than a size is ignored.
        # A zstd payload is whole before the frame that is skipped.
        if payload.startswith(b"\x82SNAPPY") and 16 <= size < 20:
            assert got == b""
        elif codec == Codec.ZSTD and got is not None:
            assert size == len(payload) - 9
            assert got == data
        else:
            assert got is None


@ALL_PAYLOADS
def test_payload_with_one_bit_flipped_decodes_or_is_refused(
    codec: Codec, magic: int, payload: bytes, data: bytes
) -> None:
    reader = Decompressor(100_000)
    refused = 0
    for at in range(len(payload)):
        for bit in range(8):
            damaged = bytearray(payload)
            damaged[at] ^= 1 << bit
            got = outcome(reader, codec, damaged, magic)
            refused += got is None
            assert got is None or len(got) <= 100_000
    assert refused > len(payload)


@settings(max_examples=300, deadline=None)
@given(
    case=st.sampled_from(PAYLOADS),
    edits=st.lists(
        st.tuples(st.integers(0, 10_000), st.integers(0, 3), st.binary(min_size=1, max_size=9)),
        min_size=1,
        max_size=6,
    ),
)
def test_mutated_payload_decodes_or_is_refused(
    case: tuple[str, Codec, int, bytes, bytes], edits: list[tuple[int, int, bytes]]
) -> None:
    _, codec, magic, payload, _ = case
    damaged = bytearray(payload)
    for where, kind, piece in edits:
        at = where % (len(damaged) + 1)
        damaged[at : at + (0, len(piece), 2 * len(piece), 400)[kind]] = piece
    got = outcome(Decompressor(50_000), codec, bytes(damaged), magic)
    assert got is None or len(got) <= 50_000


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=300), codec=st.sampled_from(REAL))
def test_arbitrary_bytes_decode_or_are_refused(data: bytes, codec: Codec) -> None:
    starts = {
        Codec.GZIP: bytes.fromhex("1f8b08000000000000ff"),
        Codec.SNAPPY: bytes.fromhex("82534e41505059000000000100000001"),
        Codec.LZ4: bytes.fromhex("04224d18604082"),
        Codec.ZSTD: bytes.fromhex("28b52ffd0058"),
    }
    for payload in (data, starts[codec] + data):
        got = outcome(Decompressor(MIB), codec, payload, 2)
        assert got is None or len(got) <= MIB


def test_lz4_block_that_only_decodes_as_sized_is_refused() -> None:
    """The library takes a bare block that it cannot decode for one with its size before it."""
    data = text(500)
    sized = bytes(cramjam.lz4.compress_block(data, store_size=True))
    out = bytearray(65536)
    assert cramjam.lz4.decompress_block_into(sized, out, output_len=65536) == len(data)
    refusal(Codec.LZ4, lz4_frame(struct.pack("<I", len(sized)) + sized))


@pytest.mark.parametrize("codec", REAL)
def test_empty_payload_is_refused(codec: Codec) -> None:
    refusal(codec, b"")
    assert read(Codec.NONE, b"") == b""


def test_panic_of_the_library_is_one_error_and_an_interrupt_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class PanicException(BaseException):
        pass

    def panics(*_: object) -> int:
        raise PanicException("index out of bounds")

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    names = {
        Codec.GZIP: (cramjam.gzip, "decompress_into"),
        Codec.SNAPPY: (cramjam.snappy, "decompress_raw_into"),
        Codec.LZ4: (cramjam.lz4, "decompress_block_into"),
        Codec.ZSTD: (cramjam.zstd, "decompress_into"),
    }
    for codec, (module, name) in names.items():
        payload = bytes(compress(codec, text(3000)))
        monkeypatch.setattr(module, name, panics)
        assert "index out of bounds" in refusal(codec, payload)
        monkeypatch.setattr(module, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            read(codec, payload)


# --- limits and lies ----------------------------------------------------------------------------


def bombs() -> dict[str, tuple[Codec, bytes]]:
    zeros = bytes(64 * MIB)
    linked = bytes(cramjam.lz4.compress(zeros))
    return {
        "gzip": (Codec.GZIP, bytes(compress(Codec.GZIP, zeros))),
        "snappy": (Codec.SNAPPY, bytes(compress(Codec.SNAPPY, zeros))),
        "snappy-raw": (Codec.SNAPPY, bytes(snappy_raw(zeros))),
        "lz4": (Codec.LZ4, bytes(compress(Codec.LZ4, zeros))),
        "lz4-linked": (Codec.LZ4, linked),
        "zstd": (Codec.ZSTD, bytes(compress(Codec.ZSTD, zeros))),
        "zstd-frames": (Codec.ZSTD, bytes(compress(Codec.ZSTD, zeros[:MIB])) * 64),
        "zstd-ones": (Codec.ZSTD, bytes(compress(Codec.ZSTD, b"\x01" * (16 * MIB)))),
    }


@pytest.fixture(scope="module")
def all_bombs() -> dict[str, tuple[Codec, bytes]]:
    return bombs()


BOMB_NAMES = [
    "gzip", "snappy", "snappy-raw", "lz4", "lz4-linked", "zstd", "zstd-frames", "zstd-ones",
]  # fmt: skip


@pytest.mark.parametrize("name", BOMB_NAMES)
def test_bomb_stops_at_the_limit_in_time_and_memory(
    all_bombs: dict[str, tuple[Codec, bytes]], name: str
) -> None:
    codec, payload = all_bombs[name]
    too_large(codec, payload, MIB)  # imports and caches are not what is measured
    gc.collect()  # errors hold the frames that raised them, and those the buffers
    tracemalloc.start()
    started = time.process_time()
    too_large(codec, payload, 3 * MIB + 1)
    elapsed = time.process_time() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * MIB + MIB // 2 + len(payload) * ("linked" in name)
    assert elapsed < 1.0


def test_bombs_take_no_memory_inside_the_library_either(
    all_bombs: dict[str, tuple[Codec, bytes]], tmp_path: pathlib.Path
) -> None:
    """In a process of its own, because the high-water mark of this one is past every bomb."""
    for name, (codec, payload) in all_bombs.items():
        (tmp_path / f"{name}.{codec:d}").write_bytes(payload)
    code = """if True:
        import pathlib, resource, sys
        from stratalog.errors import LimitExceededError
        from stratalog.records.compression import Decompressor, compress
        def resident():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        reader = Decompressor(1 << 20)
        for codec in (1, 2, 3, 4):
            reader.decompress(codec, compress(codec, bytes(1 << 20)))
        for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
            payload = path.read_bytes()
            before = resident()
            try:
                reader.decompress(int(path.suffix[1:]), payload)
            except LimitExceededError:
                print(path.name, resident() - before, "MiB")
                assert resident() - before < 8, path.name
            else:
                raise AssertionError(path.name)
    """
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("MiB") == len(all_bombs)


@pytest.mark.parametrize("name", BOMB_NAMES)
def test_the_limit_itself_is_allowed_and_one_byte_less_is_not(
    all_bombs: dict[str, tuple[Codec, bytes]], name: str
) -> None:
    codec, payload = all_bombs[name]
    size = 16 * MIB if name == "zstd-ones" else 64 * MIB
    assert len(Decompressor(size).decompress(codec, payload)) == size
    too_large(codec, payload, size - 1)


@pytest.mark.parametrize("name", BOMB_NAMES)
def test_growing_holds_one_buffer_at_a_time(
    all_bombs: dict[str, tuple[Codec, bytes]], name: str
) -> None:
    codec, payload = all_bombs[name]
    reader = Decompressor()
    tracemalloc.start()
    size = len(reader.decompress(codec, payload))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # An eighth is kept as headroom.
    assert peak < size + size // 8 + 2 * MIB


@pytest.mark.parametrize(
    ("codec", "payload"),
    [
        (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\x00a" * 10),
        (Codec.SNAPPY, b"\xff\xff\xff\xff\xff\xff\xff"),
        (Codec.SNAPPY, b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"),
        (Codec.SNAPPY, snappy_stream(b"", 1) + struct.pack(">i", 5) + b"\xff\xff\xff\xff\x0f"),
        (Codec.SNAPPY, snappy_stream(b"", 1) + struct.pack(">i", 2**31 - 1) + b"abc"),
        (Codec.SNAPPY, snappy_stream(b"", 1) + struct.pack(">i", -5) + b"abcdefgh"),
        (Codec.SNAPPY, snappy_stream(b"", 1) + struct.pack(">i", 0) + b"abcdefgh"),
        (Codec.SNAPPY, snappy_stream(b"a", 1)[:8] + bytes(8) + snappy_stream(b"a", 1)[16:]),
        (Codec.SNAPPY, snappy_stream(b"a", 1) + snappy_stream(b"", 1)[:12]),
        (Codec.SNAPPY, snappy_stream(b"a", 1) + b"\x82SNAPPX\x00" + bytes(8)),
        (Codec.ZSTD, bytes.fromhex("28b52ffde0") + struct.pack("<Q", 2**60) + b"\x01\x00\x00"),
        (Codec.ZSTD, bytes.fromhex("28b52ffde0") + b"\xff" * 8 + b"\x01\x00\x00"),
        (Codec.ZSTD, bytes.fromhex("28b52ffd200a490000") + RECORD),
        (Codec.ZSTD, bytes.fromhex("28b52ffd2008490000") + RECORD),
        (Codec.ZSTD, bytes.fromhex("28b52ffd0058 0700 00")),
        (Codec.ZSTD, bytes.fromhex("28b52ffd0058 0300 20 00")),
        (Codec.ZSTD, bytes.fromhex("502a4d18ffffffff00")),
        (Codec.GZIP, bytes(compress(Codec.GZIP, RECORD))[:-4] + b"\xff\xff\xff\xff"),
        (Codec.GZIP, bytes(compress(Codec.GZIP, RECORD))[:-4] + bytes(4)),
        (Codec.GZIP, bytes(compress(Codec.GZIP, RECORD))[:-4] + b"\x00\x00\x10\x00"),
    ],
)
def test_payload_that_lies_about_its_size_is_refused_at_once(codec: Codec, payload: bytes) -> None:
    read(codec, compress(codec, RECORD))
    tracemalloc.start()
    started = time.process_time()
    refusal(codec, payload, size_max=DECOMPRESSED_SIZE_MAX_DEFAULT)
    elapsed = time.process_time() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * MIB
    assert elapsed < 0.5


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.SNAPPY, Codec.ZSTD])
def test_many_empty_blocks_take_no_memory(codec: Codec) -> None:
    count = 20_000
    payload = {
        Codec.LZ4: lz4_frame(struct.pack("<IB", 1, 0) * count),
        Codec.SNAPPY: snappy_stream(b"", 1) + struct.pack(">iB", 1, 0) * count,
        Codec.ZSTD: bytes.fromhex("28b52ffd0058") + bytes(3) * count + b"\x01\x00\x00",
    }[codec]
    read(codec, compress(codec, RECORD))
    tracemalloc.start()
    assert read(codec, payload) == b""
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # lz4 makes room for what so many bytes could be.
    assert peak < (255 * count + 2 * MIB if codec == Codec.LZ4 else MIB // 2)


def test_damage_behind_the_limit_is_too_large_and_damage_before_it_is_damage() -> None:
    payload = bytearray(compress(Codec.ZSTD, text(4 * MIB)))
    payload[len(payload) // 2] ^= 0xFF
    too_large(Codec.ZSTD, payload, MIB)
    payload = bytearray(compress(Codec.ZSTD, text(4 * MIB)))
    payload[40:60] = bytes(20)
    refusal(Codec.ZSTD, payload, size_max=MIB)


def test_no_memory_is_a_typed_error() -> None:
    reader = Decompressor(2**62)
    with pytest.raises(LimitExceededError) as caught:
        reader._scratch.room(2**61)
    assert caught.value.reason == "decompressed_too_large"
    assert reader.decompress(Codec.LZ4, compress(Codec.LZ4, RECORD)) == RECORD


# --- the scratch buffer -------------------------------------------------------------------------


@pytest.mark.parametrize("codec", REAL)
def test_view_is_read_only_and_valid_until_the_next_call(codec: Codec) -> None:
    reader = Decompressor()
    first = reader.decompress(codec, compress(codec, b"a" * 1000))
    owned = reader.decompress_owned(codec, compress(codec, b"b" * 1000))
    assert first.readonly
    assert owned.readonly
    assert first == b"b" * 1000  # overwritten: both were decoded in the same place
    reader.decompress(codec, compress(codec, b"c" * 1000))
    assert first == b"c" * 1000
    assert owned == b"b" * 1000
    assert owned.nbytes == 1000
    assert len(memoryview(owned.obj)) == 1000  # nothing else is kept alive by it


def test_uncompressed_data_is_viewed_and_owned_data_is_copied() -> None:
    data = bytearray(b"abc")
    reader = Decompressor(1)
    view, owned = reader.decompress(0, data), reader.decompress_owned(0, data)
    data[0] = 0x7A
    assert bytes(view) == b"zbc"
    assert view.readonly
    assert bytes(owned) == b"abc"


def test_view_held_while_the_buffer_is_replaced_stays_readable() -> None:
    reader = Decompressor()
    first = reader.decompress(Codec.LZ4, compress(Codec.LZ4, b"a" * 1000))
    reader.decompress(Codec.LZ4, compress(Codec.LZ4, text(3 * MIB)))
    assert first == b"a" * 1000


def test_large_buffer_is_given_back_or_handed_over() -> None:
    large = compress(Codec.ZSTD, bytes(20 * MIB))
    small = compress(Codec.ZSTD, RECORD)
    reader = Decompressor()
    reader.decompress(Codec.ZSTD, large)
    assert reader._scratch.size >= 20 * MIB
    reader.decompress(Codec.ZSTD, small)
    assert reader._scratch.size <= MIB
    owned = reader.decompress_owned(Codec.ZSTD, large)
    assert reader._scratch.size == 0
    reader.decompress(Codec.ZSTD, compress(Codec.ZSTD, b"x" * 5000))
    assert owned == bytes(20 * MIB)


def test_reader_works_on_after_an_error() -> None:
    reader = Decompressor(MIB)
    for codec in REAL:
        payload = bytes(compress(codec, text(9000)))
        for _ in range(2):
            assert outcome(reader, codec, payload[:-5], 2) is None
            assert outcome(reader, codec, bytes(compress(codec, bytes(2 * MIB))), 2) is None
            assert reader.decompress(codec, payload) == text(9000)


# --- wrong use ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "options", "kind", "words"),
    [
        (Codec.ZSTD, {"magic": 1}, InvalidRecordError, "magic 2"),
        (Codec.ZSTD, {"magic": 0}, InvalidRecordError, "magic 2"),
        (Codec.GZIP, {"level": 0}, UsageError, "1 to 9 or -1"),
        (Codec.GZIP, {"level": 10}, UsageError, "1 to 9 or -1"),
        (Codec.GZIP, {"level": -2}, UsageError, "1 to 9 or -1"),
        (Codec.LZ4, {"level": 0}, UsageError, "1 to 17"),
        (Codec.LZ4, {"level": 18}, UsageError, "1 to 17"),
        (Codec.ZSTD, {"level": 23}, UsageError, "-131072 to 22"),
        (Codec.ZSTD, {"level": -131073}, UsageError, "-131072 to 22"),
        (Codec.SNAPPY, {"level": 1}, UsageError, "no levels"),
        (Codec.NONE, {"level": 1}, UsageError, "no levels"),
        (5, {}, UsageError, "no codec 5"),
        (-1, {}, UsageError, "no codec -1"),
        (Codec.GZIP, {"magic": 3}, UsageError, "no magic 3"),
    ],
)
def test_compress_refuses_what_kafka_refuses(
    codec: Any, options: dict[str, int], kind: type[StratalogError], words: str
) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        compress(codec, RECORD, **options)


@pytest.mark.parametrize(
    ("codec", "magic"), [(5, 2), (6, 1), (7, 0), (-1, 2), (Codec.ZSTD, 0), (Codec.ZSTD, 1)]
)
def test_codec_that_the_magic_cannot_have_is_corruption(codec: int, magic: int) -> None:
    for payload in (RECORD, bytes(compress(Codec.ZSTD, RECORD))):
        with pytest.raises(CorruptionError) as caught:
            read(codec, payload, magic=magic)
        assert caught.value.reason == "unknown_codec"


def test_wrong_arguments_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="1 or more"):
        Decompressor(0)
    with pytest.raises(UsageError, match="no magic 3"):
        read(Codec.GZIP, RECORD, magic=3)
    with pytest.raises(UsageError, match="contiguous"):
        read(Codec.GZIP, memoryview(bytes(20))[::2])
    with pytest.raises(UsageError, match="NoneType"):
        read(Codec.GZIP, None)


def test_importing_loads_no_codec_library() -> None:
    code = "import sys, stratalog.records.compression; sys.exit('cramjam' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT / "src")})


# --- the page -----------------------------------------------------------------------------------

PAGE = ROOT / "docs/formats/codecs.md"
BLOCK = re.compile(r"^```(hex|json) (?:example|expect)=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page_examples() -> dict[str, tuple[bytes, dict[str, Any]]]:
    blocks = {(kind, name): body for kind, name, body in BLOCK.findall(PAGE.read_text("utf-8"))}
    return {
        name: (
            bytes.fromhex("".join(re.split(r" {2,}", row)[0] for row in body.splitlines())),
            json.loads(blocks["json", name]),
        )
        for (kind, name), body in blocks.items()
        if kind == "hex"
    }


@pytest.mark.parametrize("name", page_examples())
def test_example_of_the_page_decodes_as_it_says(name: str) -> None:
    payload, expected = page_examples()[name]
    codec = Codec[expected["codec"].upper()]
    data = bytes.fromhex(expected["decompressed_hex"])
    assert read(codec, payload, magic=expected["magic"]) == data


def test_page_has_an_example_of_every_codec_and_of_what_we_write() -> None:
    examples = page_examples()
    assert {expected["codec"] for _, expected in examples.values()} == {
        codec.name.lower() for codec in Codec
    }
    for name in ("none", "snappy", "lz4", "lz4-magic-0", "lz4-compressed", "zstd-content-size"):
        payload, expected = examples[name]
        codec = Codec[expected["codec"].upper()]
        data = bytes.fromhex(expected["decompressed_hex"])
        assert compress(codec, data, magic=expected["magic"]) == payload
    for name in ("snappy-raw", "snappy-copy"):
        payload, expected = examples[name]
        assert snappy_raw(bytes.fromhex(expected["decompressed_hex"])) == payload
