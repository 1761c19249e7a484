"""Segments that were begun and given up: not there for readers, and everything else stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.inspect.count.partition import count_partition
from stratalog.inspect.partition.abandoned import without_leftovers
from stratalog.inspect.partition.ends import partition_ends
from stratalog.inspect.partition.sources import PartitionSource
from stratalog.inspect.range.offset_range import parse_offsets
from stratalog.inspect.range.partition_reader import PartitionReader
from stratalog.inspect.range.plan import plan_range
from stratalog.inspect.range.reader import RangeReader
from stratalog.records.columns import Selection
from stratalog.records.layout import Column
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.types import TopicPartition
from tests.inspect.logs import batch, segment

FILES = OsFileSystem()
ZEROS = bytes(5000)


def source_of(folder: Path, *segments: tuple[int, bytes]) -> PartitionSource:
    paths = tuple(segment(folder, base, data) for base, data in segments)
    place = TopicPartition("orders", 0)
    return PartitionSource(
        folder=str(folder / "orders-0"), topic_partition=place, segments=paths, is_listed=True
    )


def batches(start: int, end: int) -> bytes:
    return b"".join(batch(offset, 1) for offset in range(start, end))


def bases(source: PartitionSource) -> list[int]:
    return [int(Path(path).stem) for path in source.segments]


@pytest.mark.parametrize("nothing", [b"", ZEROS])
def test_a_segment_that_was_given_up_is_not_there(tmp_path, nothing):
    source = source_of(tmp_path, (0, batches(0, 10)), (5, nothing))
    assert bases(without_leftovers(source, FILES)) == [0]


@pytest.mark.parametrize("nothing", [b"", ZEROS])
def test_several_of_them(tmp_path, nothing):
    source = source_of(tmp_path, (0, batches(0, 3)), (3, batches(3, 10)), (5, b""), (7, nothing))
    assert bases(without_leftovers(source, FILES)) == [0, 3]


@pytest.mark.parametrize(
    ("segments", "kept"),
    [
        ([(0, batches(0, 5)), (5, b"")], [0, 5]),  # just begun
        ([(0, batches(0, 5)), (5, ZEROS)], [0, 5]),
        ([(0, batches(0, 5)), (9, b"")], [0, 9]),
        ([(0, batches(0, 10)), (5, batches(5, 6))], [0, 5]),  # something is wrong, but not this
        ([(0, batches(0, 10)), (5, ZEROS + b"x")], [0, 5]),
        ([(0, batches(0, 10))], [0]),
        ([(5, b"")], [5]),
        ([(0, b""), (5, b"")], [0, 5]),
        ([(0, batches(0, 9) + batch(9, 1)[:30]), (9, b"")], [0, 9]),
    ],
)
def test_all_others_stay(tmp_path, segments, kept):
    source = source_of(tmp_path, *segments)
    assert without_leftovers(source, FILES) == source
    assert bases(source) == kept


@pytest.mark.parametrize("gone", [0, 1])
@pytest.mark.parametrize("is_folder", [False, True])
def test_a_file_that_cannot_be_read_is_for_those_who_read(tmp_path, gone, is_folder):
    source = source_of(tmp_path, (0, batches(0, 10)), (5, b""))
    path = Path(source.segments[gone])
    path.unlink()
    if is_folder:
        path.mkdir()
    assert without_leftovers(source, FILES) == source


def test_nothing_but_the_last_is_opened_where_that_holds_something(tmp_path):
    source = source_of(tmp_path, (0, batches(0, 5)), (5, batches(5, 10)), (10, batches(10, 11)))
    for path in source.segments[:2]:
        Path(path).unlink()
    assert without_leftovers(source, FILES) == source


def test_readers_find_all_records_and_the_end(tmp_path):
    """The state was: ten records and the end at 5, and nothing from 5 on."""
    left = source_of(tmp_path, (0, batches(0, 10)), (5, b""))
    source = without_leftovers(left, FILES)
    count = count_partition(source, every_segment=True)
    assert (count.segments[0].file.records, count.start_offset, count.end_offset) == (10, 0, 10)
    ends = partition_ends(source, stable=True)
    assert (ends.start, ends.end, ends.stable) == (0, 10, 10)
    selection = Selection(columns=Column.OFFSET)
    for text, rows in (("5:", 5), ("5:7", 2), ("-3", 3), ("2:7", 5)):
        wanted = parse_offsets(text, 0)
        reader = PartitionReader(selection, wanted, None, lambda _: None)
        assert sum(taken.rows for _, taken in reader.read(source)) == rows, text
        counted = count_partition(source, wanted)
        assert sum(each.file.records for each in counted.segments) == rows, text
    planned = plan_range(source, 5)
    assert (planned.start, planned.end) == (5, 10)
    assert sum(taken.rows for _, taken in RangeReader(selection).read(planned)) == 5
