"""Messages of magic 0 and 1 are written as Kafka's own classes write them, and read back."""

from __future__ import annotations

import pytest

from stratalog.errors import CorruptionError, InvalidRecordError, UsageError
from stratalog.records.builder import rows_of_records
from stratalog.records.columns import decode_records
from stratalog.records.layout import Check, Codec, TimestampType
from stratalog.records.legacy import MessageBuilder, MessageOptions, build_messages
from stratalog.records.model import Record, RecordHeader
from stratalog.records.restamp import assign_message_offset, set_append_time
from stratalog.records.scan import STRICT, scan_batches

T = 1_700_000_000_000

# Written by Apache Kafka's own record classes.
V0 = bytes.fromhex("0000000000000000 00000010 1fecd70a 00 00 00000001 6b 00000001 76")
V0_NULLS = bytes.fromhex("0000000000000009 0000000e a7ec6803 00 00 ffffffff ffffffff")
V1 = bytes.fromhex("0000000000000000 00000017 c1672ac5 01 00 0000018bcfe56800 ffffffff 00000001 76")
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def test_plain_messages_equal_kafkas_bytes() -> None:
    magic0 = MessageOptions(magic=0)
    assert build_messages([Record(key=b"k", value=b"v")], magic0) == V0
    assert build_messages([Record(value=None)], magic0, base_offset=9) == V0_NULLS
    assert build_messages([Record(value=b"v", timestamp=T)], MessageOptions(magic=1)) == V1


def test_wrapper_has_the_last_offset_and_the_largest_timestamp() -> None:
    records = [Record(value=b"v", timestamp=T), Record(value=b"w", timestamp=T + 5)]
    wrapper = build_messages(records, MessageOptions(magic=1, codec=Codec.GZIP), base_offset=10)
    (header,) = scan_batches(wrapper, check=STRICT)
    assert header.is_wrapper
    assert (header.last_offset, header.max_timestamp) == (11, T + 5)
    assert (header.base_offset, header.record_count) == (-1, -1)  # only its contents tell
    assert [r.offset for r in decode_records(wrapper)] == [10, 11]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_written_messages_are_read_back_with_their_gaps(magic: int, codec: Codec) -> None:
    records = [
        Record(
            key=None if i % 3 else b"k%d" % i, value=b"v" * (i * 37), timestamp=T + i, offset=4 * i
        )
        for i in range(40)
    ]
    built = build_messages(records, MessageOptions(magic=magic, codec=codec, wrapper_bytes=3000))
    read = list(decode_records(built))
    assert [(r.offset, r.key, r.value) for r in read] == [
        (r.offset, r.key, r.value) for r in records
    ]
    assert [r.timestamp for r in read] == [T + i if magic else -1 for i in range(40)]
    kinds = {r.timestamp_type for r in read}
    assert kinds == {TimestampType.CREATE_TIME if magic else TimestampType.NONE}


@pytest.mark.parametrize("codec", CODECS)
def test_append_time_stands_for_every_message(codec: Codec) -> None:
    records = [Record(value=b"v", timestamp=T + i) for i in range(5)]
    built = build_messages(records, MessageOptions(magic=1, codec=codec, append_time=T + 99))
    read = list(decode_records(built))
    assert {(r.timestamp, r.timestamp_type) for r in read} == {(T + 99, TimestampType.APPEND_TIME)}


def test_set_append_time_in_place() -> None:
    data = bytearray(build_messages([Record(value=b"v", timestamp=T)], MessageOptions(magic=1)))
    set_append_time(data, 0, T + 1)
    (record,) = decode_records(data)
    assert (record.timestamp, record.timestamp_type) == (T + 1, TimestampType.APPEND_TIME)
    with pytest.raises(CorruptionError, match="no timestamps"):
        set_append_time(bytearray(V0), 0, T)


def test_assign_message_offset_moves_a_wrapper() -> None:
    records = [Record(value=b"%d" % i, timestamp=T) for i in range(3)]
    data = bytearray(build_messages(records, MessageOptions(magic=1, codec=Codec.LZ4)))
    assign_message_offset(data, 0, 102)
    assert [r.offset for r in decode_records(data)] == [100, 101, 102]
    with pytest.raises(CorruptionError):
        assign_message_offset(data, 0, -1)


def test_a_wrapper_that_kept_offset_zero_is_read_by_its_inner_offsets() -> None:
    records = [Record(value=b"%d" % i, timestamp=T) for i in range(3)]
    data = bytearray(build_messages(records, MessageOptions(magic=1, codec=Codec.SNAPPY)))
    assign_message_offset(data, 0, 0)
    assert [r.offset for r in decode_records(data)] == [0, 1, 2]


def test_headers_zstd_and_append_time_of_magic_0_are_refused() -> None:
    with_headers = [Record(value=b"v", headers=(RecordHeader("h", b"x"),))]
    with pytest.raises(InvalidRecordError, match="no record headers"):
        build_messages(with_headers)
    with pytest.raises(UsageError, match="zstd"):
        MessageOptions(codec=Codec.ZSTD)
    with pytest.raises(UsageError, match="no timestamps"):
        MessageOptions(magic=0, append_time=5)
    with pytest.raises(UsageError, match="not 2"):
        MessageOptions(magic=2)


def test_a_nested_wrapper_is_refused() -> None:
    inner = build_messages([Record(value=b"v")], MessageOptions(magic=0, codec=Codec.GZIP))
    from stratalog.records.compression import compress
    from stratalog.records.kernel import crc32

    value = bytes(compress(Codec.GZIP, inner, magic=0))
    body = b"\x00\x01" + b"\xff" * 4 + len(value).to_bytes(4, "big") + value
    outer = bytes(8) + (len(body) + 4).to_bytes(4, "big") + crc32(body).to_bytes(4, "big") + body
    with pytest.raises(CorruptionError) as raised:
        list(decode_records(outer))
    assert raised.value.reason == "nested_compression"


def test_builder_carries_offsets_from_call_to_call() -> None:
    builder = MessageBuilder(MessageOptions(magic=1, codec=Codec.GZIP), next_offset=5)
    for _ in range(3):
        builder.append(rows_of_records([Record(value=b"a", timestamp=T)] * 2))
    assert [r.offset for r in decode_records(builder.out)] == list(range(5, 11))
    scan = scan_batches(builder.out, check=STRICT | Check.CONTIGUOUS)
    assert len(list(scan)) == 3
