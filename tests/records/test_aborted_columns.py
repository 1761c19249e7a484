"""Transactions that are left out, batch by batch: both kernels leave out the same, and what the rule says."""

from __future__ import annotations

from array import array
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.errors import CorruptionError
from stratalog.records import _kernel, _reference
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.columns import RECORD_COLUMNS as RECORDS
from stratalog.records.columns import Selection, decode_records
from stratalog.records.control import ControlType, build_marker
from stratalog.records.layout import PRODUCER_ID_AT, Check, Codec
from stratalog.records.model import Record
from tests.records.test_kernel_agrees_with_reference import drive
from tests.scale import SCALE, sized

pytestmark = pytest.mark.scaled

int64 = st.integers(-(2**63), 2**63 - 1)
steps = st.lists(
    st.tuples(
        st.sampled_from(["plain", "sent", "in_txn", "in_txn", "marker"]),
        st.integers(0, 3),  # producer
        st.integers(1, 3),  # records
        st.sampled_from([Codec.NONE, Codec.GZIP]),
    ),
    max_size=20,
)
small = st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 60))
anything = st.lists(small | st.tuples(int64, int64, int64), max_size=8)


def region(made: list[tuple[str, int, int, Codec]]) -> tuple[bytes, list[tuple[int, str, int]]]:
    """A region, and for each record its offset, its kind and its producer."""
    data, told, offset = b"", [], 0
    for kind, producer, count, codec in made:
        if kind == "marker":
            data += build_marker(
                ControlType.ABORT, offset=offset, timestamp=1, producer_id=producer,
                producer_epoch=0, coordinator_epoch=0,
            )  # fmt: skip
            offset += 1
            continue
        options = BatchOptions(codec=codec)
        if kind != "plain":
            options = BatchOptions(
                codec=codec, producer_id=producer, producer_epoch=0, base_sequence=0,
                is_transactional=kind == "in_txn",
            )  # fmt: skip
        data += build_batch([Record(b"v")] * count, options, base_offset=offset)
        # A transaction goes on batch by batch: the last offset of a batch stands for all of it.
        told += [(offset + n, kind, producer) for n in range(count)]
        offset += count
    return data, told


@settings(max_examples=sized(100, 200 * SCALE), deadline=None)
@given(steps, anything, st.sampled_from([Check.CRC, Check.CRC | Check.INCLUDE_CONTROL]))
def test_both_kernels_leave_out_the_same(made, aborted, flags):
    data, _ = region(made)
    fields = array("q", chain.from_iterable(sorted(aborted)))
    seen = [drive(kernel, data, flags, aborted=fields) for kernel in (_kernel, _reference)]
    assert seen[0] == seen[1]


@settings(max_examples=sized(100, 200 * SCALE), deadline=None)
@given(steps, st.data())
def test_the_records_of_a_transaction_are_left_out_and_no_other(made, data):
    log, told = region(made)
    # Transactions as there can be: one after the other for each producer.
    aborted: list[tuple[int, int, int]] = []
    for producer in range(4):
        edges = sorted(data.draw(st.sets(st.integers(0, 60), max_size=6)))
        aborted += [
            (producer, first, last) for first, last in zip(edges[::2], edges[1::2], strict=False)
        ]
    batch_ends: dict[int, int] = {}
    offset = 0
    for kind, _, count, _ in made:
        size = 1 if kind == "marker" else count
        batch_ends |= dict.fromkeys(range(offset, offset + size), offset + size - 1)
        offset += size
    wanted = [
        offset
        for offset, kind, producer in told
        if kind != "in_txn"
        or not any(
            p == producer and first <= batch_ends[offset] < last for p, first, last in aborted
        )
    ]
    selection = Selection(aborted=tuple(aborted), columns=RECORDS)
    assert [record.offset for record in decode_records(log, selection)] == wanted


def test_a_flipped_producer_does_not_hide_records():
    log, _ = region([("in_txn", 1, 2, Codec.NONE)])
    flipped = bytearray(log)
    flipped[PRODUCER_ID_AT + 7] ^= 3  # now of producer 2, whose transactions are aborted
    selection = Selection(aborted=((2, 0, 10),), columns=RECORDS)
    with pytest.raises(CorruptionError, match="crc_mismatch"):
        list(decode_records(bytes(flipped), selection))
