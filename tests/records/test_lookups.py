"""find_places, find_time_entry and find_timed, one call each of a look-up: the two kernels agree on any
bytes, and what they say is what a search from the first entry, or the first record, says."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.records import _kernel, _reference
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.columns import decode_records
from stratalog.records.layout import (
    BATCH_HEADER_SIZE,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    RECORD_COUNT_AT,
    Check,
    Codec,
)
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.records.scan import scan_batches
from tests.records.generated import batches, int64, message_sets, mutated
from tests.scale import SCALE, sized

pytestmark = pytest.mark.scaled

KERNELS = (_kernel, _reference)
both = pytest.mark.parametrize("kernel", KERNELS, ids=["compiled", "reference"])
T = 1_700_000_000_000
FAR = INT64_MAX

rising = st.lists(st.integers(0, INT32_MAX), max_size=12, unique=True).map(sorted)
mutations = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 3), st.booleans())


def offset_index(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *each) for each in entries)


def time_index(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *each) for each in entries)


# --- the indexes ---------------------------------------------------------------------------------


@both
def test_where_an_offset_index_says_that_an_offset_is(kernel: Any) -> None:
    index = offset_index((5, 100), (10, 300), (11, 700))
    wanted = {
        0: (0, -1), 999: (0, -1), 1000: (0, 100), 1004: (0, 100), 1005: (100, 100),
        1006: (100, 300), 1010: (300, 300), 1011: (700, 700), 1012: (700, -1), INT64_MAX: (700, -1),
        INT64_MIN: (0, -1),
    }  # fmt: skip
    assert {each: kernel.find_places(index, 1000, each) for each in wanted} == wanted
    assert kernel.find_places(b"", 1000, 1005) == (0, -1)
    assert kernel.find_places(index + b"\0\0\0", 1000, 1012) == (700, -1)  # no whole entry


@both
def test_the_last_entry_of_a_time_and_where_its_batch_is(kernel: Any) -> None:
    offsets = offset_index((5, 100), (10, 300), (15, 700))
    times = time_index((T, 5), (T + 10, 12), (T + 20, 15))
    find = kernel.find_time_entry
    assert find(times, offsets, 1000, T - 1) is None
    assert find(times, offsets, 1000, T) == (T, 1005, 100, 300)
    assert find(times, offsets, 1000, T + 19) == (T + 10, 1012, 300, -1)  # no entry of its own
    assert find(times, offsets, 1000, INT64_MAX) == (T + 20, 1015, 700, -1)  # none behind it
    assert find(times, b"", 1000, T) == (T, 1005, 0, -1)
    assert find(b"", offsets, 1000, T) is None


@both
def test_positions_and_offsets_that_cannot_be_are_not_told(kernel: Any) -> None:
    offsets = offset_index((5, -100), (10, -(2**31)), (11, -1))
    assert kernel.find_places(offsets, 0, 7) == (0, -1)
    assert kernel.find_places(offsets, 0, 5) == (0, -1)
    times = time_index((T, -1), (T + 1, 10))
    assert kernel.find_time_entry(times, offsets, 0, T) is None
    assert kernel.find_time_entry(times, offsets, 0, T + 1) == (T + 1, 10, 0, -1)


@given(rising, rising, st.integers(-3, INT32_MAX))
@settings(max_examples=sized(100, 200 * SCALE), deadline=None)
def test_find_places_is_a_linear_search(
    keys: list[int], positions: list[int], relative: int
) -> None:
    entries = [(key, position + 1) for key, position in zip(keys, positions, strict=False)]
    entries = [(key, min(position, INT32_MAX)) for key, position in entries]
    before = [position for key, position in entries if key <= relative]
    reaching = [position for key, position in entries if key >= relative]
    wanted = (before[-1] if before else 0, reaching[0] if reaching and relative >= 0 else -1)
    for kernel in KERNELS:
        assert kernel.find_places(offset_index(*entries), 70, 70 + relative) == wanted


@given(st.binary(max_size=60), st.binary(max_size=90), st.integers(0, INT64_MAX), int64)
@settings(max_examples=sized(100, 400 * SCALE), deadline=None)
def test_the_kernels_agree_on_indexes_of_any_bytes(
    offsets: bytes, times: bytes, base: int, target: int
) -> None:
    answers = [
        (k.find_places(offsets, base, target), k.find_time_entry(times, offsets, base, target))
        for k in KERNELS
    ]
    assert answers[0] == answers[1]
    guarded = (
        _kernel.find_places(offsets, base, target, guarded=True),
        _kernel.find_time_entry(times, offsets, base, target, guarded=True),
    )
    assert guarded == answers[0]


# --- the log -------------------------------------------------------------------------------------


def timed(base: int, *times: int, **options: Any) -> bytes:
    made = [Record(b"v" * 20, b"k", time) for time in times]
    return build_batch(made, BatchOptions(leader_epoch=4, **options), base_offset=base)


def find(
    kernel: Any, data: bytes, timestamp: int, *, room: int | None = None, start: int = 0,
    end: int = FAR, entry: tuple[int, int] = (0, -1),
) -> tuple[int, ...]:  # fmt: skip
    size = len(data) if room is None else room
    return tuple(map(int, kernel.find_timed(data, size, timestamp, start, end, *entry)))


NOT_TOLD = (-1, 0, 0, 0)
FIRST, SECOND = timed(0, T, T + 9, T + 5), timed(3, T + 2, T + 30, T + 40)


@both
def test_the_first_record_of_a_time(kernel: Any) -> None:
    data = FIRST + SECOND
    assert find(kernel, data, 0) == (1, 0, T, 4)
    assert find(kernel, data, T + 1) == (1, 1, T + 9, 4)
    assert find(kernel, data, T + 10) == (1, 4, T + 30, 4)
    assert find(kernel, data, T + 1, start=2) == (1, 2, T + 5, 4)
    assert find(kernel, data, T + 41) == NOT_TOLD  # nothing is left to look on in
    assert find(kernel, FIRST, T + 10, room=len(data)) == (0, len(FIRST), 0, 0)


@both
def test_what_lies_behind_an_end_is_not_told(kernel: Any) -> None:
    data = FIRST + SECOND
    assert find(kernel, data, T + 10, end=6) == (1, 4, T + 30, 4)
    assert find(kernel, data, T + 10, end=5) == NOT_TOLD
    assert find(kernel, data, T + 10, room=len(data) - 1) == NOT_TOLD
    assert find(kernel, data, T + 10, start=6) == NOT_TOLD
    assert find(kernel, b"", T) == NOT_TOLD


@both
def test_an_entry_is_confirmed_by_the_log_first(kernel: Any) -> None:
    data = FIRST + SECOND
    assert find(kernel, data, T + 10, entry=(T + 9, 2)) == (1, 4, T + 30, 4)
    assert find(kernel, data, T + 40, entry=(T + 40, 5)) == (1, 5, T + 40, 4)
    for wrong in ((T + 8, 2), (T + 9, 1), (T + 9, 5), (T + 40, 6), (T + 9, INT64_MIN)):
        assert find(kernel, data, T + 10, entry=wrong) == NOT_TOLD
    # The header alone confirms it, and says where the next batch is.
    head = FIRST[:BATCH_HEADER_SIZE]
    assert find(kernel, head, T + 10, room=999, entry=(T + 9, 2)) == (0, len(FIRST), 0, 0)


@both
def test_the_beginning_of_a_batch_tells_if_the_record_is_in_it(kernel: Any) -> None:
    """Also where the batch holds more records than its beginning could."""
    batch = timed(0, *range(T, T + 600))
    assert len(batch) > 4157
    assert find(kernel, batch[:4157], T + 50, room=len(batch)) == (1, 50, T + 50, 4)
    assert find(kernel, batch[:4157], T + 500, room=len(batch)) == NOT_TOLD
    assert find(kernel, batch[: BATCH_HEADER_SIZE + 20], T, room=len(batch)) == NOT_TOLD


@both
def test_a_count_that_the_whole_batch_cannot_hold_is_left_to_the_long_way(kernel: Any) -> None:
    data = bytearray(FIRST)
    for count in (-1, 1000, INT32_MAX):
        struct.pack_into(">i", data, RECORD_COUNT_AT, count)
        assert find(kernel, bytes(data), T) == NOT_TOLD


@both
def test_the_brokers_time_stands_for_every_record(kernel: Any) -> None:
    batch = timed(7, 5, 10**15, append_time=T)
    assert find(kernel, batch, T) == (1, 7, T, 4)
    assert find(kernel, batch, T, start=8) == (1, 8, T, 4)


@both
@pytest.mark.parametrize(
    "batch",
    [
        timed(0, T, codec=Codec.LZ4),
        build_messages([Record(b"v", timestamp=T)], MessageOptions(magic=1)),
    ],
    ids=["compressed", "magic 1"],
)
def test_what_must_be_opened_is_left_to_the_long_way(kernel: Any, batch: bytes) -> None:
    assert find(kernel, batch, T) == NOT_TOLD
    assert find(kernel, batch, T + 1, room=999) == (0, len(batch), 0, 0)


logs = st.lists(st.one_of(batches(), message_sets()), min_size=1, max_size=3).map(b"".join)


@given(logs, mutations, st.integers(0, 200), st.integers(-40, 40), int64, st.data())
@settings(max_examples=sized(100, 400 * SCALE), deadline=None)
def test_find_timed_agrees_on_any_bytes(
    log: bytes, mutation: tuple[int, int, bool], less: int, more: int, any_time: int, data: Any
) -> None:
    whole = mutated(log, mutation)
    try:
        headers = list(scan_batches(whole))
    except Exception:  # noqa: BLE001 - what cannot be read has no entry that could be true
        headers = []
    entries = [(each.max_timestamp, each.last_offset) for each in headers]
    entry = data.draw(st.sampled_from([(0, -1), (any_time, 3), *entries]))
    near = [each.max_timestamp for each in headers]
    timestamp = data.draw(st.sampled_from([any_time, T, *near]))
    start, end = (
        data.draw(st.integers(0, 30)),
        data.draw(st.one_of(st.just(FAR), st.integers(0, 30))),
    )
    part = whole[: max(0, len(whole) - less)]
    answers = [
        find(k, part, timestamp, room=len(whole) + more, start=start, end=end, entry=entry)
        for k in KERNELS
    ]
    assert answers[0] == answers[1]


@given(batches(), int64, st.integers(0, 20), st.integers(0, 400))
@settings(max_examples=sized(100, 300 * SCALE), deadline=None)
def test_what_is_told_is_what_the_decoder_finds(
    log: bytes, any_time: int, start: int, less: int
) -> None:
    records = list(decode_records(log, check=Check.INCLUDE_CONTROL))
    times = sorted({each.timestamp for each in records})
    (header,) = scan_batches(log)
    for timestamp in [any_time, *times]:
        part = log[: max(0, len(log) - less)]
        state, offset, found, _ = find(_kernel, part, timestamp, room=len(log), start=start)
        if state > 0:
            shown = [r for r in records if r.offset >= start and r.timestamp >= timestamp]
            assert (offset, found) == (shown[0].offset, shown[0].timestamp)
            assert header.max_timestamp >= timestamp
