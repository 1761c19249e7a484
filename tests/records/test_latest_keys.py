"""The table of newest offsets: the same in both kernels, and what a dictionary says."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.records import _kernel, _reference
from stratalog.records._reference.latest import siphash_rounds
from stratalog.records.layout import Reason
from tests.scale import SCALE, sized

pytestmark = pytest.mark.scaled

SEED = bytes(range(16))
ENTRY = 24
keys = st.none() | st.binary(max_size=3) | st.binary(min_size=7, max_size=40)
noted = st.lists(st.tuples(st.integers(0, 2**62), keys), max_size=60)
kernels = pytest.mark.parametrize("kernel", [_kernel, _reference], ids=lambda each: each.NAME)


def rows_of(kernel, records):
    present = [key is not None for _, key in records]
    bitmap = bytearray((len(records) + 7) // 8)
    ends = array("i", [0])
    for row, (_, key) in enumerate(records):
        bitmap[row // 8] |= present[row] << row % 8
        ends.append(ends[-1] + len(key or b""))
    return kernel.Rows(
        len(records),
        offsets=(array("q", [offset for offset, _ in records]), 0),
        key=(None if all(present) else bitmap, ends, b"".join(key or b"" for _, key in records), 0),
    )


def parts_of(spilled):
    """The entries of each part, in an order of our own."""
    entries, starts = bytes(spilled[0]), spilled[1]
    return [
        sorted(entries[at * ENTRY : (at + 1) * ENTRY] for at in range(start, end))
        for start, end in pairwise(starts)
    ]


def numbers(buffer):
    return memoryview(buffer).cast("B").cast("q").tolist()


def test_digest_is_siphash():
    """By the vectors of its authors, for 2-4 rounds; the table takes fewer of the same rounds."""
    wanted = ["a3817f04ba25a8e66df67214c7550293", "da87c1d86b99af44347659119b22fc45"]
    for data, vector in zip((b"", b"\0"), wanted, strict=True):
        high, low = siphash_rounds(SEED, data, 2, 4)
        assert (high.to_bytes(8, "little") + low.to_bytes(8, "little")).hex() == vector


@given(st.binary(min_size=16, max_size=16), st.binary(max_size=300))
def test_both_kernels_have_the_same_digest(seed, data):
    assert _kernel.siphash(seed, data) == _reference.siphash(seed, data)


@settings(max_examples=sized(100, 200 * SCALE))
@given(noted, st.integers(120, 1500), st.integers(0, 11))
def test_both_kernels_fill_spill_and_load_alike(records, memory, level):
    seen = []
    for kernel in (_kernel, _reference):
        table = kernel.LatestKeys(SEED, memory)
        rows, row = rows_of(kernel, records), 0
        told: list[object] = []
        while True:
            row, reason = table.note(rows, row)
            told.append((row, int(reason), table.count, table.keyless))
            if row == rows.count:
                break
            spilled = table.spill(level)
            told.append((parts_of(spilled), spilled[1], table.count))
        spilled = b"".join(entry for part in parts_of(table.spill(level)) for entry in part)
        told.append((table.load(spilled), table.count, numbers(table.take_offsets())))
        seen.append(told)
    assert seen[0] == seen[1]


@given(noted)
def test_table_has_the_newest_offset_of_each_key(records):
    newest: dict[bytes, int] = {}
    for offset, key in records:
        if key is not None:
            newest[key] = max(offset, newest.get(key, 0))
    table = _kernel.LatestKeys(SEED, 1 << 16)
    assert table.note(rows_of(_kernel, records)) == (len(records), 0)
    assert table.keyless == sum(key is None for _, key in records)
    assert table.count == len(newest)
    assert numbers(table.take_offsets()) == sorted(newest.values())
    assert table.count == 0
    assert numbers(table.take_offsets()) == []


def test_table_grows_up_to_its_memory_and_says_when_it_is_full():
    table = _kernel.LatestKeys(SEED, 4 << 20)
    records = [(offset, b"%d" % offset) for offset in range(table.count_max + 10)]
    assert table.note(rows_of(_kernel, records)) == (table.count_max, 0)
    assert table.count == table.count_max
    entries, starts = table.spill(0)
    assert starts[-1] == len(entries) // ENTRY == table.count_max
    assert all(end - start > table.count_max // 64 for start, end in pairwise(starts))
    assert table.load(entries) == table.count_max
    assert numbers(table.take_offsets()) == list(range(table.count_max))


@kernels
def test_wrong_input_is_refused(kernel):
    with pytest.raises(ValueError, match="16 bytes"):
        kernel.LatestKeys(b"short", 1 << 16)
    with pytest.raises(ValueError, match="16 bytes"):
        kernel.siphash(b"", b"")
    with pytest.raises(ValueError, match="at least 120 bytes"):
        kernel.LatestKeys(SEED, 119)
    table = kernel.LatestKeys(SEED, 1 << 16)
    with pytest.raises(ValueError, match="bring their offsets"):
        table.note(kernel.Rows(1))
    with pytest.raises(ValueError, match="there is such a row"):
        table.note(rows_of(kernel, []), 1)
    for level in (-1, 12):
        with pytest.raises(ValueError, match="levels 0 to 11"):
            table.spill(level)
    for entries, entry in ((b"x", 0), (bytes(ENTRY), 2), (bytes(ENTRY), -1)):
        with pytest.raises(ValueError, match="entries are whole"):
            table.load(entries, entry)
    assert table.note(rows_of(kernel, [(5, b"k"), (-1, b"k")])) == (1, Reason.OFFSET_RANGE)
    ends = array("i", [0, 9])
    rows = kernel.Rows(1, offsets=(array("q", [1]), 0), key=(None, ends, b"k", 0))
    assert table.note(rows) == (0, Reason.FIELD_LENGTH)
    assert numbers(table.take_offsets()) == [5]


@kernels
@given(st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 300), max_size=40))
def test_offsets_are_sorted(kernel, offsets):
    found = array("q", offsets)
    kernel.sort_offsets(memoryview(found))
    assert found.tolist() == sorted(offsets)
