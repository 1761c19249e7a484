"""Fuzz target: 0.7 log entries, and the framings of a broker's answers in that time.

The first bytes make the plan and choose how the rest is taken: as a region of a file, as what a compressed
entry decompresses to, or as an answer. An answer that can be read must encode to the same bytes again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

from fuzz import seeds as made
from fuzz.twins import Plan, Selectors, agree, drive, exact, signature
from stratalog.errors import CorruptionError
from stratalog.records.columns import Selection, decode_records
from stratalog.records.layout import INT64_MAX, ROW_WIDTH, Check, Codec, Column, Row
from stratalog.records.v07 import (
    MessageSetSend,
    build_entry,
    decode_message_set_send,
    decode_multi_message_set_send,
    encode_message_set_send,
    encode_multi_message_set_send,
)

TARGET_NAME = "v07"
SELECTORS = Plan.SIZE + 2
REGION, PAYLOAD, ANSWER = range(3)


def one_input(data: bytes) -> object:
    selectors = Selectors(data, SELECTORS)
    plan = Plan.read(selectors)
    lane = selectors.byte() % 3
    base = selectors.choice((0, 5, 1 << 40, INT64_MAX - 30, INT64_MAX))
    rest = selectors.rest
    if lane == ANSWER:
        return lane, check_answer(rest)
    if lane == PAYLOAD:
        wrapper = build_entry(b"?", codec=Codec.SNAPPY)
        return lane, signature(drive(plan, wrapper, rest, v07_base=base))
    region = exact(rest)
    answer, rows = agree(lambda kernel: walked(kernel, region, plan.flags, base))
    position = 0
    for at in range(0, len(rows), ROW_WIDTH):
        assert rows[at + Row.POSITION] == position
        position += rows[at + Row.SIZE]
    assert position == answer[1] <= len(rest)
    check_python_records(rest)
    return lane, answer[2:4], signature(drive(plan, rest, v07_base=base))


def walked(kernel: Any, region: memoryview, flags: int, base: int) -> tuple[list[int], list[int]]:
    rows = array("q", [0]) * (5 * ROW_WIDTH)
    answer = kernel.walk_v07(region, 0, len(region), memoryview(rows), flags, base)
    return [int(part) for part in answer], rows[: answer[0] * ROW_WIDTH].tolist()


def check_answer(data: bytes) -> object:
    try:
        single = decode_message_set_send(data)
    except CorruptionError as error:
        assert error.reason == "wrong_frame"
        return error.detail.split()[-1]
    assert encode_message_set_send(single.content, single.error_code) == data
    try:
        multiple = decode_multi_message_set_send(data)
    except CorruptionError as error:
        assert error.reason == "wrong_frame"
        return "single"
    assert encode_multi_message_set_send(multiple.sends, multiple.error_code) == data
    return min(len(multiple.sends), 3)


def check_python_records(region: bytes) -> None:
    every = Selection(
        columns=Column.OFFSET
        | Column.TIMESTAMP_MS
        | Column.TIMESTAMP_TYPE
        | Column.KEY
        | Column.VALUE
        | Column.HEADERS,
        max_decompressed_bytes=1 << 16,
    )
    try:
        for record in decode_records(region, every, v07_base_offset=0):
            assert record.key is None and record.value is not None
    except CorruptionError as error:
        assert error.position is not None and 0 <= error.position <= len(region)


def repair(data: bytes) -> bytes:
    if len(data) > Plan.SIZE and data[Plan.SIZE] % 3 != ANSWER:
        return data[:SELECTORS] + made.repair_crcs_v07(data[SELECTORS:])
    return data


def seeds() -> Iterable[bytes]:
    plans = (
        bytes(Plan.SIZE),
        bytes((int(Check.CRC) | 0x20, 0, 0, 0, 0, 0, 0, 0, 0)),
        bytes((int(Check.CRC), 0xFF, 0xFF, 5, 1, 0x28, 0x08, 2, 3)),
    )
    for plan in plans:
        for region in (*made.v07_entries(), *made.golden_v07()):
            yield plan + bytes((REGION, 1)) + region
        yield plan + bytes((PAYLOAD, 0)) + next(iter(made.v07_entries()))
    sends = [MessageSetSend(0, b"abc"), MessageSetSend(-1, b"")]
    for answer in (
        encode_message_set_send(b"content", 1),
        encode_multi_message_set_send(sends),
        encode_multi_message_set_send([], -2),
    ):
        yield bytes(Plan.SIZE) + bytes((ANSWER, 0)) + answer
