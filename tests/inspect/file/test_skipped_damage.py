"""Reading behind damage: what ``on_damage="skip"`` leaves out, and what it says of it."""

from __future__ import annotations

import pytest

import stratalog
from stratalog.errors import CorruptionError, OffsetOutOfRangeError, UsageError
from stratalog.inspect.file.misplaced import is_misplaced
from stratalog.inspect.file.skipped_damage import OnDamagedBatch
from stratalog.inspect.partition.ends import EndsCache
from stratalog.inspect.partition.sources import find_sources
from stratalog.inspect.range.plan import plan_range
from stratalog.inspect.range.reader import RangeReader
from stratalog.inspect.range.split import split_ranges
from stratalog.records.columns import RECORD_COLUMNS, Selection, records_of
from tests.inspect.logs import batch, flipped, segment
from tests.inspect.ranges import COLUMNS, rows_of

SIZE = len(batch(0))


def offsets(records) -> list[int]:
    return [int(offset) for offset in records.to_table()["offset"].to_pylist()]


def damaged(batches: int, number: int, at: int, bit: int = 4) -> bytes:
    """Batches of three records, one of them with a flipped bit."""
    made = [batch(3 * each) for each in range(batches)]
    made[number] = flipped(made[number], at, bit)
    return b"".join(made)


@pytest.mark.parametrize(
    ("at", "reason"),
    [(80, "crc_mismatch"), (16, "unknown_magic"), (10, "crc_mismatch"), (8, "size_too_small")],
)
def test_reading_goes_on_at_the_next_intact_batch(tmp_path, at, reason):
    """Also where the size or the magic byte is wrong, so that the next batch must be searched for."""
    path = segment(tmp_path, 0, damaged(6, 2, at, 7 if at == 8 else 3))
    segment(tmp_path, 18, batch(18))
    records = stratalog.scan(tmp_path / "orders-0", on_damage="skip")
    assert offsets(records) == [*range(6), *range(9, 21)]
    (skipped,) = records.skipped
    assert (skipped.path, skipped.position, skipped.size_bytes) == (path, 2 * SIZE, SIZE)
    assert (skipped.start_offset, skipped.resume_offset) == (6, 9)
    assert skipped.reason == reason or at == 10
    assert offsets(records) == [*range(6), *range(9, 21)]  # as often as wanted
    assert len(records.skipped) == 1


def test_where_nothing_intact_follows_in_a_segment_the_next_one_is_read(tmp_path):
    segment(tmp_path, 0, damaged(3, 2, 80))
    segment(tmp_path, 9, batch(9))
    records = stratalog.scan(tmp_path / "orders-0", on_damage="skip")
    assert offsets(records) == [*range(6), *range(9, 12)]
    assert [each.resume_offset for each in records.skipped] == [9]


def test_where_nothing_intact_follows_at_all_that_is_said(tmp_path):
    segment(tmp_path, 0, damaged(3, 2, 80))
    records = stratalog.scan(tmp_path / "orders-0", on_damage="skip")
    assert offsets(records) == list(range(6))
    assert [each.resume_offset for each in records.skipped] == [None]
    assert "nothing intact follows" in str(records.skipped[0])


def test_a_batch_that_is_out_of_order_is_not_taken_for_the_next_one(tmp_path):
    """Its CRC matches: no CRC covers an offset."""
    data = damaged(5, 2, 80)
    data = data[: 3 * SIZE] + batch(0) + data[4 * SIZE :]
    segment(tmp_path, 0, data)
    records = stratalog.scan(tmp_path / "orders-0", on_damage="skip")
    assert offsets(records) == [*range(6), *range(12, 15)]


def test_a_batch_inside_of_a_damaged_value_is_not_read(tmp_path):
    """The damaged batch says where it ends, and there the next one is."""
    from stratalog.records.builder import build_batch
    from stratalog.records.model import Record

    outer = build_batch([Record(batch(100) * 2)], base_offset=3)
    segment(tmp_path, 0, batch(0) + flipped(outer, 70, 0) + batch(4))
    records = stratalog.scan(tmp_path / "orders-0", on_damage="skip")
    assert offsets(records) == [0, 1, 2, 4, 5, 6]


def test_the_error_says_where_to_resume_and_what_was_not_read(tmp_path):
    segment(tmp_path, 0, damaged(6, 2, 80))
    for number in (1, 2):
        segment(tmp_path, 0, batch(0), partition=f"orders-{number}")
    with pytest.raises(CorruptionError) as raised:
        stratalog.scan(tmp_path).to_table()
    assert "reading can resume at offset 9" in str(raised.value)
    assert "2 more partitions were not read" in str(raised.value)


def test_what_is_no_choice_is_refused(tmp_path):
    segment(tmp_path, 0, batch(0))
    with pytest.raises(UsageError, match="on_damage is fail or skip, not 'cut'"):
        stratalog.scan(tmp_path, on_damage="cut")


def test_damage_is_not_skipped_where_it_may_end_a_transaction(tmp_path):
    segment(tmp_path, 0, batch(0))
    with pytest.raises(UsageError, match="cannot be skipped in a read_committed read"):
        stratalog.scan(tmp_path, on_damage="skip", isolation="read_committed")


# --- a raised offset -------------------------------------------------------------------------------


def raised(count, wrong, bit):
    """So many batches of three records; one of them says that it begins at a higher offset."""
    made = [batch(3 * number) for number in range(count)]
    made[wrong] = flipped(made[wrong], 7 - bit // 8, bit % 8)
    return b"".join(made)


@pytest.mark.parametrize(
    ("wrong", "bit"),
    [(4, 0), (3, 1), (4, 1), *((n, bit) for n in (1, 3, 4) for bit in (6, 30, 50))],
)
def test_a_batch_with_a_raised_offset_is_left_out_alone(tmp_path, wrong, bit):
    """Both neighbours contradict it: it is not taken for later records, and what follows it is read."""
    segment(tmp_path, 0, raised(6, wrong, bit))
    records = stratalog.scan(tmp_path / "orders-0", on_damage="skip")
    assert offsets(records) == [*range(3 * wrong), *range(3 * wrong + 3, 18)]
    (skipped,) = records.skipped
    assert (skipped.position, skipped.size_bytes) == (wrong * SIZE, SIZE)
    assert (skipped.start_offset, skipped.resume_offset) == (3 * wrong, 3 * wrong + 3)


def test_a_raised_offset_before_the_next_segment_is_left_out_alone(tmp_path):
    segment(tmp_path, 0, raised(4, 3, 6))
    segment(tmp_path, 12, batch(12))
    records = stratalog.scan(tmp_path / "orders-0", on_damage="skip")
    assert offsets(records) == [*range(9), *range(12, 15)]
    assert [each.resume_offset for each in records.skipped] == [12]


@pytest.mark.parametrize("bounds", [{"start": 4, "end": 11}, {"start": 9}, {"end": 9}, {"end": 7}])
def test_bounds_around_a_raised_offset(tmp_path, bounds):
    segment(tmp_path, 0, raised(6, 2, 6))
    records = stratalog.scan(tmp_path / "orders-0", on_damage="skip", **bounds)
    wanted = [*range(6), *range(9, 18)]
    first, end = bounds.get("start", 0), bounds.get("end", 18)
    assert offsets(records) == [offset for offset in wanted if first <= offset < end]


@pytest.mark.parametrize("wrong", [2, 4])
def test_ranges_leave_out_a_raised_offset_alone(tmp_path, wrong):
    """As Spark reads: ends, a plan, and a reader; also where the batch lies near the end of the log."""
    segment(tmp_path, 0, raised(6, wrong, 6))
    (source,) = find_sources(str(tmp_path / "orders-0")).partitions
    cache = EndsCache(skips_damage=True)
    assert cache.ends_of(source).end == 18
    planned = plan_range(source, cache=cache, cut_bytes=SIZE)
    found, positions = [], []
    for group in split_ranges([planned], split_bytes=SIZE):
        for each in group:
            reader = RangeReader(Selection(columns=RECORD_COLUMNS), on_damage=OnDamagedBatch.SKIP)
            for _, taken in reader.read(each):
                found += [record.offset for record in records_of(taken)]
            positions += [skipped.position for skipped in reader.skipped]
            assert not reader.vanished
    assert sorted(found) == [*range(3 * wrong), *range(3 * wrong + 3, 18)]
    assert set(positions) == {wrong * SIZE}


@pytest.mark.parametrize(
    ("expected", "first", "last", "following", "is_found"),
    [
        (6, 70, 72, 9, True),
        (6, 6, 8, 9, False),  # in its place
        (6, 7, 8, 9, False),  # a gap that compaction left
        (6, 70, 72, 5, False),  # the one after it is wrong
        (6, 70, 72, 80, False),
        (
            6,
            70,
            72,
            12,
            True,
        ),  # it fits into a gap that compaction left, and the next one is below it
        (6, 70, 72, 8, False),  # it does not fit
    ],
)
def test_both_neighbours_must_contradict(expected, first, last, following, is_found):
    assert is_misplaced(expected, first, last, following) is is_found


@pytest.mark.parametrize(
    ("following", "second", "is_found"),
    [(12, 15, True), (12, 73, False), (9, 73, True), (72, 73, False), (5, 15, False)],
)
def test_the_batch_after_the_next_tells_which_of_two_is_wrong(following, second, is_found):
    """A raised offset is above all that follows; a lowered one is followed by one above it."""
    assert is_misplaced(6, 70, 72, following, second) is is_found


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_raised_offset_before_a_gap_is_left_out_alone(tmp_path, count):
    """Of a compacted segment: the batch after the damaged one is missing, and 15 and later follow."""
    later = [batch(offset) for offset in range(15, 15 + 3 * count, 3)]
    segment(tmp_path, 0, b"".join([batch(0), batch(3), batch(6 | 1 << 10), *later]))
    records = stratalog.scan(tmp_path / "orders-0", on_damage="skip")
    assert offsets(records) == [*range(6), *range(15, 15 + 3 * count)]
    (skipped,) = records.skipped
    assert (skipped.position, skipped.size_bytes) == (2 * SIZE, SIZE)
    assert (skipped.start_offset, skipped.resume_offset) == (6, 15)


def test_batches_below_the_expected_offset_are_said_by_their_own(tmp_path):
    """Nothing tells which of two offsets is wrong: those that are left out make no empty range."""
    segment(tmp_path, 0, b"".join([batch(0), batch(64), batch(2), batch(67)]))
    records = stratalog.scan(tmp_path / "orders-0", on_damage="skip")
    assert offsets(records) == [*range(3), *range(64, 70)]
    assert [(each.start_offset, each.resume_offset) for each in records.skipped] == [(2, 67)]


def test_the_end_of_a_log_says_what_is_left_out_behind_it(tmp_path):
    """No reader of ranges meets a damaged last batch: the end lies before it."""
    segment(tmp_path, 0, damaged(4, 3, 80))
    (source,) = find_sources(str(tmp_path / "orders-0")).partitions
    ends = EndsCache(skips_damage=True).ends_of(source)
    assert (ends.end, ends.damage) == (9, None)
    assert ends.skipped is not None
    assert (ends.skipped.position, ends.skipped.start_offset) == (3 * SIZE, 9)
    assert (ends.skipped.resume_offset, ends.skipped.reason) == (None, "crc_mismatch")


# --- bounds that cannot be -----------------------------------------------------------------------


def test_a_start_below_zero_is_refused(tmp_path):
    segment(tmp_path, 0, batch(0))
    with pytest.raises(UsageError, match="start is an offset, 0 or more, not -5"):
        stratalog.scan(tmp_path, start=-5)
    with pytest.raises(UsageError, match="end is an offset, 0 or more, not -5"):
        stratalog.scan(tmp_path, end=-5)


def test_a_start_beyond_the_end_of_every_partition_is_an_error(tmp_path):
    segment(tmp_path, 0, batch(0))
    with pytest.raises(OffsetOutOfRangeError) as raised:
        stratalog.scan(tmp_path, start=4).to_table()
    assert (raised.value.offset, raised.value.end) == (4, 3)
    assert stratalog.scan(tmp_path, start=3).to_table().num_rows == 0  # the end itself
    assert stratalog.scan(tmp_path, start=2, end=2).to_table().num_rows == 0  # nothing is asked for


def test_a_start_beyond_the_end_of_some_partitions_is_listed(tmp_path):
    segment(tmp_path, 0, batch(0) + batch(3))
    segment(tmp_path, 0, batch(0), partition="orders-1")
    records = stratalog.scan(tmp_path, start=4)
    assert offsets(records) == [4, 5]
    assert [(each.name, each.end) for each in records.beyond] == [("orders-1", 3)]


@pytest.mark.parametrize("paths", [None, 7, [None], ["x", 7]])
def test_paths_that_are_none_are_refused(paths):
    with pytest.raises(UsageError):
        stratalog.scan(paths)


# --- ranges --------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [80, 16, 10, 8])
@pytest.mark.parametrize("split_bytes", [None, 300])
@pytest.mark.parametrize("bounds", [(0, 60), (4, 50), (7, 8), (8, 30), (9, 60)])
def test_ranges_go_on_behind_damage(tmp_path, at, split_bytes, bounds):
    """Whatever is damaged, and wherever ranges begin, end and are cut; damage outside of one is no matter."""
    segment(tmp_path, 0, damaged(20, 2, at, 3))
    (source,) = find_sources(str(tmp_path)).partitions
    cache = EndsCache(skips_damage=True)
    assert cache.ends_of(source).end == 60
    planned = plan_range(source, *bounds, cache=cache, cut_bytes=200)
    pieces = [planned]
    if split_bytes is not None:
        pieces = [each for group in split_ranges([planned], split_bytes=300) for each in group]
    found = []
    for piece in pieces:
        reader = RangeReader(COLUMNS, on_damage=OnDamagedBatch.SKIP)
        found += [offset for offset, _ in rows_of(reader.read(piece))]
        assert not reader.vanished
        assert [each for each in reader.skipped if each.resume_offset != 9] == [], piece
    assert found == [each for each in range(*bounds) if not 6 <= each < 9]
