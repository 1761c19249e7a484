"""What no peer's builder writes but every peer reads: append times, delete horizons, empty batches, markers,
Arrow columns, up-converted logs. Each is written here and read by all of them."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from stratalog.records.arrow import rows_of
from stratalog.records.builder import BatchBuilder, BatchOptions, build_batch, empty_batch
from stratalog.records.columns import decode_records
from stratalog.records.control import ControlType, build_marker
from stratalog.records.convert import up_convert, up_convert_v07
from stratalog.records.layout import Codec, TimestampType
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record, RecordHeader
from stratalog.records.restamp import assign_offsets, set_append_time
from stratalog.records.scan import scan_batches
from stratalog.records.v07 import build_entries
from tests.judges.peers.golden import golden_sets
from tests.judges.peers.model import PeerRecord
from tests.judges.peers.registry import LIBRDKAFKA, PEERS, Peer

each_peer = pytest.mark.parametrize("peer", PEERS, ids=[peer.name for peer in PEERS])

OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


def some_records(first: int = 0, count: int = 6) -> list[Record]:
    return [
        Record(
            offset=first + i,
            timestamp=1_700_000_000_000 + 17 * (i % 4) - i,
            key=None if i % 3 == 0 else b"key %d" % i,
            value=None if i % 4 == 3 else b"value %d" % i * 20,
        )
        for i in range(count)
    ]


def as_peer(record: Record) -> PeerRecord:
    headers = tuple((header.key, header.value) for header in record.headers)
    kind = int(record.timestamp_type)
    return PeerRecord(record.offset, record.timestamp, kind, record.key, record.value, headers)


def check_read(peer: Peer, record_sets: list[bytes], wanted: list[list[Record]]) -> None:
    assert [list(decode_records(data)) for data in record_sets] == wanted
    expected = [[as_peer(record) for record in records] for records in wanted]
    assert peer.parse_all(record_sets) == expected


@each_peer
def test_append_times_are_read(peer: Peer) -> None:
    time = 1_800_000_000_123
    record_sets = [
        build_batch(some_records(), BatchOptions(codec=codec, append_time=time)) for codec in Codec
    ]
    record_sets += [
        build_messages(some_records(), MessageOptions(magic=1, codec=codec, append_time=time))
        for codec in OLD_CODECS
    ]
    kind = TimestampType.APPEND_TIME
    seen = [replace(record, timestamp=time, timestamp_type=kind) for record in some_records()]
    check_read(peer, record_sets, [seen] * len(record_sets))


@each_peer
def test_append_times_set_in_place_are_read(peer: Peer) -> None:
    time = 1_800_000_000_123
    restamped = []
    for data in (build_batch(some_records(), BatchOptions(codec=Codec.ZSTD)),
                 build_messages(some_records()[:1], MessageOptions(magic=1)),
                 build_messages(some_records(), MessageOptions(magic=1, codec=Codec.LZ4))):  # fmt: skip
        batch = bytearray(data)
        set_append_time(batch, 0, time)
        restamped.append(bytes(batch))
    kind = TimestampType.APPEND_TIME
    seen = [replace(record, timestamp=time, timestamp_type=kind) for record in some_records()]
    check_read(peer, restamped, [seen, seen[:1], seen])


@each_peer
def test_offsets_assigned_in_place_are_read(peer: Peer) -> None:
    batches = bytearray(build_batch(some_records()) + build_batch(some_records()))
    assert assign_offsets(batches, next_offset=2**50, leader_epoch=9) == 2**50 + 12
    wanted = [replace(r, offset=2**50 + i) for i, r in enumerate(some_records() + some_records())]
    check_read(peer, [bytes(batches)], [wanted])


@each_peer
def test_delete_horizons_are_read(peer: Peer) -> None:
    record_sets = [
        build_batch(some_records(), BatchOptions(codec=codec, delete_horizon_ms=horizon))
        for codec in Codec
        for horizon in (0, 1_900_000_000_000, 5)
    ]
    check_read(peer, record_sets, [some_records()] * len(record_sets))


@each_peer
def test_empty_batches_are_passed_over(peer: Peer) -> None:
    (header,) = scan_batches(build_batch(some_records(6), BatchOptions(producer_id=5)))
    log = build_batch(some_records()) + empty_batch(header) + build_batch(some_records(12))
    check_read(peer, [log], [some_records() + some_records(12)])


@each_peer
def test_markers_and_unknown_control_records_are_what_they_are(peer: Peer) -> None:
    markers = [
        build_marker(kind, offset=10 + i, timestamp=7 + i, producer_id=5, producer_epoch=1,
                     coordinator_epoch=3)
        for i, kind in enumerate((ControlType.COMMIT, ControlType.ABORT))
    ]  # fmt: skip
    unknown = Record(key=b"\0\0\x12\x34", value=b"later", timestamp=9, offset=12)
    markers.append(build_batch([unknown], BatchOptions(is_control=True)))
    log = b"".join(markers) + build_batch(some_records(20))
    found = peer.parse_all([log])[0]
    data = [as_peer(record) for record in some_records(20)]
    if peer is LIBRDKAFKA:  # it leaves control records out, as we do
        assert found == data
    else:
        assert [(r.offset, r.key) for r in found[:3]] == [
            (10, b"\0\0\0\1"),
            (11, b"\0\0\0\0"),
            (12, b"\0\0\x12\x34"),
        ]
        assert found[3:] == data
    assert [as_peer(record) for record in decode_records(log)] == data


@each_peer
def test_batches_from_arrow_columns_are_read(peer: Peer) -> None:
    records = [
        replace(r, headers=(RecordHeader("h", b"%d" % r.offset), RecordHeader("n", None)))
        for r in some_records(0, 3000)
    ]
    table = pa.record_batch(
        {
            "offset": pa.array([record.offset for record in records], pa.int64()),
            "timestamp": pa.array([r.timestamp for r in records], pa.timestamp("ms", tz="UTC")),
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.large_binary()),
            "headers": pa.array(
                [[(h.key, h.value) for h in record.headers] for record in records],
                pa.map_(pa.string(), pa.binary()),
            ),
        }
    )
    record_sets = []
    for codec in Codec:
        builder = BatchBuilder(BatchOptions(codec=codec, batch_bytes=4000))
        builder.append(rows_of(table.slice(0, 1001), keep_offsets=True))
        builder.append(rows_of(table.slice(1001), keep_offsets=True))
        record_sets.append(bytes(builder.out))
    assert len(list(scan_batches(record_sets[0]))) > 50
    check_read(peer, record_sets, [records] * len(record_sets))


@each_peer
def test_up_converted_golden_logs_are_read(peer: Peer) -> None:
    record_sets = []
    for golden in golden_sets():
        if golden.name.startswith(("v0-", "v1-", "mixed")):
            segments = [path for part in golden.partitions() for path in part.segments]
            record_sets += [up_convert(segment.read_bytes()) for segment in segments]
    record_sets += [
        up_convert_v07(build_entries([b"a", b"", b"c" * 99], codec=codec), first_offset=40)
        for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY)
    ]
    record_sets = [data for data in record_sets if data]
    assert len(record_sets) > 40
    for data, found in zip(record_sets, peer.parse_all(record_sets), strict=True):
        assert found == [as_peer(record) for record in decode_records(data)]
