"""Batches without the records that a rewrite removes: both kernels leave the same bytes, and what Kafka's
cleaner would leave."""

from __future__ import annotations

import struct
import zlib
from array import array
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stratalog.records import _kernel, _reference
from stratalog.records.builder import BatchOptions, build_batch, empty_batch
from stratalog.records.compression import Decompressor, compress
from stratalog.records.control import ControlType, build_marker
from stratalog.records.layout import (
    FILTER_EVENTS_MAX,
    INT64_MAX,
    LOG_OVERHEAD,
    SIZE_AT,
    Check,
    Codec,
    Ending,
    FilterCount,
    TimestampType,
)
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record, RecordHeader
from tests.records.generated import logs, mutated, mutations, timestamps
from tests.records.rewriting import filter_log, headers_of, note_log, numbers, read_log
from tests.records.test_kernel_agrees_with_reference import checks
from tests.scale import SCALE, sized

pytestmark = pytest.mark.scaled

KERNELS = pytest.mark.parametrize("kernel", [_kernel, _reference])
STRICTLY = Check.CRC | Check.ORDER
NOW = 1_700_000_000_000
RETENTION = 86_400_000


def counted(seen: list[Any]) -> dict[str, int]:
    """The counts of filter_log() that are not zero."""
    return {
        count.name: number for count, number in zip(FilterCount, seen[-2], strict=True) if number
    }


# Both kernels


places = st.integers(0, 60)
pairs = st.lists(st.tuples(places, st.integers(-1, 9)), max_size=4)
decisions = st.tuples(st.booleans(), st.booleans(), st.booleans())


@st.composite
def filters(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "drop": numbers([(offset,) for offset in draw(st.sets(places, max_size=20))]),
        "erases": draw(st.booleans()),
        "latest_offset": draw(st.none() | places | st.just(INT64_MAX)),
        "now": draw(timestamps),
        "delete_retention": draw(st.integers(0, 2**41) | st.just(INT64_MAX)),
        "round_end": draw(st.none() | places),
        "last_batches": numbers(draw(pairs)),
        "bytes_max": draw(st.sampled_from([1, 100, 4 << 20])),
        "flags": draw(checks),
    }


segments = st.fixed_dictionaries(
    {
        "below": st.none() | st.integers(0, 2**41),
        "aborted": st.lists(st.tuples(st.integers(0, 9), places, places), max_size=3).map(numbers),
        "keeps_legacy_deletes": st.booleans(),
    }
)


@given(
    logs,
    mutations,
    st.sampled_from(["none", "own keys", "other keys"]),
    filters(),
    segments,
    st.integers(-1, 20),
    decisions,
)
@settings(
    max_examples=sized(250, 400 * SCALE),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_both_kernels_leave_the_same(log, mutation, keys, options, segment, expected, decision):
    damaged = mutated(log, mutation)
    seen = []
    for kernel in (_kernel, _reference):
        newest = None
        if keys != "none":
            newest = kernel.OffsetMap(1 << 12)
            note_log(kernel, newest, log)
            for number in range(40):
                newest.put(bytes([number]), number)
        given_map = newest if keys != "other keys" else kernel.OffsetMap(1 << 12)
        batch_filter = kernel.BatchFilter(given_map, **options)
        batch_filter.begin_segment(expected, **segment)
        seen.append(filter_log(kernel, batch_filter, damaged, lambda _: decision))
    assert seen[0] == seen[1]


@given(logs, filters())
@settings(max_examples=sized(60, 200 * SCALE), deadline=None)
def test_what_is_left_of_a_sound_log_is_sound(log, options):
    """Whatever is removed: every batch that is left can be read, and holds records of the old log."""
    options["flags"] = Check.CRC
    newest = _kernel.OffsetMap(1 << 12)
    note_log(_kernel, newest, log)
    _, left = filter_log(_kernel, _kernel.BatchFilter(newest, **options), log)
    before = {record for batch in batches_of(log) for record in read_log(batch)}
    for batch in batches_of(left):
        (header,) = headers_of(batch)
        found = read_log(batch)
        assert header.record_count in (len(found), -1)
        assert before.issuperset(found)


def batches_of(log: bytes) -> list[bytes]:
    """The batches of a log, wherever their offsets lie."""
    found, position = [], 0
    while position < len(log):
        size = struct.unpack_from(">i", log, position + SIZE_AT)[0] + LOG_OVERHEAD
        found.append(log[position : position + size])
        position += size
    return found


# The rule itself, by a dictionary


values = st.none() | st.binary(max_size=12)
keys = st.none() | st.sampled_from([b"a", b"b", b"c", b"", b"a long key" * 9])
record_headers = st.lists(st.builds(RecordHeader, st.text(max_size=3), values), max_size=2).map(
    tuple
)


@st.composite
def compactable(draw: st.DrawFn) -> list[tuple[list[Record], Any]]:
    """Batches as (records with offsets, options): magic 2 with any field, or messages of magic 0 and 1."""
    made = []
    offset = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["batch", "batch", "message", "wrapper"]))
        records = []
        for _ in range(draw(st.integers(1, 5))):
            record = Record(
                key=draw(keys),
                value=draw(values),
                timestamp=draw(st.integers(0, 2**41)),
                headers=draw(record_headers) if kind == "batch" else (),
                offset=offset,
            )
            records.append(record)
            offset += draw(st.integers(1, 2))
        append_time = draw(st.none() | st.integers(0, 2**41))
        if kind == "batch":
            options: Any = BatchOptions(
                codec=draw(st.sampled_from(Codec)),
                append_time=append_time,
                leader_epoch=draw(st.integers(-1, 9)),
                producer_id=draw(st.integers(-1, 3)),
                producer_epoch=draw(st.integers(-1, 3)),
                base_sequence=draw(st.integers(-1, 9)),
            )
        else:
            magic = draw(st.sampled_from([0, 1]))
            codecs = [Codec.NONE] if kind == "message" else [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
            options = MessageOptions(
                magic=magic,
                codec=draw(st.sampled_from(codecs)),
                append_time=append_time if magic else None,
            )
        made.append((records, options))
    return made


def written(made: list[tuple[list[Record], Any]]) -> bytes:
    return b"".join(
        build_batch(records, options)
        if isinstance(options, BatchOptions)
        else build_messages(records, options)
        for records, options in made
    )


def compacted(
    log: bytes,
    kernel: Any = _kernel,
    *,
    latest: int | None = None,
    legacy: bool = True,
    **options: Any,
) -> tuple[list[Any], bytes]:
    newest = kernel.OffsetMap(1 << 12)
    assert note_log(kernel, newest, log)[-2][1] == Ending.END
    options = {"now": NOW, "delete_retention": RETENTION, "flags": STRICTLY} | options
    batch_filter = kernel.BatchFilter(newest, latest_offset=latest, **options)
    batch_filter.begin_segment(0, keeps_legacy_deletes=legacy)
    return filter_log(kernel, batch_filter, log)


def newest_offsets(records: list[Record]) -> dict[bytes, int]:
    return {record.key: record.offset for record in records if record.key is not None}


@given(compactable(), st.none() | st.integers(0, 30), st.booleans())
@settings(max_examples=sized(150, 300 * SCALE), deadline=None)
def test_survivors_are_the_newest_of_each_key_as_they_were(made, latest, legacy):
    log = written(made)
    before = read_log(log)
    newest = newest_offsets(before)
    is_legacy = {
        record.offset: isinstance(options, MessageOptions)
        for records, options in made
        for record in records
    }
    wanted = [
        record
        for record in before
        if (latest is not None and record.offset > latest)
        or (
            record.key is not None
            and record.offset == newest[record.key]
            and (record.value is not None or legacy or not is_legacy[record.offset])
        )
    ]
    _, left = compacted(log, latest=latest, legacy=legacy)
    assert read_log(left) == wanted  # offset, key, value, headers, timestamp and its type


@given(compactable())
@settings(max_examples=sized(100, 200 * SCALE), deadline=None)
def test_what_a_batch_says_of_itself_stays(made):
    log = written(made)
    before = headers_of(log)
    _, left = compacted(log)
    old = {header.last_offset: header for header in before if header.magic == 2}
    for header in headers_of(left):
        if header.magic < 2:
            continue
        was = old[header.last_offset]
        names = ("base_offset", "producer_id", "producer_epoch", "base_sequence", "leader_epoch")
        for name in (*names, "codec", "timestamp_type", "is_transactional", "is_control"):
            assert getattr(header, name) == getattr(was, name)
        records = read_log(left[header.position : header.end_position])
        assert header.max_timestamp == max(record.timestamp for record in records)
        if header.delete_horizon_ms is None:
            assert header.base_timestamp == (
                was.base_timestamp if header.crc == was.crc else records[0].timestamp
            )
        assert (header.delete_horizon_ms is not None) == any(
            record.value is None for record in records
        )


@given(compactable())
@settings(max_examples=sized(60, 200 * SCALE), deadline=None)
def test_a_second_pass_at_the_same_time_changes_nothing(made):
    _, once = compacted(written(made))
    seen, twice = compacted(once)
    assert twice == once
    assert set(counted(seen)) <= {"BATCHES", "RECORDS", "KEPT", "COPIED"}


@given(compactable())
@settings(max_examples=sized(60, 200 * SCALE), deadline=None)
def test_tombstones_go_when_their_horizon_has_passed(made):
    _, once = compacted(written(made))
    horizon = NOW + RETENTION
    _, early = compacted(once, now=horizon - 1)
    assert early == once
    _, late = compacted(once, now=horizon, legacy=False)
    assert read_log(late) == [record for record in read_log(once) if record.value is not None]


def test_a_tombstone_alone_is_what_kafka_writes():
    """The golden bytes of a batch that keeps one tombstone: facts 2.8."""
    records = [
        Record(b"1", b"a", NOW),
        Record(None, b"b", NOW + 1),
        Record(b"3", b"c", NOW + 2),
    ]
    log = build_batch(records, BatchOptions(leader_epoch=2), base_offset=50)
    drop = array("q", [50, 52])
    for kernel in (_kernel, _reference):
        batch_filter = kernel.BatchFilter(
            drop=drop, latest_offset=52, now=NOW + 1000, delete_retention=RETENTION
        )
        _, left = filter_log(kernel, batch_filter, log)
        assert left == bytes.fromhex(
            "0000000000000032 0000003c 00000002 02 d493b363 0040 00000002 0000018bd50bc7e8 0000018bcfe56801"
            "ffffffffffffffff ffff ffffffff 00000001 14 00 cdffb252 02 02 62 01 00"
        )


def test_an_emptied_batch_is_what_kafka_writes():
    """The golden bytes of an empty batch: facts 2.7."""
    options = BatchOptions(leader_epoch=4, producer_id=7, producer_epoch=3, base_sequence=20)
    records = [Record(b"v", b"k", NOW, offset=offset) for offset in range(100, 105)]
    log = build_batch(records, options)
    golden = bytes.fromhex(
        "0000000000000064 00000031 00000004 02 8ba32423 0000 00000004 ffffffffffffffff 0000018bcfe56800"
        "0000000000000007 0003 00000014 00000000"
    )
    drop = array("q", range(100, 105))
    for kernel in (_kernel, _reference):
        for kept in ({"round_end": 105}, {"last_batches": array("q", [104, 7])}):
            batch_filter = kernel.BatchFilter(drop=drop, latest_offset=104, **kept)
            seen, left = filter_log(kernel, batch_filter, log)
            assert left == golden
            assert counted(seen)["EMPTIED"] == 1
            again = kernel.BatchFilter(drop=drop, latest_offset=104, **kept)
            assert filter_log(kernel, again, left)[1] == left
        for kept in ({}, {"round_end": 104}, {"last_batches": array("q", [104, 8, 105, 7])}):
            batch_filter = kernel.BatchFilter(drop=drop, latest_offset=104, **kept)
            seen, left = filter_log(kernel, batch_filter, log)
            assert left == b""
            assert counted(seen)["REMOVED"] == 1


@KERNELS
@pytest.mark.parametrize("codec", Codec)
def test_an_emptied_batch_keeps_its_flags_and_loses_codec_and_horizon(kernel, codec):
    options = BatchOptions(
        codec=codec, append_time=5, producer_id=1, producer_epoch=0, base_sequence=0,
        is_transactional=True, delete_horizon_ms=NOW,
    )  # fmt: skip
    log = build_batch([Record(b"v", b"k", 3)] * 4, options, base_offset=9)
    batch_filter = kernel.BatchFilter(drop=array("q", range(9, 13)), latest_offset=12, round_end=13)
    _, left = filter_log(kernel, batch_filter, log)
    (header,) = headers_of(log)
    assert left == empty_batch(header)


@KERNELS
def test_a_horizon_beyond_64_bits_is_none(kernel):
    """As in Kafka: tombstones stay, where a wrapped horizon would remove them at once."""
    log = build_batch([Record(None, b"k", NOW), Record(b"v", b"l", NOW)])
    seen, left = compacted(log, kernel, delete_retention=INT64_MAX)
    assert left == log
    assert counted(seen)["COPIED"] == 1
    log = build_batch([Record(None, b"k", NOW), Record(b"v", b"k", NOW), Record(None, b"l", NOW)])
    _, left = compacted(log, kernel, delete_retention=INT64_MAX)
    (header,) = headers_of(left)
    assert (header.delete_horizon_ms, header.record_count) == (None, 2)


@KERNELS
def test_a_negative_horizon_is_not_carried_over(kernel):
    made = [Record(b"v", b"k", 10), Record(b"w", b"k", 20), Record(b"x", b"l", 30)]
    log = build_batch(made, BatchOptions(delete_horizon_ms=-5))
    _, left = compacted(log, kernel)
    (header,) = headers_of(left)
    assert (header.delete_horizon_ms, header.base_timestamp) == (None, 20)
    assert [record.timestamp for record in read_log(left)] == [20, 30]


@KERNELS
def test_every_count_is_of_what_happened(kernel):
    transaction = BatchOptions(
        producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    log = build_batch([Record(b"1", b"a"), Record(b"2", None), Record(b"3", b"b")])
    log += build_batch([Record(b"4", b"a")] * 2, transaction, base_offset=3)
    log += build_batch([Record(None, b"c")], BatchOptions(delete_horizon_ms=NOW), base_offset=5)
    log += build_batch([Record(b"5", b"a")], base_offset=6)
    newest = kernel.OffsetMap(1 << 10)
    aborted = array("q", [7, 3, 7])
    note_log(kernel, newest, log, aborted=aborted)
    batch_filter = kernel.BatchFilter(newest, now=NOW, flags=STRICTLY)
    batch_filter.begin_segment(0, 7, aborted=aborted)
    seen, left = filter_log(kernel, batch_filter, log)
    assert counted(seen) == {
        "BATCHES": 4, "RECORDS": 7, "KEPT": 2, "SUPERSEDED": 1, "EXPIRED": 1, "NULL_KEYS": 1,
        "ABORTED": 2, "COPIED": 1, "REBUILT": 1, "REMOVED": 2,
    }  # fmt: skip
    assert seen[-1] == ((7, True),)
    assert [record.offset for record in read_log(left)] == [2, 6]


# Control batches


def marker(offset: int = 2) -> bytes:
    return build_marker(
        ControlType.COMMIT, offset=offset, timestamp=NOW, producer_id=7, producer_epoch=3,
        coordinator_epoch=5, leader_epoch=1,
    )  # fmt: skip


@KERNELS
def test_a_control_batch_waits_for_its_decision(kernel):
    log = marker()
    (header,) = headers_of(log)

    def decided(
        *, discards: bool = False, keeps_header: bool = False, is_marker_of_none: bool = False
    ) -> bytes:
        batch_filter = kernel.BatchFilter(now=NOW, delete_retention=RETENTION)
        decision = (discards, keeps_header, is_marker_of_none)
        seen, left = filter_log(kernel, batch_filter, log, lambda _: decision)
        assert seen[0][1] == Ending.CONTROL
        return left

    assert decided() == log
    assert decided(keeps_header=True) == log
    assert decided(discards=True) == b""
    assert decided(discards=True, keeps_header=True) == empty_batch(header)
    (aging,) = headers_of(decided(is_marker_of_none=True))
    assert aging.delete_horizon_ms == NOW + RETENTION
    assert replace(
        aging, attributes=0, base_timestamp=0, crc=0, size_bytes=0, payload_size_bytes=0
    ) == replace(header, attributes=0, base_timestamp=0, crc=0, size_bytes=0, payload_size_bytes=0)
    assert read_log(decided(is_marker_of_none=True)) == read_log(log)


@KERNELS
def test_a_control_batch_with_a_horizon_keeps_it(kernel):
    batch_filter = kernel.BatchFilter(now=NOW, delete_retention=RETENTION)
    _, once = filter_log(kernel, batch_filter, marker(), lambda _: (False, False, True))
    later = kernel.BatchFilter(now=NOW + 9, delete_retention=RETENTION)
    _, twice = filter_log(kernel, later, once, lambda _: (False, False, True))
    assert once == twice


@KERNELS
def test_an_empty_control_batch_is_removed(kernel):
    (header,) = headers_of(marker())
    empty = empty_batch(header)
    assert filter_log(kernel, kernel.BatchFilter(), empty)[1] == b""
    batch_filter = kernel.BatchFilter(round_end=3)
    assert filter_log(kernel, batch_filter, empty)[1] == empty


@KERNELS
def test_a_control_batch_without_its_records_is_refused(kernel):
    log = marker()
    batch_filter = kernel.BatchFilter(now=NOW)
    _, ending, *rest = batch_filter.filter_batch(log, 0, len(log), b"", is_marker_of_none=True)
    assert (ending, rest[1:]) == (Ending.CORRUPT, [None, None])
    assert (batch_filter.used, sum(batch_filter.counts)) == (0, 0)


@KERNELS
def test_filtering_at_the_end_is_an_ending(kernel):
    log = marker()
    answer = kernel.BatchFilter().filter_batch(log, len(log), len(log), b"")
    assert tuple(answer) == (len(log), Ending.END, 0, None, None)


@KERNELS
def test_transactional_batches_are_reported_and_full_stops_in_time(kernel):
    def batch(offset: int, producer: int) -> bytes:
        options = BatchOptions(
            producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        return build_batch([Record(b"v", b"k")], options, base_offset=offset)

    count = FILTER_EVENTS_MAX + 3
    log = b"".join(batch(offset, offset % 2) for offset in range(count))
    batch_filter = kernel.BatchFilter()
    position, ending, _ = batch_filter.filter(log, 0, len(log))
    assert (ending, position) == (Ending.FULL, len(log) // count * FILTER_EVENTS_MAX)
    with pytest.raises(ValueError, match=r"take_events\(\) first"):
        batch_filter.filter_batch(log, position, len(log), b"")
    events = batch_filter.take_events()
    position, ending, _ = batch_filter.filter(log, position, len(log))
    assert (ending, position) == (Ending.END, len(log))
    events += batch_filter.take_events()
    assert events == [(offset % 2, False) for offset in range(count)]
    same = batch(0, 1) + batch(1, 1)
    batch_filter = kernel.BatchFilter()
    batch_filter.filter(same, 0, len(same))
    assert batch_filter.take_events() == [(1, False)]


# Magic 0 and 1


@KERNELS
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_rebuilt_wrapper_keeps_absolute_offsets(kernel, magic, codec):
    records = [Record(b"v", b"abcab"[n : n + 1], 50 - n, offset=10 + 3 * n) for n in range(5)]
    log = build_messages(records, MessageOptions(magic=magic, codec=codec))
    _, left = compacted(log, kernel)
    assert [record.offset for record in read_log(left)] == [16, 19, 22]
    (header,) = headers_of(left)
    assert (header.last_offset, header.codec) == (22, codec)
    assert header.max_timestamp == (48 if magic else -1)
    payload = left[header.payload_position :]
    inner = bytes(Decompressor().decompress(codec, payload, magic=magic))
    assert struct.unpack_from(">q", inner)[0] == (0 if magic else 16)


@KERNELS
def test_a_wrapper_that_lost_its_last_message_moves_to_the_last_that_is_left(kernel):
    records = [Record(b"v", b"a", 1), Record(b"v", b"b", 2), Record(None, b"c", 3)]
    log = build_messages(records, MessageOptions(codec=Codec.GZIP), base_offset=7)
    _, left = compacted(log, kernel, legacy=False)
    (header,) = headers_of(left)
    assert (header.last_offset, header.max_timestamp) == (8, 2)
    assert [record.offset for record in read_log(left)] == [7, 8]


@KERNELS
def test_append_time_of_a_rebuilt_wrapper_stays(kernel):
    records = [Record(b"v", b"a", 1), Record(b"v", b"b", 2), Record(b"v", b"a", 3)]
    log = build_messages(records, MessageOptions(codec=Codec.GZIP, append_time=77))
    _, left = compacted(log, kernel)
    assert [(record.timestamp, record.timestamp_type) for record in read_log(left)] == [
        (77, TimestampType.APPEND_TIME)
    ] * 2


def mixed_wrapper(magic: int) -> bytes:
    """A wrapper that holds messages of the other magic: 0.10 brokers wrote some (KAFKA-4298)."""
    records = [Record(b"v", b"a", 5), Record(b"w", b"b", 6)]
    inner = build_messages(records, MessageOptions(magic=1 - magic))
    value = bytes(compress(Codec.GZIP, inner, magic=magic))
    body = struct.pack(">bB", magic, Codec.GZIP)
    if magic == 1:
        body += struct.pack(">q", 6)
    body += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", 1, 4 + len(body), zlib.crc32(body)) + body


@KERNELS
@pytest.mark.parametrize("magic", [0, 1])
def test_compaction_mends_a_wrapper_with_messages_of_another_magic(kernel, magic):
    log = mixed_wrapper(magic)
    _, left = compacted(log, kernel)
    (header,) = headers_of(left)
    inner = bytes(
        Decompressor().decompress(Codec.GZIP, left[header.payload_position :], magic=magic)
    )
    assert {found.magic for found in headers_of(inner)} == {magic}
    assert read_log(left) == read_log(log)
    erasing = kernel.BatchFilter(erases=True, flags=Check.CRC)
    assert filter_log(kernel, erasing, log)[1] == log


# Erasure


@given(compactable(), st.sets(st.integers(0, 40)), st.sets(st.sampled_from([b"a", b"b", b""])))
@settings(max_examples=sized(80, 200 * SCALE), deadline=None)
def test_erasure_removes_keys_and_offsets_and_nothing_else(made, offsets, erased):
    log = written(made)
    names = _kernel.OffsetMap(1 << 10)
    for key in erased:
        names.put(key, 0)
    batch_filter = _kernel.BatchFilter(
        names, drop=array("q", sorted(offsets)), erases=True, flags=STRICTLY
    )
    seen, left = filter_log(_kernel, batch_filter, log)
    before = read_log(log)
    assert read_log(left) == [
        record for record in before if record.offset not in offsets and record.key not in erased
    ]
    assert counted(seen).get("ERASED", 0) == len(before) - len(read_log(left))
    untouched = [
        (records, options)
        for records, options in made
        if not any(record.offset in offsets or record.key in erased for record in records)
    ]
    for records, options in untouched:
        assert written([(records, options)]) in left  # byte for byte


@KERNELS
def test_erasure_keeps_what_is_not_its_business(kernel):
    """Aborted records, tombstones whose time has come, markers, empty batches, and records without a key."""
    transaction = BatchOptions(
        producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    horizon = BatchOptions(delete_horizon_ms=1)
    log = build_batch([Record(b"v", None), Record(b"v", b"k")], transaction)
    log += build_batch([Record(None, b"t")], horizon, base_offset=2)
    log += marker(3)
    (header,) = headers_of(build_batch([Record(b"v")], base_offset=4))
    log += empty_batch(header)
    batch_filter = kernel.BatchFilter(
        kernel.OffsetMap(1 << 10), erases=True, now=NOW, flags=STRICTLY
    )
    batch_filter.begin_segment(0, aborted=array("q", [7, 0, 3]))
    seen, left = filter_log(kernel, batch_filter, log)
    assert left == log
    assert seen[-1] == ()
    assert counted(seen) == {"BATCHES": 4, "RECORDS": 4, "KEPT": 4, "COPIED": 4}


# Bounds and damage


@KERNELS
def test_a_batch_that_is_wrong_leaves_no_trace(kernel):
    good = build_batch([Record(b"v", b"k")])
    records = [Record(b"v", b"k%d" % n) for n in range(40)]
    bad = bytearray(build_batch(records, base_offset=1))
    bad[-1] = 0x7F  # the header count of the last record
    log = good + bytes(bad[:-1])  # its last record is one byte short
    size = struct.unpack_from(">i", log, len(good) + 8)[0]
    log = log[: len(good) + 8] + struct.pack(">i", size - 1) + log[len(good) + 12 :]
    batch_filter = kernel.BatchFilter(latest_offset=100)
    position, ending, _ = batch_filter.filter(log, 0, len(log))
    assert (position, ending) == (len(good), Ending.CORRUPT)
    assert bytes(batch_filter.take()) == good
    assert batch_filter.expected == 1
    assert sum(batch_filter.counts) == 4  # one batch, one record, kept, copied


@KERNELS
def test_batches_out_of_their_segment_are_refused(kernel):
    log = build_batch([Record(b"v", b"k")] * 3, base_offset=5)
    for expected, below, is_fine in (
        (5, 8, True),
        (6, None, False),
        (5, 7, False),
        (-1, None, True),
    ):
        batch_filter = kernel.BatchFilter(flags=STRICTLY)
        batch_filter.begin_segment(expected, below)
        assert (batch_filter.filter(log, 0, len(log))[1] == Ending.END) == is_fine


@KERNELS
def test_full_stops_before_the_next_batch(kernel):
    one = build_batch([Record(b"v" * 50, b"k")])
    log = one + build_batch([Record(b"v" * 50, b"k")], base_offset=1)
    batch_filter = kernel.BatchFilter(bytes_max=1)
    assert batch_filter.filter(log, 0, len(log))[:2] == (len(one), Ending.FULL)
    assert bytes(batch_filter.take()) == one
    assert batch_filter.filter(log, len(one), len(log))[:2] == (len(log), Ending.FULL)
    assert bytes(batch_filter.take()) == log[len(one) :]
    assert batch_filter.filter(log, len(log), len(log))[:2] == (len(log), Ending.END)
    assert bytes(batch_filter.take()) == b""


@KERNELS
def test_an_output_that_was_taken_does_not_change(kernel):
    log = build_batch([Record(b"v" * 50, b"k")])
    batch_filter = kernel.BatchFilter()
    batch_filter.filter(log, 0, len(log))
    taken = batch_filter.take()
    batch_filter.put(b"x" * 200)
    batch_filter.filter(log, 0, len(log))
    assert bytes(taken) == log
    assert bytes(batch_filter.take()) == b"x" * 200 + log


@KERNELS
def test_drop_lists_work_for_batches_out_of_order(kernel):
    log = build_batch([Record(b"v", b"k")] * 4, base_offset=20) + build_batch(
        [Record(b"v", b"k")] * 4
    )
    batch_filter = kernel.BatchFilter(drop=array("q", [1, 3, 21, 23]))
    _, left = filter_log(kernel, batch_filter, log)
    first, second = batches_of(left)
    assert [record.offset for record in read_log(first)] == [20, 22]
    assert [record.offset for record in read_log(second)] == [0, 2]
