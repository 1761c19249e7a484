"""Real Kafka reads the files that we write: magic 0, 1 and 2, every codec, markers, empty batches, delete
horizons, producer fields, Arrow columns.

Kafka's own `dump-log --deep-iteration` must find every batch valid, with the header fields that we wrote, and
every record: offset, timestamp, sizes of key and value, sequence. One run of the tool takes all the files, so
each test here looks at the part that is about its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from stratalog.records.arrow import rows_of
from stratalog.records.builder import (
    BatchBuilder,
    BatchOptions,
    build_batch,
    empty_batch,
    rows_of_records,
)
from stratalog.records.columns import RegionDecoder, Selection, records_of
from stratalog.records.control import ControlType, build_marker
from stratalog.records.convert import up_convert
from stratalog.records.layout import INT32_MAX, Check, Codec, Column, Ending, TimestampType
from stratalog.records.legacy import MessageBuilder, MessageOptions, build_messages
from stratalog.records.model import BatchHeader, Record, RecordHeader
from stratalog.records.restamp import assign_offsets, set_append_time
from stratalog.records.scan import STRICT, scan_batches
from tests.judges.peers.cases import random_cases
from tests.judges.peers.dump_log import DumpBatch, DumpFile
from tests.judges.peers.golden import golden_sets
from tests.judges.peers.oracle_fixture import KafkaOracle, kafka_oracle
from tests.judges.peers.ours import as_record, write_case

__all__ = ["kafka_oracle"]

pytestmark = pytest.mark.interop

RECORD_COLUMNS = (
    Column.OFFSET
    | Column.TIMESTAMP_MS
    | Column.TIMESTAMP_TYPE
    | Column.KEY
    | Column.VALUE
    | Column.HEADERS
)
FORMATS = [
    (magic, codec) for magic in (0, 1, 2) for codec in Codec if magic == 2 or codec != Codec.ZSTD
]
NOW = 1_710_304_000_000
HEADERS = (RecordHeader("h", b"x"), RecordHeader("日本", None))


@dataclass
class Files:
    """Files that we wrote under names of their own, with the records that must be found in them."""

    folder: Path
    paths: dict[str, Path] = field(default_factory=dict)
    records: dict[str, list[Record]] = field(default_factory=dict)

    def add(self, name: str, data: bytes, records: list[Record]) -> None:
        # A file's name is its first offset; these are numbers only.
        path = self.folder / f"{len(self.paths):020}.log"
        path.write_bytes(data)
        self.paths[name] = path
        self.records[name] = records


def some_records(first: int, count: int, *, headers: bool = False) -> list[Record]:
    return [
        Record(
            offset=first + i,
            timestamp=(NOW + 13 * i, NOW - 10**9, -1 - i, 0, 2**61 + i)[i % 5],
            key=(None, b"", b"key %d" % i)[i % 3],
            value=(b"value %d " % i * 11, None, b"", b"\0\n\r\xff")[i % 4],
            headers=HEADERS if headers and i % 2 else (),
        )
        for i in range(count)
    ]


def seen_in_messages(records: list[Record], options: MessageOptions) -> list[Record]:
    if options.magic == 0:
        return [replace(r, timestamp=-1, timestamp_type=TimestampType.NONE) for r in records]
    return seen_with(records, options.append_time)


def seen_with(records: list[Record], append_time: int | None) -> list[Record]:
    if append_time is None:
        return records
    kind = TimestampType.APPEND_TIME
    return [replace(r, timestamp=append_time, timestamp_type=kind) for r in records]


# --- the files -----------------------------------------------------------------------------------


def write_formats(files: Files) -> None:
    for magic, codec in FORMATS:
        for append_time in (None, NOW + 1) if magic else (None,):
            name = f"magic {magic} {codec.name}" + (" append time" if append_time else "")
            records = some_records(2**33, 60, headers=magic == 2)
            if magic == 2:
                builder = BatchBuilder(
                    BatchOptions(codec=codec, batch_bytes=800, append_time=append_time),
                )
                builder.append(rows_of_records(records))
                files.add(name, bytes(builder.out), seen_with(records, append_time))
            else:
                options = MessageOptions(
                    magic=magic, codec=codec, wrapper_bytes=800, append_time=append_time
                )
                writer = MessageBuilder(options)
                writer.append(rows_of_records(records))
                files.add(name, bytes(writer.out), seen_in_messages(records, options))


def write_levels(files: Files) -> None:
    records = some_records(0, 500)
    for codec, level in [
        (Codec.GZIP, 1), (Codec.GZIP, 9), (Codec.LZ4, 1), (Codec.LZ4, 12), (Codec.LZ4, 17),
        (Codec.ZSTD, -5), (Codec.ZSTD, 1), (Codec.ZSTD, 19),
    ]:  # fmt: skip
        options = BatchOptions(codec=codec, level=level)
        files.add(f"level {codec.name} {level}", build_batch(records, options), records)


def write_large(files: Files) -> None:
    """Values longer than a block of every codec, and one that does not compress."""
    value = bytes(range(256)) * 1200 + b"harbor yonder " * 30_000
    records = [
        Record(value=value, timestamp=NOW, offset=5),
        Record(value=value[::-1], timestamp=NOW, offset=6),
    ]
    for magic, codec in FORMATS:
        if magic == 2:
            data = build_batch(records, BatchOptions(codec=codec))
        else:
            options = MessageOptions(magic=magic, codec=codec, wrapper_bytes=INT32_MAX)
            data = build_messages(records, options)
        seen = records if magic else seen_in_messages(records, MessageOptions(magic=0))
        files.add(f"large magic {magic} {codec.name}", data, seen)


def write_producer_fields(files: Files) -> None:
    for number, (producer_id, epoch, sequence, leader_epoch) in enumerate(
        [(0, 0, 0, 0), (2**63 - 1, 2**15 - 1, 2**31 - 3, 2**31 - 1), (77, 3, 2**31 - 1, 5)]
    ):
        options = BatchOptions(
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            leader_epoch=leader_epoch,
            is_transactional=number == 1,
            codec=Codec(number),
            batch_bytes=300,
        )
        builder = BatchBuilder(options)
        records = some_records(100, 20)
        builder.append(rows_of_records(records))
        files.add(f"producer {number}", bytes(builder.out), records)


def write_transaction(files: Files) -> None:
    """Data, a marker for each way to end it, an unknown control record, an empty batch, data."""
    producer = BatchOptions(
        producer_id=9, producer_epoch=2, base_sequence=0, is_transactional=True, leader_epoch=4
    )
    data = build_batch(some_records(0, 3), producer)
    records = some_records(0, 3)
    for kind in (ControlType.COMMIT, ControlType.ABORT):
        offset = records[-1].offset + 1
        data += build_marker(
            kind,
            offset=offset,
            timestamp=NOW + offset,
            producer_id=9,
            producer_epoch=2,
            coordinator_epoch=11,
            leader_epoch=4,
        )
        key = b"\0\0\0" + bytes([kind])
        records.append(
            Record(offset=offset, timestamp=NOW + offset, key=key, value=b"\0\0\0\0\0\x0b")
        )
    (header,) = scan_batches(build_batch(some_records(5, 4), producer))
    data += empty_batch(header)
    data += build_batch(some_records(9, 2))
    files.add("transaction", data, records + some_records(9, 2))


def write_delete_horizons(files: Files) -> None:
    for number, horizon in enumerate((NOW + 86_400_000, 0, 1)):
        for codec in (Codec.NONE, Codec.LZ4):
            options = BatchOptions(delete_horizon_ms=horizon, codec=codec)
            data = build_batch(some_records(50, 7), options)
            files.add(f"horizon {number} {codec.name}", data, some_records(50, 7))


def write_gaps(files: Files) -> None:
    offsets = [2**62, 2**62 + 1, 2**62 + 1000, 2**62 + 2**31 - 1, 2**62 + 2**31, 2**62 + 2**40]
    records = [
        replace(r, offset=offset) for r, offset in zip(some_records(0, 6), offsets, strict=True)
    ]
    for codec in (Codec.NONE, Codec.ZSTD):
        builder = BatchBuilder(BatchOptions(codec=codec))
        builder.append(rows_of_records(records))
        files.add(f"gaps {codec.name}", bytes(builder.out), records)
    for magic in (0, 1):
        options = MessageOptions(magic=magic, codec=Codec.GZIP)
        seen = seen_in_messages(records, options)
        files.add(f"gaps magic {magic}", build_messages(records, options), seen)


def write_mixed(files: Files) -> None:
    data = b""
    wanted = []
    for number, (magic, codec) in enumerate(FORMATS + FORMATS[::-1]):
        records = some_records(10 * number, 5)
        if magic == 2:
            data += build_batch(records, BatchOptions(codec=codec))
            wanted += records
        else:
            options = MessageOptions(magic=magic, codec=codec)
            data += build_messages(records, options)
            wanted += seen_in_messages(records, options)
    files.add("mixed", data, wanted)
    converted = [
        replace(r, timestamp_type=max(r.timestamp_type, TimestampType.CREATE_TIME)) for r in wanted
    ]
    files.add("mixed, up-converted", up_convert(data), converted)


def write_up_converted_golden(files: Files) -> None:
    for golden in golden_sets():
        if golden.name not in ("v0-nulls", "v1-appendtime", "v1-k0102", "mixed-upgrade"):
            continue
        for partition in golden.partitions():
            for segment in partition.segments:
                data = up_convert(segment.read_bytes())
                files.add(f"golden {golden.name} {segment.name}", data, _decoded(data))


def _decoded(data: bytes) -> list[Record]:
    decoder = RegionDecoder(Selection(columns=RECORD_COLUMNS))
    assert decoder.decode(data, 0, len(data)).ending == Ending.END
    return list(records_of(decoder.take()))


def write_arrow(files: Files) -> None:
    records = some_records(1000, 2000, headers=True)
    table = pa.record_batch(
        {
            "offset": pa.array([record.offset for record in records], pa.int64()),
            "timestamp_ms": pa.array([record.timestamp for record in records], pa.int64()),
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "headers": pa.array(
                [[{"key": h.key, "value": h.value} for h in r.headers] for r in records],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )
    for codec in Codec:
        builder = BatchBuilder(BatchOptions(codec=codec))
        builder.append(rows_of(table, keep_offsets=True))
        files.add(f"arrow {codec.name}", bytes(builder.out), records)
    plain = table.drop_columns(["headers"])
    for magic in (0, 1):
        options = MessageOptions(magic=magic, codec=Codec.LZ4)
        writer = MessageBuilder(options)
        writer.append(rows_of(plain, keep_offsets=True))
        seen = seen_in_messages([replace(r, headers=()) for r in records], options)
        files.add(f"arrow magic {magic}", bytes(writer.out), seen)


def write_restamped(files: Files) -> None:
    for codec in Codec:
        data = bytearray(build_batch(some_records(0, 8), BatchOptions(codec=codec)))
        assign_offsets(data, next_offset=2**40, leader_epoch=12)
        set_append_time(data, 0, NOW + 99)
        records = seen_with(some_records(2**40, 8), NOW + 99)
        files.add(f"restamped {codec.name}", bytes(data), records)


def write_random(files: Files) -> None:
    for number, case in enumerate(random_cases(seed=41, count=120)):
        records = [as_record(record) for record in case.records]
        files.add(f"random {number}", write_case(case), records)


WRITERS: dict[str, Callable[[Files], None]] = {
    "formats": write_formats,
    "levels": write_levels,
    "large": write_large,
    "producer fields": write_producer_fields,
    "transaction": write_transaction,
    "delete horizons": write_delete_horizons,
    "gaps": write_gaps,
    "mixed": write_mixed,
    "golden, up-converted": write_up_converted_golden,
    "arrow": write_arrow,
    "restamped": write_restamped,
    "random": write_random,
}


@dataclass
class Dumped:
    files: Files
    dumps: dict[str, DumpFile]
    groups: dict[str, list[str]]


@pytest.fixture(scope="module")
def dumped(kafka_oracle: KafkaOracle, tmp_path_factory: pytest.TempPathFactory) -> Dumped:
    """Everything written, and Kafka's dump of it, from one run of the tool."""
    files = Files(tmp_path_factory.mktemp("ours-0"))
    groups = {}
    for group, write in WRITERS.items():
        known = set(files.paths)
        write(files)
        groups[group] = [name for name in files.paths if name not in known]
    dumps = kafka_oracle.dump_log(*files.paths.values())
    return Dumped(files, dict(zip(files.paths, dumps, strict=True)), groups)


# --- what Kafka must say of them -----------------------------------------------------------------


def shown_fields(batch: DumpBatch) -> dict[str, Any]:
    """What Kafka's tool shows of a batch, by our names."""
    shown = {
        "position": batch.position,
        "size_bytes": batch.size,
        "magic": batch.magic,
        "codec": batch.codec,
        "crc": batch.crc,
        "last_offset": batch.last_offset,
        "timestamp_type": batch.timestamp_type,
        "max_timestamp": batch.timestamp,
    }
    if batch.magic == 2:
        shown |= {
            "base_offset": batch.base_offset,
            "record_count": batch.count,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
            "last_sequence": batch.last_sequence,
            "leader_epoch": batch.leader_epoch,
            "is_transactional": batch.is_transactional,
            "is_control": batch.is_control,
            "delete_horizon_ms": batch.delete_horizon_ms,
        }
    return shown


def our_fields(header: BatchHeader, names: dict[str, Any]) -> dict[str, Any]:
    ours = {name: getattr(header, name) for name in names}
    return ours | {"codec": header.codec.name.lower()}


def size_of(part: bytes | None) -> int:
    return -1 if part is None else len(part)


@pytest.mark.parametrize("group", WRITERS)
def test_kafka_finds_every_batch_and_record(dumped: Dumped, group: str) -> None:
    names = dumped.groups[group]
    assert names
    for name in names:
        dump = dumped.dumps[name]
        data = dumped.files.paths[name].read_bytes()
        assert dump.complete, name
        assert all(batch.is_valid for batch in dump.batches), name
        headers = list(scan_batches(data, check=STRICT))
        for header, batch in zip(headers, dump.batches, strict=True):
            shown = shown_fields(batch)
            assert our_fields(header, shown) == shown, name
        found = [record for batch in dump.batches for record in batch.records]
        assert [
            (r.offset, r.timestamp_type, r.timestamp, r.key_size, r.value_size) for r in found
        ] == [
            (r.offset, r.timestamp_type, r.timestamp, size_of(r.key), size_of(r.value))
            for r in dumped.files.records[name]
        ], name


def test_kafka_shows_the_fields_that_were_written(dumped: Dumped) -> None:
    """The comparison above is with our own reading of the header; this one is with what was asked."""
    _, second, third = (dumped.dumps[f"producer {number}"].batches for number in range(3))
    assert {(b.producer_id, b.producer_epoch, b.leader_epoch) for b in second} == {
        (2**63 - 1, 2**15 - 1, 2**31 - 1)
    }
    assert all(batch.is_transactional for batch in second)
    assert second[0].base_sequence == 2**31 - 3
    assert third[0].base_sequence == 2**31 - 1
    sequences = [record.sequence for batch in third for record in batch.records]
    assert sequences == [(2**31 - 1 + i) % 2**31 for i in range(20)]

    first, commit, abort, empty, last = dumped.dumps["transaction"].batches
    assert first.is_transactional
    assert not first.is_control
    assert [(b.is_control, b.is_transactional, b.count) for b in (commit, abort)] == [
        (True, True, 1)
    ] * 2
    assert (commit.base_offset, abort.base_offset) == (3, 4)
    assert (empty.count, empty.base_offset, empty.last_offset) == (0, 5, 8)
    assert (empty.producer_id, empty.base_sequence, empty.last_sequence) == (9, 0, 3)
    assert (last.base_offset, last.is_transactional) == (9, False)

    for number, horizon in enumerate((NOW + 86_400_000, 0, 1)):
        (batch,) = dumped.dumps[f"horizon {number} LZ4"].batches
        assert (batch.delete_horizon_ms, batch.codec) == (horizon, "lz4")
    (batch,) = dumped.dumps["restamped ZSTD"].batches
    assert (batch.base_offset, batch.leader_epoch, batch.timestamp) == (2**40, 12, NOW + 99)


def test_every_format_was_looked_at(dumped: Dumped) -> None:
    formats = {
        (batch.magic, batch.codec) for dump in dumped.dumps.values() for batch in dump.batches
    }
    assert formats == {(magic, codec.name.lower()) for magic, codec in FORMATS}
    batches = sum(len(dump.batches) for dump in dumped.dumps.values())
    records = sum(len(batch.records) for d in dumped.dumps.values() for batch in d.batches)
    print(f"{len(dumped.dumps)} files, {batches} batches, {records} records")
    assert len(dumped.dumps) > 180
    assert batches > 1000
    assert records > 20_000


def test_our_reading_with_control_records_is_kafkas(dumped: Dumped) -> None:
    data = dumped.files.paths["transaction"].read_bytes()
    check = Check.CRC | Check.ORDER | Check.CONTIGUOUS | Check.INCLUDE_CONTROL
    decoder = RegionDecoder(Selection(columns=RECORD_COLUMNS, check=check))
    assert decoder.decode(data, 0, len(data)).ending == Ending.END
    assert list(records_of(decoder.take())) == dumped.files.records["transaction"]
