"""Every partition that a real Kafka wrote, 0.7 to 4.3, reads as exactly the records listed beside it.

Three ways lead there: Python records segment by segment, Arrow columns copied, Arrow columns as views.
The plain-Python kernel reads a few of the sets the same. Where a set is damaged, the records before the
damage are all there, and the ending names the damage and its place.
"""

from __future__ import annotations

import functools
import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import stratalog
from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.records.builder import build_batch
from stratalog.records.columns import COLUMN_NAMES, Selection, column_mask, decode_records
from stratalog.records.model import Record
from tests.judges.peers.golden import GoldenPartition, GoldenSet, decoded, golden_set, golden_sets
from tests.judges.peers.model import INT64_MAX, INT64_MIN, PeerRecord

ROOT = Path(__file__).resolve().parents[3]
SETS = golden_sets()
MICROSECONDS_MAX_MS = INT64_MAX // 1000

RECORD_COLUMNS = ("offset", "timestamp_ms", "timestamp_type", "key", "value", "headers")
DECODED_COLUMNS = column_mask(RECORD_COLUMNS)
ALL_COLUMNS = ("topic", "partition", *COLUMN_NAMES)


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with a partition, and in which of its files."""

    reason: str
    segment: str


#: From `damage` in the sets' set.json. What Kafka's recovery kept is what stands before it.
DAMAGED = {
    ("v2-torn", 0): Damage("short_tail", "00000000000000000053.log"),
    ("v2-torn", 1): Damage("crc_mismatch", "00000000000000000026.log"),
    ("v2-torn", 2): Damage("zero_tail", "00000000000000000051.log"),
    ("v2-preallocated", 0): Damage("zero_tail", "00000000000000000093.log"),
}
#: Read by the reference kernel too: every format and codec, small.
REFERENCE_SETS = (
    "v07-plain",
    "v07-gzip",
    "v0-lz4",
    "v0-k082",
    "v1-nulls",
    "v1-appendtime",
    "mixed",
    "v2-headers-and-nulls",
    "v2-transactions",
    "v2-compacted",
    "v2-torn",
)


def each(sets: Iterable[GoldenSet]) -> pytest.MarkDecorator:
    chosen = list(sets)
    return pytest.mark.parametrize("golden", chosen, ids=[golden.name for golden in chosen])


each_set = each(SETS)


@functools.cache
def _rows(name: str) -> dict[tuple[str, int], list[dict[str, Any]]]:
    rows: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in golden_set(name).expected():
        rows[row["topic"], row["partition"]].append(decoded(row))
    return rows


def expected(golden: GoldenSet, partition: GoldenPartition) -> list[PeerRecord]:
    rows = _rows(golden.name).get((partition.topic, partition.partition), [])
    return [PeerRecord(*(row[name] for name in PeerRecord._fields)) for row in rows]


def as_peer(record: Record) -> PeerRecord:
    headers = tuple((header.key, header.value) for header in record.headers)
    kind = int(record.timestamp_type)
    return PeerRecord(record.offset, record.timestamp, kind, record.key, record.value, headers)


def damage_of(golden: GoldenSet, partition: GoldenPartition) -> Damage | None:
    return DAMAGED.get((golden.name, partition.partition))


def damage_position(golden: GoldenSet, damage: Damage, partition: GoldenPartition) -> int:
    """Where Kafka's own tool stopped believing the file."""
    segment = partition.dir / damage.segment
    for batch in golden.dump_batches(segment):
        if not batch.is_valid:
            return batch.position
    batches = golden.dump_batches(segment)
    return batches[-1].position + batches[-1].size


def segments_before(partition: GoldenPartition, damage: Damage | None) -> tuple[Path, ...]:
    """The segments that Kafka's recovery looks at: none behind the damaged one."""
    if damage is None:
        return partition.segments
    return tuple(path for path in partition.segments if path.name <= damage.segment)


# --- as Python records, segment by segment -------------------------------------------------------


def records_of_segment(segment: Path) -> tuple[list[PeerRecord], CorruptionError | None]:
    base = int(segment.stem) if segment.suffix == ".kafka" else None
    found = []
    try:
        for record in decode_records(segment.read_bytes(), v07_base_offset=base):
            found.append(as_peer(record))  # noqa: PERF401 - what came before an error counts
    except CorruptionError as error:
        return found, error
    return found, None


def check_records(golden: GoldenSet, partition: GoldenPartition) -> int:
    start = golden.log_start_offset(partition.topic, partition.partition)
    damage = damage_of(golden, partition)
    found = []
    for segment in segments_before(partition, damage):
        records, error = records_of_segment(segment)
        found += [record for record in records if record.offset >= start]
        if damage is not None and segment.name == damage.segment:
            assert error is not None
            assert error.reason == damage.reason
            assert error.position == damage_position(golden, damage, partition)
        else:
            assert error is None, segment
    assert found == expected(golden, partition)
    return len(found)


@each_set
def test_segments_decode_to_the_expected_records(golden: GoldenSet) -> None:
    total = sum(check_records(golden, partition) for partition in golden.partitions())
    assert total == len(golden.expected()) > 0


@pytest.mark.parametrize("name", ["v2-torn", "v2-preallocated", "v2-unclean"])
def test_recovered_partitions_decode_to_the_expected_records(name: str) -> None:
    golden = golden_set(name)
    assert golden.recovered()
    for partition in golden.recovered():
        found = []
        for segment in partition.segments:
            records, error = records_of_segment(segment)
            assert error is None, segment
            found += records
        assert found == expected(golden, partition)


def test_damage_is_known_for_every_damaged_set() -> None:
    assert {name for name, _ in DAMAGED} == {golden.name for golden in SETS if golden.damaged}


# --- as Arrow ------------------------------------------------------------------------------------


def read_table(
    segments: Sequence[Path], **options: Any
) -> tuple[pa.Table, CorruptionError | None, stratalog.Scan]:
    """All that a scan yields, and the error that ended it."""
    scan = stratalog.scan(segments, **options)
    batches = []
    error = None
    try:
        for batch in scan:
            batch.validate(full=True)
            batches.append(batch)
    except CorruptionError as damage:
        error = damage
    table = pa.Table.from_batches(batches, schema=scan.schema)
    table.validate(full=True)
    return table, error, scan


def peers_of(table: pa.Table) -> list[PeerRecord]:
    rows = zip(*(table[name].to_pylist() for name in RECORD_COLUMNS), strict=True)
    return [
        PeerRecord(offset, time, kind, key, value, tuple((h["key"], h["value"]) for h in headers))
        for offset, time, kind, key, value, headers in rows
    ]


def microseconds(milliseconds: Iterable[int]) -> list[int | None]:
    """What the timestamp column shows: null where microseconds do not fit 64 bits."""
    return [time * 1000 if abs(time) <= MICROSECONDS_MAX_MS else None for time in milliseconds]


def check_scan(golden: GoldenSet, partition: GoldenPartition, *, views: bool) -> int:
    damage = damage_of(golden, partition)
    start = golden.log_start_offset(partition.topic, partition.partition)
    table, error, scan = read_table(
        partition.segments, start=start or None, columns=ALL_COLUMNS, views=views, batch_rows=37
    )
    wanted = expected(golden, partition)
    assert table.schema == scan.schema
    assert table.schema.names == list(ALL_COLUMNS)
    assert pa.types.is_binary_view(table.schema.field("value").type) is views
    assert peers_of(table) == wanted
    shown = table["timestamp"].cast(pa.int64()).to_pylist()
    assert shown == microseconds(record.timestamp for record in wanted)
    assert set(table["topic"].to_pylist()) <= {partition.topic}
    assert set(table["partition"].to_pylist()) <= {partition.partition}
    assert not any(table["is_control"].to_pylist())
    _check_ending(golden, partition, damage, error, scan)
    return len(wanted)


def _check_ending(
    golden: GoldenSet,
    partition: GoldenPartition,
    damage: Damage | None,
    error: CorruptionError | None,
    scan: stratalog.Scan,
) -> None:
    """A torn tail of the last segment is told in ``ends``; damage elsewhere is raised, and told too."""
    *before, last = scan.ends
    assert all(end.is_clean for end in before)
    if damage is None:
        assert error is None
        assert last.is_clean
        return
    path = partition.dir / damage.segment
    position = damage_position(golden, damage, partition)
    assert last.path == os.fspath(path)
    assert last.pause.reason.name.lower() == damage.reason
    assert last.pause.position == position
    assert last.unread_bytes == path.stat().st_size - position
    if path == partition.segments[-1]:
        assert error is None
        error = last.error()
    assert error is not None
    assert (error.reason, error.position, error.path) == (damage.reason, position, os.fspath(path))


@pytest.mark.parametrize("views", [False, True], ids=["copied", "views"])
@each_set
def test_partitions_scan_to_the_expected_records(golden: GoldenSet, views: bool) -> None:
    # An empty partition has one empty file.
    total = sum(check_scan(golden, part, views=views) for part in golden.partitions())
    assert total == len(golden.expected())


@each(golden for golden in SETS if not golden.damaged)  # damage would end the whole scan
def test_a_table_takes_all_partitions_of_a_set_at_once(golden: GoldenSet) -> None:
    """Many partitions in one scan: order and expected offsets begin anew with each."""
    partitions = golden.partitions()
    paths = [path for partition in partitions for path in partition.segments]
    table = stratalog.scan(paths, columns=("topic", "partition", *RECORD_COLUMNS)).to_table()
    table.validate(full=True)
    found = defaultdict(list)
    places = zip(table["topic"].to_pylist(), table["partition"].to_pylist(), strict=True)
    for place, record in zip(places, peers_of(table), strict=True):
        found[place].append(record)
    for partition in partitions:
        place = partition.topic, partition.partition
        start = golden.log_start_offset(*place)
        kept = [record for record in found[place] if record.offset >= start]
        assert kept == expected(golden, partition)


# --- bounds and column choice --------------------------------------------------------------------


def random_bounds(rng: random.Random, records: Sequence[PeerRecord]) -> dict[str, int | None]:
    offsets = [record.offset for record in records] or [0]
    times = [record.timestamp for record in records] or [0]

    def near(values: Sequence[int], least: int = INT64_MIN) -> int | None:
        if rng.random() < 0.4:
            return None
        return max(least, min(INT64_MAX, rng.choice(values) + rng.choice((-1, 0, 0, 1))))

    first, after = near(offsets, 0), near(offsets, 0)
    first_time, after_time = near(times), near(times)
    if first is not None and after is not None and rng.random() < 0.8:
        first, after = min(first, after), max(first, after)
    if first_time is not None and after_time is not None and rng.random() < 0.8:
        first_time, after_time = min(first_time, after_time), max(first_time, after_time)
    return {"start": first, "end": after, "start_time": first_time, "end_time": after_time}


def within(record: PeerRecord, bounds: dict[str, int | None]) -> bool:
    start, end = bounds["start"], bounds["end"]
    start_time, end_time = bounds["start_time"], bounds["end_time"]
    return (
        (start is None or record.offset >= start)
        and (end is None or record.offset < end)
        and (start_time is None or record.timestamp >= start_time)
        and (end_time is None or record.timestamp < end_time)
    )


def column_values(name: str, records: Sequence[PeerRecord]) -> list[Any]:
    match name:
        case "timestamp":
            return microseconds(record.timestamp for record in records)
        case "timestamp_ms":
            return [record.timestamp for record in records]
        case "headers":
            return [[{"key": k, "value": v} for k, v in record.headers] for record in records]
        case _:
            return [getattr(record, name) for record in records]


@each_set
def test_bounds_and_columns_select_what_filtering_the_records_selects(golden: GoldenSet) -> None:
    rng = random.Random(golden.name)
    partitions = golden.recovered() or golden.partitions()
    nonempty = 0
    for _ in range(24):
        partition = rng.choice(partitions)
        records = expected(golden, partition)
        bounds = random_bounds(rng, records)
        log_start = golden.log_start_offset(partition.topic, partition.partition)
        if log_start:
            bounds["start"] = max(bounds["start"] or 0, log_start)
        names = rng.sample(("timestamp", *RECORD_COLUMNS), rng.randint(1, 7))
        table, error, _ = read_table(
            partition.segments,
            **bounds,
            columns=names,
            views=rng.random() < 0.5,
            batch_rows=rng.choice((1, 7, 65536)),
        )
        wanted = [record for record in records if within(record, bounds)]
        nonempty += bool(wanted)
        assert error is None
        assert table.schema.names == names
        for name in names:
            column = table[name].cast(pa.int64()) if name == "timestamp" else table[name]
            assert column.to_pylist() == column_values(name, wanted), (name, bounds)
    assert nonempty >= 6


def test_bounds_skip_whole_batches_by_their_headers() -> None:
    (partition,) = golden_set("v2-plain").partitions()
    records = expected(golden_set("v2-plain"), partition)
    scan = stratalog.scan(partition.segments[0], start=records[40].offset, end=records[41].offset)
    assert scan.to_table().num_rows == 1
    assert scan.skipped_batches >= 5


def test_a_datetime_bounds_like_its_milliseconds() -> None:
    (partition,) = golden_set("v2-plain").partitions()
    times = sorted(record.timestamp for record in expected(golden_set("v2-plain"), partition))
    start, end = times[50], times[200]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    by_number = stratalog.scan(partition.segments, start_time=start, end_time=end).to_table()
    by_datetime = stratalog.scan(
        partition.segments,
        start_time=epoch + timedelta(milliseconds=start),
        end_time=epoch + timedelta(milliseconds=end),
    ).to_table()
    assert by_number.num_rows == sum(start <= time < end for time in times) > 0
    assert by_datetime == by_number


def read_within(data: bytes, bounds: dict[str, Any]) -> list[Record]:
    return list(decode_records(data, Selection(columns=DECODED_COLUMNS, **bounds)))


def test_bounds_at_the_ends_of_64_bits_are_bounds_too() -> None:
    """Nothing lies before the smallest time, and nothing at or behind 2^63."""
    smallest = build_batch([Record(value=b"v", timestamp=INT64_MIN)])
    largest = build_batch([Record(value=b"v", timestamp=INT64_MAX)])
    for data, bounds in [
        (smallest, {"end_time": INT64_MIN}),
        (smallest, {"end_time": INT64_MIN - 1}),
        (largest, {"start_time": INT64_MAX + 1}),
        (largest, {"end_time": INT64_MAX}),
        (smallest, {"end": 0}),
        (smallest, {"end": -(2**70)}),
        (smallest, {"start": 2**70}),
    ]:
        assert read_within(data, bounds) == [], bounds
    for data, bounds in [
        (smallest, {"end_time": INT64_MIN + 1, "start_time": -(2**70)}),
        (largest, {"start_time": INT64_MAX, "end_time": INT64_MAX + 1}),
    ]:
        assert len(read_within(data, bounds)) == 1, bounds


# --- the reference kernel ------------------------------------------------------------------------


def check_sets_in_this_process(names: Sequence[str]) -> str:
    records = 0
    for golden in map(golden_set, names):
        for partition in golden.partitions():
            records += check_records(golden, partition)
            assert check_scan(golden, partition, views=True) == len(expected(golden, partition))
    return f"{kernel.NAME} kernel: {records} records"


def test_the_reference_kernel_reads_the_same() -> None:
    code = f"from {__name__} import *; print(check_sets_in_this_process({REFERENCE_SETS!r}))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "STRATALOG_KERNEL": "reference"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    records = sum(len(golden_set(name).expected()) for name in REFERENCE_SETS)
    assert run.stdout == f"reference kernel: {records} records\n"
