"""``count_file``: exact in every format, whatever way it takes through the file."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from stratalog.errors import StorageError
from stratalog.inspect.file import counter
from stratalog.inspect.file.count import count_file
from stratalog.inspect.file.counter import READ_AHEAD_BYTES, plan_hops
from stratalog.records.layout import Codec, Ending, Reason
from stratalog.storage.files.filesystem import OsReadableFile
from stratalog.storage.segment import log_file
from tests.inspect.logs import Unmappable, batch, flipped, segment
from tests.judges.peers.golden import golden_sets

SETS = golden_sets()
SOUND = [golden for golden in SETS if not golden.damaged]


@pytest.mark.parametrize("golden", SETS, ids=[golden.name for golden in SETS])
def test_count_of_golden_set_equals_what_kafka_read(golden):
    for partition in golden.partitions():
        start = golden.log_start_offset(partition.topic, partition.partition)
        counts = [count_file(str(path)) for path in partition.segments]
        expected = [
            row
            for row in golden.expected()
            if (row["topic"], row["partition"]) == (partition.topic, partition.partition)
        ]
        if golden.name == "v2-torn" and partition.partition == 1:
            assert sum(count.records for count in counts) == 76  # Kafka cut at the flipped bit: 34
        elif golden.name == "v2-delete-records":
            assert start > 0  # records below the log start are still there
            assert sum(count.records for count in counts) > len(expected)
        else:
            assert sum(count.records for count in counts) == len(expected)
        for count in counts:
            assert (count.topic, count.partition) == (partition.topic, partition.partition)
            assert count.size_bytes == Path(count.path).stat().st_size


@pytest.mark.parametrize("golden", SOUND, ids=[golden.name for golden in SOUND])
def test_count_of_golden_file_equals_kafkas_dump(golden):
    for dump in golden.dumps():
        count = count_file(str(golden.path / dump.path))
        assert count.end.is_clean
        assert count.batches == len(dump.batches)


def test_wrappers_and_compressed_entries_are_opened_to_be_counted():
    by_name = {golden.name: golden for golden in SETS}
    for name in ("v0-gzip", "v1-lz4", "v07-snappy", "mixed"):
        golden = by_name[name]
        counts = [count_file(str(path)) for p in golden.partitions() for path in p.segments]
        assert sum(c.records for c in counts) > sum(c.batches for c in counts)


def test_control_records_are_counted_apart():
    golden = next(golden for golden in SETS if golden.name == "v2-transactions")
    counts = [count_file(str(path)) for p in golden.partitions() for path in p.segments]
    assert sum(count.control_records for count in counts) > 0
    assert sum(count.records for count in counts) == len(golden.expected())


def test_offsets_are_those_of_the_first_and_last_batch(tmp_path):
    path = segment(tmp_path, 5, batch(7, 3) + batch(20, 4))
    count = count_file(path)
    assert (count.first_offset, count.last_offset) == (7, 23)
    empty = count_file(segment(tmp_path, 0, b""))
    assert (empty.first_offset, empty.last_offset, empty.records) == (None, None, 0)
    assert empty.end.is_clean


def test_torn_tail_ends_the_count_without_an_error(tmp_path):
    whole = batch(0) + batch(3)
    path = segment(tmp_path, 0, whole + batch(6)[:-1])
    count = count_file(path)
    assert count.records == 6
    assert count.end.pause.ending == Ending.INCOMPLETE
    assert count.end.pause.position == len(whole)
    assert count.end.unread_bytes == len(batch(6)) - 1


def test_damage_ends_the_count_at_its_position(tmp_path):
    first = batch(0)
    path = segment(tmp_path, 0, first + flipped(batch(3), 16, 7) + batch(6))
    count = count_file(path)
    assert count.records == 3
    assert count.end.error().position == len(first)
    assert count.end.error().path == path
    assert count.end.pause.reason == Reason.UNKNOWN_MAGIC


def test_missing_file_is_a_storage_error(tmp_path):
    with pytest.raises(StorageError, match="no such file"):
        count_file(str(tmp_path / "00000000000000000000.log"))


def counted_both_ways(monkeypatch, path):
    """The same file by hops (which need windows that are read), and by windows alone, read and mapped."""
    hops = count_file(path, file_system=Unmappable())
    mapped = count_file(path)
    with monkeypatch.context() as patched:
        patched.setattr(counter, "plan_hops", lambda size, batches, mapped: None)
        windows = count_file(path, file_system=Unmappable())
    assert hops == windows == mapped
    return hops


@pytest.mark.parametrize("seed", range(6))
def test_hops_count_what_windows_count(tmp_path, monkeypatch, seed):
    """Goal: no size of batch, order of sizes or kind of ending makes a hop see anything else."""
    rng = random.Random(seed)
    sizes = [rng.choice([40, 3000, 9000, 20_000, 70_000, 300_000]) for _ in range(60)]
    sizes[:40] = [70_000 if seed % 2 else 20_000] * 40
    data, offset = b"", 0
    for size in sizes:
        count = rng.randrange(1, 4)
        codec = rng.choice([Codec.NONE, Codec.NONE, Codec.GZIP])
        data += batch(offset, count, size=size // count, codec=codec)
        offset += count
    endings = [
        data,
        data[:-1],
        data + bytes(100),
        data + b"text " * 50,
        flipped(data, len(data) // 2 + 16, 6),
    ]
    counts = [
        counted_both_ways(monkeypatch, segment(tmp_path, 0, ending, partition=f"t-{number}"))
        for number, ending in enumerate(endings)
    ]
    assert counts[0].records == offset
    assert [count.end.is_clean for count in counts[:4]] == [True, False, False, False]


def test_hops_report_order_and_damage_at_the_right_position(tmp_path, monkeypatch):
    large = [batch(3 * number, size=30_000) for number in range(40)]
    place = sum(map(len, large[:30]))
    for wrong, reason in [
        (batch(10, size=30_000), Reason.OFFSET_ORDER),
        (flipped(large[30], 8, 7), Reason.SIZE_TOO_SMALL),
        (flipped(large[30], 23, 7), Reason.LAST_OFFSET_DELTA_RANGE),
        (flipped(large[30], 57, 7), Reason.RECORD_COUNT_RANGE),
    ]:
        data = b"".join([*large[:30], wrong, *large[31:]])
        count = counted_both_ways(monkeypatch, segment(tmp_path, 0, data))
        assert (count.end.pause.position, count.end.pause.reason) == (place, reason)
        assert count.records == 90


def test_hops_read_little_of_the_file(tmp_path, monkeypatch):
    path = segment(tmp_path, 0, b"".join(batch(3 * n, size=30_000) for n in range(100)))
    read = []
    plain = OsReadableFile.read_into

    def counting(self, position, buffer):
        read.append(len(buffer))
        return plain(self, position, buffer)

    monkeypatch.setattr(OsReadableFile, "read_into", counting)
    assert count_file(path).records == 300
    assert sum(read) < 700_000 < Path(path).stat().st_size


@pytest.mark.parametrize("file_system", [None, Unmappable()])
def test_file_cut_while_it_is_counted_ends_where_it_was_cut(tmp_path, monkeypatch, file_system):
    """A file that its owner truncates under us gives fewer bytes, and neither a signal nor an error."""
    monkeypatch.setattr(log_file, "MAPPED_SIZE", 1 << 20)
    data = b"".join(batch(3 * n, size=30_000) for n in range(200))
    path = segment(tmp_path, 0, data)

    def cut(position):
        if position > len(data) // 4:
            os.truncate(path, len(data) // 2 + 20)

    count = count_file(path, progress=cut, file_system=file_system)
    assert (count.records, count.end.pause.position) == (300, len(data) // 2)
    assert count.end.pause.ending == Ending.INCOMPLETE


def test_progress_rises_to_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(log_file, "MAPPED_SIZE", 4 << 20)
    path = segment(tmp_path, 0, b"".join(batch(3 * n, size=4000) for n in range(1500)))
    assert Path(path).stat().st_size > 8 << 20
    seen: list[int] = []
    count_file(path, progress=seen.append)
    assert seen == sorted(seen)
    assert 0 < seen[-1] <= Path(path).stat().st_size


@pytest.mark.parametrize(
    ("size_bytes", "batches", "mapped", "hops", "read_ahead"),
    [
        (512 << 10, 5000, False, False, None),
        (512 << 10, 65, False, False, None),
        (512 << 10, 32, False, True, READ_AHEAD_BYTES),
        (512 << 10, 2, False, True, READ_AHEAD_BYTES),
        (512 << 10, 1, False, True, 0),
        (0, 0, False, False, None),
        (512 << 10, 5000, True, False, None),
        (512 << 10, 2, True, False, None),
        (512 << 10, 1, True, True, 0),
    ],
)
def test_hop_plan(size_bytes, batches, mapped, hops, read_ahead):
    plan = plan_hops(size_bytes, batches, mapped=mapped)
    assert (plan is not None) == hops
    if plan is not None:
        assert plan.read_ahead_bytes == read_ahead
