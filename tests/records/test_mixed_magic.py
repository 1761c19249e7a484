"""Logs that mix the formats read as one, in whatever order they come; and all of them become magic 2.

Up-conversion keeps offsets, timestamps, keys and values. What cannot be kept: magic 0 has no timestamps, so
its records become CREATE_TIME with timestamp -1, as Kafka itself converts them; and a 0.7 record has no
number of its own, so they are numbered anew.
"""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from stratalog.errors import CorruptionError, UsageError
from stratalog.records import kernel
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.columns import Selection, decode_records
from stratalog.records.compression import compress
from stratalog.records.convert import up_convert, up_convert_v07
from stratalog.records.layout import Check, Codec, Column, Ending, TimestampType
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import BatchHeader, Record, RecordHeader
from stratalog.records.scan import STRICT, scan_batches
from stratalog.records.v07 import build_entries
from tests.judges.peers.golden import GoldenSet, golden_sets

CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
OLD_SETS = [golden for golden in golden_sets() if golden.name.startswith(("v0-", "v1-", "mixed"))]
V07_SETS = golden_sets("v07-")


def some_records(first: int, count: int, *, headers: bool = False) -> list[Record]:
    return [
        Record(
            offset=first + i,
            timestamp=1_700_000_000_000 - 1000 * i,
            key=(None, b"", b"key %d" % i)[i % 3],
            value=(b"value %d " % i * 9, None, b"")[i % 3],
            headers=(RecordHeader(f"h{i}", None),) if headers else (),
        )
        for i in range(count)
    ]


def write(magic: int, codec: Codec, records: Sequence[Record]) -> bytes:
    if magic == 2:
        return build_batch(records, BatchOptions(codec=codec, leader_epoch=3))
    return build_messages(records, MessageOptions(magic=magic, codec=codec))


def seen(magic: int, records: Iterable[Record]) -> list[Record]:
    """The records as a reader must see them: magic 0 stores no timestamp."""
    if magic:
        return list(records)
    return [replace(r, timestamp=-1, timestamp_type=TimestampType.NONE) for r in records]


def converted(records: Iterable[Record]) -> list[Record]:
    """The records after up-conversion: magic 2 knows no third timestamp type."""
    return [
        replace(record, timestamp_type=TimestampType.CREATE_TIME)
        if record.timestamp_type == TimestampType.NONE
        else record
        for record in records
    ]


def headers_of(region: bytes) -> list[BatchHeader]:
    """Every header, by a strict scan that must come to a clean end."""
    scan = scan_batches(region, check=STRICT)
    headers = list(scan)
    assert scan.end.ending == Ending.END, scan.end
    return headers


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations((0, 1, 2))), ids=str)
def test_magics_in_any_order_read_equal(order: tuple[int, int, int]) -> None:
    for codecs in itertools.product(CODECS, repeat=3):
        log = b""
        wanted = []
        for number, (magic, codec) in enumerate(zip(order, codecs, strict=True)):
            records = some_records(10 * number, 4, headers=magic == 2)
            log += write(magic, codec, records)
            wanted += seen(magic, records)
        assert list(decode_records(log)) == wanted
        magics = [header.magic for header in headers_of(log)]
        assert list(dict.fromkeys(magics)) == list(order)


def test_many_small_entries_of_all_kinds_read_equal_through_full_columns() -> None:
    """Every kind after every other kind, and columns that fill up in the middle of all that."""
    kinds = [(m, c) for m in (0, 1, 2) for c in CODECS] + [(2, Codec.ZSTD)]
    log = bytearray()
    wanted = []
    offset = 0
    for pair in itertools.product(kinds, repeat=2):
        for magic, codec in pair:
            records = some_records(offset, 1 + offset % 5, headers=magic == 2)
            log += write(magic, codec, records)
            wanted += seen(magic, records)
            offset += len(records)
    assert list(decode_records(bytes(log))) == wanted
    columns = (
        Column.OFFSET
        | Column.TIMESTAMP_MS
        | Column.TIMESTAMP_TYPE
        | Column.KEY
        | Column.VALUE
        | Column.HEADERS
    )
    check = Check.CRC | Check.ORDER | Check.CONTIGUOUS
    for batch_rows in (1, 2, 7, 100):
        selection = Selection(columns=columns, batch_rows=batch_rows, check=check)
        assert list(decode_records(bytes(log), selection)) == wanted


# --- up-conversion -------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
@pytest.mark.parametrize("magic", [0, 1])
def test_up_conversion_keeps_offsets_timestamps_keys_and_values(magic: int, codec: Codec) -> None:
    records = [replace(r, offset=r.offset * 3 + 2**40) for r in some_records(0, 20)]
    region = write(magic, codec, records)
    batches = up_convert(region)
    assert list(decode_records(batches)) == converted(seen(magic, records))
    headers = headers_of(batches)
    assert {(header.magic, header.codec) for header in headers} == {(2, codec)}
    assert headers[0].base_offset == records[0].offset
    assert headers[-1].last_offset == records[-1].offset


def test_up_conversion_of_a_wrapper_gives_one_batch() -> None:
    wrappers = b"".join(write(1, Codec.GZIP, some_records(10 * i, 5)) for i in range(3))
    assert [h.record_count for h in headers_of(up_convert(wrappers))] == [5, 5, 5]


def test_up_conversion_takes_magic_2_over_byte_by_byte() -> None:
    control = build_batch(some_records(6, 1), BatchOptions(is_control=True, producer_id=7))
    plain = write(2, Codec.ZSTD, some_records(7, 5, headers=True))
    assert up_convert(control + plain) == control + plain
    mixed = write(0, Codec.GZIP, some_records(0, 6)) + control + plain
    assert up_convert(mixed).endswith(control + plain)
    assert up_convert(up_convert(mixed)) == up_convert(mixed)


def test_up_conversion_may_name_another_codec_and_level() -> None:
    region = write(1, Codec.SNAPPY, some_records(0, 40)) + write(
        0, Codec.NONE, some_records(40, 40)
    )
    batches = up_convert(region, BatchOptions(codec=Codec.ZSTD, level=3, leader_epoch=4))
    assert {(header.codec, header.leader_epoch) for header in headers_of(batches)} == {(4, 4)}
    wanted = some_records(0, 40) + converted(seen(0, some_records(40, 40)))
    assert list(decode_records(batches)) == wanted


def messages_at(times: Sequence[int | None]) -> tuple[bytes, list[Record]]:
    """Three plain messages of each append time (None: their own times), and what a reader sees."""
    region = b""
    wanted = []
    for number, time in enumerate(times):
        records = some_records(3 * number, 3)
        region += build_messages(records, MessageOptions(magic=1, append_time=time))
        if time is not None:
            kind = TimestampType.APPEND_TIME
            records = [replace(r, timestamp=time, timestamp_type=kind) for r in records]
        wanted += records
    assert list(decode_records(region)) == wanted
    return region, wanted


def test_up_conversion_keeps_append_times_and_where_they_change() -> None:
    region, wanted = messages_at([5000, 5000, None, 6000, 6000, None, None, 0, None, -7, -7])
    assert list(decode_records(up_convert(region))) == wanted


@pytest.mark.parametrize("times", [[-1, None], [None, -1]], ids=str)
def test_up_conversion_keeps_an_append_time_of_minus_one_apart(times: list[int | None]) -> None:
    """-1 is a time like another here, not "none": beside it the records' own times stay."""
    region, wanted = messages_at(times)
    assert list(decode_records(up_convert(region))) == wanted


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_up_conversion_keeps_append_times_of_wrappers(codec: Codec) -> None:
    region = build_messages(
        some_records(0, 9), MessageOptions(magic=1, codec=codec, append_time=77)
    )
    (header,) = headers_of(up_convert(region))
    assert (header.timestamp_type, header.max_timestamp) == (TimestampType.APPEND_TIME, 77)
    assert {record.timestamp for record in decode_records(up_convert(region))} == {77}


def test_up_conversion_splits_long_runs_and_wide_gaps() -> None:
    records = [Record(value=b"v", offset=i * 2**30) for i in range(9)]  # 2**31 in two steps
    batches = up_convert(write(1, Codec.NONE, records))
    assert list(decode_records(batches)) == records
    assert len(headers_of(batches)) > 1
    many = [Record(value=b"v%d" % i, offset=i, timestamp=i) for i in range(10_000)]
    batches = up_convert(write(1, Codec.NONE, many), BatchOptions(batch_bytes=1000))
    assert list(decode_records(batches)) == many
    assert max(header.size_bytes for header in headers_of(batches)) <= 1061


def test_up_conversion_refuses_what_is_damaged_or_cut() -> None:
    region = bytearray(write(0, Codec.NONE, some_records(0, 3)))
    with pytest.raises(CorruptionError) as caught:
        up_convert(region[:-1])
    assert caught.value.reason == "short_tail"
    region[-1] ^= 1
    with pytest.raises(CorruptionError) as caught:
        up_convert(region)
    assert caught.value.reason == "crc_mismatch"


def test_up_conversion_names_the_position_in_the_region_of_damage_inside_a_wrapper() -> None:
    plain = write(1, Codec.NONE, some_records(0, 2))
    inner = bytearray(build_messages(some_records(0, 2), MessageOptions(magic=1)))
    inner[12] ^= 1  # the first message's CRC
    wrapper = _wrap(bytes(inner), offset=5)
    with pytest.raises(CorruptionError) as caught:
        up_convert(plain + wrapper)
    assert (caught.value.reason, caught.value.position) == ("crc_mismatch", len(plain))


def _wrap(inner: bytes, offset: int) -> bytes:
    value = bytes(compress(Codec.GZIP, inner))
    body = struct.pack(">BBqii", 1, Codec.GZIP, 1, -1, len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(body), kernel.crc32(body)) + body


# --- golden data ---------------------------------------------------------------------------------


def decode_all(region: bytes, **options: Any) -> list[Record]:
    return list(decode_records(region, **options))


def check_converted(records: list[Record], batches: bytes) -> list[BatchHeader]:
    headers = headers_of(batches)
    assert {header.magic for header in headers} <= {2}
    assert decode_all(batches) == converted(records)
    assert sum(header.record_count for header in headers if not header.is_control) == len(records)
    return headers


@pytest.mark.parametrize("golden", OLD_SETS, ids=[golden.name for golden in OLD_SETS])
def test_golden_segments_up_convert_to_the_same_records(golden: GoldenSet) -> None:
    seen_magics = Counter[int]()
    for partition in golden.partitions():
        for segment in partition.segments:
            region = segment.read_bytes()
            records = decode_all(region)
            seen_magics.update(header.magic for header in scan_batches(region))
            codecs = {header.codec for header in scan_batches(region)}
            headers = check_converted(records, up_convert(region))
            assert {header.codec for header in headers} <= codecs
            check_converted(records, up_convert(region, BatchOptions(codec=Codec.ZSTD)))
    magics = {0, 1, 2} if golden.name.startswith("mixed") else {int(golden.name[1])}
    assert set(seen_magics) == magics


@pytest.mark.parametrize("golden", V07_SETS, ids=[golden.name for golden in V07_SETS])
def test_golden_0_7_files_up_convert_with_offsets_numbered_anew(golden: GoldenSet) -> None:
    for partition in golden.partitions():
        next_offset = 1000
        for segment in partition.segments:
            region = segment.read_bytes()
            base = int(segment.stem)
            old = decode_all(region, v07_base_offset=base)
            batches = up_convert_v07(
                region,
                BatchOptions(codec=Codec.LZ4),
                first_offset=next_offset,
                base_position=base,
            )
            wanted = [replace(r, offset=next_offset + i) for i, r in enumerate(old)]
            headers = check_converted(wanted, batches)
            scan = scan_batches(
                batches, check=STRICT | Check.CONTIGUOUS, expected_offset=next_offset
            )
            assert list(scan) == headers
            assert scan.end.ending == Ending.END
            next_offset += len(old)
        assert next_offset == 1000 + len(golden.expected())


def test_0_7_up_conversion_of_wrappers_numbers_every_message() -> None:
    values = [b"value %d" % i for i in range(50)]
    region = build_entries(values[:30], codec=Codec.GZIP, wrapper_bytes=100)
    region += build_entries(values[30:], magic=0)
    records = decode_all(up_convert_v07(region, first_offset=7))
    assert [(r.offset, r.value, r.key, r.timestamp) for r in records] == [
        (7 + i, value, None, -1) for i, value in enumerate(values)
    ]
    with pytest.raises(CorruptionError):
        up_convert_v07(region[:-1])


def test_writers_refuse_what_a_format_cannot_hold() -> None:
    with pytest.raises(UsageError):
        MessageOptions(magic=1, codec=Codec.ZSTD)
    with pytest.raises(UsageError):
        MessageOptions(magic=0, append_time=5)
    with pytest.raises(UsageError):
        MessageOptions(magic=2)
