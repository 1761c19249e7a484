"""admit_plain, place_plain and find_batch, the short ways of appends and look-ups: the two kernels agree on
any bytes, and what they say is what the long ways say."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.records import _kernel, _reference
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.layout import (
    BATCH_HEADER_SIZE,
    CRC_AT,
    CRC_FROM,
    INDEX_STATE_WIDTH,
    INT64_MAX,
    INT64_MIN,
    Codec,
    IndexState,
    Reason,
    Row,
)
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.records.restamp import set_append_time, set_max_timestamp
from stratalog.records.scan import scan_batches
from stratalog.storage.log.roll_plan import plan_roll
from tests.records.generated import batches, int64, message_sets, mutated
from tests.scale import SCALE, sized

pytestmark = pytest.mark.scaled

KERNELS = (_kernel, _reference)
both = pytest.mark.parametrize("kernel", KERNELS, ids=["compiled", "reference"])
T = 1_700_000_000_000

logs = st.one_of(batches(), message_sets())
mutations = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 3), st.booleans())


def plain(
    kernel: Any, data: bytes | bytearray, *, size: int = 1 << 30, now: int = T,
    before: int = INT64_MAX, after: int = INT64_MAX, needs_key: bool = False,
) -> list[int] | None:  # fmt: skip
    admitted = kernel.admit_plain(data, size, now, before, after, needs_key)
    if admitted is None:
        return None
    own, row = admitted
    assert own == data
    assert own is data or isinstance(data, bytes)
    found: list[int] = row.tolist()
    return found


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
    assert plain(kernel, batch, size=size, now=T + 9, before=9) is not None
    assert plain(kernel, batch, size=size, now=T, after=5) is not None
    assert plain(kernel, batch, size=size - 1) is None
    assert plain(kernel, batch, now=T + 9, before=8) is None
    assert plain(kernel, batch, after=4) is None
    assert plain(kernel, batch, needs_key=True) is None


@both
def test_every_flipped_bit_that_the_crc_covers_is_seen(kernel: Any) -> None:
    batch = build_batch(some(T, T + 5))
    for bit in range(8 * 16, 8 * len(batch)):
        flipped = bytearray(batch)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        assert plain(kernel, flipped) is None, bit


@both
def test_times_at_the_ends_of_64_bits_are_as_far_apart_as_they_are(kernel: Any) -> None:
    first, last = build_batch(some(-1)), build_batch(some(INT64_MAX))
    assert plain(kernel, last, now=INT64_MIN) is None
    assert plain(kernel, last, now=-1) is None
    assert plain(kernel, last, now=0) is not None
    assert plain(kernel, last, now=INT64_MAX, before=0, after=0) is not None
    assert plain(kernel, first, now=INT64_MAX) is None
    assert plain(kernel, first, now=INT64_MAX - 1) is not None
    with pytest.raises(ValueError, match="span"):
        plain(kernel, first, before=-1)


@both
def test_what_may_not_be_written_is_copied_and_nothing_else_is(kernel: Any) -> None:
    batch = build_batch(some(T))
    for each in (batch, memoryview(batch)):
        own, _ = kernel.admit_plain(each, 1 << 20, T, 0, 0, False)
        assert type(own) is bytearray
        assert own == batch
    own_bytes = bytearray(batch)
    for own_given in (own_bytes, memoryview(own_bytes)):
        assert kernel.admit_plain(own_given, 1 << 20, T, 0, 0, False)[0] is own_given


@given(logs, mutations, int64, st.integers(0, INT64_MAX), st.integers(0, INT64_MAX), st.booleans())
@settings(max_examples=sized(100, 400 * SCALE), deadline=None)
def test_admit_plain_agrees_on_any_bytes(
    log: bytes, mutation: tuple[int, int, bool], now: int, before: int, after: int, needs_key: bool
) -> None:
    data = mutated(log, mutation)
    for at in (now, T):
        compiled, reference = (
            plain(kernel, data, now=at, before=before, after=after, needs_key=needs_key)
            for kernel in KERNELS
        )
        assert compiled == reference


def test_a_batch_of_many_pieces_is_checked_to_its_last_byte() -> None:
    """Records of all sizes, some larger than a piece: wherever a piece ends, no offsets are left out."""
    sizes = [1, 700_000, 3, 524_288, 90_000, 1, 1, 600_000]
    batch = bytearray(build_batch([Record(bytes(each), b"k", T + each) for each in sizes]))
    assert len(batch) > 3 * (512 << 10)
    row = plain(_kernel, batch)
    assert row == plain(_reference, batch)
    assert row is not None
    assert row[Row.MAX_TIMESTAMP] == T + max(sizes)
    for at in (61, 700_100, len(batch) // 2, (512 << 10) + 20, (512 << 10) + 21, len(batch) - 1):
        batch[at] ^= 1
        assert plain(_kernel, batch) is None, at
        batch[at] ^= 1


def test_what_the_crc_does_not_tell_is_told_by_the_records_of_every_piece() -> None:
    """The records are wrong and the CRC is right: as a producer would send it that cannot count."""
    sizes = [300_000, 300_000, 300_000, 300_000]
    batch = bytearray(build_batch([Record(bytes(each), b"k", T) for each in sizes]))
    (header,) = scan_batches(bytes(batch))
    position = BATCH_HEADER_SIZE
    for row in range(len(sizes)):
        wrong = bytearray(batch)
        length_size = 3  # a varint of three groups, and behind it attributes and the timestamp
        delta_at = position + length_size + 2
        assert wrong[delta_at] == 2 * row
        wrong[delta_at] = 2 * (row + 5)
        wrong[CRC_AT:CRC_FROM] = _kernel.crc32c(wrong[CRC_FROM:]).to_bytes(4, "big")
        assert plain(_kernel, wrong) is None
        assert plain(_reference, wrong) is None
        position += (len(batch) - BATCH_HEADER_SIZE) // len(sizes)
    assert position == header.size_bytes


# A segment that takes the batch, and each thing for which it would not.


def segment_state(*, base_offset: int = 0, offsets: int = 9, times: int = 9) -> array[int]:
    state = array("q", bytes(8 * INDEX_STATE_WIDTH))
    state[IndexState.BASE_OFFSET] = base_offset
    state[IndexState.OFFSET_SLOTS] = offsets
    state[IndexState.TIME_SLOTS] = times
    return state


def placed(
    kernel: Any, data: bytes, state: array[int], *, position: int = 100, room: int | None = None,
    first: int = T, span: int = 5, offset: int = 70, epoch: int = 3,
) -> tuple[int, bytes, list[int]]:  # fmt: skip
    own, row = _kernel.admit_plain(data, 1 << 30, T, INT64_MAX, INT64_MAX, False) or (None, None)
    assert own is not None
    assert row is not None
    segment_bytes = position + (len(data) if room is None else room)
    answer = kernel.place_plain(
        own, row, state, position, segment_bytes, first, span, offset, epoch
    )
    return answer, bytes(own), row.tolist()


@both
def test_a_batch_that_the_segment_takes_is_stamped_as_restamp_does(kernel: Any) -> None:
    batch = build_batch(some(T, T + 5, T + 2))
    last, own, row = placed(kernel, batch, segment_state(), offset=70, epoch=3)
    assert last == 72
    wanted = bytearray(batch)
    kernel.restamp(wanted, 0, len(wanted), 70, 3)
    assert own == wanted
    (header,) = scan_batches(own)
    assert type(header).from_row(row) == header


@both
def test_what_a_segment_does_not_take_is_left_as_it_is(kernel: Any) -> None:
    batch = build_batch(some(T, T + 5))
    size = len(batch)
    left: list[tuple[array[int], dict[str, int]]] = [
        (segment_state(), {"room": size - 1}),
        (segment_state(offsets=0), {}),
        (segment_state(times=0), {}),
        (segment_state(), {"span": 4}),
        (segment_state(), {"span": -1}),
        (segment_state(), {"first": -1}),
        (segment_state(base_offset=71), {"offset": 69}),
        (segment_state(), {"offset": 2**31 - 1}),
        (segment_state(base_offset=INT64_MAX - 9), {"offset": INT64_MAX - 1}),
        (segment_state(), {"offset": -1}),
    ]
    for state, named in left:
        last, own, row = placed(kernel, batch, state, **named)
        assert last == -1, named
        assert own == batch
        assert row[Row.BASE_OFFSET] == 0
    # Limits may be reached, and an empty segment has no age.
    assert placed(kernel, batch, segment_state(), offset=2**31 - 2)[0] == 2**31 - 1
    assert placed(kernel, batch, segment_state(), position=0, first=-1, span=-1)[0] == 71


@given(
    st.integers(0, 3), st.integers(0, 200), st.integers(-1, T + 20), st.integers(-20, 20),
    st.one_of(st.integers(0, 5), int64), st.one_of(st.integers(0, 5), int64),
    st.integers(-1, 1), st.integers(-1, 1), st.integers(-(2**31), 2**31 - 1),
)  # fmt: skip
@settings(max_examples=sized(100, 400 * SCALE), deadline=None)
def test_place_plain_agrees_and_is_what_plan_roll_says(
    position: int, room: int, first: int, span: int, base_offset: int, offset: int,
    offsets: int, times: int, epoch: int,
) -> None:  # fmt: skip
    batch = build_batch(some(T, T + 5))
    state = segment_state(base_offset=base_offset, offsets=offsets, times=times)
    named = {"position": position, "room": room, "span": span, "offset": offset, "epoch": epoch}
    compiled, reference = (placed(kernel, batch, state, first=first, **named) for kernel in KERNELS)
    assert compiled == reference
    if compiled[0] >= 0:
        assert plan_roll(
            position, position + room, len(batch), T + 5, first, 0, 0, span, 0,
            offsets <= 0, times <= 0, base_offset, offset + 1,
        ) is None  # fmt: skip


@both
def test_rows_that_are_of_no_batch_are_refused(kernel: Any) -> None:
    batch = bytearray(build_batch(some(T)))
    _, row = _kernel.admit_plain(batch, 1 << 30, T, 0, 0, False) or (None, None)
    state = segment_state()
    given = (state, 0, 1 << 20, T, 5, 70, 0)
    with pytest.raises(ValueError, match="row"):
        kernel.place_plain(batch + b"x", row, *given)
    with pytest.raises(ValueError, match="row"):
        kernel.place_plain(bytearray(), row, *given)
    with pytest.raises(ValueError, match="segment"):
        kernel.place_plain(batch, row, state, -1, *given[2:])
    with pytest.raises(ValueError, match="64-bit integers"):
        kernel.place_plain(batch, array("q", bytes(8)), *given)
    with pytest.raises(ValueError, match="64-bit integers"):
        kernel.place_plain(batch, row, array("q", bytes(8)), *given[1:])
    with pytest.raises(BufferError):
        kernel.place_plain(bytes(batch), row, *given)


@given(logs, mutations, st.integers(0, 90), st.integers(0, 200), int64, st.booleans())
@settings(max_examples=sized(100, 400 * SCALE), deadline=None)
def test_find_batch_agrees_on_any_bytes(
    log: bytes, mutation: tuple[int, int, bool], start: int, less: int, target: int, by_time: bool
) -> None:
    data = mutated(log, mutation)
    start = min(start, len(data))
    limit = max(start, len(data) - less)
    answers = [tuple(map(int, k.find_batch(data, start, limit, target, by_time))) for k in KERNELS]
    assert answers[0] == answers[1]


@given(logs, st.integers(-1, 40), st.booleans())
@settings(max_examples=sized(100, 200 * SCALE), deadline=None)
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
def test_regions_that_are_none_are_refused(kernel: Any) -> None:
    batch = build_batch(some(T))
    with pytest.raises(ValueError, match="region"):
        kernel.find_batch(batch, 0, len(batch) + 1, 0, False)
