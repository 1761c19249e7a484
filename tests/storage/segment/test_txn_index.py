"""The transaction index: Kafka's bytes, every damage found, and the entries that a reader needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.errors import CorruptionError
from stratalog.storage.segment.txn_index import (
    ENTRY_SIZE,
    AbortedTxn,
    collect_aborted,
    decode_entries,
    encode_entry,
)
from tests.judges.peers.golden import GOLDEN_DIR

GOLDEN = bytes.fromhex("0000 0000000000000007 0000000000000034 000000000000003a 000000000000003b")
FILES = sorted(GOLDEN_DIR.rglob("*.txnindex"))


def test_an_entry_is_kafkas_bytes() -> None:
    txn = AbortedTxn(producer_id=7, first_offset=52, last_offset=58, last_stable_offset=59)
    assert encode_entry(txn) == GOLDEN
    assert decode_entries(GOLDEN, 50) == [txn]
    assert len(GOLDEN) == ENTRY_SIZE


@pytest.mark.parametrize("path", FILES, ids=[f"{p.parent.name}-{int(p.stem)}" for p in FILES])
def test_golden_files_come_back_as_they_were(path: Path) -> None:
    data = path.read_bytes()
    entries = decode_entries(data, int(path.stem))
    assert b"".join(map(encode_entry, entries)) == data


def test_some_golden_files_hold_something() -> None:
    assert sum(path.stat().st_size > 0 for path in FILES) >= 10


def test_there_may_be_no_entry() -> None:
    assert decode_entries(b"", 0) == []


@pytest.mark.parametrize("low_byte", [0, 1, 255])
def test_kafka_reads_the_high_byte_of_the_version_only(low_byte: int) -> None:
    data = bytes([0, low_byte]) + GOLDEN[2:]
    assert decode_entries(data, 50) == decode_entries(GOLDEN, 50)


def entry(first: int, last: int, *, version: int = 0) -> bytes:
    return version.to_bytes(2, "big") + encode_entry(AbortedTxn(1, first, last, last + 1))[2:]


@pytest.mark.parametrize(
    ("data", "base_offset", "reason", "position"),
    [
        (GOLDEN[:-1], 50, "txn_index_size", 0),
        (GOLDEN + b"\0", 50, "txn_index_size", 34),
        (entry(1, 2) + entry(3, 4, version=256), 0, "txn_index_version", 34),
        (entry(1, 2, version=0xFF00), 0, "txn_index_version", 0),
        (GOLDEN, 59, "txn_index_order", 0),
        (entry(1, 5) + entry(2, 5), 0, "txn_index_order", 34),
        (entry(1, 5) + entry(2, 4), 0, "txn_index_order", 34),
        (entry(6, 5), 0, "txn_index_range", 0),
        (b"\0" * 34 + b"\0" * 34, 0, "txn_index_order", 34),
        (b"\0\0" + b"\xff" * 32, 0, "txn_index_order", 0),
    ],
)
def test_damage_is_named(data: bytes, base_offset: int, reason: str, position: int) -> None:
    with pytest.raises(CorruptionError) as caught:
        decode_entries(data, base_offset)
    assert (caught.value.reason, caught.value.position) == (reason, position)


def test_a_marker_at_the_first_offset_of_the_segment_belongs_to_it() -> None:
    assert len(decode_entries(GOLDEN, 58)) == 1


@given(st.binary(max_size=200), st.integers(-5, 2**40))
def test_any_bytes_give_entries_or_one_error(data: bytes, base_offset: int) -> None:
    try:
        entries = decode_entries(data, base_offset)
    except CorruptionError:
        return
    assert len(entries) * ENTRY_SIZE == len(data)


# --- collecting ----------------------------------------------------------------------------------

A = AbortedTxn(1, first_offset=0, last_offset=10, last_stable_offset=5)
B = AbortedTxn(2, first_offset=5, last_offset=20, last_stable_offset=21)
C = AbortedTxn(1, first_offset=30, last_offset=40, last_stable_offset=41)


@pytest.mark.parametrize(
    ("start", "upper", "found", "is_complete"),
    [
        (0, 100, [A, B, C], False),
        (10, 100, [A, B, C], False),  # its marker is still to be met
        (11, 100, [B, C], False),
        (41, 100, [], False),
        (0, 21, [A, B], True),  # B's last stable offset has reached the bound
        (0, 22, [A, B], True),  # C's has, and C itself begins behind it
        (0, 30, [A, B], True),
        (0, 31, [A, B, C], True),
        (0, 41, [A, B, C], True),
        (0, 42, [A, B, C], False),
        (0, 5, [A], True),
        (0, 6, [A, B], True),
        (11, 5, [], True),
    ],
)
def test_collecting(start: int, upper: int, found: list[AbortedTxn], is_complete: bool) -> None:
    assert collect_aborted([A, B, C], start, upper) == (found, is_complete)


def test_collecting_ends_the_walk_over_segments_as_early_as_it_may() -> None:
    segments = [[A], [B], [C]]
    walked, found = 0, []
    for entries in segments:
        walked += 1
        more, is_complete = collect_aborted(entries, 0, 15)
        found += more
        if is_complete:
            break
    assert (walked, found) == (2, [A, B])


def test_nothing_indexed_says_nothing_about_later_segments() -> None:
    assert collect_aborted([], 0, 10) == ([], False)
