"""check_records and find_timestamp look through the records of a batch: what they tell is what the decoder
would find, and where records are wrong they give the decoder's reason. Both kernels, every test."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.records import _kernel, _reference
from stratalog.records.builder import build_batch
from stratalog.records.columns import decode_records
from stratalog.records.layout import (
    BATCH_HEADER_SIZE,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    RECORD_SIZE_MIN,
    Check,
    Column,
    Ending,
    Reason,
)
from stratalog.records.model import Record, RecordHeader
from stratalog.records.scan import scan_batches
from tests.records.generated import int64, mutate, records
from tests.scale import SCALE, sized

pytestmark = pytest.mark.scaled

KERNELS = (_kernel, _reference)
both = pytest.mark.parametrize("kernel", KERNELS, ids=["compiled", "reference"])

T = 1_700_000_000_000


def section(made: list[Record]) -> tuple[bytes, int, int]:
    """The record section of a batch, how many records it holds, and its base timestamp."""
    batch = build_batch(made)
    (header,) = scan_batches(batch)
    return batch[BATCH_HEADER_SIZE:], header.record_count, header.base_timestamp


def timed(*timestamps: int, key: bytes | None = b"k") -> list[Record]:
    return [Record(value=b"v", key=key, timestamp=each) for each in timestamps]


def checked(kernel: Any, data: bytes, count: int, base: int) -> tuple[int, ...]:
    return tuple(map(int, kernel.check_records(data, 0, len(data), count, base)))


def found(kernel: Any, data: bytes, count: int, base: int, target: int, delta: int = 0) -> Any:
    answer = kernel.find_timestamp(data, 0, len(data), count, base, target, delta)
    return tuple(map(int, answer))


def raw_record(body: bytes) -> bytes:
    return bytes([len(body) * 2]) + body


#: attributes, timestamp delta 0, offset delta 0, null key, null value, no headers
SMALLEST = raw_record(bytes((0, 0, 0, 1, 1, 0)))


@both
def test_sound_records_tell_their_times_and_nothing_amiss(kernel: Any) -> None:
    data, count, base = section(timed(T + 5, T + 9, T - 3, T + 9))
    assert checked(kernel, data, count, base) == (0, -1, T - 3, T + 9, 1, -1, -1)


@both
def test_no_records_tell_nothing(kernel: Any) -> None:
    assert checked(kernel, b"", 0, T) == (0, -1, -1, -1, -1, -1, -1)
    assert found(kernel, b"", 0, T, 0) == (-1, -1)


@both
def test_negative_times_leave_the_largest_at_none(kernel: Any) -> None:
    """A live broker stored (-7, -3, -9) with a max timestamp of -1."""
    data, count, base = section(timed(-7, -3, -9))
    assert checked(kernel, data, count, base) == (0, -1, -9, -1, -1, -1, -1)
    data, count, base = section(timed(-7, -1))
    assert checked(kernel, data, count, base)[2:5] == (-7, -1, -1)


@both
def test_times_at_the_limits_of_64_bits_wrap_as_the_decoder_wraps_them(kernel: Any) -> None:
    data, count, base = section(timed(INT64_MAX, INT64_MIN, 0))
    assert checked(kernel, data, count, base)[2:5] == (INT64_MIN, INT64_MAX, 0)


@both
def test_first_gap_and_first_null_key_are_told(kernel: Any) -> None:
    made = [Record(value=b"v", key=b"k", offset=offset) for offset in (10, 11, 13, 14)]
    data, count, base = section(made)
    assert checked(kernel, data, count, base)[5:] == (2, -1)
    made = [Record(value=b"v", key=key) for key in (b"", b"k", None, b"k", None)]
    data, count, base = section(made)
    assert checked(kernel, data, count, base)[5:] == (-1, 2)


@both
@pytest.mark.parametrize("count", [-1, -(2**31), 2, INT32_MAX, INT64_MAX])
def test_a_count_that_the_bytes_cannot_hold_is_refused_before_looking(
    kernel: Any, count: int
) -> None:
    assert len(SMALLEST) == RECORD_SIZE_MIN
    wrong = (Reason.RECORD_COUNT_RANGE, 0, -1, -1, -1, -1, -1)
    assert checked(kernel, SMALLEST, count, T) == wrong
    assert found(kernel, SMALLEST, count, T, 0) == (-2, Reason.RECORD_COUNT_RANGE)


@both
@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (b"\x80" * 5 + b"\0\0", Reason.VARINT),
        (b"\x01" + bytes(6), Reason.RECORD_LENGTH),  # -1
        (b"\x7e" + bytes(6), Reason.RECORD_LENGTH),
        (raw_record(b"\0" + b"\x80" * 5), Reason.VARINT),
        (raw_record(bytes((0, 0, 0, 40, 1, 0))), Reason.FIELD_LENGTH),
        (raw_record(bytes((0, 0, 0, 3, 1, 0))), Reason.FIELD_LENGTH),  # a key of -2 bytes
        (raw_record(bytes((0, 0, 1, 1, 1, 0))), Reason.OFFSET_DELTA_RANGE),  # -1
        (raw_record(bytes((0, 0, 2, 1, 1, 1))), Reason.HEADER_COUNT),  # -1
        (raw_record(bytes((0, 0, 2, 1, 1, 4, 0, 1))), Reason.HEADER_COUNT),
        (raw_record(bytes((0, 0, 2, 1, 1, 2, 1, 1))), Reason.HEADER_KEY_NULL),
        (raw_record(bytes((0, 0, 2, 1, 1, 0, 0))), Reason.RECORD_TRAILING_BYTES),
    ],
)
def test_wrong_record_gives_its_reason_and_number(
    kernel: Any, second: bytes, reason: Reason
) -> None:
    data = SMALLEST + second
    assert checked(kernel, data, 2, T) == (reason, 1, -1, -1, -1, -1, -1)
    assert found(kernel, data, 2, T, T + 1) == (-2, reason)
    assert found(kernel, data, 2, T, T) == (0, T)  # found before it


@both
def test_bytes_behind_the_last_record_are_refused(kernel: Any) -> None:
    wrong = (Reason.BATCH_TRAILING_BYTES, 1, -1, -1, -1, -1, -1)
    assert checked(kernel, SMALLEST + b"\0", 1, T) == wrong
    assert checked(kernel, b"\0", 0, T)[:2] == (Reason.BATCH_TRAILING_BYTES, 0)
    assert found(kernel, SMALLEST + b"\0", 1, T, T + 1) == (-2, Reason.BATCH_TRAILING_BYTES)


@both
def test_a_time_is_found_at_the_first_record_that_has_it_or_more(kernel: Any) -> None:
    data, count, base = section(timed(T, T + 5, T + 2, T + 9))
    assert found(kernel, data, count, base, T) == (0, T)
    assert found(kernel, data, count, base, T + 1) == (1, T + 5)
    assert found(kernel, data, count, base, T + 1, 2) == (2, T + 2)
    assert found(kernel, data, count, base, T + 6) == (3, T + 9)
    assert found(kernel, data, count, base, T + 10) == (-1, -1)
    assert found(kernel, data, count, base, T, 4) == (-1, -1)
    assert found(kernel, data, count, base, INT64_MIN, INT64_MIN) == (0, T)


@both
def test_only_the_region_is_looked_at(kernel: Any) -> None:
    data = b"\xff" * 3 + SMALLEST + b"\xff" * 3
    assert kernel.check_records(data, 3, 10, 1, T)[0] == Reason.NONE
    assert kernel.check_records(data, 3, 9, 1, T)[0] == Reason.RECORD_COUNT_RANGE
    assert kernel.check_records(memoryview(data)[3:10], 0, 7, 1, T)[0] == Reason.NONE
    for start, end in ((-1, 5), (5, 4), (0, len(data) + 1)):
        with pytest.raises(ValueError, match="not a region"):
            kernel.check_records(data, start, end, 1, T)
        with pytest.raises(ValueError, match="not a region"):
            kernel.find_timestamp(data, start, end, 1, T, 0, 0)


def test_a_large_section_takes_the_other_lane_and_answers_the_same() -> None:
    """Above 32 KiB the kernel hands the GIL over."""
    headers = (RecordHeader("h", b"x"),)
    made = [Record(value=b"x" * 100, timestamp=T + at % 7, headers=headers) for at in range(1000)]
    data, count, base = section(made)
    assert len(data) > 100_000
    assert checked(_kernel, data, count, base) == checked(_reference, data, count, base)
    assert checked(_kernel, data[:-1], count, base)[:2] == (Reason.RECORD_LENGTH, 999)
    assert found(_kernel, data, count, base, T + 6, 900) == (902, T + 6)


damage = st.tuples(st.integers(0, 2**32), st.integers(0, 4))


@given(records(), damage, st.integers(-1, 1), int64)
@settings(max_examples=sized(100, 300 * SCALE), deadline=None)
def test_check_agrees_with_its_twin_and_with_the_decoder(
    made: list[Record], hurt: tuple[int, int], more: int, base: int
) -> None:
    data, count, own = section(made)
    data = mutate(data, *hurt)
    count += more if hurt[0] % 4 == 0 else 0
    base = base if hurt[0] % 3 == 0 else own
    answer = checked(_kernel, data, count, base)
    assert answer == checked(_reference, data, count, base)
    whole = bytearray(BATCH_HEADER_SIZE) + data
    _kernel.write_batch_header(whole, 0, 0, -1, 0, INT32_MAX, base, -1, -1, -1, -1, count)
    columns = _kernel.Columns(Column.OFFSET | Column.TIMESTAMP_MS, Check.CRC)
    _, ending, reason = columns.fill(whole, 0, len(whole))
    assert reason == answer[0]
    if ending == Ending.END:
        assert_tells_what_the_decoder_found(answer, bytes(whole))


def assert_tells_what_the_decoder_found(answer: tuple[int, ...], whole: bytes) -> None:
    decoded = list(decode_records(whole))
    times = [record.timestamp for record in decoded]
    assert answer[2] == min(times, default=-1)
    assert answer[3] == max([-1, *times])
    assert answer[4] == (times.index(answer[3]) if answer[3] > -1 else -1)
    gaps = [row for row, record in enumerate(decoded) if record.offset != row]
    assert answer[5] == (gaps[0] if gaps else -1)
    null_keys = [row for row, record in enumerate(decoded) if record.key is None]
    assert answer[6] == (null_keys[0] if null_keys else -1)


@given(records(), damage, int64, st.integers(0, 5), st.integers(-1, 9))
@settings(max_examples=sized(100, 300 * SCALE), deadline=None)
def test_find_agrees_with_its_twin(
    made: list[Record], hurt: tuple[int, int], target: int, near: int, delta: int
) -> None:
    data, count, base = section(made)
    data = mutate(data, *hurt)
    if near < 5:
        target = made[near % len(made)].timestamp
    answer = found(_kernel, data, count, base, target, delta)
    assert answer == found(_reference, data, count, base, target, delta)
    if answer[0] >= 0:
        assert answer[0] >= delta
        assert answer[1] >= target


@given(st.binary(max_size=80), st.integers(-1, 12), int64, int64)
@settings(max_examples=sized(100, 300 * SCALE), deadline=None)
def test_any_bytes_give_the_same_answers(data: bytes, count: int, base: int, target: int) -> None:
    assert checked(_kernel, data, count, base) == checked(_reference, data, count, base)
    assert found(_kernel, data, count, base, target) == found(_reference, data, count, base, target)
