"""Ranges: planned from few bytes, cut and packed as wanted, and always the rows that a whole scan shows."""

from __future__ import annotations

import json
import pickle
import random
import struct
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stratalog
from stratalog.errors import CorruptionError, UsageError
from stratalog.inspect.partition.ends import partition_ends
from stratalog.inspect.partition.offset_for_time import offset_for_time
from stratalog.inspect.partition.sources import PartitionSource, find_sources
from stratalog.inspect.range.plan import LogRange, plan_range
from stratalog.inspect.range.split import split_ranges
from stratalog.records.layout import Codec
from stratalog.types import TopicPartition
from tests.inspect.ranges import (
    SMALL,
    Counted,
    append_some,
    between,
    read,
    simple,
    source_of,
    whole,
    write,
)
from tests.judges.peers.golden import golden_set, golden_sets
from tests.scale import SCALE
from tests.storage.logs import T, batch, open_log

SETS = [golden for golden in golden_sets() if not golden.damaged]


def pieces_of(ranges, **how) -> list[LogRange]:
    return [piece for group in split_ranges(ranges, **how) for piece in group]


# --- against a whole scan ------------------------------------------------------------------------


@pytest.mark.parametrize("golden", SETS, ids=[golden.name for golden in SETS])
def test_every_range_of_a_golden_set_is_what_a_scan_shows(golden):
    chance = random.Random(golden.name)
    for folder in golden.log_dirs:
        for source in find_sources(str(folder)).partitions:
            rows = whole(source)
            ends = partition_ends(source)
            times = sorted({time for _, time in rows}) or [0]
            assert read(plan_range(source)) == rows
            for _ in range(8):
                start, end = sorted(chance.randint(ends.start, ends.end) for _ in range(2))
                planned = plan_range(source, start, end, cut_bytes=chance.choice([50, 500, 5000]))
                assert (planned.start, planned.end) == (start, end)
                assert read(planned) == between(rows, start, end)
                parts = pieces_of([planned], split_bytes=chance.choice([1, 300, 3000]))
                assert read(*parts) == between(rows, start, end)
                first, last = sorted(chance.choice(times) + chance.choice([0, 1]) for _ in range(2))
                timed = plan_range(source, start, end, start_time=first, end_time=last)
                assert read(timed) == between(rows, start, end, first, last)


@pytest.mark.parametrize("golden", SETS, ids=[golden.name for golden in SETS])
def test_the_first_offset_of_a_time_is_the_first_that_a_scan_shows(golden):
    for folder in golden.log_dirs:
        for source in find_sources(str(folder)).partitions:
            table = stratalog.scan(
                list(source.segments), columns=["offset", "timestamp_ms"], control=True
            ).to_table()
            rows = list(
                zip(table["offset"].to_pylist(), table["timestamp_ms"].to_pylist(), strict=True)
            )
            rows = [row for row in rows if row[0] >= source.log_start]
            times = {time for _, time in rows if time >= 0}
            for time in {0, *times, *(each + 1 for each in times), *(each - 1 for each in times)}:
                wanted = next((offset for offset, at in rows if at >= time), None)
                assert offset_for_time(source, time) == wanted, (source.name, time)


def test_the_first_offset_of_a_time_is_the_one_that_kafka_told():
    told = 0
    for golden in SETS:
        path = golden.path / "list-offsets.jsonl"
        if not path.exists():
            continue
        sources = {
            source.topic_partition: source
            for folder in golden.log_dirs
            for source in find_sources(str(folder)).partitions
        }
        for line in map(json.loads, path.read_text().splitlines()):
            time = line["query"] if isinstance(line["query"], int) else line.get("time")
            if time is None or line["isolation"] != "read_uncommitted":
                continue
            source = sources[TopicPartition(line["topic"], line["partition"])]
            wanted = None if line["offset"] < 0 else line["offset"]
            assert offset_for_time(source, time) == wanted
            told += 1
    assert told > 100


BATCHES = st.lists(
    st.tuples(
        st.integers(1, 5),  # records
        st.integers(0, 200),  # bytes of each value
        st.integers(-50, 60),  # how much later than the one before
        st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4]),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=60 * SCALE, deadline=None)
@given(batches=BATCHES, data=st.data())
def test_random_logs_ranges_and_splits(tmp_path_factory, batches, data):
    time, made = T, []
    for records, size, later, codec in batches:
        time += later
        times = [time + (7 * n) % 11 for n in range(records)]
        made.append(batch(*[b"x" * size] * records, timestamp=times, codec=codec))
    source = source_of(write(tmp_path_factory.mktemp("log") / "t-0", made))
    rows = whole(source)
    count = sum(records for records, *_ in batches)
    assert len(rows) == count
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, count + 2)] * 2)))
    first, last = sorted(data.draw(st.tuples(*[st.integers(T - 500, T + 500)] * 2)))
    cut_bytes = data.draw(st.sampled_from([1, 200, 1000, 1 << 20]))
    planned = plan_range(source, start, end, cut_bytes=cut_bytes)
    assert read(planned) == between(rows, start, end)
    timed = plan_range(source, start, end, start_time=first, end_time=last, cut_bytes=cut_bytes)
    assert read(timed) == between(rows, start, end, first, last)
    for each in (planned, timed):
        how = {
            "split_bytes": data.draw(st.sampled_from([1, 100, 777, 5000, 1 << 20])),
            "min_splits": data.draw(st.none() | st.integers(1, 20)),
            "max_records": data.draw(st.none() | st.integers(1, 50)),
        }
        parts = pieces_of([each], **how)
        assert read(*parts) == read(each)
        assert all(one.end <= other.start for one, other in pairwise(parts))
        if how["max_records"] is not None:
            assert all(part.end - part.start <= how["max_records"] for part in parts)
    slack = max((before - behind for (_, before), (_, behind) in pairwise(rows)), default=0)
    highest = 0
    for _, at in rows:
        highest = max(highest, at)
        slack = max(slack, highest - at)
    cut = plan_range(source, start, end, start_time=first, end_time=last, time_slack_ms=slack)
    assert read(cut) == between(rows, start, end, first, last)
    wanted = next((offset for offset, at in rows if at >= first), None)
    assert offset_for_time(source, first) == wanted


# --- indexes that lie ----------------------------------------------------------------------------


@settings(max_examples=60 * SCALE, deadline=None)
@given(data=st.data())
def test_no_index_leads_to_a_wrong_row(tmp_path_factory, data):
    folder = simple(tmp_path_factory.mktemp("log") / "t-0", 40)
    source = source_of(folder)
    rows = whole(source)
    for index in sorted(folder.glob("*index")):
        entries = index.read_bytes()
        match data.draw(
            st.sampled_from(["keep", "flip", "cut", "zeros", "noise", "other", "gone"])
        ):
            case "flip" if entries:
                at = data.draw(st.integers(0, len(entries) * 8 - 1))
                flipped = bytearray(entries)
                flipped[at // 8] ^= 1 << at % 8
                index.write_bytes(flipped)
            case "cut":
                index.write_bytes(entries[: data.draw(st.integers(0, len(entries)))])
            case "zeros":
                index.write_bytes(entries + bytes(480))
            case "noise":
                index.write_bytes(data.draw(st.binary(max_size=96)))
            case "other":
                names = sorted(folder.glob(f"*{index.suffix}"))
                index.write_bytes(data.draw(st.sampled_from(names)).read_bytes())
            case "gone":
                index.unlink()
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, 120)] * 2)))
    planned = plan_range(source, start, end, cut_bytes=200)
    assert read(planned) == between(rows, start, end)
    assert read(*pieces_of([planned], split_bytes=300)) == between(rows, start, end)
    time = T + data.draw(st.integers(-1, 125))
    assert read(plan_range(source, start_time=time)) == between(rows, start_time=time)
    assert offset_for_time(source, time) == next((n for n, at in rows if at >= time), None)


def test_positions_that_are_wrong_do_not_matter(tmp_path):
    source = source_of(simple(tmp_path / "t-0"))
    rows = whole(source)
    planned = plan_range(source, 10, 170)
    for position in (1, 60, 99, 10**6):
        for end_position in (0, 1, 130, 10**6):
            moved = tuple(
                each._replace(position=position, end_position=end_position)
                for each in planned.slices
            )
            assert read(replace(planned, slices=moved)) == between(rows, 10, 170)


def test_a_batch_inside_of_a_value_is_not_taken_for_one(tmp_path):
    """Not even where, in the file that compaction left, it lies where a batch was planned to lie."""
    inner = batch(b"inner", b"inner", base_offset=40)
    log = open_log(tmp_path / "t-0")
    for _ in range(20):
        log.append(batch(b"outer", inner * 8, b"outer"))
    log.roll()
    append_some(log, 1)
    log.close()
    source = source_of(tmp_path / "t-0")
    planned = plan_range(source, 41, 60)
    first, *_ = planned.slices
    path = Path(first.path)
    data = path.read_bytes()
    lying = first._replace(position=data.index(inner), file_size=len(data) + 1)
    assert read(replace(planned, slices=(lying,))) == between(whole(source), 41, 60)


# --- how much is read ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Four segments, 200,000 records, a millisecond between batches."""
    folder = tmp_path_factory.mktemp("large") / "t-0"
    log = open_log(folder, {"segment.bytes": 8 << 20})
    for number in range(20_000):
        log.append(batch(*[b"%1500d" % number], timestamp=T + number))
    log.close()
    return source_of(folder)


def total(source: PartitionSource) -> int:
    return sum(Path(path).stat().st_size for path in source.segments)


def test_a_range_of_one_percent_reads_little_more(large):
    counted = Counted()
    planned = plan_range(large, 9_000, 9_200, counted)
    rows = read(planned, file_system=counted)
    assert [offset for offset, _ in rows] == list(range(9_000, 9_200))
    assert counted.bytes < 0.02 * total(large)
    assert planned.size_bytes < 0.012 * total(large)


def test_a_time_of_one_percent_reads_little_more(large):
    counted = Counted()
    start = offset_for_time(large, T + 9_000, counted)
    end = offset_for_time(large, T + 9_200, counted)
    assert (start, end) == (9_000, 9_200)
    assert len(read(plan_range(large, start, end, counted), file_system=counted)) == 200
    assert counted.bytes < 0.02 * total(large)
    counted = Counted()
    planned = plan_range(
        large, file_system=counted, start_time=T + 9_000, end_time=T + 9_200, time_slack_ms=0
    )
    assert len(read(planned, file_system=counted)) == 200
    assert counted.bytes < 0.02 * total(large)


def test_a_lower_bound_of_times_cuts_within_a_segment(large):
    planned = plan_range(large, start_time=T + 9_000)
    assert planned.size_bytes < 0.56 * total(large)
    assert read(planned)[0] == (9_000, T + 9_000)


def test_an_upper_bound_of_times_alone_leaves_out_nothing(tmp_path):
    log = open_log(tmp_path / "t-0", SMALL)
    append_some(log, 60)
    log.append(batch(b"late", timestamp=T))
    log.close()
    source = source_of(tmp_path / "t-0")
    assert (180, T) in read(plan_range(source, end_time=T + 10))
    early = plan_range(source, end_time=T + 10, time_slack_ms=0)
    assert (180, T) not in read(early)
    assert early.end < 20


def test_splits_read_what_the_range_does_and_hardly_more(large):
    counted = Counted()
    planned = plan_range(large, file_system=counted, cut_bytes=128 << 10)
    parts = pieces_of([planned], split_bytes=2 << 20)
    assert len(parts) >= 15
    assert counted.bytes < 0.02 * total(large)
    counted = Counted()
    assert len(read(*parts, file_system=counted)) == 20_000
    assert counted.bytes < 1.1 * total(large)
    sizes = [part.size_bytes for part in parts]
    assert max(sizes) < 2 * min(sizes)


# --- cutting and packing -------------------------------------------------------------------------


def test_a_plan_goes_to_another_process(tmp_path):
    planned = plan_range(source_of(simple(tmp_path / "t-0")), 7, 99)
    assert pickle.loads(pickle.dumps(planned)) == planned
    assert planned.name == "t-0"
    assert (planned.topic, planned.partition) == ("t", 0)


def test_a_plan_holds_only_what_is_there(tmp_path):
    source = source_of(simple(tmp_path / "t-0"))
    assert (plan_range(source, -5, 10**9).start, plan_range(source, -5, 10**9).end) == (0, 180)
    assert plan_range(source, 500, 600).slices == ()
    assert plan_range(replace(source, visible_end=50)).end == 50
    assert plan_range(replace(source, log_start=70), 3).start == 70
    with pytest.raises(UsageError, match="ends before it begins"):
        plan_range(source, 5, 4)


def test_many_small_partitions_become_few_groups(tmp_path):
    simple(tmp_path / "t-0", 3)
    one = plan_range(source_of(tmp_path / "t-0"))
    many = [replace(one, partition=number) for number in range(1000)]
    groups = split_ranges(many, split_bytes=64 << 20)
    assert len(groups) < 20
    assert [piece.partition for group in groups for piece in group] == list(range(1000))
    assert len(split_ranges(many, split_bytes=64 << 20, min_splits=100)) >= 100
    assert split_ranges([], split_bytes=1) == []


def test_a_small_partition_is_divided_where_that_is_asked_for(tmp_path):
    planned = plan_range(source_of(simple(tmp_path / "t-0")))
    groups = split_ranges([planned], split_bytes=64 << 20, min_splits=7)
    assert len(groups) >= 7
    groups = split_ranges([planned], split_bytes=64 << 20, max_records=50)
    assert [sum(piece.end - piece.start for piece in group) for group in groups] == [45] * 4
    for wrong in (
        {"split_bytes": 0},
        {"split_bytes": 1, "min_splits": 0},
        {"split_bytes": 1, "max_records": 0},
    ):
        with pytest.raises(UsageError, match="at least 1"):
            split_ranges([planned], **wrong)


def test_damage_within_a_range_is_told_and_outside_of_it_is_not(tmp_path):
    folder = simple(tmp_path / "t-0")
    source = source_of(folder)
    rows = whole(source)
    path = Path(source.segments[2])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    base = int(path.stem)
    behind = int(Path(source.segments[3]).stem)
    assert read(plan_range(source, 0, base)) == between(rows, 0, base)
    assert read(plan_range(source, behind)) == between(rows, behind)
    with pytest.raises(CorruptionError) as told:
        read(plan_range(source))
    assert told.value.path == str(path)


@settings(max_examples=60 * SCALE, deadline=None)
@given(data=st.data())
def test_a_wrong_offset_which_no_crc_covers_is_told_or_does_not_matter(tmp_path_factory, data):
    folder = simple(tmp_path_factory.mktemp("log") / "t-0", 30)
    source = source_of(folder)
    rows = whole(source)
    # Every batch but the last of all, whose offset nothing follows.
    number = data.draw(st.integers(0, 28))
    name = max(
        int(Path(path).stem) for path in source.segments if int(Path(path).stem) <= number * 3
    )
    path = folder / f"{name:020d}.log"
    log = bytearray(path.read_bytes())
    size = 12 + int.from_bytes(log[8:12], "big")
    at = (number * 3 - name) // 3 * size
    bit = data.draw(st.integers(0, 63))
    log[at + bit // 8] ^= 1 << bit % 8
    path.write_bytes(log)
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, 30)] * 2)))
    for parts in (
        lambda planned: [planned],
        lambda planned: pieces_of([planned], split_bytes=300),
    ):
        try:
            shown = read(*parts(plan_range(source, 3 * start, 3 * end, cut_bytes=200)))
        except CorruptionError:
            continue
        assert shown == between(rows, 3 * start, 3 * end)


def test_entries_of_old_brokers_are_understood(tmp_path):
    """Which name the first offset of an append, or its last with the place of its first batch."""
    folder = simple(tmp_path / "t-0")
    source = source_of(folder)
    rows = whole(source)
    for name, change in (("first", -2), ("append", 3)):
        for index in folder.glob("*.index"):
            entries = struct.iter_unpack(">ii", index.read_bytes())
            index.write_bytes(b"".join(struct.pack(">ii", n + change, at) for n, at in entries))
        for start in range(0, 180, 13):
            planned = plan_range(source, start, start + 40, cut_bytes=200)
            assert read(planned) == between(rows, start, start + 40), name
            assert read(*pieces_of([planned], split_bytes=300)) == between(rows, start, start + 40)


def test_a_damaged_set_is_read_up_to_its_damage():
    torn = golden_set("v2-torn")
    for folder in torn.log_dirs:
        for source in find_sources(str(folder)).partitions:
            if source.name == "nectar-payments-1":
                with pytest.raises(CorruptionError, match="at byte 1590"):
                    read(plan_range(source))
            else:
                assert read(plan_range(source)) == whole(source)
