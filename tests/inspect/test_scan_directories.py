"""stratalog.scan on log directories and partitions' folders: the same records that Kafka reads there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

import stratalog
from stratalog.errors import CorruptionError, UnknownPartitionError, UsageError
from stratalog.records.layout import Codec, Ending
from stratalog.storage.files.filesystem import OsFileSystem, ReadableFile
from stratalog.storage.replace.settle import LISTINGS_MAX
from tests.inspect.logs import batch, segment
from tests.judges.peers.golden import GoldenSet, decoded, golden_set, golden_sets

SETS = golden_sets()
SOUND = [golden for golden in SETS if not golden.damaged]
COLUMNS = [
    "topic",
    "partition",
    "offset",
    "timestamp_ms",
    "timestamp_type",
    "key",
    "value",
    "headers",
]


def rows(scan: stratalog.Scan) -> list[dict[str, Any]]:
    listed = []
    for row in scan.to_table().to_pylist():
        row["timestamp"] = row.pop("timestamp_ms")
        row["headers"] = tuple((each["key"], each["value"]) for each in row["headers"])
        listed.append(row)
    return listed


def expected(golden: GoldenSet) -> list[dict[str, Any]]:
    """By topic, partition and offset. Sets of 0.7 have two keys more than a record has."""
    names = [name for name in COLUMNS if name != "timestamp_ms"] + ["timestamp"]
    listed = [{name: row[name] for name in names} for row in map(decoded, golden.expected())]
    return sorted(listed, key=lambda row: (row["topic"], row["partition"]))


@pytest.mark.parametrize("golden", SOUND, ids=[golden.name for golden in SOUND])
def test_a_log_directory_reads_as_kafka_read_it(golden):
    """Goal: whole sets at once, several log directories together, and what was deleted left out."""
    assert rows(stratalog.scan(golden.log_dirs, columns=COLUMNS)) == expected(golden)
    assert rows(stratalog.scan(golden.log_dirs, columns=COLUMNS, views=True)) == expected(golden)


@pytest.mark.parametrize("golden", SETS, ids=[golden.name for golden in SETS])
def test_a_partitions_folder_reads_as_kafka_read_it(golden):
    by_place = {
        place: list(some)
        for place, some in groupby(expected(golden), lambda row: (row["topic"], row["partition"]))
    }
    for partition in golden.partitions():
        place = partition.topic, partition.partition
        if (golden.name, partition.partition) == ("v2-torn", 1):
            with pytest.raises(CorruptionError):
                stratalog.scan(partition.dir).to_table()
            continue
        wanted = by_place.get(place, [])
        assert rows(stratalog.scan(partition.dir, columns=COLUMNS)) == wanted
        chosen = stratalog.scan(
            golden.log_dirs, topics=place[0], partitions=place[1], columns=COLUMNS
        )
        assert rows(chosen) == wanted


def test_records_below_the_log_start_are_read_from_files_only():
    golden = golden_set("v2-delete-records")
    folder = golden.partitions()[0]
    assert golden.log_start_offset(folder.topic, folder.partition) == 19
    read = stratalog.scan(folder.dir, columns=["offset"]).to_table()["offset"].to_pylist()
    assert read[0] == 19
    low = stratalog.scan(folder.dir, columns=["offset"], start=3, end=25).to_table()
    assert low["offset"].to_pylist() == list(range(19, 25))
    files = stratalog.scan(folder.segments, columns=["offset"]).to_table()["offset"].to_pylist()
    assert (files[0], files[19:]) == (0, read)


@pytest.mark.parametrize(
    "name", ["v2-plain", "v2-compacted", "v2-delete-records", "v1-gzip", "mixed"]
)
@pytest.mark.parametrize(
    ("offsets", "chooses"),
    [
        ("-7", lambda offset, start, end: offset >= end - 7),
        ("+7", lambda offset, start, end: offset >= start + 7),
        (":+7", lambda offset, start, end: offset < start + 7),
        ("-20:-10", lambda offset, start, end: end - 20 <= offset < end - 10),
        ("start:50", lambda offset, start, end: offset < 50),
        ("40:60", lambda offset, start, end: 40 <= offset < 60),
        ("30:+10", lambda offset, start, end: max(30, start) <= offset < max(30, start) + 10),
        (":end", lambda offset, start, end: True),
        ("end", lambda offset, start, end: False),
        ("-100000", lambda offset, start, end: True),
    ],
)
def test_offsets_are_resolved_for_every_partition(name, offsets, chooses):
    golden = golden_set(name)
    bounds = {
        (p.topic, p.partition): (
            golden.log_start_offset(p.topic, p.partition),
            golden.log_end_offset(p.topic, p.partition),
        )
        for p in golden.partitions()
    }
    wanted = [
        row
        for row in expected(golden)
        if chooses(row["offset"], *bounds[row["topic"], row["partition"]])
    ]
    assert rows(stratalog.scan(golden.log_dirs, offsets=offsets, columns=COLUMNS)) == wanted


def test_times_choose_by_the_timestamp_of_each_record():
    golden = golden_set("v2-timestamps")
    times = sorted(
        {row["timestamp"] for row in expected(golden) if 10**12 < row["timestamp"] < 10**13}
    )
    low, high = times[len(times) // 4], times[len(times) // 2]
    wanted = [row for row in expected(golden) if low <= row["timestamp"] < high]
    assert wanted
    assert rows(stratalog.scan(golden.path, offsets=f"@{low}:{high}", columns=COLUMNS)) == wanted
    late = [row for row in expected(golden) if row["timestamp"] >= 10**13 - 1]
    assert rows(stratalog.scan(golden.path, offsets=f"@{10**13 - 1}", columns=COLUMNS)) == late


def test_an_unnamed_file_has_its_own_start_and_end(tmp_path):
    path = tmp_path / "copy.bin"
    path.write_bytes(batch(40, 5) + batch(45, 5))
    other = tmp_path / "other.bin"
    other.write_bytes(batch(7, 2))
    table = stratalog.scan([path, other], offsets="+3:-1", columns=["offset"]).to_table()
    assert table["offset"].to_pylist() == list(range(43, 49))
    table = stratalog.scan([path, other], offsets="-2", columns=["offset"]).to_table()
    assert table["offset"].to_pylist() == [48, 49, 7, 8]


def test_the_end_is_behind_the_last_whole_batch(tmp_path):
    segment(tmp_path, 0, batch(0))
    segment(tmp_path, 3, batch(3) + batch(6)[:-1])
    s = stratalog.scan(tmp_path, offsets="-2", columns=["offset"])
    assert s.to_table()["offset"].to_pylist() == [4, 5]
    assert s.ends[-1].pause.ending == Ending.INCOMPLETE
    segment(tmp_path, 6, b"")
    Path(tmp_path / "orders-0" / f"{3:020}.log").write_bytes(batch(3))
    assert stratalog.scan(tmp_path, offsets="-2", columns=["offset"]).to_table()[
        "offset"
    ].to_pylist() == [4, 5]


def test_wrong_wishes_are_refused_at_once(tmp_path):
    segment(tmp_path, 0, batch(0))
    with pytest.raises(UnknownPartitionError, match="found orders"):
        stratalog.scan(tmp_path, topics="ordrs")
    with pytest.raises(UnknownPartitionError, match="found orders-0"):
        stratalog.scan(tmp_path, partitions="3")
    with pytest.raises(UsageError, match="offsets cannot be combined"):
        stratalog.scan(tmp_path, offsets="-5", start=3)
    with pytest.raises(UsageError, match="is not a range of offsets"):
        stratalog.scan(tmp_path, offsets="nonsense")


def test_a_torn_tail_is_damage_though_the_next_segment_is_not_wanted(tmp_path):
    segment(tmp_path, 0, batch(0) + batch(3)[:-1])
    segment(tmp_path, 6, batch(6))
    with pytest.raises(CorruptionError, match="short_tail"):
        stratalog.scan(tmp_path, end=3).to_table()


def test_empty_partitions_and_log_directories_have_no_records(tmp_path):
    segment(tmp_path, 0, b"", partition="empty-0")
    (tmp_path / "bare-3").mkdir()
    for offsets in (None, "-5", "+5", ":+5", "start:-1"):
        assert stratalog.scan(tmp_path, offsets=offsets).to_table().num_rows == 0


def test_each_run_lists_anew(tmp_path):
    segment(tmp_path, 0, batch(0))
    s = stratalog.scan(tmp_path, columns=["offset"])
    assert s.to_table().num_rows == 3
    segment(tmp_path, 3, batch(3))
    assert s.to_table().num_rows == 6
    assert s.with_columns(["topic"], batch_rows=4).to_table().num_rows == 6


class Changing(OsFileSystem):
    """A file system on which a broker is at work: before a file is opened, something happens."""

    def __init__(self) -> None:
        self.before: dict[str, list[Callable[[], None]]] = {}

    def open_readable(self, path: str) -> ReadableFile:
        waiting = self.before.get(Path(path).name, [])
        if waiting:
            waiting.pop(0)()
        return super().open_readable(path)


@pytest.fixture
def live(tmp_path):
    """Five segments of two batches; timestamps do not matter."""
    paths = [segment(tmp_path, 6 * n, batch(6 * n) + batch(6 * n + 3)) for n in range(5)]
    return tmp_path, paths, Changing()


def offsets_of(scan: stratalog.Scan) -> list[int]:
    listed: list[int] = scan.to_table()["offset"].to_pylist()
    return listed


def name_of(path: str) -> str:
    return Path(path).name


@pytest.mark.parametrize("first", range(5))
def test_segments_that_retention_deleted_are_left_out_and_told(live, first):
    root, paths, files = live

    def delete() -> None:
        for path in paths[: first + 2]:
            Path(path).unlink()

    s = stratalog.scan(root, columns=["offset"], file_system=files)
    # The last one is opened twice when the folder is looked at.
    is_last = first == len(paths) - 1
    files.before[name_of(paths[first])] = [*[lambda: None] * (2 * is_last), delete]
    gone = range(6 * first, 6 * first + 12)
    assert offsets_of(s) == [offset for offset in range(30) if offset not in gone]
    assert s.vanished == [paths[first]]


def test_segments_that_were_deleted_before_anything_was_read_are_told(live):
    root, paths, files = live
    s = stratalog.scan(root, columns=["offset"], file_system=files)
    for path in paths[:3]:
        Path(path).unlink()
    assert offsets_of(s) == list(range(18, 30))
    assert s.vanished == [paths[0]]


def test_segments_that_compaction_put_together_are_read_on_behind_what_was_read(live):
    """The first two were read, then all but the last became one file that starts where the first did."""
    root, paths, files = live

    def compact() -> None:
        cleaned = b"".join(batch(3 * n) for n in range(8) if n != 5)
        Path(paths[0]).write_bytes(cleaned)
        for path in paths[1:4]:
            Path(path).unlink()

    files.before[name_of(paths[2])] = [compact]
    s = stratalog.scan(root, columns=["offset"], file_system=files)
    assert offsets_of(s) == [offset for offset in range(30) if not 15 <= offset < 18]
    assert s.vanished == []


def test_a_segment_that_has_taken_the_place_of_several_is_not_read_twice(live):
    """It was listed as it was, and opened as it is: with what the next ones had held."""
    root, paths, files = live

    def compact() -> None:
        Path(paths[0]).write_bytes(b"".join(batch(3 * n) for n in range(8) if n != 5))
        for path in paths[1:4]:
            Path(path).unlink()

    files.before[name_of(paths[0])] = [compact]
    s = stratalog.scan(root, columns=["offset"], file_system=files)
    assert offsets_of(s) == [offset for offset in range(30) if not 15 <= offset < 18]
    assert s.vanished == []


def test_a_file_that_is_listed_and_cannot_be_opened_is_given_up(live):
    root, paths, files = live

    def missing() -> None:
        raise stratalog.StorageError("no such file or directory", path=paths[1], errno=2)

    files.before[name_of(paths[1])] = [missing] * (LISTINGS_MAX + 1)
    s = stratalog.scan(root, columns=["offset"], file_system=files)
    assert offsets_of(s) == [offset for offset in range(30) if not 6 <= offset < 12]
    assert s.vanished == [paths[1]]


def test_a_partition_that_is_deleted_meanwhile_ends(live):
    root, paths, files = live
    segment(root, 0, batch(0), partition="zebra-0")
    files.before[name_of(paths[2])] = [lambda: shutil.rmtree(root / "orders-0")]
    s = stratalog.scan(root, columns=["offset"], file_system=files)
    assert offsets_of(s) == [*range(12), 0, 1, 2]


def test_a_named_file_that_is_missing_is_an_error(live):
    _, paths, files = live
    files.before[name_of(paths[1])] = [lambda: Path(paths[1]).unlink()]
    with pytest.raises(stratalog.StorageError, match="no such file"):
        stratalog.scan(paths, file_system=files).to_table()


def test_what_is_appended_while_a_file_is_read_waits_for_the_next_run(live):
    root, paths, _ = live
    s = stratalog.scan(root, columns=["offset"], batch_rows=3)
    batches = iter(s)
    first = next(batches)["offset"].to_pylist()
    with Path(paths[-1]).open("ab") as file:
        file.write(batch(30) + batch(33)[:-1])
    rest = [offset for each in batches for offset in each["offset"].to_pylist()]
    assert first + rest == list(range(33))  # the last file was opened after the append
    assert s.ends[-1].pause.ending == Ending.INCOMPLETE


def test_time_bounds_leave_whole_files_out_by_their_time_index():
    golden = golden_set("v2-plain")
    (partition,) = golden.partitions()
    last = max(row["timestamp"] for row in expected(golden) if row["offset"] < 151)
    s = stratalog.scan(golden.path, start_time=last + 1, columns=["offset"])
    wanted = [row["offset"] for row in expected(golden) if row["timestamp"] > last]
    assert offsets_of(s) == wanted
    assert len(s.ends) == len(partition.segments) - 1


def test_bounds_hold_in_compressed_batches_of_every_partition(tmp_path):
    for number, start in enumerate((0, 50, 200)):
        data = batch(start, 40, codec=Codec.ZSTD) + batch(start + 40, 40, codec=Codec.ZSTD)
        segment(tmp_path, start, data, partition=f"orders-{number}")
    table = stratalog.scan(tmp_path, offsets="+38:+4", columns=["partition", "offset"]).to_table()
    assert table["offset"].to_pylist() == [
        start + n for start in (0, 50, 200) for n in range(38, 42)
    ]
