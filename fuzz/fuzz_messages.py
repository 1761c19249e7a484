"""Fuzz target: magic 0 and 1 into columns, plain and in wrappers, held against the reference.

The first bytes make the plan and choose how the rest is taken: as a region of log, as the body of one message
whose header and CRC fit, or as the message set that a wrapper decompresses to.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from fuzz import seeds as made
from fuzz.fuzz_records import check_python_records
from fuzz.twins import Plan, Selectors, drive, signature
from stratalog.records import _kernel
from stratalog.records.layout import INT64_MAX, Check, Codec
from stratalog.records.legacy import MessageOptions, build_messages

TARGET_NAME = "messages"
SELECTORS = Plan.SIZE + 4
REGION, BODY, PAYLOAD = range(3)


def one_input(data: bytes) -> object:
    selectors = Selectors(data, SELECTORS)
    plan = Plan.read(selectors)
    lane = selectors.byte() % 3
    magic = selectors.byte() & 1
    offset = selectors.choice((0, 3, 1000, INT64_MAX - 1, INT64_MAX))
    attributes = selectors.byte()
    rest = selectors.rest
    if lane == REGION:
        answer = drive(plan, rest)
        check_python_records(rest)
    elif lane == BODY:
        answer = drive(plan, message_around(rest, magic, offset, attributes & 0xF8))
    else:
        codec = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)[attributes % 3]
        value = struct.pack(">iib", -1, 1, 0)
        wrapper = message_around(value, magic, offset, attributes & 0xF8 | codec)
        answer = drive(plan, wrapper, rest)
    return lane, magic, signature(answer)


def message_around(body: bytes, magic: int, offset: int, attributes: int) -> bytes:
    head = struct.pack(">bB", magic, attributes)
    if magic == 1:
        head += struct.pack(">q", 1_700_000_000_000)
    body = head + body
    return struct.pack(">qiI", offset, 4 + len(body), _kernel.crc32(body)) + body


def repair(data: bytes) -> bytes:
    if len(data) > Plan.SIZE and data[Plan.SIZE] % 3 != BODY:
        return data[:SELECTORS] + made.repair_crcs(data[SELECTORS:])
    return data


def seeds() -> Iterable[bytes]:
    plans = (
        bytes(Plan.SIZE),
        bytes((int(Check.CRC) | 0x20, 0, 0, 0, 0, 0, 0, 0, 0)),
        bytes((int(Check.CRC | Check.ORDER), 0xFF, 0xFF, 5, 1, 0x28, 0x08, 2, 3)),
    )
    for plan in plans:
        for region in (*made.message_sets(), *made.golden_entries()):
            yield plan + bytes(SELECTORS - Plan.SIZE) + region
        for magic in (0, 1):
            yield plan + bytes((BODY, magic, 1, 0)) + struct.pack(">i2si3s", 2, b"ke", 3, b"val")
            for records in (made.PLAIN, made.MANY):
                messages = build_messages(records, MessageOptions(magic=magic))
                for attributes in (0, 9):
                    yield plan + bytes((PAYLOAD, magic, 2, attributes)) + messages
