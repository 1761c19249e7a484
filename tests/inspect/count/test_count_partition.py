"""``count_partition``: exact within any bounds, and what ``ls`` shows of a log."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import OffsetOutOfRangeError, StorageError
from stratalog.inspect.count import partition as module
from stratalog.inspect.count.partition import count_partition, size_partition, tally
from stratalog.inspect.count.within import count_within
from stratalog.inspect.file.count import count_file
from stratalog.inspect.file.span import segment_spans
from stratalog.inspect.partition.sources import find_sources
from stratalog.inspect.range.bounds import Bounds
from stratalog.inspect.range.offset_range import parse_offsets
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.layout import Codec
from stratalog.records.model import Record
from tests.inspect.logs import Unmappable, batch, segment
from tests.judges.peers.golden import golden_sets

SETS = golden_sets()
SOUND = [golden for golden in SETS if not golden.damaged]
RANGES = [
    "-7",
    "+7",
    ":+9",
    "start:-3",
    "5:60",
    "30",
    ":end",
    "end",
    "@2024-03-13T04:27:00Z:1m",
    "@2024-03-13",
]


def counts_of(golden, wanted="start", **options):
    sources = find_sources(golden.log_dirs)
    return [count_partition(s, parse_offsets(wanted, 0), **options) for s in sources.partitions]


@pytest.mark.parametrize("golden", SOUND, ids=[golden.name for golden in SOUND])
@pytest.mark.parametrize("offsets", RANGES)
def test_a_count_is_the_number_of_records_that_a_scan_gives(golden, offsets):
    for partition in counts_of(golden, offsets):
        place = partition.source.topic_partition
        chosen = {"topics": place.topic, "partitions": place.partition, "offsets": offsets}
        s = stratalog.scan(
            golden.log_dirs, **chosen, control=True, columns=["offset", "is_control", "position"]
        )
        try:
            rows = s.to_table().to_pylist()
        except OffsetOutOfRangeError:  # the partition ends before the range begins
            rows = []
        total = tally(partition.segments)
        assert total.records == sum(not row["is_control"] for row in rows)
        assert total.control_records == sum(row["is_control"] for row in rows)
        if offsets not in (":end", "start"):
            continue
        files = [count_file(path) for path in partition.source.segments]
        if not partition.source.log_start:
            assert total.batches == sum(file.batches for file in files)


def rows_of(rows, span):
    end = span.next_offset
    timed = [row for row in rows if row["timestamp"] >= 0]
    return [row for row in timed if span.base_offset <= row["offset"] < (end or 2**63)]


@pytest.mark.parametrize("golden", SOUND, ids=[golden.name for golden in SOUND])
def test_start_and_end_are_kafkas_and_times_are_those_of_the_records(golden):
    expected = golden.expected()
    for partition in counts_of(golden, every_segment=True, times=True):
        topic, number = partition.source.topic_partition
        total = tally(partition.segments)
        assert partition.start_offset == golden.log_start_offset(topic, number)
        assert partition.end_offset == golden.log_end_offset(topic, number)
        assert total.segments == len(partition.source.segments)
        rows = [r for r in expected if (r["topic"], r["partition"]) == (topic, number)]
        times = [row["timestamp"] for row in rows if row["timestamp"] >= 0]
        spans = list(segment_spans(partition.source.segments))
        if times and not total.control_records:
            assert total.last_time == max(times)
            parts = [rows_of(rows, span) for span in spans]
            assert total.first_time == min(part[0]["timestamp"] for part in parts if part)
        if golden.name.startswith(("v0-", "v07-")) and "k090" not in golden.name:
            assert (total.first_time, total.last_time) == (None, None)


def test_only_segments_at_an_edge_are_decoded(tmp_path, monkeypatch):
    for n in range(5):
        segment(tmp_path, 6 * n, batch(6 * n) + batch(6 * n + 3))
    decoded = []

    def noting(path, *rest, **options):
        decoded.append(int(Path(path).stem))
        return count_within(path, *rest, **options)

    monkeypatch.setattr(module, "count_within", noting)
    (source,) = find_sources(tmp_path).partitions
    for offsets, edges, records in [
        ("start", [], 30),
        ("6:24", [], 18),
        ("7:24", [6], 17),
        ("8:22", [6, 18], 14),
        ("-8", [18], 8),
        (":+1", [0], 1),
        ("@1970-01-01", [0, 6, 12, 18, 24], 30),
    ]:
        decoded.clear()
        count = count_partition(source, parse_offsets(offsets, 0))
        assert (tally(count.segments).records, decoded) == (records, edges), offsets


def test_a_count_within_knows_offsets_batches_and_the_end(tmp_path):
    path = segment(tmp_path, 0, batch(0) + batch(3) + batch(6) + batch(9)[:-1])
    count = count_within(path, Bounds(start=4, end=8))
    assert (count.records, count.batches) == (4, 2)
    assert (count.first_offset, count.last_offset, count.next_offset) == (4, 7, 9)
    assert not count.end.is_clean
    assert count.log_bytes == 3 * len(batch(0))
    nothing = count_within(path, Bounds(start=100))
    assert (nothing.records, nothing.first_offset, nothing.next_offset) == (0, None, 9)
    many = segment(tmp_path, 0, b"".join(batch(3 * n, size=2000) for n in range(3000)))
    assert count_within(many, Bounds(start=1)).batches == 3000


def test_a_batch_whose_crc_is_wrong_is_counted_within_bounds_as_without(tmp_path):
    wrong = batch(3).replace(b"v" * 20, b"w" * 20)
    path = segment(tmp_path, 0, batch(0) + wrong + batch(6))
    assert count_file(path).records == 9
    assert count_within(path, Bounds(start=1)).records == 8


@pytest.mark.parametrize("file_system", [None, Unmappable()], ids=["mapped", "read"])
@pytest.mark.parametrize("size", [20, 30_000])
def test_times_are_the_same_by_windows_and_by_hops(tmp_path, file_system, size):
    rng = random.Random(size)
    times = [rng.randrange(10**12, 2 * 10**12) for _ in range(240)]
    data = b"".join(
        build_batch(
            [Record(value=b"v" * size, timestamp=time) for time in times[at : at + 3]],
            BatchOptions(codec=rng.choice([Codec.NONE, Codec.NONE, Codec.GZIP])),
            base_offset=at,
        )
        for at in range(0, 240, 3)
    )
    path = segment(tmp_path, 0, data)
    count = count_file(path, times=True, file_system=file_system)
    assert (count.records, count.first_time, count.last_time) == (240, times[0], max(times))
    within = count_within(path, Bounds(start=4, end=100), file_system=file_system)
    assert (within.first_time, within.last_time) == (times[4], max(times[4:100]))
    assert count_file(path).first_time is None


@pytest.mark.parametrize("at", [3, 40, 79])
def test_a_hop_sees_the_time_of_every_batch(tmp_path, at):
    """One batch among large ones is the latest, wherever it stands."""
    times = [2000 if number == at else 1000 for number in range(80)]
    data = b"".join(
        build_batch([Record(value=b"v" * 90_000, timestamp=time)], base_offset=number)
        for number, time in enumerate(times)
    )
    count = count_file(segment(tmp_path, 0, data), times=True, file_system=Unmappable())
    assert (count.records, count.first_time, count.last_time) == (80, 1000, 2000)


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        (BatchOptions(), 100, 300),
        (BatchOptions(append_time=777), 777, 777),
        (BatchOptions(delete_horizon_ms=10**13), 100, 300),  # it stands where the base time stood
    ],
)
def test_times_are_those_that_readers_see(tmp_path, options, first, last):
    records = [Record(value=b"v", timestamp=time) for time in (100, 300, 200)]
    count = count_file(segment(tmp_path, 0, build_batch(records, options)), times=True)
    assert (count.first_time, count.last_time) == (first, last)


def test_no_time_is_none(tmp_path):
    none = build_batch([Record(value=b"v", timestamp=-1)])
    for data in (b"", none, b"nonsense" * 20):
        path = segment(tmp_path, 0, data)
        for count in (count_file(path, times=True), count_within(path, Bounds(start=0))):
            assert (count.first_time, count.last_time) == (None, None)


def test_damage_and_torn_tails_are_told_apart(tmp_path):
    segment(tmp_path, 0, batch(0) + batch(3)[:-1])
    segment(tmp_path, 6, batch(6) + batch(9)[:-1])
    (source,) = find_sources(tmp_path).partitions
    count = count_partition(source)
    assert [each.status for each in count.segments] == ["damaged", "torn"]
    assert tally(count.segments).status == "damaged"
    assert tally(count.segments[1:]).status == "torn"
    assert tally([]).status == "ok"
    assert (count.start_offset, count.end_offset) == (0, 9)


def test_a_file_that_vanished_is_counted_from_a_new_listing(tmp_path):
    paths = [segment(tmp_path, 6 * n, batch(6 * n) + batch(6 * n + 3)) for n in range(3)]
    (source,) = find_sources(tmp_path).partitions
    Path(paths[0]).write_bytes(batch(0) + batch(6))
    Path(paths[1]).unlink()
    for count in (count_partition(source), size_partition(source)):
        assert [each.file.path for each in count.segments] == [paths[0], paths[2]]
    (named,) = find_sources(paths).partitions
    with pytest.raises(StorageError, match="no such file"):
        count_partition(named)
    errors: list[StorageError] = []
    count = count_partition(named, on_error=errors.append)
    assert [error.path for error in errors] == [paths[1]]
    assert tally(count.segments).records == 12


def test_sizes_open_no_file(tmp_path, monkeypatch):
    segment(tmp_path, 7, batch(7))
    segment(tmp_path, 10, b"nonsense")
    (source,) = find_sources(tmp_path).partitions
    monkeypatch.setattr(os, "open", None)
    count = size_partition(source)
    total = tally(count.segments)
    assert (total.segments, total.log_bytes, total.status) == (2, len(batch(7)) + 8, "ok")
    assert count.start_offset == 7


def test_progress_counts_the_partition_up(tmp_path, monkeypatch):
    monkeypatch.setattr("stratalog.storage.segment.log_file.WINDOW_SIZE", 4096)
    data = [b"".join(batch(600 * n + 3 * k, size=200) for k in range(100)) for n in range(3)]
    for n in range(3):
        segment(tmp_path, 600 * n, data[n])
    (source,) = find_sources(tmp_path).partitions
    seen: list[int] = []
    count_partition(source, parse_offsets("1:1500", 0), progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] > len(data[0]) + len(data[1])
