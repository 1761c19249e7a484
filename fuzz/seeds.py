"""Where fuzzing starts from: what our builders write, and what real Kafka wrote (tests/golden)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from stratalog.records import _kernel
from stratalog.records.builder import BatchOptions, build_batch, empty_batch
from stratalog.records.layout import INT64_MAX, INT64_MIN, Codec
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record, RecordHeader
from stratalog.records.scan import scan_batches, scan_v07
from stratalog.records.v07 import build_entries

GOLDEN: Final = Path(__file__).resolve().parent.parent / "tests" / "golden"
ENTRY_MAX: Final = 700  # a seed is small, or mutating it finds nothing

RECORDS: Final = (
    Record(key=b"k", value=b"v", timestamp=1_700_000_000_000, offset=0),
    Record(key=None, value=None, timestamp=-1, offset=1),
    Record(
        key=b"",
        value=b"x" * 40,
        timestamp=INT64_MAX,
        offset=4,
        headers=(RecordHeader("a", b"1"), RecordHeader("é", None), RecordHeader("", b"")),
    ),
    Record(key=b"longer than twelve", value=b"", timestamp=INT64_MIN, offset=5),
)
MANY: Final = tuple(Record(value=b"v" if at % 3 else None) for at in range(260))
PLAIN: Final = tuple(Record(r.value, r.key, r.timestamp, (), r.offset) for r in RECORDS)


def batches() -> Iterator[bytes]:
    """Magic 2."""
    for codec in Codec:
        yield build_batch(RECORDS, BatchOptions(codec=codec))
    options = BatchOptions(
        append_time=5,
        producer_id=7,
        producer_epoch=1,
        base_sequence=2**31 - 2,
        leader_epoch=3,
        is_transactional=True,
    )
    yield build_batch(RECORDS[:2], options)
    yield build_batch(RECORDS[:1], BatchOptions(delete_horizon_ms=9))
    marker = Record(key=bytes(4), value=bytes(6), timestamp=3)
    yield build_batch([marker], BatchOptions(is_control=True, is_transactional=True))
    yield build_batch([Record(value=b"v")], base_offset=INT64_MAX - 1)
    (header,) = scan_batches(build_batch(RECORDS))
    yield empty_batch(header)
    yield from large_batches()
    yield (
        build_batch(RECORDS[:1])
        + build_batch(RECORDS[2:])
        + build_batch([Record(value=b"v")], base_offset=9)
    )


def large_batches() -> Iterator[bytes]:
    """What reaches the kernel's buffers: values around the sizes in which it copies, headers that make
    it grow after a null, and more records than it carries over at once (256)."""
    yield build_batch([Record(value=bytes((size,)) * size, key=b"k") for size in (31, 32, 33, 65)])
    yield build_batch([Record(value=b"x" * 300, key=b"k" * 260), Record(value=b"y" * 20)])
    headers = (RecordHeader("a", None), RecordHeader("b" * 70, b"z" * 200))
    yield build_batch(
        [Record(value=None, headers=headers), Record(value=None, headers=headers[1:])]
    )
    not_text = Record(value=b"", headers=(RecordHeader("\x7f" * 150, None),))
    yield build_batch([not_text]).replace(b"\x7f", b"\xff")
    yield build_batch(MANY)


def message_sets() -> Iterator[bytes]:
    """Magic 0 and 1, plain and in wrappers."""
    for magic in (0, 1):
        for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
            yield build_messages(PLAIN, MessageOptions(magic=magic, codec=codec))
    yield build_messages(PLAIN[:2], MessageOptions(append_time=77))
    yield build_messages(MANY, MessageOptions(codec=Codec.GZIP))
    yield build_messages(PLAIN[:2], MessageOptions(append_time=77, codec=Codec.SNAPPY))


def v07_entries() -> Iterator[bytes]:
    values = [b"", b"v", b"x" * 40]
    yield build_entries(values, magic=0)
    yield build_entries(values)
    for codec in (Codec.GZIP, Codec.SNAPPY):
        yield build_entries(values, codec=codec) + build_entries(values[:1])


def golden_entries() -> Iterator[bytes]:
    """The first small entry of every kind that lies in the golden logs, two of them together."""
    seen: dict[tuple[int, int, int], bytes] = {}
    for path in sorted(GOLDEN.glob("**/*.log")):
        data = path.read_bytes()
        for header in scan_batches(data):
            kind = (header.magic, header.attributes, min(header.record_count, 2))
            if kind not in seen and header.size_bytes <= ENTRY_MAX:
                seen[kind] = data[header.position : header.end_position]
    entries = list(seen.values())
    yield from entries
    yield from (a + b for a, b in pairwise(entries))


def golden_v07() -> Iterator[bytes]:
    for path in sorted(GOLDEN.glob("**/*.kafka")):
        data = path.read_bytes()
        ends = [h.end_position for h in scan_v07(data) if h.end_position <= 2 * ENTRY_MAX]
        if ends:
            yield data[: ends[-1]]


def repair_crcs(data: bytes) -> bytes:
    """Make the CRCs of all whole entries true again, so that mutations reach what lies behind."""
    out = bytearray(data)
    position = 0
    while position + 17 <= len(out):
        size = struct.unpack_from(">i", out, position + 8)[0] + 12
        end = position + size
        if size < 26 or end > len(out):
            break
        if out[position + 16] == 2 and size >= 61:
            struct.pack_into(">I", out, position + 17, _kernel.crc32c(out[position + 21 : end]))
        elif out[position + 16] < 2:
            struct.pack_into(">I", out, position + 12, _kernel.crc32(out[position + 16 : end]))
        position = end
    return bytes(out)


def repair_crcs_v07(data: bytes) -> bytes:
    out = bytearray(data)
    position = 0
    while position + 10 <= len(out):
        end = position + 4 + struct.unpack_from(">i", out, position)[0]
        crc_at = position + (6 if out[position + 4] == 1 else 5)
        if end < crc_at + 4 or end > len(out):
            break
        struct.pack_into(">I", out, crc_at, _kernel.crc32(out[crc_at + 4 : end]))
        position = end
    return bytes(out)
