"""Entries of the sparse indexes are decoded and searched in one way, whatever asks."""

from __future__ import annotations

import struct
from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.records.layout import INT32_MAX, INT64_MAX
from stratalog.storage.segment.index_entries import (
    OFFSET_KEY,
    POSITION_KEY,
    TIME_OFFSET_KEY,
    TIMESTAMP_KEY,
    EntryKey,
    OffsetEntry,
    TimeEntry,
    encode_time_entry,
    offset_entry_at,
    slot_up_to,
    time_entry_at,
)

offsets = st.lists(st.integers(0, INT32_MAX), unique=True, max_size=40).map(sorted)
targets = st.integers(-(2**70), 2**70)


def offset_index(relatives: list[int], positions: list[int]) -> bytes:
    return b"".join(map(struct.Struct(">ii").pack, relatives, positions))


def time_index(timestamps: list[int], relatives: list[int]) -> bytes:
    return b"".join(map(struct.Struct(">qi").pack, timestamps, relatives))


@pytest.mark.parametrize("entries_of", [bytes, bytearray, memoryview])
def test_entry_has_the_offset_in_the_log(entries_of: type[bytes]) -> None:
    entries = entries_of(offset_index([3, 9], [0, 4100]))
    assert offset_entry_at(entries, 1, 100) == OffsetEntry(109, 4100)
    times = entries_of(time_index([1700000000000, 1700000000001], [3, 9]))
    assert time_entry_at(times, 0, 100) == TimeEntry(1700000000000, 103)


def test_time_entry_is_encoded_as_it_is_decoded() -> None:
    entry = TimeEntry(INT64_MAX, (1 << 40) + INT32_MAX)
    assert time_entry_at(encode_time_entry(entry, 1 << 40), 0, 1 << 40) == entry


@pytest.mark.parametrize("key", [OFFSET_KEY, POSITION_KEY, TIMESTAMP_KEY, TIME_OFFSET_KEY])
@given(keys=offsets, target=targets)
def test_slot_is_the_last_whose_key_is_not_above_the_target(
    key: EntryKey, keys: list[int], target: int
) -> None:
    entries = {
        OFFSET_KEY: offset_index(keys, keys[::-1]),
        POSITION_KEY: offset_index(keys[::-1], keys),
        TIMESTAMP_KEY: time_index(keys, keys[::-1]),
        TIME_OFFSET_KEY: time_index(keys[::-1], keys),
    }[key]
    assert slot_up_to(entries, key, target) == bisect_right(keys, target) - 1


def test_rest_that_is_no_whole_entry_is_not_searched() -> None:
    entries = offset_index([1, 2], [0, 70]) + b"\0\0\0"
    assert slot_up_to(entries, OFFSET_KEY, INT32_MAX) == 1
