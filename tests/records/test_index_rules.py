"""note_batches follows Kafka's rule of when a batch gets an index entry, search_entries finds one again,
zero_run tells where zeros end. Every handwritten test runs on both kernels."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.records import _kernel, _reference
from stratalog.records.layout import (
    INDEX_STATE_WIDTH,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    ROW_WIDTH,
    IndexState,
    Reason,
    Row,
)
from tests.records.generated import int64, logs, mutated, mutations
from tests.records.rows import new_segment, row, table
from tests.scale import SCALE, sized

pytestmark = pytest.mark.scaled

KERNELS = (_kernel, _reference)
both = pytest.mark.parametrize("kernel", KERNELS, ids=["compiled", "reference"])

T = 1_700_000_000_000


def note(kernel: Any, rows: list[list[int]], state: array[int]) -> tuple[Any, str, str]:
    """What noting answers, and both indexes in hex."""
    offsets, times = bytearray(), bytearray()
    done, reason = kernel.note_batches(table(rows), len(rows), state, offsets, times)
    return (done, int(reason)), offsets.hex(" ", 4), times.hex(" ", 4)


def thousands(count: int) -> list[list[int]]:
    """One-record batches of 1000 bytes each."""
    return [
        row(position=1000 * at, size=1000, base_offset=at, last_offset=at, max_timestamp=T + at)
        for at in range(count)
    ]


# note_batches


@both
def test_batches_of_1000_bytes_are_indexed_at_every_fifth(kernel: Any) -> None:
    """The worked example: the counter before the sixth batch is the first above 4096."""
    state = new_segment()
    answer, offsets, _ = note(kernel, thousands(16), state)
    assert answer == (16, Reason.NONE)
    assert struct.unpack(">6i", bytes.fromhex(offsets)) == (5, 5000, 10, 10000, 15, 15000)
    assert state[IndexState.BYTES_SINCE] == 1000
    assert state[IndexState.LAST_OFFSET] == 15
    assert state[IndexState.OFFSET_SLOTS] == 10_485_760 // 8 - 3


@both
def test_entries_are_the_bytes_that_kafka_writes(kernel: Any) -> None:
    """Segment base 50, entries 55 at 4200 and 60 at 9000, times T for 55 and T + 7 for 60."""
    rows = [
        row(position=0, size=4200, base_offset=50, last_offset=53, max_timestamp=T - 9),
        row(position=4200, size=4800, base_offset=54, last_offset=55, max_timestamp=T),
        row(position=9000, size=100, base_offset=56, last_offset=60, max_timestamp=T + 7),
    ]
    answer, offsets, times = note(kernel, rows, new_segment(50))
    assert answer == (3, Reason.NONE)
    assert offsets == "00000005 00001068 0000000a 00002328"
    assert times == "0000018b cfe56800 00000005 0000018b cfe56807 0000000a"


@both
def test_first_batch_is_never_indexed_however_large(kernel: Any) -> None:
    assert note(kernel, [row(size=900_000)], new_segment(interval=0)) == ((1, 0), "", "")


@both
def test_interval_must_be_exceeded_not_reached(kernel: Any) -> None:
    rows = [
        row(size=4096),
        row(position=4096, size=1, last_offset=1),
        row(position=4097, last_offset=2),
    ]
    assert note(kernel, rows, new_segment())[1] == "00000002 00001001"


@both
def test_time_entry_has_the_earliest_batch_with_the_largest_time(kernel: Any) -> None:
    times = (T + 5, T + 3, T + 5, T + 4)
    rows = [
        row(position=100 * at, base_offset=3 * at, last_offset=3 * at + 2, max_timestamp=time)
        for at, time in enumerate(times)
    ]
    state = new_segment(interval=0)
    _, offsets, entries = note(kernel, rows, state)
    assert len(bytes.fromhex(offsets)) == 3 * 8
    assert bytes.fromhex(entries) == struct.pack(">qi", T + 5, 2)
    assert state[IndexState.MAX_TIMESTAMP : IndexState.LAST_OFFSET].tolist() == [T + 5, 2, T + 5, 2]


@both
def test_time_entry_may_have_the_segments_first_offset_and_rises_by_time_alone(kernel: Any) -> None:
    rows = [row(max_timestamp=T), row(position=100, last_offset=1)]
    state = new_segment(interval=0)
    assert bytes.fromhex(note(kernel, rows, state)[2]) == struct.pack(">qi", T, 0)
    later = new_segment(interval=0, bytes_since=1, last_time=T - 1, last_time_offset=3)
    rows = [row(last_offset=3, max_timestamp=T)]
    assert bytes.fromhex(note(kernel, rows, later)[2]) == struct.pack(">qi", T, 3)


@both
def test_batches_without_times_leave_the_time_index_empty(kernel: Any) -> None:
    rows = [row(position=100 * at, last_offset=at, magic=0) for at in range(4)]
    state = new_segment(interval=0)
    assert note(kernel, rows, state)[2] == ""
    assert state[IndexState.MAX_TIMESTAMP_OFFSET] == -1


@both
def test_wrappers_are_noted_by_their_last_offset(kernel: Any) -> None:
    rows = [
        row(magic=1, base_offset=-1, record_count=-1, last_offset=9, max_timestamp=T),
        row(magic=1, base_offset=-1, record_count=-1, last_offset=19, position=100),
    ]
    assert note(kernel, rows, new_segment(interval=0)) == (
        (2, 0),
        "00000013 00000064",
        "0000018b cfe56800 00000009",
    )


@both
def test_a_full_index_takes_no_more_and_the_counter_still_starts_anew(kernel: Any) -> None:
    state = new_segment(interval=4096, offset_slots=1, time_slots=0)
    answer, offsets, times = note(kernel, thousands(12), state)
    assert answer == (12, 0)
    assert (offsets, times) == ("00000005 00001388", "")
    assert state[IndexState.BYTES_SINCE] == 2000  # since batch 10, which was due
    assert state[IndexState.OFFSET_SLOTS] == 0


@both
def test_positions_count_from_where_the_region_starts_in_the_file(kernel: Any) -> None:
    state = new_segment(position_base=1_000_000, bytes_since=5000)
    assert note(kernel, [row(position=50, last_offset=7)], state)[1] == "00000007 000f4272"


@both
@pytest.mark.parametrize(
    ("bad", "fields", "reason"),
    [
        ({"last_offset": 99}, {}, Reason.OFFSET_RANGE),
        ({"last_offset": -1}, {}, Reason.OFFSET_RANGE),
        ({"last_offset": 100 + INT32_MAX + 1}, {}, Reason.OFFSET_RANGE),
        ({"last_offset": INT64_MAX}, {}, Reason.OFFSET_RANGE),
        ({"last_offset": INT64_MAX}, {"base_offset": INT64_MIN + 1}, Reason.OFFSET_RANGE),
        ({"position": 1}, {"position_base": INT32_MAX}, Reason.SIZE_TOO_LARGE),
        ({"position": INT64_MAX}, {"position_base": INT64_MAX}, Reason.SIZE_TOO_LARGE),
        ({"position": INT64_MIN}, {"position_base": INT64_MIN}, Reason.SIZE_TOO_LARGE),
        ({"position": -1}, {}, Reason.SIZE_TOO_LARGE),
        ({}, {"last_offset": 105}, Reason.OFFSET_ORDER),
        ({}, {"max_timestamp": T, "max_timestamp_offset": 99}, Reason.OFFSET_RANGE),
        ({"max_timestamp": T}, {"last_time_offset": 106}, Reason.OFFSET_ORDER),
    ],
)
def test_a_row_that_no_index_can_hold_stops_before_it(
    kernel: Any, bad: dict[str, int], fields: dict[str, int], reason: Reason
) -> None:
    state = new_segment(**({"base_offset": 100, "bytes_since": 5000} | fields))
    before = state.tolist()
    rows = [row(**({"base_offset": 101, "last_offset": 105} | bad))]
    assert note(kernel, rows, state) == ((0, reason), "", "")
    assert state.tolist() == before


@both
def test_rows_before_a_wrong_one_are_noted(kernel: Any) -> None:
    rows = thousands(12)
    rows[11][Row.LAST_OFFSET] = -5
    state = new_segment()
    answer, offsets, _ = note(kernel, rows, state)
    assert answer == (11, Reason.OFFSET_RANGE)
    assert offsets == "00000005 00001388 0000000a 00002710"
    assert state[IndexState.BYTES_SINCE] == 1000
    assert state[IndexState.MAX_TIMESTAMP] == T + 10


@both
def test_more_entries_than_are_handed_over_at_once(kernel: Any) -> None:
    state = new_segment(interval=0)
    rows = thousands(300)
    answer, offsets, times = note(kernel, rows, state)
    assert answer == (300, 0)
    wanted = [part for at in range(1, 300) for part in (at, 1000 * at)]
    assert struct.unpack(">598i", bytes.fromhex(offsets)) == tuple(wanted)
    wanted = [part for at in range(1, 300) for part in (T + at, at)]
    assert struct.unpack(">" + "qi" * 299, bytes.fromhex(times)) == tuple(wanted)


@both
def test_entries_go_behind_what_is_there(kernel: Any) -> None:
    offsets, times = bytearray(b"before"), bytearray(b"too")
    state = new_segment(interval=0)
    kernel.note_batches(table(thousands(2)), 2, state, offsets, times)
    assert offsets.startswith(b"before")
    assert len(offsets) == 6 + 8
    assert times.startswith(b"too")
    assert len(times) == 3 + 12


@both
def test_buffers_that_are_no_rows_or_no_state_are_refused(kernel: Any) -> None:
    rows, state = table(thousands(2)), new_segment()
    for bad_rows, count in ((rows, 3), (rows, -1), (array("d", bytes(256)), 1), (bytes(256), 1)):
        with pytest.raises(ValueError, match="64-bit integers"):
            kernel.note_batches(bad_rows, count, state, bytearray(), bytearray())
    for bad_state in (state[:-1], memoryview(state).toreadonly(), array("Q", state.tobytes())):
        with pytest.raises(ValueError, match=r"integers|written"):
            kernel.note_batches(rows, 2, bad_state, bytearray(), bytearray())
    with pytest.raises(TypeError):
        kernel.note_batches(None, 0, state, bytearray(), bytearray())


near_32_bits = st.integers(-2, 70) | st.integers(2**31 - 3, 2**31 + 3) | int64
some_rows = st.lists(st.lists(near_32_bits, min_size=ROW_WIDTH, max_size=ROW_WIDTH), max_size=5)
some_state = st.lists(near_32_bits, min_size=INDEX_STATE_WIDTH, max_size=INDEX_STATE_WIDTH)


@given(some_rows, some_state)
@settings(max_examples=sized(100, 300 * SCALE), deadline=None)
def test_notes_agree_on_any_numbers(rows: list[list[int]], numbers: list[int]) -> None:
    answers = []
    for kernel in KERNELS:
        state = array("q", numbers)
        answers.append((note(kernel, rows, state), state.tolist()))
    assert answers[0] == answers[1]


@given(logs, mutations, st.integers(0, 700), st.integers(0, 60), st.integers(0, 3))
@settings(max_examples=sized(100, 200 * SCALE), deadline=None)
def test_notes_of_walked_logs_agree_and_come_out_the_same_in_parts(
    log: bytes, mutation: tuple[int, int, bool], interval: int, base: int, slots: int
) -> None:
    data = mutated(log, mutation)
    rows = array("q", bytes(8 * ROW_WIDTH * 64))
    count, *_ = _kernel.walk(data, 0, len(data), memoryview(rows))
    answers = []
    for kernel, at_once in ((_kernel, 64), (_reference, 64), (_kernel, 1)):
        state = new_segment(base, interval)
        if slots < 3:
            state[IndexState.OFFSET_SLOTS] = state[IndexState.TIME_SLOTS] = slots
        offsets, times = bytearray(), bytearray()
        done = 0
        reason = 0
        while done < count and not reason:
            some = rows[done * ROW_WIDTH :]
            step, reason = kernel.note_batches(
                some, min(at_once, count - done), state, offsets, times
            )
            done += step
        answers.append((done, int(reason), offsets, times, state.tolist()))
    assert answers[0] == answers[1] == answers[2]


# search_entries


@both
def test_search_gives_the_last_entry_not_above_the_target(kernel: Any) -> None:
    index = b"".join(struct.pack(">ii", at * 5, at * 5000) for at in range(1, 4))
    assert [kernel.search_entries(index, 3, 8, 0, 4, t) for t in (-1, 4, 5, 7, 10, 15, 10**15)] == [
        -1, -1, 0, 0, 1, 2, 2
    ]  # fmt: skip
    assert kernel.search_entries(index, 3, 8, 4, 4, 9999) == 0  # by position
    assert kernel.search_entries(index, 2, 8, 0, 4, 15) == 1
    assert kernel.search_entries(index, 0, 8, 0, 4, 15) == -1
    assert kernel.search_entries(b"", 0, 8, 0, 4, 15) == -1


@both
def test_search_reads_signed_keys_of_eight_bytes(kernel: Any) -> None:
    index = b"".join(struct.pack(">qi", time, 0) for time in (INT64_MIN, -1, 0, T, INT64_MAX))
    answers = [
        kernel.search_entries(index, 5, 12, 0, 8, target)
        for target in (INT64_MIN, -2, -1, T - 1, T, INT64_MAX)
    ]
    assert answers == [0, 0, 1, 2, 3, 4]


@both
@pytest.mark.parametrize(
    ("count", "entry_size", "key_at", "key_size"),
    [
        (4, 8, 0, 4),
        (-1, 8, 0, 4),
        (INT64_MAX, 8, 0, 4),
        (1, 8, 0, 2),
        (1, 8, 5, 4),
        (1, 8, -1, 4),
        (1, 8, 1, 8),
        (1, 0, 0, 4),
        (0, -8, 0, 4),
        (0, 0, 0, 0),
    ],
)
def test_search_refuses_what_the_bytes_cannot_hold(
    kernel: Any, count: int, entry_size: int, key_at: int, key_size: int
) -> None:
    with pytest.raises(ValueError, match=r"no key|entries of"):
        kernel.search_entries(bytes(31), count, entry_size, key_at, key_size, 0)


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=40), st.integers(-(2**31), 2**31))
@settings(max_examples=sized(100, 200 * SCALE))
def test_search_of_sorted_keys_is_bisection(keys: list[int], target: int) -> None:
    keys.sort()
    data = b"".join(struct.pack(">hi", 7, key) for key in keys)
    for each in (target, *keys[:3]):
        assert (
            _kernel.search_entries(data, len(keys), 6, 2, 4, each) == bisect_right(keys, each) - 1
        )


@given(
    st.binary(max_size=200),
    st.integers(0, 20),
    st.integers(4, 13),
    st.integers(0, 9),
    st.sampled_from([4, 8]),
    int64,
)
@settings(max_examples=sized(100, 300 * SCALE))
def test_search_of_any_bytes_agrees(
    data: bytes, count: int, entry_size: int, key_at: int, key_size: int, target: int
) -> None:
    answers = []
    for kernel in KERNELS:
        try:
            answers.append(kernel.search_entries(data, count, entry_size, key_at, key_size, target))
        except ValueError:
            answers.append("refused")
    assert answers[0] == answers[1]
    if isinstance(answers[0], int) and answers[0] >= 0:
        at = answers[0] * entry_size + key_at
        assert int.from_bytes(data[at : at + key_size], "big", signed=True) <= target


# zero_run


@both
def test_zero_run_ends_at_the_first_other_byte_or_the_end(kernel: Any) -> None:
    for size in (0, 1, 7, 8, 9, 63, 64, 65, 130, 300):
        data = bytes(size)
        assert kernel.zero_run(data, 0, size) == size
        for at in {0, 1, 7, 8, 63, 64, 65, size - 1} & set(range(size)):
            marked = bytes(at) + b"\x01" + bytes(size - at - 1)
            assert kernel.zero_run(marked, 0, size) == at
            assert kernel.zero_run(marked, 0, at) == at
            assert kernel.zero_run(marked, at + 1, size) == size
    assert kernel.zero_run(b"\0\0\xff", 1, 3) == 2
    with pytest.raises(ValueError, match="not a region"):
        kernel.zero_run(b"\0\0", 1, 3)


def test_zero_run_over_much_hands_the_gil_over_and_answers_the_same() -> None:
    data = bytearray(100_000)
    assert _kernel.zero_run(data, 3, len(data)) == 100_000
    data[99_999] = 128
    assert _kernel.zero_run(data, 3, len(data)) == 99_999
