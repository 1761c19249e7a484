"""is_plain and find_batch, the short ways of appends and look-ups: the two kernels agree on any bytes, and
what they say is what the long ways say."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.records import _kernel, _reference
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.layout import INT64_MAX, INT64_MIN, ROW_WIDTH, Codec, Reason, Row
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.records.restamp import set_append_time, set_max_timestamp
from stratalog.records.scan import scan_batches
from tests.records.generated import batches, int64, message_sets, mutated
from tests.scale import SCALE

pytestmark = pytest.mark.scaled

KERNELS = (_kernel, _reference)
both = pytest.mark.parametrize("kernel", KERNELS, ids=["compiled", "reference"])
T = 1_700_000_000_000

logs = st.one_of(batches(), message_sets())
mutations = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 3), st.booleans())


def plain(
    kernel: Any, data: bytes | bytearray, *, size: int = 1 << 30, low: int = INT64_MIN,
    high: int = INT64_MAX, needs_key: bool = False,
) -> list[int] | None:  # fmt: skip
    row = array("q", bytes(8 * ROW_WIDTH))
    is_plain = kernel.is_plain(data, row, size, low, high, needs_key)
    return row.tolist() if is_plain else None


def some(*timestamps: int, key: bytes | None = b"k") -> list[Record]:
    return [Record(b"v", key, each) for each in timestamps]


@both
def test_a_producers_batch_is_plain_and_its_row_is_the_walks(kernel: Any) -> None:
    batch = build_batch(some(T, T + 5, T + 2))
    (header,) = scan_batches(batch)
    row = plain(kernel, batch)
    assert row is not None
    assert row[Row.MAX_TIMESTAMP] == T + 5
    assert type(header).from_row(row) == header


@both
@pytest.mark.parametrize(
    "batch",
    [
        build_batch(some(T), BatchOptions(codec=Codec.LZ4)),
        build_batch(some(T), BatchOptions(append_time=T)),
        build_batch(some(T), BatchOptions(is_control=True)),
        build_batch(some(T), BatchOptions(producer_id=5, producer_epoch=0)),
        build_batch(some(T), base_offset=1),
        build_batch([replace(each, offset=at * 2) for at, each in enumerate(some(T, T))]),
        build_batch(some(T)) * 2,
        build_batch(some(T))[:-1],
        build_batch(some(T)) + b"\0",
        build_messages(some(T), MessageOptions(magic=1)),
        b"",
    ],
    ids=[
        "compressed", "append time", "control", "no sequence", "offset", "gap", "two", "cut", "longer",
        "magic 1", "nothing",
    ],
)  # fmt: skip
def test_what_needs_a_second_look_is_not_plain(kernel: Any, batch: bytes) -> None:
    assert plain(kernel, batch) is None


@both
def test_a_header_that_is_not_true_is_not_plain(kernel: Any) -> None:
    batch = bytearray(build_batch(some(T, T + 5)))
    set_max_timestamp(batch, 0, T + 6)
    assert plain(kernel, batch) is None
    set_max_timestamp(batch, 0, T + 5)
    assert plain(kernel, batch) is not None
    set_append_time(batch, 0, T + 5)
    assert plain(kernel, batch) is None


@both
def test_limits_may_be_reached_and_not_passed(kernel: Any) -> None:
    batch = build_batch(some(T, T + 5, key=None))
    size = len(batch)
    assert plain(kernel, batch, size=size, low=T, high=T + 5) is not None
    assert plain(kernel, batch, size=size - 1) is None
    assert plain(kernel, batch, low=T + 1) is None
    assert plain(kernel, batch, high=T + 4) is None
    assert plain(kernel, batch, needs_key=True) is None


@both
def test_every_flipped_bit_that_the_crc_covers_is_seen(kernel: Any) -> None:
    batch = build_batch(some(T, T + 5))
    for bit in range(8 * 16, 8 * len(batch)):
        flipped = bytearray(batch)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        assert plain(kernel, flipped) is None, bit


@given(logs, mutations, int64, int64, st.booleans())
@settings(max_examples=400 * SCALE, deadline=None)
def test_is_plain_agrees_on_any_bytes(
    log: bytes, mutation: tuple[int, int, bool], low: int, high: int, needs_key: bool
) -> None:
    data = mutated(log, mutation)
    low, high = min(low, high), max(low, high)
    compiled, reference = (
        plain(kernel, data, low=low, high=high, needs_key=needs_key) for kernel in KERNELS
    )
    assert compiled == reference


@given(logs, mutations, st.integers(0, 90), st.integers(0, 200), int64, st.booleans())
@settings(max_examples=400 * SCALE, deadline=None)
def test_find_batch_agrees_on_any_bytes(
    log: bytes, mutation: tuple[int, int, bool], start: int, less: int, target: int, by_time: bool
) -> None:
    data = mutated(log, mutation)
    start = min(start, len(data))
    limit = max(start, len(data) - less)
    answers = [tuple(map(int, k.find_batch(data, start, limit, target, by_time))) for k in KERNELS]
    assert answers[0] == answers[1]


@given(logs, st.integers(-1, 40), st.booleans())
@settings(max_examples=200 * SCALE, deadline=None)
def test_find_batch_is_a_linear_search(log: bytes, target: int, by_time: bool) -> None:
    headers = list(scan_batches(log))
    if by_time:
        target += T
    wanted = next(
        (
            (1, each.position, each.size_bytes, each.last_offset, each.max_timestamp)
            for each in headers
            if (each.max_timestamp if by_time else each.last_offset) >= target
        ),
        (0, len(log), 0, -1, -1),
    )
    for kernel in KERNELS:
        found, position, size, _, last, timestamp = kernel.find_batch(
            log, 0, len(log), target, by_time
        )
        assert (found, position, size, last, timestamp) == wanted


@both
def test_a_batch_that_goes_on_behind_the_limit_is_found_by_its_header(kernel: Any) -> None:
    first, second = build_batch(some(T)), build_batch(some(T + 9), base_offset=1)
    data = first + second
    limit = len(first) + 61
    assert kernel.find_batch(data, 0, limit, 1, False)[:2] == (1, len(first))
    assert kernel.find_batch(data, 0, limit - 1, 1, False)[:2] == (0, len(first))
    assert kernel.find_batch(data, 0, limit, 2, False)[:2] == (0, len(data))


@both
@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [(8, b"\0\0\0\x01", Reason.SIZE_TOO_SMALL), (16, b"\x03", Reason.UNKNOWN_MAGIC),
     (0, b"\xff", Reason.OFFSET_RANGE)],
)  # fmt: skip
def test_no_header_is_a_reason(kernel: Any, at: int, value: bytes, reason: Reason) -> None:
    data = bytearray(build_batch(some(T)) + build_batch(some(T), base_offset=1))
    start = len(data) // 2 + at
    data[start : start + len(value)] = value
    answer = kernel.find_batch(data, 0, len(data), 7, False)
    assert tuple(map(int, answer[:3])) == (-1, len(data) // 2, reason)


@both
def test_regions_and_rows_that_are_none_are_refused(kernel: Any) -> None:
    batch = build_batch(some(T))
    with pytest.raises(ValueError, match="region"):
        kernel.find_batch(batch, 0, len(batch) + 1, 0, False)
    with pytest.raises(ValueError, match="64-bit integers"):
        kernel.is_plain(batch, array("q", bytes(8)), 1 << 20, INT64_MIN, INT64_MAX, False)
