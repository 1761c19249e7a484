"""Append as the leader: what Kafka's analysis and validation refuse, stamp, correct and recompress (parts 4.2
and 4.3 of the facts), seen through a log.

Every refusal must leave the log as it was, and able to take the next append.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stratalog.errors import (
    BatchTooLargeError,
    CorruptionError,
    FencedProducerError,
    InvalidRecordError,
    InvalidTimestampError,
    OffsetOrderError,
    OutOfOrderSequenceError,
    StratalogError,
    TransactionStateError,
    UsageError,
)
from stratalog.records.builder import BatchOptions, build_batch, empty_batch
from stratalog.records.control import ControlType, build_marker
from stratalog.records.layout import (
    APPEND_TIME_MASK,
    ATTRIBUTES_AT,
    BATCH_HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    RECORD_COUNT_AT,
    Codec,
    TimestampType,
)
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record, RecordHeader
from stratalog.records.scan import STRICT, scan_batches
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.producers.states import Origin
from stratalog.storage.views.log_view import Isolation
from stratalog.testing.clock import ManualClock
from tests.inspect.logs import sealed
from tests.storage.logs import (
    ALL_CODECS,
    T,
    batch,
    crash,
    end_txn,
    headers,
    in_txn,
    log_bytes,
    offsets,
    open_log,
    plain,
    records,
    reopen,
    sent,
    small,
    values,
)

NAMES = {
    Codec.NONE: "uncompressed",
    Codec.GZIP: "gzip",
    Codec.SNAPPY: "snappy",
    Codec.LZ4: "lz4",
    Codec.ZSTD: "zstd",
}
RECORDS = [
    Record(b"value %d " % i * 20, b"key %d" % (i % 3), T + 7 * i, (RecordHeader("h", b"%d" % i),))
    for i in range(12)
]


def patched(data: bytes, at: int, form: str, value: int) -> bytes:
    """A header field changed, and the CRC right again."""
    out = bytearray(data)
    struct.pack_into(form, out, at, value)
    return sealed(bytes(out))


def whole(log: PartitionLog) -> bytes:
    """The log's bytes, every CRC and count checked."""
    data = log_bytes(log)
    list(scan_batches(data, check=STRICT))
    return data


# --- stamping ------------------------------------------------------------------------------------


def test_offsets_and_epochs_are_stamped_and_the_rest_stays(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    first, second = batch(b"a", b"b", b"c"), batch(b"d")
    assert log.append(first, leader_epoch=4)[:4] == (0, 2, -1, 0)
    assert log.append(second, leader_epoch=7)[:4] == (3, 3, -1, 0)
    data = whole(log)
    assert data[12 + 4 : len(first)] == first[12 + 4 :]
    assert [(h.base_offset, h.last_offset, h.leader_epoch) for h in headers(data)] == [
        (0, 2, 4),
        (3, 3, 7),
    ]
    assert log.epochs == ((4, 0), (7, 3))
    assert (log.log_end, log.high_watermark, log.size_bytes) == (4, 0, len(data))
    log.close()


def test_bytes_are_not_touched_and_a_bytearray_is_stamped_in_place(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(batch(b"x", b"y"))
    data = batch(b"a")
    kept = bytes(data)
    log.append(data, leader_epoch=9)
    log.append(memoryview(data), leader_epoch=9)
    assert data == kept
    own = bytearray(data)
    log.append(own, leader_epoch=9)
    (header,) = headers(bytes(own))
    assert (header.base_offset, header.leader_epoch) == (4, 9)
    shared = bytearray(data)
    log.append(memoryview(shared), leader_epoch=9)
    assert headers(bytes(shared))[0].base_offset == 5
    assert values(log) == [b"x", b"y", b"a", b"a", b"a", b"a"]
    log.close()


def test_many_batches_go_in_as_one_append(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(batch(b"first"))
    data = batch(b"a", b"b") + batch(b"c") + batch(b"d", b"e", b"f", codec=Codec.ZSTD)
    assert log.append(data, leader_epoch=2)[:2] == (1, 6)
    # Batches that a builder has numbered on are as good as ones that all count from zero.
    numbered = batch(b"g", b"h") + batch(b"i", base_offset=2)
    assert log.append(numbered)[:2] == (7, 9)
    assert [h.base_offset for h in headers(whole(log))] == [0, 1, 3, 4, 7, 9]
    assert offsets(log) == list(range(10))
    log.close()


def test_threads_get_offsets_of_their_own(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"internal.segment.bytes": 3000, "index.interval.bytes": 0})
    got: list[tuple[int, bytes]] = []

    def work(number: int) -> None:
        for each in range(40):
            value = b"%d %d" % (number, each)
            got.append((log.append(batch(value)).first_offset, value))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(offset for offset, _ in got) == list(range(240))
    assert values(log) == [value for _, value in sorted(got)]
    log.close()


def test_offsets_come_to_an_end(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_start=2**63 - 3)
    log.append(batch(b"a"))
    with pytest.raises(OffsetOrderError, match="no offsets are left"):
        log.append(batch(b"b", b"c", b"d"))
    log.append(batch(b"b"))
    with pytest.raises(OffsetOrderError, match="9223372036854775807"):
        log.append(batch(b"c"))
    for again in (reopen, crash):
        log = again(log)
        assert (log.log_end, values(log)) == (2**63 - 1, [b"a", b"b"])
    log.close()


def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.close()
    log.close()
    with pytest.raises(UsageError, match="closed"):
        log.append(batch(b"a"))


# --- refusals ------------------------------------------------------------------------------------


def empty() -> bytes:
    (header,) = headers(batch(b"a"))
    return empty_batch(header)


def damaged_inside(codec: Codec) -> bytes:
    """The CRC is right; what it covers is not what the codec made."""
    data = bytearray(batch(b"value " * 50, codec=codec))
    data[BATCH_HEADER_SIZE:] = bytes([0xA5]) * (len(data) - BATCH_HEADER_SIZE)
    return sealed(bytes(data))


REFUSALS: dict[str, tuple[type[StratalogError], str, Callable[[], bytes]]] = {
    "nothing": (InvalidRecordError, "at least one", lambda: b""),
    "base offset": (InvalidRecordError, "counts from 0", lambda: batch(b"a", base_offset=3)),
    "second base offset": (
        InvalidRecordError, "counts from 0", lambda: batch(b"a") + batch(b"b", base_offset=7),
    ),
    "more records than offsets": (
        InvalidRecordError, "record count",
        lambda: patched(batch(b"a", b"b"), LAST_OFFSET_DELTA_AT, ">i", 0),
    ),
    "is not a range of offsets": (
        InvalidRecordError, "last offset delta",
        lambda: patched(batch(b"a", b"b"), LAST_OFFSET_DELTA_AT, ">i", -1),
    ),
    "negative base offset": (
        InvalidRecordError, "offset", lambda: b"\xff" * 8 + batch(b"a")[8:],
    ),
    "a count that was changed on the way": (
        CorruptionError, "record count",
        lambda: batch(b"a")[:RECORD_COUNT_AT] + b"\1" + batch(b"a")[RECORD_COUNT_AT + 1 :],
    ),
    "more offsets than records": (
        InvalidRecordError, "last offset delta 2",
        lambda: patched(batch(b"a", b"b"), LAST_OFFSET_DELTA_AT, ">i", 2),
    ),
    "a count that is not true": (
        InvalidRecordError, "record count", lambda: patched(batch(b"a", b"b"), RECORD_COUNT_AT, ">i", 3),
    ),
    "negative count": (
        InvalidRecordError, "record count", lambda: patched(batch(b"a"), RECORD_COUNT_AT, ">i", -1),
    ),
    "no records": (InvalidRecordError, "of 0 records", empty),
    "control": (InvalidRecordError, "control", lambda: batch(b"a", is_control=True)),
    "no sequence": (
        InvalidRecordError, "numbers its batches",
        lambda: batch(b"a", producer_id=7, producer_epoch=0),
    ),
    "crc": (CorruptionError, "crc", lambda: batch(b"a")[:-1] + b"\x55"),
    "cut short": (CorruptionError, "is incomplete", lambda: batch(b"a")[:-1]),
    "magic": (CorruptionError, "magic", lambda: patched(batch(b"a"), MAGIC_AT, ">b", 3)),
    "unknown codec": (
        InvalidRecordError, "codec", lambda: patched(batch(b"a"), ATTRIBUTES_AT, ">h", 6),
    ),
    "too large": (BatchTooLargeError, "max.message.bytes=1000", lambda: batch(bytes(1000))),
    "second too large": (
        BatchTooLargeError, "max.message.bytes=1000", lambda: batch(b"a") + batch(bytes(1000)),
    ),
    "all too large": (
        BatchTooLargeError, "segment.bytes=2000", lambda: batch(bytes(800)) + batch(bytes(800)) * 2,
    ),
    "large old message": (
        BatchTooLargeError, "max.message.bytes=1000",
        lambda: build_messages([Record(bytes(2000))], MessageOptions(magic=0)),
    ),
    "formats mixed": (
        InvalidRecordError, "different formats",
        lambda: build_messages([Record(b"a")], MessageOptions(magic=1)) + batch(b"b"),
    ),
    "two wrappers": (
        InvalidRecordError, "comes alone",
        lambda: build_messages([Record(b"a")], MessageOptions(magic=1, codec=Codec.GZIP)) * 2,
    ),
    **{
        f"damaged {codec.name}": (
            InvalidRecordError, "invalid batch", partial(damaged_inside, codec),
        )
        for codec in ALL_CODECS
    },
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_what_kafka_refuses_is_refused_and_nothing_is_written(tmp_path: Path, case: str) -> None:
    kind, match, build = REFUSALS[case]
    configs = {"max.message.bytes": 1000, "internal.segment.bytes": 2000}
    log = open_log(tmp_path, configs)
    log.append(batch(b"before"))
    before = whole(log)
    with pytest.raises(kind, match=match):
        log.append(build())
    assert (whole(log), log.log_end, log.failure) == (before, 1, None)
    assert log.append(batch(b"after")).first_offset == 1
    assert values(log) == [b"before", b"after"]
    log.close()


def test_a_batch_of_the_largest_size_is_taken(tmp_path: Path) -> None:
    data = batch(bytes(931))
    log = open_log(tmp_path, {"max.message.bytes": len(data), "internal.segment.bytes": len(data)})
    log.append(data)
    log.append(data)
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    log.close()


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_a_compacted_topic_needs_keys(tmp_path: Path, codec: Codec) -> None:
    log = open_log(tmp_path, {"cleanup.policy": "compact,delete"})
    mixed = [Record(b"a", b"k"), Record(b"b"), Record(b"c", b""), Record(b"d")]
    with pytest.raises(InvalidRecordError, match="no key") as caught:
        log.append(build_batch(mixed, BatchOptions(codec=codec)))
    assert not isinstance(caught.value, InvalidTimestampError)
    assert [row for row, _ in caught.value.record_errors] == [1, 3]
    log.append(build_batch(mixed[::2], BatchOptions(codec=codec)))  # an empty key is a key
    with pytest.raises(InvalidRecordError, match="no key"):
        log.append(build_messages([Record(b"v")], MessageOptions(magic=0)))
    assert log.log_end == 2
    log.close()


# --- timestamps ----------------------------------------------------------------------------------


def test_a_wrong_largest_timestamp_is_corrected(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for wrong in (0, T, T + 10**9, -1, 2**62):
        data = batch(b"a", b"b", timestamp=[T + 5, T + 3])
        log.append(patched(data, MAX_TIMESTAMP_AT, ">q", wrong))
    assert {header.max_timestamp for header in headers(whole(log))} == {T + 5}
    assert [record.timestamp for record in records(log)] == [T + 5, T + 3] * 5
    log.close()


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_times_below_zero_are_taken_and_the_largest_is_minus_one(
    tmp_path: Path, codec: Codec
) -> None:
    log = open_log(tmp_path)
    log.append(batch(b"a", b"b", b"c", timestamp=[-7, -3, -9], codec=codec))
    assert headers(whole(log))[0].max_timestamp == -1
    assert [record.timestamp for record in records(log)] == [-7, -3, -9]
    log.close()


def test_the_smallest_time_is_refused_unless_any_future_is_allowed(tmp_path: Path) -> None:
    """The difference to now overflows 64 bits, in Kafka as here."""
    data = batch(b"a", timestamp=-(2**63))
    log = open_log(tmp_path / "default")
    with pytest.raises(InvalidTimestampError):
        log.append(data)
    log.close()
    log = open_log(tmp_path / "any", {"message.timestamp.after.max.ms": 2**63 - 1})
    log.append(data)
    assert records(log)[0].timestamp == -(2**63)
    log.close()


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_times_outside_the_limits_are_told_record_by_record(tmp_path: Path, codec: Codec) -> None:
    limits = {"message.timestamp.before.max.ms": 1000, "message.timestamp.after.max.ms": 500}
    log = open_log(tmp_path, limits)
    times = [T, T - 1001, T + 500, T + 501, -1, T - 1000]
    with pytest.raises(InvalidTimestampError) as caught:
        log.append(batch(*[b"v"] * 6, timestamp=times, codec=codec))
    errors = dict(caught.value.record_errors)
    assert set(errors) == {1, 3}
    assert "before.max.ms" in errors[1]
    assert "after.max.ms" in errors[3]
    assert log.log_end == 0
    fine = [time for at, time in enumerate(times) if at not in errors]
    log.append(batch(*[b"v"] * 4, timestamp=fine, codec=codec))
    log.close()


def test_a_wrong_time_weighs_more_than_a_missing_key(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"cleanup.policy": "compact"})
    data = build_batch([Record(b"a", timestamp=T), Record(b"b", b"k", T + 10**10)])
    with pytest.raises(InvalidTimestampError) as caught:
        log.append(data)
    assert [row for row, _ in caught.value.record_errors] == [0, 1]
    log.close()


@pytest.mark.parametrize("codec", ALL_CODECS)
@pytest.mark.parametrize("target", ["producer", "zstd", "uncompressed"])
def test_append_time_is_the_logs_and_the_records_keep_theirs(
    tmp_path: Path, codec: Codec, target: str
) -> None:
    clock = ManualClock()
    configs = {"message.timestamp.type": "LogAppendTime", "compression.type": target}
    log = open_log(tmp_path, configs, clock=clock)
    clock.advance(12345)
    # Neither the limits nor the producers' own times count.
    data = batch(b"a", b"b", timestamp=[T + 10**12, 5], codec=codec)
    assert log.append(data).append_time == T + 12345
    (header,) = headers(whole(log))
    assert header.timestamp_type == TimestampType.APPEND_TIME
    assert (header.base_timestamp, header.max_timestamp) == (T + 10**12, T + 12345)
    assert [(r.timestamp, r.timestamp_type) for r in records(log)] == [
        (T + 12345, TimestampType.APPEND_TIME)
    ] * 2
    log.close()


def test_a_producer_may_not_say_append_time(tmp_path: Path) -> None:
    data = batch(b"a", b"b", timestamp=[T, T], append_time=T)
    log = open_log(tmp_path / "append", {"message.timestamp.type": "LogAppendTime"})
    with pytest.raises(InvalidTimestampError) as caught:
        log.append(data)
    assert [row for row, _ in caught.value.record_errors] == [0, 1]
    log.close()
    log = open_log(tmp_path / "create")
    # With a time it is put right silently …
    log.append(data)
    (header,) = headers(whole(log))
    assert not header.attributes & APPEND_TIME_MASK
    # … without, refused; what stands in the records does not count.
    for times in ([T, T], [T, -1], [-1, -7]):
        with pytest.raises(InvalidTimestampError) as caught:
            log.append(batch(b"a", b"b", timestamp=times, append_time=-1))
        assert [row for row, _ in caught.value.record_errors] == [0, 1]
    log.close()


# --- codecs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ALL_CODECS)
@pytest.mark.parametrize("target", ALL_CODECS)
def test_batches_are_stored_in_the_topics_codec(
    tmp_path: Path, source: Codec, target: Codec
) -> None:
    log = open_log(tmp_path, {"compression.type": NAMES[target]})
    options = BatchOptions(
        codec=source, producer_id=5, producer_epoch=1, base_sequence=0, is_transactional=True
    )
    data = build_batch(RECORDS, options)
    log.append(data, leader_epoch=6)
    stored = whole(log)
    (header,) = headers(stored)
    assert header.codec == target
    if source == target:
        assert stored[16:] == data[16:]  # not packed anew: level and framing are the producer's
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 0)
    assert (header.is_transactional, header.leader_epoch) == (True, 6)
    assert [plain(record) for record in records(log)] == RECORDS
    log.close()


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_the_producers_codec_stays_by_default(tmp_path: Path, codec: Codec) -> None:
    log = open_log(tmp_path)
    data = build_batch(RECORDS, BatchOptions(codec=codec))
    log.append(data)
    assert whole(log)[16:] == data[16:]
    log.close()


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_records_that_are_not_numbered_on_are_numbered_anew(tmp_path: Path, codec: Codec) -> None:
    """Coordinators may send such batches: their offsets are given by the log, one after the other."""
    log = open_log(tmp_path)
    log.append(batch(b"x"))
    gaps = [replace(record, offset=3 * at) for at, record in enumerate(RECORDS)]
    data = build_batch(gaps, BatchOptions(codec=codec, producer_id=4, producer_epoch=0))
    result = log.append(data, origin=Origin.COORDINATOR)
    assert result[:2] == (1, 12)
    (_, header) = headers(whole(log))
    assert (header.codec, header.producer_id, header.record_count) == (codec, 4, 12)
    assert [plain(record) for record in records(log, 1)] == RECORDS
    assert offsets(log) == list(range(13))
    log.close()


def test_what_grows_too_large_by_recompression_is_refused(tmp_path: Path) -> None:
    data = batch(b"all the same " * 500, codec=Codec.ZSTD)
    log = open_log(tmp_path, {"compression.type": "uncompressed", "max.message.bytes": 1000})
    assert len(data) < 1000
    with pytest.raises(BatchTooLargeError, match="recompressed"):
        log.append(data)
    assert (log.log_end, log.failure) == (0, None)
    log.close()


def test_a_level_is_used_where_we_compress(tmp_path: Path) -> None:
    value = b"".join(b"%d, %d; " % (i, i * i % 997) for i in range(4000))
    sizes = {}
    for level in (1, 19):
        configs = {"compression.type": "zstd", "compression.zstd.level": level}
        log = open_log(tmp_path / str(level), configs)
        log.append(batch(value))
        sizes[level] = log.size_bytes
        assert values(log) == [value]
        log.close()
    assert sizes[19] < sizes[1]


def test_markers_are_not_compressed(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"compression.type": "gzip"})
    log.append(in_txn(3, 0, b"a"))
    end_txn(log, ControlType.COMMIT, 3)
    data, marker = headers(whole(log))
    assert (data.codec, marker.codec) == (Codec.GZIP, Codec.NONE)
    assert marker.is_control
    log.close()


# --- the old formats -----------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("target", ["producer", "zstd", "uncompressed"])
def test_messages_of_the_old_formats_become_batches(
    tmp_path: Path, magic: int, codec: Codec, target: str
) -> None:
    log = open_log(tmp_path, {"compression.type": target})
    log.append(batch(b"x"))
    old = [replace(record, headers=()) for record in RECORDS]
    options = MessageOptions(magic=magic, codec=codec)
    result = log.append(build_messages(old, options), leader_epoch=3)
    assert result[:2] == (1, 12)
    (_, header) = headers(whole(log))
    assert (header.magic, header.leader_epoch) == (2, 3)
    assert header.codec == {"zstd": Codec.ZSTD, "uncompressed": Codec.NONE}.get(target, codec)
    want = [replace(record, timestamp=-1) for record in old] if magic == 0 else old
    assert [plain(record) for record in records(log, 1)] == want
    log.close()


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_may_all_say_offset_zero(tmp_path: Path, magic: int) -> None:
    """As librdkafka sends them: the log numbers them."""
    log = open_log(tmp_path)
    options = MessageOptions(magic=magic)
    data = b"".join(build_messages([Record(b"%d" % i)], options) for i in range(5))
    log.append(data)
    assert values(log) == [b"0", b"1", b"2", b"3", b"4"]
    assert offsets(log) == [0, 1, 2, 3, 4]
    log.close()


def test_a_wrapper_whose_offset_is_zero_is_taken(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    options = MessageOptions(magic=1, codec=Codec.GZIP)
    data = bytearray(build_messages([Record(b"%d" % i) for i in range(5)], options))
    struct.pack_into(">q", data, 0, 0)
    log.append(data)
    assert values(log) == [b"0", b"1", b"2", b"3", b"4"]
    log.close()


def test_an_old_message_that_says_append_time_is_refused_where_the_log_says_it(
    tmp_path: Path,
) -> None:
    data = build_messages([Record(b"a", timestamp=T)], MessageOptions(magic=1, append_time=T))
    log = open_log(tmp_path, {"message.timestamp.type": "LogAppendTime"})
    with pytest.raises(InvalidTimestampError):
        log.append(data)
    log.close()


# --- producers and transactions ------------------------------------------------------------------


def test_a_duplicate_is_answered_with_its_old_offsets(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"message.timestamp.type": "LogAppendTime"})
    results = [log.append(sent(7, 2 * n, b"a%d" % n, b"b%d" % n)) for n in range(6)]
    size = log.size_bytes
    for n in range(1, 6):
        again = log.append(sent(7, 2 * n, b"a%d" % n, b"b%d" % n))
        assert again == results[n]._replace(is_duplicate=True)
    assert log.size_bytes == size
    with pytest.raises(OutOfOrderSequenceError):  # only the latest five are remembered
        log.append(sent(7, 0, b"a0", b"b0"))
    with pytest.raises(OutOfOrderSequenceError):
        log.append(sent(7, 13, b"gap"))
    assert log.log_end == 12
    log.close()


def test_an_older_epoch_is_fenced_and_a_newer_starts_at_zero(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(sent(7, 0, b"a", producer_epoch=3))
    with pytest.raises(FencedProducerError):
        log.append(sent(7, 1, b"b", producer_epoch=2))
    with pytest.raises(OutOfOrderSequenceError):
        log.append(sent(7, 1, b"b", producer_epoch=4))
    log.append(sent(7, 0, b"b", producer_epoch=4))
    log.append(sent(8, 2**31 - 1, b"wraps"))
    log.append(sent(8, 0, b"around"))
    assert values(log) == [b"a", b"b", b"wraps", b"around"]
    log.close()


def test_the_worked_example_of_the_last_stable_offset(tmp_path: Path) -> None:
    """Part 6.10: two transactions, one aborted, the other committed, and where readers may go."""
    log = open_log(tmp_path)
    log.append(in_txn(1, 0, b"a0", b"a1"))
    log.append(in_txn(2, 0, b"b0"))
    assert end_txn(log, ControlType.ABORT, 1).first_offset == 3
    assert log.segments[-1].aborted == ((1, 0, 3, 2),)

    def stable(high_watermark: int) -> int:
        log.advance_high_watermark(high_watermark)
        return log.last_stable_offset

    assert [stable(hw) for hw in (0, 1, 2, 3)] == [0, 0, 0, 0]
    assert stable(4) == 2
    end_txn(log, ControlType.COMMIT, 2)
    assert log.last_stable_offset == 2
    assert stable(5) == 5
    assert log.read(0, isolation=Isolation.COMMITTED).aborted == ((1, 0, 3, 2),)
    assert values(log, 0, Isolation.COMMITTED) == [b"b0"]
    assert values(log, 0, Isolation.UNCOMMITTED) == [b"a0", b"a1", b"b0"]
    log.close()


def test_a_batch_outside_an_open_transaction_waits(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(in_txn(1, 0, b"a"))
    with pytest.raises(TransactionStateError):
        log.append(sent(1, 1, b"b"))
    end_txn(log, ControlType.COMMIT, 1)
    log.append(sent(1, 1, b"b"))
    assert log.log_end == 3
    log.close()


def test_an_empty_transaction_aborts_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    end_txn(log, ControlType.ABORT, 9)
    assert log.segments[-1].aborted == ()
    log.close()
    assert not list(tmp_path.glob("*.txnindex"))


def test_a_refused_batch_leaves_no_trace_of_its_producer(tmp_path: Path) -> None:
    """Unlike Kafka, which rolls and notes the epoch before it looks at the producer."""
    log = open_log(tmp_path, {"internal.segment.bytes": 200})
    log.append(sent(7, 0, b"a" * 60), leader_epoch=1)
    with pytest.raises(OutOfOrderSequenceError):
        log.append(sent(7, 5, b"b" * 60), leader_epoch=2)
    again = log.append(sent(7, 0, b"a" * 60), leader_epoch=2)
    assert again.is_duplicate
    assert (len(log.segments), log.epochs) == (1, ((1, 0),))
    log.close()


def test_markers_of_a_client_are_refused_and_of_a_coordinator_taken(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fields: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "coordinator_epoch": 0}
    marker = build_marker(ControlType.COMMIT, offset=0, timestamp=T, **fields)
    with pytest.raises(InvalidRecordError):
        log.append(marker)
    log.append(marker, origin=Origin.COORDINATOR)
    assert records(log) == []
    assert log.log_end == 1
    log.close()


def test_a_stored_batch_is_no_producers(tmp_path: Path) -> None:
    """What was read from a log has offsets; an append as leader takes only what counts from zero."""
    log = open_log(tmp_path)
    with pytest.raises(InvalidRecordError):
        log.append(small(5))
    log.close()
