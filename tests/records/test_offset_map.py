"""The newest offset of each key: both kernels say the same, and what Kafka's map would."""

from __future__ import annotations

import hashlib
import random
from array import array
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stratalog.records import _kernel, _reference
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.control import ControlType, build_marker
from stratalog.records.layout import INT64_MAX, KEYS_AT_ONCE, Check, Codec, Ending
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from tests.records.generated import logs, mutated, mutations
from tests.records.rewriting import note_log, numbers
from tests.records.test_kernel_agrees_with_reference import checks
from tests.scale import SCALE, sized

pytestmark = pytest.mark.scaled

KERNELS = pytest.mark.parametrize("kernel", [_kernel, _reference])
SLOT = 24
small_keys = st.binary(max_size=2)
any_keys = (
    st.binary(max_size=70)
    | st.binary(min_size=50, max_size=60)
    | st.binary(min_size=110, max_size=200)
)
sizes = st.sampled_from([2 * SLOT, 3 * SLOT + 1, 5 * SLOT, 12 * SLOT, 64 * SLOT, 1 << 16])
load_factors = st.sampled_from([0.5, 0.75, 0.9, 1.0])
aborted = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60), st.integers(0, 60)), max_size=3)


@settings(max_examples=sized(150, 300 * SCALE), deadline=None)
@given(
    st.lists(st.tuples(small_keys | any_keys, st.integers(0, INT64_MAX - 1)), max_size=60),
    sizes,
    load_factors,
)
def test_both_kernels_hold_the_same_keys(puts, size, load_factor):
    maps = [kernel.OffsetMap(size, load_factor) for kernel in (_kernel, _reference)]
    for number, (key, offset) in enumerate(puts):
        if number % 2:
            assert maps[0].put(key, offset) == maps[1].put(key, offset)
        else:
            digest = hashlib.md5(key, usedforsecurity=False).digest()
            assert maps[0].put_digest(digest, offset) == maps[1].put_digest(digest, offset)
        for name in ("slots", "keys_max", "is_full", "latest_offset", "records"):
            assert getattr(maps[0], name) == getattr(maps[1], name)
        assert len(maps[0]) == len(maps[1])
    for key, _ in [*puts, (b"never put", 0)]:
        assert maps[0].get(key) == maps[1].get(key)


@settings(max_examples=sized(100, 200 * SCALE), deadline=None)
@given(
    st.dictionaries(any_keys, st.none(), min_size=1, max_size=3 * KEYS_AT_ONCE),
    st.sampled_from([Codec.NONE, Codec.LZ4]),
)
def test_keys_of_every_length_are_told_apart(keys, codec):
    """Short keys are hashed eight at a time and long ones alone: in any mix, as get() hashes one."""
    log = build_batch([Record(b"v", key) for key in keys], BatchOptions(codec=codec))
    newest = _kernel.OffsetMap(1 << 16)
    note_log(_kernel, newest, log)
    assert len(newest) == len(keys)
    twin = _reference.OffsetMap(1 << 16)  # by hashlib
    note_log(_reference, twin, log)
    for offset, key in enumerate(keys):
        assert newest.get(key) == twin.get(key) == offset


def test_keys_of_all_lengths_in_every_lane():
    rng = random.Random(5)
    for first in range(0, 200, 8):
        for count in (*range(1, 20), 33):
            keys = [rng.randbytes(first + lane % 8) + bytes([lane]) for lane in range(count)]
            newest = _kernel.OffsetMap(1 << 14)
            note_log(_kernel, newest, build_batch([Record(None, key) for key in keys]))
            assert [newest.get(key) for key in keys] == list(range(count))


@given(
    logs, mutations, checks, sizes, load_factors, aborted, st.integers(-1, 60), st.integers(0, 60),
    st.integers(-1, 60),
)  # fmt: skip
@settings(
    max_examples=sized(150, 300 * SCALE),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_both_kernels_note_the_same(
    log, mutation, flags, size, load_factor, left_out, expected, first_offset, below
):
    log = mutated(log, mutation)
    options = {"flags": flags, "aborted": numbers(left_out), "first_offset": first_offset}
    options |= {"below": below}
    seen = [
        note_log(kernel, kernel.OffsetMap(size, load_factor), log, expected=expected, **options)
        for kernel in (_kernel, _reference)
    ]
    assert seen[0] == seen[1]


@settings(max_examples=sized(60, 200 * SCALE), deadline=None)
@given(
    st.lists(st.lists(st.none() | small_keys, min_size=1, max_size=70), min_size=1, max_size=6),
    st.sampled_from([Codec.NONE, Codec.ZSTD, "wrapped 0", "wrapped 1", "messages"]),
    st.integers(2, 40),
    st.integers(0, 30),
)
def test_a_map_is_full_after_the_same_record_as_kafkas(made, kind, slots, first_offset):
    """The size is checked before every put; then the latest offset is the last that was put."""
    log = b""
    entries: list[tuple[bytes | None, int, int]] = []
    for keys in made:
        base = len(entries)
        records = [Record(b"v", key, offset=base + n) for n, key in enumerate(keys)]
        log += write(records, kind)
        entries += [(record.key, record.offset, base + len(keys) - 1) for record in records]
    model: dict[bytes, int] = {}
    latest, is_full = -1, False
    keys_max = int(slots * 0.9)
    for key, offset, batch_end in entries:
        if key is not None and offset >= first_offset:
            if len(model) >= keys_max:
                is_full = True
                break
            model[key] = latest = offset
        ends = offset if kind == "messages" else batch_end
        if offset == ends and ends >= first_offset:
            latest = ends
    for kernel in (_kernel, _reference):
        newest = kernel.OffsetMap(slots * SLOT)
        seen = note_log(
            kernel, newest, log, first_offset=first_offset, flags=Check.CRC | Check.ORDER
        )
        assert (seen[-2][1] == Ending.FULL) == is_full
        assert (newest.latest_offset, len(newest)) == (latest, len(model))
        assert {key: newest.get(key) for key in model} == model


def write(records: list[Record], kind: Any) -> bytes:
    if kind == "messages":
        return build_messages(records)
    if kind in ("wrapped 0", "wrapped 1"):
        magic = int(kind[-1])
        options = MessageOptions(magic=magic, codec=Codec.GZIP, wrapper_bytes=1 << 20)
        return build_messages(records, options)
    return build_batch(records, BatchOptions(codec=kind))


@KERNELS
def test_control_batches_and_aborted_transactions_are_passed_over(kernel):
    transaction = BatchOptions(
        producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    log = build_batch([Record(b"v", b"a")], transaction, base_offset=0)
    log += build_batch([Record(b"v", b"b")], base_offset=1)
    log += build_marker(
        ControlType.ABORT,
        offset=2,
        timestamp=1,
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=0,
    )
    newest = kernel.OffsetMap(1 << 10)
    note_log(kernel, newest, log, aborted=array("q", [7, 0, 2]))
    assert (newest.get(b"a"), newest.get(b"b"), newest.latest_offset) == (-1, 1, 2)
    newest = kernel.OffsetMap(1 << 10)
    note_log(kernel, newest, log)
    assert (newest.get(b"a"), len(newest)) == (0, 2)


@KERNELS
def test_a_batch_before_the_first_offset_does_not_move_the_latest(kernel):
    log = build_batch([Record(b"v", b"a")] * 3)
    newest = kernel.OffsetMap(1 << 10)
    note_log(kernel, newest, log, first_offset=3)
    assert newest.latest_offset == -1
    newest.latest_offset = 9  # a gap up to the next segment: the caller's
    assert newest.latest_offset == 9


@KERNELS
def test_a_map_without_room_for_a_key_is_refused(kernel):
    for memory, load_factor in (
        (0, 0.9),
        (SLOT - 1, 1),
        (SLOT, 0.9),
        (1 << 10, 0),
        (1 << 10, 1.1),
        (-1, 0.9),
    ):
        with pytest.raises(ValueError, match="no room for a key"):
            kernel.OffsetMap(memory, load_factor)
    one = kernel.OffsetMap(SLOT, 1.0)
    assert (one.keys_max, one.put(b"k", 5), one.put(b"k", 6), one.get(b"k")) == (1, True, False, 5)
    assert one.get(b"another") == -1  # not one empty slot is left


@KERNELS
def test_what_is_not_an_offset_or_not_a_digest_is_refused(kernel):
    newest = kernel.OffsetMap(1 << 10)
    for offset in (-1, INT64_MAX):
        with pytest.raises(ValueError, match="not an offset"):
            newest.put(b"k", offset)
        with pytest.raises(ValueError, match="not an offset"):
            newest.put_digest(bytes(16), offset)
    for size in (0, 15, 17):
        with pytest.raises(ValueError, match=f"not an MD5: {size} bytes"):
            newest.put_digest(bytes(size), 0)


def test_a_full_table_of_many_keys_finds_them_all():
    keys = [b"%d" % n for n in range(5000)]
    newest = _kernel.OffsetMap(SLOT * 5000, 1.0)
    assert all(newest.put(key, n) for n, key in enumerate(keys))
    assert newest.is_full
    assert not newest.put(keys[0], 5000)
    assert [newest.get(key) for key in keys] == list(range(5000))
    assert newest.get(b"absent") == -1


@pytest.mark.parametrize(
    ("slots", "load_factor"), [(5000, 1.0), (9001, 1.0), (40_000, 0.9), (200_003, 0.5)]
)
def test_a_growing_table_loses_no_key(slots, load_factor):
    """A table spreads its keys over more slots, again and again, up to its full size."""
    newest = _kernel.OffsetMap(SLOT * slots, load_factor)
    offset = 0
    while not newest.is_full:
        keys = [Record(None, b"%d" % (offset + n), offset=offset + n) for n in range(1000)]
        note_log(_kernel, newest, build_batch(keys))
        assert newest.get(b"%d" % (offset // 2)) == offset // 2
        offset += 1000
    assert len(newest) == newest.keys_max == int(slots * load_factor)
    found = [newest.get(b"%d" % n) for n in range(offset)]
    assert found == [*range(newest.keys_max), *[-1] * (offset - newest.keys_max)]


def test_digests_make_a_table_grow_as_keys_do():
    newest = _kernel.OffsetMap(SLOT * 20_000, 1.0)
    for number in range(20_000):
        assert newest.put_digest(
            hashlib.md5(b"%d" % number, usedforsecurity=False).digest(), number
        )
    assert newest.is_full
    assert [newest.get(b"%d" % number) for number in range(20_000)] == list(range(20_000))
