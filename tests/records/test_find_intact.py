"""The search for an intact batch: both kernels find the same, and what they find is one."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.records import _kernel, _reference
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.layout import INT64_MAX, Check, Codec
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.records.v07 import build_entries
from tests.records.generated import logs, mutated, mutations

pytestmark = pytest.mark.scaled

ROWS = [Record(value=b"value %d" % number, key=b"k", timestamp=5) for number in range(3)]
ENTRIES = [
    build_batch(ROWS, base_offset=70),
    build_batch(ROWS, BatchOptions(codec=Codec.GZIP), base_offset=70),
    build_messages(ROWS[:1], MessageOptions(magic=0), base_offset=70),
    build_messages(ROWS[:1], MessageOptions(magic=1), base_offset=70),
    build_messages(ROWS, MessageOptions(magic=1, codec=Codec.GZIP), base_offset=70),
]


def search(data: bytes, *args: Any, **options: Any) -> tuple[int, int, int, int]:
    found = _kernel.find_intact(data, *args, **options)
    assert _reference.find_intact(data, *args, **options) == found
    return found


def search_v07(data: bytes, *args: Any) -> tuple[int, int, int, int]:
    found = _kernel.find_intact_v07(data, *args)
    assert _reference.find_intact_v07(data, *args) == found
    return found


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(
    "before", [b"", bytes(300), b"\xff" * 299, random.Random(1).randbytes(1500)]
)
def test_an_entry_is_found_after_bytes_that_are_none(entry: bytes, before: bytes) -> None:
    data = before + entry + bytes(40)
    found, position, size, _ = search(data, 0, len(data), 0, 0, 2**32)
    assert (found, position, size) == (1, len(before), len(entry))


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_entry_is_found_with_a_flipped_bit(entry: bytes) -> None:
    for at in range(16, len(entry)):
        data = bytearray(entry)
        data[at] ^= 4
        assert search(bytes(data), 0, len(data), 0, 0, 2**32)[0] <= 0, at


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_offset_outside_the_range_is_not_found(entry: bytes) -> None:
    assert search(entry, 0, len(entry), 0, 0, 70)[0] == 1 or b"\x48" in entry[:8]
    assert search(entry, 0, len(entry), 0, 73, 2**40)[0] == 0
    assert search(entry, 0, len(entry), 0, 0, 69)[0] == 0


def test_an_entry_that_ends_after_the_limit_is_named_with_its_size() -> None:
    entry = ENTRIES[0]
    data = bytes(100) + entry
    limit = len(data) - 5
    assert search(data, 0, limit, 5, 0, 99) == (-1, 100, len(entry), 0)
    assert search(data, 0, limit, 4, 0, 99)[0] == 0


def test_the_search_goes_on_where_a_header_may_be_cut_off() -> None:
    data = bytes(1000)
    found, position, _, _ = search(data, 3, 1000, 50, 0, 99)
    assert (found, position) == (0, 1000 - 60)
    assert search(data, 0, 1000, 0, 0, 99)[:2] == (0, 1000)


def test_no_more_bytes_are_checked_than_allowed() -> None:
    entry = bytearray(ENTRIES[0])
    entry[-1] ^= 1
    data = bytes(entry) * 3 + ENTRIES[0]
    found, position, _, checked = search(data, 0, len(data), 0, 0, 99, 2**31 - 1, 2 * len(entry))
    assert (found, position, checked) == (-2, 2 * len(entry), 3 * len(entry))


def test_an_empty_entry_of_0_7_is_believed_with_what_follows_it() -> None:
    empty, full = build_entries([b""]), build_entries([b"abc"])
    assert len(empty) == 10
    data = b"\xff\xfe" + empty + full
    assert search_v07(data, 0, len(data), 0)[:2] == (1, 2)
    assert search_v07(b"\xff\xfe" + empty, 0, 12, 0)[:2] == (1, 2)
    assert search_v07(b"\xff\xfe" + empty + b"\xff" * 20, 0, 32, 0)[0] == 0


@given(log=logs, mutation=mutations, before=st.binary(max_size=80), cut=st.integers(0, 80))
def test_kernels_find_the_same_among_generated_bytes(
    log: bytes, mutation: tuple[int, int, bool], before: bytes, cut: int
) -> None:
    data = before + mutated(log, mutation)
    limit = max(len(data) - cut, 0)
    position = 0
    while position < limit:
        found, at, size, _ = search(data, position, limit, len(data) - limit, 0, INT64_MAX)
        if found == 0:
            break
        assert found in (1, -1)
        assert position <= at
        if found == 1:
            assert size <= limit - at
        position = at + 1


@given(data=st.binary(max_size=300), values=st.lists(st.binary(max_size=20), max_size=3))
def test_kernels_find_the_same_of_0_7(data: bytes, values: list[bytes]) -> None:
    data += build_entries(values)
    position = 0
    while position < len(data):
        found, at, _, _ = search_v07(data, position, len(data), 0)
        if found == 0:
            break
        position = at + 1


@given(log=logs, mutation=mutations)
def test_kernels_agree_on_records_that_decode(log: bytes, mutation: tuple[int, int, bool]) -> None:
    data = mutated(log, mutation)
    flags = Check.CRC | Check.RECORDS
    counts = [kernel.count(data, 0, len(data), flags) for kernel in (_kernel, _reference)]
    assert counts[0] == counts[1]
