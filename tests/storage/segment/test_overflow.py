"""Segments that are wider than an index can say: what brokers before 1.1 could make of compacted ones.

Kafka splits such a segment when it has to make its indexes anew.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.errors import DamagedLogError
from stratalog.records.control import ControlType
from stratalog.records.layout import INT32_MAX, Codec
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.storage.replace.split import SegmentPart, plan_split
from stratalog.storage.segment.find import BatchPlace
from tests.storage.logs import (
    SIZE,
    T,
    bases,
    end_txn,
    flip,
    in_txn,
    name,
    offsets,
    open_log,
    small,
    write_segment,
)
from tests.storage.wide_segments import FAR, WIDE, content, wide

# --- splitting -----------------------------------------------------------------------------------


def test_sound_batches_above_31_bits_are_not_cut(tmp_path: Path) -> None:
    """Before it was split, recovery took the first batch that no index could hold for a torn tail."""
    log = open_log(wide(tmp_path / "t-0"))
    assert log.report.cuts == []
    assert log.report.split_segments == [(0, [0, FAR, 2 * FAR + 5])]
    assert bases(log) == [0, FAR, 2 * FAR + 5]
    assert offsets(log) == list(WIDE)
    assert log.log_end == 2 * FAR + 6
    log.append(small(0))
    log.close()
    kinds = {path.suffix for path in (tmp_path / "t-0").iterdir()}
    assert kinds == {".log", ".index", ".timeindex", ".snapshot", ""}
    again = open_log(tmp_path / "t-0", is_clean=True)
    assert again.report.split_segments == []
    assert offsets(again) == [*WIDE, 2 * FAR + 6]
    again.close()


def test_a_segment_in_the_middle_is_split_and_the_next_one_stays(tmp_path: Path) -> None:
    folder = wide(tmp_path / "t-0")
    write_segment(folder, 3 * FAR)
    log = open_log(folder)
    assert bases(log) == [0, FAR, 2 * FAR + 5, 3 * FAR]
    assert offsets(log) == [*WIDE, *range(3 * FAR, 3 * FAR + 5)]
    log.close()


def test_a_segment_whose_first_batch_does_not_fit_leaves_an_empty_one(tmp_path: Path) -> None:
    log = open_log(wide(tmp_path / "t-0", FAR + 3, FAR + 4))
    assert bases(log) == [0, FAR + 3]
    assert offsets(log) == [FAR + 3, FAR + 4]
    log.close()


def test_after_an_orderly_stop_it_is_split_where_it_has_no_index(tmp_path: Path) -> None:
    folder = wide(tmp_path / "t-0")
    write_segment(folder, 3 * FAR)
    log = open_log(folder, is_clean=True, recovery_point=3 * FAR + 5)
    assert bases(log) == [0, FAR, 2 * FAR + 5, 3 * FAR]
    log.close()


def test_after_an_orderly_stop_it_stays_where_it_has_one_as_in_kafka(tmp_path: Path) -> None:
    folder = wide(tmp_path / "t-0", has_index=True)
    write_segment(folder, 3 * FAR)
    log = open_log(folder, is_clean=True, recovery_point=3 * FAR + 5)
    assert log.report.split_segments == []
    assert bases(log) == [0, 3 * FAR]
    assert offsets(log) == [*WIDE, *range(3 * FAR, 3 * FAR + 5)]
    assert offsets(log, FAR + 1) == [FAR + 5, 2 * FAR + 5, *range(3 * FAR, 3 * FAR + 5)]
    log.close()


def test_the_last_segment_is_split_also_after_an_orderly_stop(tmp_path: Path) -> None:
    """Appends go to it, and it has to be closed with a time entry that it cannot hold."""
    folder = wide(tmp_path / "t-0", has_index=True)
    log = open_log(folder, is_clean=True, recovery_point=2 * FAR + 6)
    assert bases(log) == [0, FAR, 2 * FAR + 5]
    assert offsets(log) == list(WIDE)
    log.close()


def test_the_time_of_the_file_is_kept(tmp_path: Path) -> None:
    """Where records have no timestamps, retention goes by it."""
    folder = wide(tmp_path / "t-0")
    os.utime(folder / name(0, ".log"), (1_500_000_000, 1_500_000_000))
    log = open_log(folder)
    log.close()
    times = [path.stat().st_mtime for path in sorted(folder.glob("*.log"))]
    assert times == [1_500_000_000] * 3


def test_transactions_are_found_in_the_segments_that_they_end_in(tmp_path: Path) -> None:
    made = open_log(tmp_path / "made")
    for at in (0, FAR + 2):
        made.append_as_follower(in_txn(7, 0 if at == 0 else 1, b"gone", base_offset=at))
        end_txn(made, ControlType.ABORT, 7)
    data = b"".join((tmp_path / "made" / name(base, ".log")).read_bytes() for base in bases(made))
    expected = [segment.aborted for segment in made.segments]
    made.close()
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / name(0, ".log")).write_bytes(data)
    log = open_log(folder)
    assert [segment.aborted for segment in log.segments] == expected
    assert all(len(each) == 1 for each in expected)
    log.close()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_of_the_old_formats_are_split(tmp_path: Path, codec: Codec) -> None:
    """Such segments were written before record batches were: of a wrapper only the last offset shows."""
    options = MessageOptions(magic=1, codec=codec)
    folder = tmp_path / "t-0"
    folder.mkdir()
    data = b"".join(
        build_messages([Record(b"a", b"k", T), Record(b"b", b"k", T)], options, base_offset=at)
        for at in (0, FAR - 1, FAR + 1)
    )
    (folder / name(0, ".log")).write_bytes(data)
    log = open_log(folder)
    assert log.report.cuts == []
    assert len(log.segments) > 1
    assert offsets(log) == [0, 1, FAR - 1, FAR, FAR + 1, FAR + 2]
    log.close()


# --- a bit that flipped looks the same -----------------------------------------------------------


def test_one_batch_alone_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    """No CRC covers an offset: nothing else says that the log goes on so far above."""
    folder = wide(tmp_path / "t-0", 0, 1, FAR + 2)
    before = content(folder)
    with pytest.raises(
        DamagedLogError, match=r"2147483650 above the segment's.*offset 2"
    ) as caught:
        open_log(folder)
    assert caught.value.position == 2 * SIZE
    assert content(folder) == before
    log = open_log(folder, on_damage="cut")
    assert offsets(log) == [0, 1]
    [cut] = log.report.cuts
    assert cut.kept_as is not None
    assert Path(cut.kept_as).read_bytes() == small(FAR + 2)
    log.close()


def test_one_batch_alone_is_believed_where_the_next_segment_starts_above_it(tmp_path: Path) -> None:
    folder = wide(tmp_path / "t-0", 0, 1, FAR + 2)
    write_segment(folder, FAR + 10)
    log = open_log(folder)
    assert bases(log) == [0, FAR + 2, FAR + 10]
    log.close()


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("byte", range(4))
@pytest.mark.parametrize("number", range(5))
def test_a_flipped_bit_of_an_offset_is_refused(
    tmp_path: Path, number: int, byte: int, bit: int
) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    write_segment(folder, 0)
    flip(folder / name(0, ".log"), number * SIZE + byte, bit)
    before = content(folder)
    with pytest.raises(DamagedLogError):
        open_log(folder)
    assert content(folder) == before


def test_a_flipped_bit_in_a_replacement_does_not_take_the_segments_behind_it(
    tmp_path: Path,
) -> None:
    """What it replaces goes by the offsets that it covers."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    for base in (0, 5, 10):
        write_segment(folder, base)
    write_segment(folder, 0, [2, 9], stage=".swap")
    flip(folder / name(0, ".log.swap"), SIZE + 2)
    with pytest.raises(DamagedLogError):
        open_log(folder)
    assert (folder / name(10, ".log")).exists()


# --- where to split ------------------------------------------------------------------------------


@given(
    st.integers(0, 1 << 40),
    st.lists(
        st.tuples(st.integers(0, 1 << 32), st.integers(0, 5), st.integers(61, 200), st.booleans()),
        min_size=1,
        max_size=30,
    ),
)
def test_every_part_fits_its_index_and_none_is_left_out(
    base: int, batches: list[tuple[int, int, int, bool]]
) -> None:
    places, at, position = [], base, 0
    for gap, delta, size, is_wrapper in batches:
        first = at + gap
        known = -1 if is_wrapper else first
        places.append(BatchPlace(position, size, known, first + delta, 0))
        at, position = first + delta + 1, position + size
    parts = plan_split(base, places)
    assert parts[0].base_offset == base
    assert [part.start for part in parts] == [0, *(part.end for part in parts[:-1])]
    assert parts[-1].end == position
    assert [part.base_offset for part in parts] == sorted({part.base_offset for part in parts})
    for place in places:
        [part] = [part for part in parts if part.start <= place.position < part.end]
        assert 0 <= place.last_offset - part.base_offset <= INT32_MAX
        assert place.base_offset < 0 or part.base_offset <= place.base_offset
    for part, following in pairwise(parts):
        assert all(
            place.last_offset < following.base_offset
            for place in places
            if part.start <= place.position < part.end
        )


def test_what_fits_is_not_split() -> None:
    place = BatchPlace(0, 61, INT32_MAX, INT32_MAX, 0)
    assert plan_split(0, [place]) == [SegmentPart(0, 0, 61)]
