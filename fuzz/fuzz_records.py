"""Fuzz target: magic 2 into columns, held against the reference.

The first bytes make the plan (columns, flags, views, bounds, limits) and choose how the rest is taken: as a
region of log; as the records of a batch whose header and CRC are made to fit, so that every input reaches the
record parser; or as what a compressed batch decompresses to.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from fuzz import seeds as made
from fuzz.twins import Plan, Selectors, drive, signature
from stratalog.errors import CorruptionError
from stratalog.records import _kernel
from stratalog.records.columns import Selection, decode_records
from stratalog.records.layout import (
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    CRC_FROM,
    INT32_MAX,
    INT64_MAX,
    LOG_OVERHEAD,
    Check,
    Codec,
    Column,
)

TARGET_NAME = "records"
SELECTORS = Plan.SIZE + 7
REGION, RECORDS, PAYLOAD = range(3)


def one_input(data: bytes) -> object:
    selectors = Selectors(data, SELECTORS)
    plan = Plan.read(selectors)
    lane = selectors.byte() % 3
    if lane == REGION:
        answer = drive(plan, selectors.rest)
        check_python_records(selectors.rest)
        return lane, signature(answer)
    header = (selectors.number() & 0x3FF, *(selectors.byte() for _ in range(4)))
    records = selectors.rest
    if lane == RECORDS:
        return lane, signature(drive(plan, batch_around(records, Codec.NONE, header)))
    return lane, signature(drive(plan, batch_around(b"?", Codec.GZIP, header), records))


def batch_around(content: bytes, codec: Codec, chosen: tuple[int, ...]) -> bytes:
    """A batch whose header is right as far as a header tells: only the content may be wrong."""
    count, more, place, attributes, times = chosen
    base_offset = (0, 5, 1 << 40, INT64_MAX - (1 << 31), INT64_MAX - 1300)[place % 5]
    last_delta = (count - 1 if count else 0) + (more if more < 128 else 0)
    if place & 0x80 and base_offset <= INT64_MAX - INT32_MAX:
        last_delta = INT32_MAX
    base_timestamp = (0, -1, 1_700_000_000_000, INT64_MAX, -INT64_MAX - 1)[times % 5]
    max_timestamp = (0, -1, 1_700_000_000_000, INT64_MAX, -INT64_MAX - 1)[(times >> 4) % 5]
    covered = struct.pack(
        ">hiqqqhii",
        attributes & 0x78 | codec,
        last_delta,
        base_timestamp,
        max_timestamp,
        more,
        times,
        (-1, 0, 3, INT32_MAX)[(place >> 3) % 4],
        count,
    )
    covered += content
    size = len(covered) + CRC_FROM - LOG_OVERHEAD
    head = struct.pack(">qiib", base_offset, size, place >> 5, 2)
    return head + struct.pack(">I", _kernel.crc32c(covered)) + covered


def check_python_records(region: bytes) -> None:
    """The way that users take: records, or one typed error."""
    every = Selection(
        columns=Column.OFFSET
        | Column.TIMESTAMP_MS
        | Column.TIMESTAMP_TYPE
        | Column.KEY
        | Column.VALUE
        | Column.HEADERS,
        check=Check.CRC | Check.ORDER | Check.INCLUDE_CONTROL,
        max_decompressed_bytes=1 << 16,
    )
    try:
        for _ in decode_records(region, every):
            pass
    except CorruptionError as error:
        assert error.position is not None and 0 <= error.position <= len(region)
        str(error)


def repair(data: bytes) -> bytes:
    if len(data) > Plan.SIZE and data[Plan.SIZE] % 3 == REGION:
        return data[:SELECTORS] + made.repair_crcs(data[SELECTORS:])
    return data


def seeds() -> Iterable[bytes]:
    plans = (
        bytes(Plan.SIZE),
        bytes((int(Check.CRC | Check.INCLUDE_CONTROL) | 0x20, 0, 0, 0, 0, 0, 0, 0, 0)),
        bytes((int(Check.CRC | Check.ORDER | Check.COUNTS), 0xFF, 0xFF, 5, 1, 0x28, 0x08, 2, 3)),
    )
    for plan in plans:
        for region in (*made.batches(), *made.golden_entries()):
            yield plan + bytes(SELECTORS - Plan.SIZE) + region
        for lane in (RECORDS, PAYLOAD):
            for batch in made.batches():
                if not batch[22] & CODEC_MASK:
                    count = batch[BATCH_HEADER_SIZE - 2 : BATCH_HEADER_SIZE]
                    header = bytes((lane, *count, 9, 0, 0, 0x22))
                    yield plan + header + batch[BATCH_HEADER_SIZE:]
