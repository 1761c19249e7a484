"""Fuzz target: walking, counting and restamping a region of any bytes.

The first bytes choose the flags, the capacity, the offset expected and the restamping; the rest is the
region. Both kernels give the same answers, and what they answer hangs together: positions follow each
other and stay in the region, another check never lets more pass, a walk in steps is the walk at once, and
restamping touches the offset and the leader epoch of whole magic 2 batches and no other byte.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from fuzz import seeds as made
from fuzz.twins import Selectors, agree, exact
from stratalog.records import _kernel
from stratalog.records.layout import INT32_MAX, INT64_MAX, ROW_WIDTH, Check, Ending, Row

TARGET_NAME = "scan"
SELECTORS = 5
ROWS_MAX = 64
CHECKS = int(Check.CRC | Check.ORDER | Check.CONTIGUOUS | Check.COUNTS)


def one_input(data: bytes) -> object:
    selectors = Selectors(data, SELECTORS)
    flags = selectors.byte() & CHECKS
    capacity = selectors.choice((ROWS_MAX, 1, 2, 3))
    expected = selectors.choice((-1, 0, 1, 4, 50, INT64_MAX))
    size_max = selectors.choice((INT32_MAX, 0, 61, 100))
    region = exact(selectors.rest)
    answer, _ = agree(lambda kernel: walked(kernel, region, capacity, flags, expected, size_max))
    counted = agree(
        lambda kernel: [*kernel.count(region, 0, len(region), flags, expected, size_max)]
    )
    check_every_combination(region, expected, size_max)
    check_steps(region, flags, expected, size_max)
    next_offset = selectors.choice((0, 7, INT64_MAX - 4, INT64_MAX, -1))
    stamped = check_restamp(selectors.rest, next_offset)
    return (answer[2], answer[3], min(answer[0], 3), counted[4], counted[5], stamped)


def walked(
    kernel: Any, region: memoryview, capacity: int, flags: int, expected: int, size_max: int
) -> tuple[list[int], list[int]]:
    rows = array("q", [0]) * (capacity * ROW_WIDTH)
    answer = kernel.walk(region, 0, len(region), memoryview(rows), flags, expected, size_max)
    return [int(part) for part in answer], rows[: answer[0] * ROW_WIDTH].tolist()


def check_every_combination(region: memoryview, expected: int, size_max: int) -> None:
    reached = {}
    for flags in range(CHECKS + 1):
        answer, rows = walked(_kernel, region, ROWS_MAX, flags, expected, size_max)
        check_rows(rows, answer[1], len(region))
        reached[flags] = answer[1]
        records, control, batches, position, ending, reason, after = _kernel.count(
            region, 0, len(region), flags, expected, size_max
        )
        if ending != Ending.COMPRESSED and answer[2] != Ending.FULL:
            assert (batches, position, ending, reason, after) == tuple(answer), "count and walk"
            assert records + control == sum(rows[Row.RECORD_COUNT :: ROW_WIDTH])
        assert min(records, control, batches) >= 0
    for flags, position in reached.items():
        assert all(position <= reached[flags & ~bit] for bit in (1, 2, 4, 8)), (
            "a check let more pass"
        )


def check_rows(rows: list[int], reached: int, limit: int) -> None:
    entries = [rows[at : at + ROW_WIDTH] for at in range(0, len(rows), ROW_WIDTH)]
    ends = [entry[Row.POSITION] + entry[Row.SIZE] for entry in entries]
    starts = [entry[Row.POSITION] for entry in entries]
    assert [*starts, reached] == [0, *ends], "entries do not follow each other"
    assert all(a < b for a, b in pairwise([*starts, reached])) and reached <= limit
    for entry, start, end in zip(entries, starts, ends, strict=True):
        payload = entry[Row.PAYLOAD_POSITION]
        assert start < payload <= payload + entry[Row.PAYLOAD_SIZE] <= end
        assert entry[Row.LAST_OFFSET] >= max(entry[Row.BASE_OFFSET], 0)


def check_steps(region: memoryview, flags: int, expected: int, size_max: int) -> None:
    """One batch at a time, and the same in the end."""
    whole, whole_rows = walked(_kernel, region, ROWS_MAX, flags, expected, size_max)
    row = array("q", [0]) * ROW_WIDTH
    rows: list[int] = []
    position = 0
    ending = int(Ending.FULL)
    for _ in range(ROWS_MAX + 1):
        written, position, ending, reason, expected = _kernel.walk(
            region, position, len(region), memoryview(row), flags, expected, size_max
        )
        rows += row[: written * ROW_WIDTH].tolist()
        if ending != Ending.FULL:
            break
    if whole[2] != Ending.FULL:
        assert (position, ending, reason, expected) == tuple(whole[1:])
        assert rows == whole_rows


def check_restamp(region: bytes, next_offset: int) -> int:
    def restamped(kernel: Any) -> tuple[list[int], memoryview]:
        data = exact(region)
        return [*kernel.restamp(data, 0, len(data), next_offset, 3)], data

    (reached, ending, _, after), stamped = agree(restamped)
    _, before = walked(_kernel, exact(region), len(region) // 61 + 1, 0, -1, INT32_MAX)
    allowed = bytearray(region)
    offset = next_offset
    for at in range(0, len(before), ROW_WIDTH):
        start, size = before[at + Row.POSITION], before[at + Row.SIZE]
        if start + size > reached:
            break
        allowed[start : start + 8] = offset.to_bytes(8, "big")
        allowed[start + 12 : start + 16] = (3).to_bytes(4, "big")
        offset += before[at + Row.LAST_OFFSET] - before[at + Row.BASE_OFFSET] + 1
    assert stamped == bytes(allowed), "restamping changed another byte"
    assert after == offset
    return int(ending)


def repair(data: bytes) -> bytes:
    return data[:SELECTORS] + made.repair_crcs(data[SELECTORS:])


def seeds() -> Iterable[bytes]:
    for head in (bytes(SELECTORS), bytes((CHECKS, 1, 1, 0, 1))):
        for region in (*made.batches(), *made.message_sets()):
            yield head + region
    for region in made.golden_entries():
        yield bytes((int(Check.CRC | Check.COUNTS), 0, 0, 0, 0)) + region
    yield bytes(SELECTORS) + bytes(70)
