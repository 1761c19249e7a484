"""Fuzz target: what stands beside a log, from any bytes.

The first bytes choose the lane and the numbers of the index state; the rest is index entries to search; or
header rows, as a walk over the rest writes them, or made from a few bytes each, or any numbers at all. Both
kernels give the same answers, and these hang together: entries rise, batches noted one by one give the same
entries, rows are told once and in order, and a search that found an entry found one that is not above.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from fuzz import seeds as made
from fuzz.twins import REFUSED, Selectors, agree, exact
from stratalog.records import _kernel
from stratalog.records.layout import (
    INDEX_STATE_WIDTH,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    ROW_WIDTH,
    IndexState,
    Row,
)

TARGET_NAME = "index"
SELECTORS = 11
SEARCH, REGION, MADE, NUMBERS = range(4)
ROWS_MAX = 64
MADE_SIZE = 6
EDGES = (0, 1, -1, 5, INT32_MAX, INT32_MAX + 1, INT64_MAX, INT64_MIN, 1_700_000_000_000)
Numbers = memoryview


def one_input(data: bytes) -> object:
    selectors = Selectors(data, SELECTORS)
    lane = selectors.byte() % 4
    check_zeros(selectors.rest)
    if lane == SEARCH:
        return lane, searched(selectors)
    state = state_of(selectors)
    unaligned = bool(selectors.byte() & 1)
    if lane == REGION:
        rows = array("q", [0]) * (ROWS_MAX * ROW_WIDTH)
        count = _kernel.walk(selectors.rest, 0, len(selectors.rest), memoryview(rows))[0]
        raw = rows[: count * ROW_WIDTH].tobytes()
    elif lane == MADE:
        raw = array("q", made_rows(selectors.rest)).tobytes()
    else:
        if selectors.rest[8 * INDEX_STATE_WIDTH :]:
            state = numbers(selectors.rest[: 8 * INDEX_STATE_WIDTH], unaligned=False).tolist()
        raw = selectors.rest[8 * INDEX_STATE_WIDTH :]
        raw = raw[: len(raw) // (8 * ROW_WIDTH) * 8 * ROW_WIDTH]
    rows_view = numbers(raw, unaligned=unaligned)
    count = len(rows_view) // ROW_WIDTH
    noted = check_notes(rows_view, count, state)
    return lane, noted, check_replay(rows_view, count)


def numbers(raw: bytes, *, unaligned: bool) -> Numbers:
    """64-bit integers in memory that ends with them, and starts where no integer should."""
    if unaligned:
        return exact(b"\0" + raw)[1:].cast("q")
    return exact(raw).cast("q")


def check_zeros(data: bytes) -> None:
    region = exact(data)
    start = min(3, len(data))
    position = agree(lambda kernel: kernel.zero_run(region, start, len(region)))
    assert not any(data[start:position])
    assert position == len(data) or data[position]


def searched(selectors: Selectors) -> object:
    entry_size = selectors.byte() % 14
    key_at = selectors.byte() % 12
    key_size = selectors.choice((4, 8, 4, 8, 4, 8, 2))
    data = selectors.rest
    whole = len(data) // max(entry_size, 1)
    count = selectors.choice((whole, whole, whole, whole // 2, whole + 1, -1, INT64_MAX))
    target = selectors.choice((*EDGES, None))
    if target is None and len(data) >= 8:
        target = struct.unpack_from(">q" if key_size == 8 else ">i", data, len(data) // 2 - 4)[0]
    region = exact(data)
    slot = agree(
        lambda kernel: kernel.search_entries(
            region, count, entry_size, key_at, key_size, target or 0
        )
    )
    if slot == REFUSED:
        return slot
    assert -1 <= slot < count
    if slot >= 0:
        at = slot * entry_size + key_at
        assert int.from_bytes(data[at : at + key_size], "big", signed=True) <= (target or 0)
    return min(slot, 2), slot == count - 1, key_size


def state_of(selectors: Selectors) -> list[int]:
    state = [0] * INDEX_STATE_WIDTH
    base = selectors.choice((0, 0, 0, 0, 50, *EDGES))
    state[IndexState.BASE_OFFSET] = base
    state[IndexState.INTERVAL] = selectors.choice((0, 100, 4096, *EDGES))
    state[IndexState.BYTES_SINCE] = selectors.choice((0, 0, 0, 5000, *EDGES))
    state[IndexState.MAX_TIMESTAMP] = selectors.choice((-1, -1, -1, *EDGES))
    state[IndexState.MAX_TIMESTAMP_OFFSET] = selectors.choice((-1, base, *EDGES))
    state[IndexState.LAST_TIME] = selectors.choice((-1, -1, -1, *EDGES))
    state[IndexState.LAST_TIME_OFFSET] = selectors.choice((base, base, base, *EDGES))
    state[IndexState.LAST_OFFSET] = selectors.choice((-1, -1, -1, *EDGES))
    slots = selectors.byte()
    state[IndexState.OFFSET_SLOTS] = (1000, 1000, 2, 0)[slots & 3]
    state[IndexState.TIME_SLOTS] = (1000, 1000, 1, -1)[slots >> 2 & 3]
    state[IndexState.POSITION_BASE] = (0, 0, 7, *EDGES)[(slots >> 4) % 12]
    return state


def made_rows(data: bytes) -> list[int]:
    """Rows that mostly follow each other as those of a log do: a few bytes for each."""
    values: list[int] = []
    position = offset = 0
    for at in range(0, min(len(data), 400 * MADE_SIZE) - MADE_SIZE + 1, MADE_SIZE):
        producer, kind, step, size, time, odd = data[at : at + MADE_SIZE]
        row = [0] * ROW_WIDTH
        row[Row.POSITION] = position
        row[Row.SIZE] = 61 + 16 * size
        row[Row.MAGIC] = (2, 2, 2, 2, 2, 1, 0, 2)[kind >> 5]
        row[Row.ATTRIBUTES] = kind & 0x10 | (kind & 0x20 if kind & 3 == 0 else 0)
        row[Row.PRODUCER_EPOCH] = kind >> 2 & 1
        row[Row.PRODUCER_ID] = producer % 6 - 1
        row[Row.LAST_OFFSET] = offset + step
        row[Row.MAX_TIMESTAMP] = 1_700_000_000_000 + time - 128 if time else -1
        if odd > 250:
            row[producer % ROW_WIDTH] = EDGES[step % len(EDGES)]
        position += row[Row.SIZE] if odd <= 250 else 0
        offset += step + 1
        values += row
    return values


def check_notes(rows: Numbers, count: int, numbers_before: list[int]) -> object:
    def noted(kernel: Any) -> Any:
        state = array("q", numbers_before)
        offsets, times = bytearray(b"o"), bytearray(b"t")
        answer = kernel.note_batches(rows, count, state, offsets, times)
        return [*answer], state.tolist(), bytes(offsets), bytes(times)

    (done, reason), after, offsets, times = agree(noted)
    assert 0 <= done <= count
    assert (done == count) == (reason == 0)
    entries = [*struct.iter_unpack(">ii", offsets[1:])]
    assert all(a[0] < b[0] for a, b in pairwise(entries)), "offset entries do not rise"
    assert all(offset >= 0 and position >= 0 for offset, position in entries)
    slots = numbers_before[IndexState.OFFSET_SLOTS] - after[IndexState.OFFSET_SLOTS]
    assert slots == len(entries)
    timed = [*struct.iter_unpack(">qi", times[1:])]
    assert all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(timed)), "times do not rise"
    fixed = (IndexState.BASE_OFFSET, IndexState.INTERVAL, IndexState.POSITION_BASE)
    assert all(after[field] == numbers_before[field] for field in fixed)
    check_parts(rows, done, numbers_before, noted(_kernel))
    return reason, min(len(entries), 2), min(len(timed), 2)


def check_parts(rows: Numbers, done: int, before: list[int], whole: Any) -> None:
    """One row at a time, and the same in the end."""
    state = array("q", before)
    offsets, times = bytearray(b"o"), bytearray(b"t")
    for at in range(done):
        one = rows[at * ROW_WIDTH : (at + 1) * ROW_WIDTH]
        assert _kernel.note_batches(one, 1, state, offsets, times) == (1, 0)
    assert (state.tolist(), bytes(offsets), bytes(times)) == tuple(whole[1:])


def check_replay(rows: Numbers, count: int) -> object:
    def chosen(kernel: Any) -> list[int]:
        keep = array("q", [-1]) * count
        return list(keep[: kernel.replay_rows(rows, count, keep)])

    kept = agree(chosen)
    assert all(a < b for a, b in pairwise(kept))
    assert all(0 <= row < count for row in kept)
    producers = [rows[row * ROW_WIDTH + Row.PRODUCER_ID] for row in range(count)]
    with_id = [row for row in range(count) if producers[row] >= 0]
    assert set(with_id[-5:]) <= set(kept), "the last five rows were left out"
    return min(len(kept), 3), len(kept) < len(with_id)


def seeds() -> Iterable[bytes]:
    entries = b"".join(struct.pack(">ii", 5 * at, 5000 * at) for at in range(1, 9))
    times = b"".join(struct.pack(">qi", 1_700_000_000_000 + at, at) for at in range(8))
    for key_size, entry, data in ((0, 8, entries), (1, 12, times), (0, 8, entries[:-1])):
        for target in range(len(EDGES) + 1):
            yield bytes((SEARCH, entry, 0, key_size, 0, target)).ljust(SELECTORS, b"\0") + data
    yield bytes((SEARCH, 12, 8, 0, 0, 3)).ljust(SELECTORS, b"\0") + times
    for lane in (bytes(SELECTORS - 1), b"\0\0\3" + bytes(7), bytes(9) + b"\1"):
        for region in (*made.batches(), *made.message_sets()):
            if len(region) < 2000:
                yield bytes((REGION,)) + lane + region + region
        run = bytes((1, 1, 0, 20, 128, 0)) * 9
        changes = bytes((1, 0x10, 0, 20, 130, 0)) + bytes((2, 1, 3, 200, 140, 0)) * 7
        yield bytes((MADE,)) + lane + run + changes + bytes((1, 0x20, 0, 1, 1, 0)) + run
        yield bytes((MADE,)) + lane + run * 30
        yield bytes((NUMBERS,)) + lane + array("q", made_rows(run + changes)).tobytes()
