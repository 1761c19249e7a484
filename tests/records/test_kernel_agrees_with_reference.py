"""One kernel, one reference, one judge: both get the same generated and the same mutated bytes, and must
give the same answers. A difference is a bug in one of them, whichever it is."""

from __future__ import annotations

import random
from array import array
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stratalog.errors import CorruptionError
from stratalog.records import _kernel, _reference
from stratalog.records.arrow import HEADERS_TYPE, rows_of
from stratalog.records.builder import build_batch, rows_of_records
from stratalog.records.columns import Selection
from stratalog.records.compression import Decompressor
from stratalog.records.layout import (
    CODEC_MASK,
    ROW_WIDTH,
    Check,
    Codec,
    Column,
    Ending,
    Row,
)
from stratalog.records.model import Record, RecordHeader
from stratalog.records.v07 import build_entries
from tests.records.generated import int64, logs, mutate, mutated, mutations, records, timestamps
from tests.scale import SCALE, sized

pytestmark = pytest.mark.scaled

EVERY_COLUMN = sum(Column)
DECOMPRESSED_MAX = 1 << 20

checks = st.sampled_from(
    [
        Check.NONE,
        Check.CRC,
        Check.CRC | Check.ORDER,
        Check.CRC | Check.ORDER | Check.COUNTS | Check.INCLUDE_CONTROL,
        Check.CONTIGUOUS | Check.ORDER,
        Check.INCLUDE_CONTROL,
    ]
)


def plain(value: Any) -> Any:
    """Buffers as bytes, all the way down, to compare."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return tuple(plain(part) for part in value)
    if value is None or isinstance(value, int):
        return value
    return bytes(value)


def decompress(data: bytes, header: array[int]) -> bytes | None:
    start = header[Row.PAYLOAD_POSITION]
    payload = data[start : start + header[Row.PAYLOAD_SIZE]]
    try:
        return bytes(
            Decompressor(DECOMPRESSED_MAX).decompress(
                header[Row.ATTRIBUTES] & CODEC_MASK, payload, magic=header[Row.MAGIC]
            )
        )
    except CorruptionError:  # what damage gives is another test: here both get the same bytes
        return None


def drive(kernel: Any, data: bytes, flags: int, **options: Any) -> list[Any]:
    """All that a kernel's Columns say about ``data``."""
    columns = kernel.Columns(EVERY_COLUMN, flags, **options)
    seen: list[Any] = []
    position = 0
    for _ in range(100):
        position, ending, reason = columns.fill(data, position, len(data), position_base=7)
        seen.append((position, int(ending), int(reason), columns.rows, columns.used))
        if ending == Ending.COMPRESSED:
            header = array("q", bytes(8 * ROW_WIDTH))
            kernel.walk(data, position, len(data), memoryview(header))
            payload = decompress(data, header)
            if payload is None:
                break
            position, ending, reason = columns.add(
                data, position, len(data), payload, position_base=7, buffer_index=1
            )
            seen.append((position, int(ending), int(reason), columns.rows, columns.used))
            if ending == Ending.END:
                continue
        seen.append((columns.expected, columns.skipped, columns.tombstones, plain(columns.take())))
        if ending != Ending.FULL:
            break
    return seen


@given(logs, mutations, checks, st.booleans())
@settings(
    max_examples=sized(100, 200 * SCALE),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_columns_agree(
    log: bytes, mutation: tuple[int, int, bool], flags: Check, views: bool
) -> None:
    log = mutated(log, mutation)
    assert drive(_kernel, log, flags, views=views) == drive(_reference, log, flags, views=views)


@given(logs, mutations, checks, st.tuples(int64, int64, int64, int64), st.integers(1, 5))
@settings(
    max_examples=sized(100, 200 * SCALE),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_columns_agree_within_bounds_and_limits(
    log: bytes,
    mutation: tuple[int, int, bool],
    flags: Check,
    bounds: tuple[int, int, int, int],
    rows_max: int,
) -> None:
    log = mutated(log, mutation)
    options = {"bounds": bounds, "rows_max": rows_max, "bytes_max": 200}
    assert drive(_kernel, log, flags, **options) == drive(_reference, log, flags, **options)


def walked(kernel: Any, name: str, data: bytes, flags: int, capacity: int, start: int) -> Any:
    rows = array("q", bytes(8 * ROW_WIDTH * capacity))
    answer = getattr(kernel, name)(data, 0, len(data), memoryview(rows), flags, start)
    return tuple(int(part) for part in answer), rows[: answer[0] * ROW_WIDTH].tolist()


@given(logs, mutations, checks, st.integers(1, 8), st.integers(-1, 60))
@settings(
    max_examples=sized(100, 300 * SCALE),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_walk_and_count_agree(
    log: bytes, mutation: tuple[int, int, bool], flags: Check, capacity: int, expected: int
) -> None:
    log = mutated(log, mutation)
    assert walked(_kernel, "walk", log, flags, capacity, expected) == walked(
        _reference, "walk", log, flags, capacity, expected
    )
    assert tuple(_kernel.count(log, 0, len(log), flags, expected)) == tuple(
        _reference.count(log, 0, len(log), flags, expected)
    )


@given(
    st.lists(st.binary(max_size=60), min_size=1, max_size=5),
    st.sampled_from([(0, Codec.NONE), (1, Codec.NONE), (1, Codec.GZIP), (1, Codec.SNAPPY)]),
    mutations,
    checks,
)
@settings(max_examples=sized(100, 200 * SCALE), deadline=None)
def test_v07_agrees(
    values: list[bytes], kind: tuple[int, Codec], mutation: tuple[int, int, bool], flags: Check
) -> None:
    log = build_entries(values, magic=kind[0], codec=kind[1])
    log = mutate(log + build_entries(values), mutation[0], mutation[1])
    assert walked(_kernel, "walk_v07", log, flags, 3, 11) == walked(
        _reference, "walk_v07", log, flags, 3, 11
    )
    assert drive_v07(_kernel, log, flags) == drive_v07(_reference, log, flags)


def drive_v07(kernel: Any, data: bytes, flags: int) -> list[Any]:
    columns = kernel.Columns(EVERY_COLUMN, flags)
    seen: list[Any] = []
    position = 0
    while True:
        position, ending, reason = columns.fill_v07(data, position, len(data), base_offset=5)
        seen.append((position, int(ending), int(reason), columns.rows))
        if ending == Ending.COMPRESSED:
            header = array("q", bytes(8 * ROW_WIDTH))
            kernel.walk_v07(data, position, len(data), memoryview(header))
            payload = decompress(data, header)
            if payload is None:
                break
            position, ending, reason = columns.add_v07(
                data, position, len(data), payload, base_offset=5
            )
            seen.append((position, int(ending), int(reason), columns.rows))
            if ending == Ending.END:
                continue
        break
    seen.append(plain(columns.take()))
    return seen


def rows_for(kernel: Any, made: list[Record]) -> Any:
    """The same rows for either kernel: the builder's own come from the one in use."""
    parts: dict[str, Any] = {}

    class Spy:
        def __init__(self, count: int, **given: Any) -> None:
            parts.update(given, count=count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stratalog.records.builder.kernel.Rows", Spy)
        rows_of_records(made)
    return kernel.Rows(parts.pop("count"), **parts)


@given(records(), st.integers(0, 400), st.none() | timestamps)
@settings(max_examples=sized(100, 200 * SCALE), deadline=None)
def test_encode_records_agrees(made: list[Record], target: int, base: int | None) -> None:
    answers = []
    for kernel in (_kernel, _reference):
        out = bytearray(b"before")
        answer = kernel.encode_records(out, rows_for(kernel, made), 0, len(made), target, base)
        answers.append((tuple(map(int, answer)), bytes(out)))
    assert answers[0] == answers[1]


def parts_of(made: list[Record], order: list[int]) -> tuple[int, dict[str, Any]]:
    """Columns of the records, and an order of their rows."""
    batch = pa.record_batch(
        {
            "key": pa.array([each.key for each in made], pa.binary()),
            "value": pa.array([each.value for each in made], pa.binary()),
            "timestamp_ms": pa.array([each.timestamp for each in made], pa.int64()),
            "headers": pa.array(
                [[(header.key, header.value) for header in each.headers] for each in made],
                HEADERS_TYPE,
            ),
        }
    )
    parts: dict[str, Any] = {}

    def spy(count: int, **given: Any) -> None:
        parts.update(given, count=count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stratalog.records.arrow.kernel.Rows", spy)
        rows_of(batch, order=array("q", order))
    return parts.pop("count"), parts


@given(records(), st.lists(st.integers(0, 40), min_size=1, max_size=30), st.integers(0, 400))
@settings(max_examples=100 * SCALE, deadline=None)
def test_rows_in_another_order(made: list[Record], picks: list[int], target: int) -> None:
    """Some rows, in any order, some of them twice: what their copies would give."""
    order = [pick % len(made) for pick in picks]
    count, parts = parts_of(made, order)
    copies = [made[row] for row in order]
    plain_count, plain = parts_of(copies, list(range(len(copies))))
    plain.pop("order")
    answers = []
    for kernel in (_kernel, _reference):
        for rows in (kernel.Rows(count, **parts), kernel.Rows(plain_count, **plain)):
            assert rows.count == len(order)
            out = bytearray()
            answer = kernel.encode_records(out, rows, 0, rows.count, target)
            hashed = array("i", bytes(4 * rows.count))
            assert kernel.hash_keys(rows, 7, memoryview(hashed)) == 0
            answers.append((tuple(map(int, answer)), bytes(out), hashed))
    assert all(each == answers[0] for each in answers)


@pytest.mark.parametrize("kernel", [_kernel, _reference])
def test_an_order_of_rows_that_are_not_there_is_refused(kernel: Any) -> None:
    for order in ([2], [-1], [0, 1 << 62]):
        with pytest.raises(ValueError, match="no such row"):
            kernel.Rows(2, order=array("q", order))
    with pytest.raises(ValueError, match="bring their offsets"):
        kernel.Rows(1, offsets=(array("q", [5]), 0), order=array("q", [0]))
    assert kernel.Rows(2, order=array("q")).count == 0


@given(
    records(with_headers=False),
    st.integers(0, 400),
    st.sampled_from([0, 1]),
    st.booleans(),
    st.none() | timestamps,
)
@settings(max_examples=sized(100, 200 * SCALE), deadline=None)
def test_encode_messages_agrees(
    made: list[Record], target: int, magic: int, relative: bool, append_time: int | None
) -> None:
    answers = []
    for kernel in (_kernel, _reference):
        out = bytearray(b"before")
        answer = kernel.encode_messages(
            out, rows_for(kernel, made), 0, len(made), target, magic, 8, 3, relative, append_time
        )
        answers.append((tuple(map(int, answer)), bytes(out)))
    assert answers[0] == answers[1]


@given(logs, mutations, st.integers(-1, 2**62) | st.just(2**63 - 3), st.integers(-1, 9))
@settings(max_examples=sized(100, 150 * SCALE), deadline=None)
def test_restamp_agrees(
    log: bytes, mutation: tuple[int, int, bool], offset: int, leader_epoch: int
) -> None:
    log = mutated(log, mutation)
    answers = []
    for kernel in (_kernel, _reference):
        data = bytearray(log)
        answer = kernel.restamp(data, 0, len(data), offset, leader_epoch)
        answers.append((tuple(map(int, answer)), bytes(data)))
    assert answers[0] == answers[1]


@given(st.binary(max_size=9000), st.integers(0, 2**32 - 1))
def test_crcs_agree_and_continue(data: bytes, seed: int) -> None:
    assert _kernel.crc32(data, seed) == _reference.crc32(data, seed)
    expected = _reference.crc32c(data, seed)
    assert _kernel.crc32c(data, seed) == expected
    half = len(data) // 3
    assert _kernel.crc32c(data[half:], _kernel.crc32c(data[:half], seed)) == expected


def test_both_crc_lanes_agree_at_every_length_and_alignment() -> None:
    data = random.Random(7).randbytes(21_000)
    lengths = [*range(600), 767, 768, 769, 6143, 6144, 6145, 13_000, 20_000]
    by_hardware = [_kernel.crc32c(data[at : at + n]) for n in lengths for at in (0, 1, 7)]
    try:
        assert _kernel.use_hardware_crc(False) is False
        by_table = [_kernel.crc32c(data[at : at + n]) for n in lengths for at in (0, 1, 7)]
    finally:
        _kernel.use_hardware_crc(True)
    assert by_hardware == by_table


def test_header_keys_that_are_not_utf8_agree() -> None:
    """Every short sequence of awkward bytes as a header key, against Python's own replacement."""
    awkward = [0x00, 0x41, 0x80, 0xA0, 0xBF, 0xC1, 0xC2, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF]
    rng = random.Random(3)
    for _ in range(400):
        key = bytes(rng.choice(awkward) for _ in range(rng.randrange(1, 7)))
        record = Record(value=b"v", headers=(RecordHeader("x" * len(key), b""),))
        batch = bytearray(build_batch([record]))
        at = batch.rindex(b"x" * len(key))
        batch[at : at + len(key)] = key
        columns = _kernel.Columns(Column.HEADERS)
        assert columns.fill(batch, 0, len(batch))[1] == Ending.END
        _, taken = columns.take()
        (_, _, (_, text), _) = taken[Column.HEADERS]
        assert bytes(text).decode("utf-8") == key.decode("utf-8", "replace")


def test_default_selection_is_within_the_kernels_reach() -> None:
    assert Selection().batch_bytes + Selection().max_decompressed_bytes < 2**31


@settings(deadline=None)
@given(
    st.lists(st.none() | st.binary(max_size=40), max_size=30),
    st.integers(1, 50),
    st.integers(0, 3),
)
def test_hash_keys(keys, partitions, first):
    column = pa.array(keys, pa.binary()).slice(first)
    given_rows = (
        column.buffers()[0],
        column.buffers()[1],
        column.buffers()[2] or b"",
        column.offset,
    )
    if given_rows[1] is None:
        given_rows = (None, bytes(4), b"", 0)
    found = []
    for kernel in (_kernel, _reference):
        out = array("i", bytes(4 * len(column)))
        rows = kernel.Rows(len(column), key=given_rows)
        assert kernel.hash_keys(rows, partitions, memoryview(out)) == 0
        found.append(list(out))
    assert found[0] == found[1]
    assert found[0] == [
        -1 if key is None else (_kernel.murmur2(key) & 0x7FFFFFFF) % partitions
        for key in column.to_pylist()
    ]
    assert all(_kernel.murmur2(key) == _reference.murmur2(key) for key in keys if key is not None)
