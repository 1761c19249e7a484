"""Records that are kept by their offsets: both kernels keep the same, and what the rule says."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stratalog.records import _kernel, _reference
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.columns import (
    RECORD_COLUMNS,
    KeptRecords,
    RegionDecoder,
    Selection,
    decode_records,
    records_of,
)
from stratalog.records.layout import Check, Codec, Ending
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.records.v07 import build_entries
from tests.records.generated import int64, logs, mutated, mutations
from tests.records.test_kernel_agrees_with_reference import checks, drive, plain
from tests.scale import SCALE, sized

pytestmark = pytest.mark.scaled

some_offsets = st.sets(st.integers(0, 70) | int64.filter(lambda n: n >= 0), max_size=30)
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


@settings(max_examples=sized(150, 300 * SCALE), suppress_health_check=[HealthCheck.too_slow])
@given(logs, mutations, checks, st.data(), st.booleans(), st.booleans())
def test_both_kernels_keep_the_same(log, mutation, flags, data, tombstones, views):
    try:
        there = {record.offset for record in decode_records(log, check=Check.INCLUDE_CONTROL)}
    except Exception:  # noqa: BLE001  # three logs in a row need not be one log
        there = set()
    wanted = data.draw(st.sets(st.sampled_from(sorted(there))) if there else st.just(set()))
    keep = array("q", sorted(wanted | data.draw(some_offsets)))
    options = {"keep": keep, "tombstones": tombstones, "views": views}
    log = mutated(log, mutation)
    assert drive(_kernel, log, flags, **options) == drive(_reference, log, flags, **options)


@given(st.lists(st.binary(max_size=9), max_size=9), st.sampled_from(CODECS[:3]), some_offsets)
def test_both_kernels_keep_the_same_of_0_7(payloads, codec, offsets):
    log = build_entries(payloads, codec=codec) if payloads else b""
    seen = []
    for kernel in (_kernel, _reference):
        columns = kernel.Columns(1 | 16 | 32, 0, keep=array("q", sorted(offsets)))
        seen.append((columns.fill_v07(log, 0, len(log)), plain(columns.take())))
    assert seen[0] == seen[1]


def log_of(values: list[bytes | None], magic: int, codec: Codec, per_batch: int) -> bytes:
    records = [Record(value, key=b"k", offset=2 * number) for number, value in enumerate(values)]
    log = b""
    for first in range(0, len(records), per_batch):
        some = records[first : first + per_batch]
        if magic == 2:
            log += build_batch(some, BatchOptions(codec=codec))
        else:
            log += build_messages(some, MessageOptions(magic=magic, codec=codec))
    return log


@given(
    st.lists(st.none() | st.binary(max_size=20), max_size=40),
    st.sampled_from([0, 1, 2]),
    st.sampled_from(CODECS),
    st.integers(1, 9),
    st.sets(st.integers(0, 90)),
    st.booleans(),
)
def test_kept_records_are_those_of_the_offsets(
    values, magic, codec, per_batch, offsets, tombstones
):
    keep = KeptRecords(memoryview(array("q", sorted(offsets))), tombstones)
    decoder = RegionDecoder(Selection(columns=RECORD_COLUMNS, keep=keep, batch_rows=3))
    log = log_of(values, magic, codec, per_batch)
    found, position, ending = [], 0, Ending.FULL
    while ending == Ending.FULL:
        pause = decoder.decode(log, position, len(log))
        position, ending = pause.position, pause.ending
        found += [(record.offset, record.value) for record in records_of(decoder.take())]
    assert ending == Ending.END
    kept = [(2 * n, value) for n, value in enumerate(values) if 2 * n in offsets]
    assert found == [each for each in kept if tombstones or each[1] is not None]
    assert decoder.tombstones == len(kept) - len(found)


def test_a_batch_without_kept_records_is_skipped_after_its_crc():
    log = log_of([b"v"] * 9, 2, Codec.GZIP, 3)
    size = len(log) // 3
    keep = KeptRecords(memoryview(array("q", [14])))
    decoder = RegionDecoder(Selection(columns=RECORD_COLUMNS, keep=keep))
    assert decoder.decode(log, 0, len(log)).ending == Ending.END
    assert (decoder.rows, decoder.skipped_batches) == (1, 2)
    damaged = bytearray(log)
    damaged[size - 1] ^= 1
    decoder = RegionDecoder(Selection(columns=RECORD_COLUMNS, keep=keep))
    assert decoder.decode(damaged, 0, len(log)).ending == Ending.CORRUPT


def test_views_into_decompressed_batches_hold_a_bounded_part_of_the_log(monkeypatch):
    monkeypatch.setattr("stratalog.records.columns._OWNED_BYTES_MAX", 5000)
    log = log_of([b"v" * 100] * 400, 2, Codec.GZIP, 20)
    offsets = range(0, 800, 40)  # one of every batch, of which each decompresses to two kilobytes
    keep = KeptRecords(memoryview(array("q", offsets)))
    decoder = RegionDecoder(Selection(columns=RECORD_COLUMNS, keep=keep, views=True))
    position, taken = 0, []
    while True:
        pause = decoder.decode(log, position, len(log))
        position = pause.position
        taken.append(decoder.take())
        if pause.ending != Ending.FULL:
            break
    assert sum(each.rows for each in taken) == len(offsets)
    assert max(sum(map(len, each.sources[1:])) for each in taken) < 10_000
