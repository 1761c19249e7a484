"""Batches are built byte for byte as Kafka's own classes build them, and sized as asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.errors import InvalidRecordError
from stratalog.records.builder import (
    BatchBuilder,
    BatchOptions,
    build_batch,
    empty_batch,
    rows_of_records,
)
from stratalog.records.columns import Selection, decode_records
from stratalog.records.control import ControlType, build_marker, parse_control
from stratalog.records.layout import Check, Codec, Column, Ending, TimestampType
from stratalog.records.model import Record, RecordHeader
from stratalog.records.restamp import assign_offsets, set_append_time
from stratalog.records.scan import STRICT, scan_batches

T = 1_700_000_000_000

# Written by Apache Kafka's own record classes.
TWO_RECORDS = bytes.fromhex(
    "0000000000000000 00000047 ffffffff 02 0217af83 0000 00000001 0000018bcfe56800"
    "0000018bcfe56805 ffffffffffffffff ffff ffffffff 00000002"
    "1c 00 00 00 04 6b31 04 7631 02 02 68 02 78 0c 00 0a 02 01 01 00"
)
TRANSACTIONAL = bytes.fromhex(
    "0000000000000064 0000003a 00000004 02 654f7a77 0010 00000000 0000018bcfe56800"
    "0000018bcfe56800 0000000000000007 0003 00000014 00000001 10 00 00 00 02 6b 02 76 00"
)
COMMIT = bytes.fromhex(
    "000000000000002a 00000042 00000001 02 c60df61d 0030 00000000 0000018bcfe56800"
    "0000018bcfe56800 0000000000000007 0003 ffffffff 00000001"
    "20 00 00 00 08 00000001 0c 000000000005 00"
)
EMPTY = bytes.fromhex(
    "0000000000000064 00000031 00000004 02 8ba32423 0000 00000004 ffffffffffffffff"
    "0000018bcfe56800 0000000000000007 0003 00000014 00000000"
)
DELETE_HORIZON = bytes.fromhex(
    "0000000000000032 0000003c 00000002 02 d493b363 0040 00000002 0000018bd50bc7e8"
    "0000018bcfe56801 ffffffffffffffff ffff ffffffff 00000001 14 00 cdffb252 02 02 62 01 00"
)
RESTAMPED = bytes.fromhex(
    "00000000000004d2 0000003a 00000009 02 b5b731c7 0008 00000000 0000018bcfe568000000018bcfe56b09"
)
WITH_CONTROL = Selection(
    columns=Column.OFFSET | Column.TIMESTAMP_MS | Column.TIMESTAMP_TYPE | Column.KEY
    | Column.VALUE | Column.HEADERS,
    check=STRICT | Check.INCLUDE_CONTROL,
)  # fmt: skip


def test_two_records_equal_kafkas_bytes() -> None:
    records = [
        Record(key=b"k1", value=b"v1", timestamp=T, headers=(RecordHeader("h", b"x"),)),
        Record(value=None, timestamp=T + 5),
    ]
    assert build_batch(records) == TWO_RECORDS


def test_transactional_batch_equals_kafkas_bytes() -> None:
    options = BatchOptions(
        leader_epoch=4, producer_id=7, producer_epoch=3, base_sequence=20, is_transactional=True
    )
    record = Record(key=b"k", value=b"v", timestamp=T)
    assert build_batch([record], options, base_offset=100) == TRANSACTIONAL


def test_commit_marker_equals_kafkas_bytes_and_parses() -> None:
    marker = build_marker(
        ControlType.COMMIT,
        offset=42,
        timestamp=T,
        producer_id=7,
        producer_epoch=3,
        coordinator_epoch=5,
        leader_epoch=1,
    )
    assert marker == COMMIT
    (record,) = decode_records(marker, WITH_CONTROL)
    control = parse_control(record.key, record.value)
    assert (control.type, control.coordinator_epoch) == (ControlType.COMMIT, 5)
    assert list(decode_records(marker)) == []  # hidden unless asked for


def test_empty_batch_equals_kafkas_bytes() -> None:
    options = BatchOptions(leader_epoch=4, producer_id=7, producer_epoch=3, base_sequence=20)
    records = [Record(value=b"v", timestamp=T, offset=100 + i) for i in range(5)]
    (header,) = scan_batches(build_batch(records, options))
    assert empty_batch(header) == EMPTY
    (kept,) = scan_batches(EMPTY, check=STRICT)
    assert (kept.record_count, kept.next_offset, kept.last_sequence) == (0, 105, 24)


def test_delete_horizon_batch_equals_kafkas_bytes() -> None:
    batch = bytearray(DELETE_HORIZON)
    (header,) = scan_batches(batch, check=STRICT)
    assert header.delete_horizon_ms == T + 1000 + 86_400_000
    (record,) = decode_records(batch)
    assert (record.key, record.value, record.timestamp, record.offset) == (b"b", None, T + 1, 51)
    # Ours, with one record at offset 51 of a batch that began at 50 and ended at 52, has the same
    # record bytes; base offset and last delta are the rewriter's to keep.
    ours = build_batch(
        [Record(key=b"b", value=None, timestamp=T + 1, offset=51)],
        BatchOptions(delete_horizon_ms=T + 1000 + 86_400_000, leader_epoch=2),
    )
    assert ours[61:65] == DELETE_HORIZON[61:65]


def test_restamp_equals_kafkas_bytes_and_leaves_the_records() -> None:
    batch = bytearray(build_batch([Record(key=b"k", value=b"v", timestamp=T)]))
    before = bytes(batch)
    assert assign_offsets(batch, next_offset=1234, leader_epoch=9) == 1235
    assert batch[16:] == before[16:]  # outside offset, length and epoch nothing changes
    set_append_time(batch, 0, T + 777)
    assert batch[: len(RESTAMPED)] == RESTAMPED
    assert batch[61:] == before[61:]
    (record,) = decode_records(batch)
    assert (record.offset, record.timestamp) == (1234, T + 777)
    assert record.timestamp_type is TimestampType.APPEND_TIME


def test_offsets_and_sequences_run_on_from_batch_to_batch() -> None:
    options = BatchOptions(batch_bytes=40, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    builder = BatchBuilder(options, next_offset=10)
    builder.append(rows_of_records([Record(value=b"x" * 20) for _ in range(4)]))
    headers = list(scan_batches(builder.out, check=STRICT | Check.CONTIGUOUS))
    assert [h.base_offset for h in headers] == [10, 11, 12, 13]
    assert [h.base_sequence for h in headers] == [2**31 - 2, 2**31 - 1, 0, 1]
    assert builder.next_offset == 14


def test_own_offsets_are_kept_with_their_gaps() -> None:
    records = [Record(value=b"v", offset=offset) for offset in (5, 9, 2**31 + 100)]
    builder = BatchBuilder()
    builder.append(rows_of_records(records))
    headers = list(scan_batches(builder.out, check=STRICT))
    # the third lies beyond 32 bits of the first, so it begins a batch
    assert [(h.base_offset, h.last_offset) for h in headers] == [(5, 9), (2**31 + 100,) * 2]
    assert [record.offset for record in decode_records(builder.out)] == [5, 9, 2**31 + 100]


@pytest.mark.parametrize(
    ("offsets", "said"),
    [((5, 5), "not above"), ((5, 4), "not above")],
)
def test_offsets_out_of_order_are_refused_and_nothing_is_left(
    offsets: tuple[int, ...], said: str
) -> None:
    builder = BatchBuilder()
    with pytest.raises(InvalidRecordError, match=said):
        builder.append(rows_of_records([Record(value=b"v", offset=o) for o in offsets]))
    assert builder.out == b""


def test_append_pauses_when_out_is_full_and_goes_on() -> None:
    rows = rows_of_records([Record(value=b"x" * 100) for _ in range(50)])
    builder = BatchBuilder(BatchOptions(batch_bytes=300))
    pieces = []
    row = 0
    while row < rows.count:
        row = builder.append(rows, row=row, out_bytes_max=1000)
        pieces.append(bytes(builder.out))
        builder.out.clear()
    assert len(pieces) > 5
    assert [r.offset for r in decode_records(b"".join(pieces))] == list(range(50))


def test_a_record_larger_than_the_target_stands_alone() -> None:
    records = [Record(value=b"s"), Record(value=b"x" * 200_000), Record(value=b"s")]
    builder = BatchBuilder(BatchOptions(batch_bytes=1000))
    builder.append(rows_of_records(records))
    assert [h.record_count for h in scan_batches(builder.out, check=STRICT)] == [1, 1, 1]


@given(
    st.lists(
        st.builds(
            Record,
            key=st.none() | st.binary(max_size=30),
            value=st.none() | st.binary(max_size=3000),
            timestamp=st.integers(-(2**63), 2**63 - 1),
            headers=st.lists(
                st.builds(RecordHeader, st.text(max_size=5), st.none() | st.binary(max_size=9)),
                max_size=3,
            ).map(tuple),
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(Codec),
    st.integers(1, 5000),
)
def test_what_was_built_is_read_back(records: list[Record], codec: Codec, size: int) -> None:
    builder = BatchBuilder(BatchOptions(codec=codec, batch_bytes=size), next_offset=7)
    builder.append(rows_of_records(records))
    scan = scan_batches(builder.out, check=STRICT | Check.CONTIGUOUS, expected_offset=7)
    assert sum(header.record_count for header in scan) == len(records)
    assert scan.end.ending == Ending.END
    read = list(decode_records(builder.out))
    assert [(r.key, r.value, r.timestamp, r.headers) for r in read] == [
        (r.key, r.value, r.timestamp, r.headers) for r in records
    ]
    assert [r.offset for r in read] == list(range(7, 7 + len(records)))


def test_no_records_are_refused() -> None:
    with pytest.raises(InvalidRecordError, match="at least one"):
        build_batch([])


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="64 bits"):
        build_batch([Record(value=b"", timestamp=2**63)])
