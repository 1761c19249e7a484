"""Ranges are read while a broker deletes, compacts, cuts and appends: no wrong row, none twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.errors import CorruptionError, StorageError, UsageError
from stratalog.inspect.partition.sources import find_sources
from stratalog.inspect.range.plan import LogRange, plan_range
from stratalog.inspect.range.reader import LostOffsets, RangeReader
from stratalog.inspect.range.split import split_ranges
from stratalog.records.columns import Selection
from stratalog.records.layout import Column
from stratalog.records.scan import scan_batches
from stratalog.storage.files.filesystem import DirEntry, OsFileSystem, ReadableFile
from stratalog.storage.segment.scan import rebuild_index
from stratalog.storage.segment.sparse_index import IndexLimits
from tests.inspect.ranges import (
    COLUMNS,
    SMALL,
    Counted,
    Row,
    append_some,
    between,
    read,
    rows_of,
    simple,
    source_of,
    whole,
)
from tests.scale import SCALE
from tests.storage.logs import T, batch, open_log

COUNT = 40
END = 3 * COUNT


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    return simple(tmp_path_factory.mktemp("master") / "t-0", COUNT)


class Interrupted(OsFileSystem):
    """Lets something happen when a data file is opened for the n-th time."""

    def __init__(self, **actions: Callable[[], None]) -> None:
        self.actions = {int(name[1:]): action for name, action in actions.items()}
        self.opened = 0

    def open_readable(self, path: str) -> ReadableFile:
        if path.endswith(".log"):
            self.opened += 1
            action = self.actions.pop(self.opened, None)
            if action is not None:
                action()
        return super().open_readable(path)


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def remove(path: Path) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        path.with_suffix(suffix).unlink(missing_ok=True)


def replace_segments(paths: Sequence[Path], keeps: Callable[[int], bool]) -> None:
    """What compaction does: one segment in the place of several, with some batches left out."""
    kept = b""
    for path in paths:
        data = path.read_bytes()
        for header in scan_batches(data):
            if keeps(header.base_offset):
                kept += data[header.position : header.end_position]
    swap = paths[0].with_suffix(".log.swap")
    swap.write_bytes(kept)
    for path in paths[1:]:
        remove(path)
    swap.rename(paths[0])
    base = int(paths[0].stem)
    file = OsFileSystem().open_readable(str(paths[0]))
    index = rebuild_index(file, base, IndexLimits(150), len(kept))
    file.close()
    paths[0].with_suffix(".index").write_bytes(bytes(index.offsets))
    index.close_times()
    paths[0].with_suffix(".timeindex").write_bytes(bytes(index.times))


def shown(
    wanted: Sequence[LogRange], file_system: OsFileSystem | None = None
) -> tuple[list[Row], list[LostOffsets]]:
    reader = RangeReader(COLUMNS, file_system)
    rows = [row for each in wanted for row in rows_of(reader.read(each))]
    return rows, reader.vanished


# --- what is gone --------------------------------------------------------------------------------


def test_a_segment_that_retention_took_is_told(tmp_path, master):
    folder = Path(shutil.copytree(master, tmp_path / "t-0"))
    source = source_of(folder)
    rows = whole(source)
    planned = plan_range(source, 10, 100)
    first, second, third, *_ = segments(folder)
    remove(first)
    remove(second)
    start = int(third.stem)
    assert shown([planned]) == (between(rows, start, 100), [LostOffsets("t-0", 10, start)])


def test_what_retention_takes_while_it_is_read_is_told(tmp_path, master):
    folder = Path(shutil.copytree(master, tmp_path / "t-0"))
    source = source_of(folder)
    rows = whole(source)
    planned = plan_range(source)
    paths = segments(folder)
    middle = int(paths[3].stem)

    def retention() -> None:
        for path in paths[:3]:
            remove(path)

    # The first was open already, and is read to its end.
    found, lost = shown([planned], Interrupted(n2=retention))
    second = int(paths[1].stem)
    assert found == between(rows, 0, second) + between(rows, middle)
    assert lost == [LostOffsets("t-0", second, middle)]


def test_a_partition_that_is_gone_is_told_as_a_whole(tmp_path, master):
    folder = Path(shutil.copytree(master, tmp_path / "t-0"))
    planned = plan_range(source_of(folder), 30, 90)
    shutil.rmtree(folder)
    assert shown([planned]) == ([], [LostOffsets("t-0", 30, 90)])


def test_a_file_that_was_named_and_is_gone_is_an_error(tmp_path, master):
    folder = Path(shutil.copytree(master, tmp_path / "t-0"))
    (source,) = find_sources(list(map(str, segments(folder)))).partitions
    rows = whole(source)
    planned = plan_range(source, 5, 50)
    assert read(planned) == between(rows, 5, 50)
    remove(segments(folder)[0])
    with pytest.raises(StorageError, match="no such file"):
        read(planned)


def test_a_log_that_was_cut_is_told(tmp_path, master):
    folder = Path(shutil.copytree(master, tmp_path / "t-0"))
    source = source_of(folder)
    rows = whole(source)
    planned = plan_range(source)
    last = segments(folder)[-1]
    base, size = int(last.stem), last.stat().st_size
    for cut, end in ((size - 1, END - 3), (0, base)):
        with last.open("r+b") as file:
            file.truncate(cut)
        assert shown([planned]) == (between(rows, 0, end), [LostOffsets("t-0", end, END)])
    remove(last)
    found, lost = shown([planned])
    assert found == between(rows, 0, base)
    assert lost == [LostOffsets("t-0", base, END)]


def test_a_log_that_was_cut_and_written_anew_shows_what_is_there_now(tmp_path):
    log = open_log(tmp_path / "t-0", SMALL)
    append_some(log, COUNT)
    planned = plan_range(source_of(tmp_path / "t-0"))
    log.truncate(50)
    while log.log_end < END:
        log.append(batch(b"other", b"others"))
    log.close()
    rows, lost = shown([planned])
    assert rows == between(whole(source_of(tmp_path / "t-0")), 0, END)
    assert not lost


def test_a_log_that_ends_in_a_gap_lost_nothing(tmp_path, master):
    folder = Path(shutil.copytree(master, tmp_path / "t-0"))
    source = source_of(folder)
    rows = whole(source)
    last = int(segments(folder)[-1].stem)
    planned = plan_range(source, 0, last - 1)
    replace_segments(segments(folder)[-2:-1], lambda offset: offset < last - 9)
    found, lost = shown([planned])
    assert found == between(rows, 0, last - 9)
    assert not lost


# --- what is replaced ----------------------------------------------------------------------------


def test_a_compacted_segment_is_read_by_offsets_not_by_positions(tmp_path, master):
    folder = Path(shutil.copytree(master, tmp_path / "t-0"))
    source = source_of(folder)
    rows = whole(source)
    groups = split_ranges([plan_range(source, cut_bytes=200)], split_bytes=300)
    parts = [part for group in groups for part in group]
    assert len(parts) > 10
    replace_segments(segments(folder)[:4], lambda offset: offset % 2 == 0)
    kept = whole(source_of(folder))
    assert len(kept) < len(rows)
    assert shown(parts) == (kept, [])
    # And once more: the same offsets are the same rows.
    assert shown(parts) == (kept, [])


ACTIONS = st.lists(
    st.tuples(
        st.integers(1, 30),  # when
        st.sampled_from(["retain", "compact", "append", "roll"]),
        st.integers(0, 20),  # where
        st.integers(1, 4),  # how many
    ),
    max_size=4,
)


@settings(max_examples=80 * SCALE, deadline=None)
@given(actions=ACTIONS, data=st.data())
def test_no_wrong_row_and_none_twice_whatever_happens_meanwhile(
    tmp_path_factory, master, actions, data
):
    folder = Path(shutil.copytree(master, tmp_path_factory.mktemp("log") / "t-0"))
    source = source_of(folder)
    rows = whole(source)
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, END)] * 2)))
    planned = plan_range(source, start, end, cut_bytes=200)
    groups = split_ranges([planned], split_bytes=data.draw(st.sampled_from([200, 700, 10**6])))
    deleted, end_offset = [0], [END]

    def happen(what: str, where: int, count: int) -> None:
        paths = segments(folder)
        if what == "retain":
            for path in paths[: min(count, len(paths) - 1)]:
                remove(path)
            deleted.append(int(segments(folder)[0].stem))
        elif what == "compact":
            some = paths[where % len(paths) :][:count]
            if some[-1] != paths[-1]:
                replace_segments(some, lambda offset: offset % (where + 2) != 0)
        else:
            # As a writer does: behind the end, or in a new segment.
            path = paths[-1] if what == "append" else folder / f"{end_offset[0]:020d}.log"
            with path.open("ab") as log:
                log.write(batch(b"new", base_offset=end_offset[0]))
            end_offset[0] += 1

    files = Interrupted(**{f"n{when}": lambda each=each: happen(*each) for when, *each in actions})
    found, lost = shown([part for group in groups for part in group], files)
    left = whole(source_of(folder))
    assert found == sorted(set(found))
    assert set(found) <= set(between(rows, start, end))
    assert set(found) >= set(between(left, start, end))
    told = {offset for gap in lost for offset in range(gap.start, gap.end)}
    assert all(start <= offset < max(deleted) for offset in told)
    if len(deleted) == 1:
        assert not lost


def test_a_writer_is_followed_range_by_range(tmp_path):
    folder = tmp_path / "t-0"
    log = open_log(folder, SMALL)
    rows: list[Row] = []
    at = 0
    for _ in range(12):
        append_some(log, 4)
        planned = plan_range(source_of(folder), at)
        append_some(log, 3)  # behind the plan
        rows += read(planned)
        assert planned.end == rows[-1][0] + 1
        at = planned.end
    log.abandon()
    assert rows == between(whole(source_of(folder)), 0, at)


def test_zeros_behind_the_end_are_not_read(tmp_path):
    folder = tmp_path / "t-0"
    log = open_log(folder, {"preallocate": "true", "segment.bytes": 1 << 20})
    append_some(log, 30)
    planned = plan_range(source_of(folder))
    assert planned.end == 90
    assert planned.size_bytes < 6000
    append_some(log, 30)
    assert [offset for offset, _ in read(planned)] == list(range(90))
    log.abandon()


# --- the rest ------------------------------------------------------------------------------------


def test_damage_is_told_with_its_place_and_after_what_stands_before_it(tmp_path, master):
    folder = Path(shutil.copytree(master, tmp_path / "t-0"))
    source = source_of(folder)
    planned = plan_range(source)
    path = segments(folder)[1]
    data = bytearray(path.read_bytes())
    second = 12 + int.from_bytes(data[8:12], "big")
    data[-1] ^= 1
    path.write_bytes(data)
    reader = RangeReader(COLUMNS)
    rows: list[Row] = []

    def take() -> None:
        for part in reader.read(planned):
            rows.extend(rows_of([part]))

    with pytest.raises(CorruptionError) as told:
        take()
    assert (told.value.path, told.value.position) == (str(path), len(data) - second)
    assert told.value.reason == "crc_mismatch"
    assert rows[-1][0] == int(segments(folder)[2].stem) - 4


def test_a_read_that_failed_can_be_repeated(tmp_path, master):
    planned = plan_range(source_of(master), 10, 100)
    wanted = read(planned)

    class Failing(Counted):
        left = 4

        def open_readable(self, path: str) -> ReadableFile:
            self.left -= path.endswith(".log")
            if self.left == 0:
                raise StorageError("input/output error", path=path, errno=5)
            return super().open_readable(path)

    reader = RangeReader(COLUMNS, Failing())
    with pytest.raises(StorageError, match="input/output"):
        rows_of(reader.read(planned))
    assert rows_of(reader.read(planned)) == wanted
    # Who stops in the middle leaves nothing behind, either.
    next(reader.read(planned))
    assert rows_of(reader.read(planned)) == wanted


def test_what_times_left_out_is_not_looked_for_again(tmp_path):
    log = open_log(tmp_path / "t-0", SMALL)
    append_some(log, COUNT)
    early = batch(*[b"%020d" % 1] * 3, timestamp=1)
    for _ in range(COUNT):
        log.append(early)
    log.close()
    source = source_of(tmp_path / "t-0")
    planned = plan_range(source, 0, int(Path(source.segments[-1]).stem), start_time=T)
    assert planned.slices[-1].end < planned.end

    class Unlisted(OsFileSystem):
        def list_dir(self, path: str) -> list[DirEntry]:
            raise AssertionError(path)

    assert len(read(planned, file_system=Unlisted())) == END


def test_bytes_read_are_counted(tmp_path, master):
    source = source_of(master)
    planned = plan_range(source, 30, 60)
    reader = RangeReader(COLUMNS)
    assert len(rows_of(reader.read(planned))) == 30
    assert reader.bytes_read == planned.size_bytes
    counted = Counted()
    read(planned, file_system=counted)
    assert planned.size_bytes <= counted.log_bytes < planned.size_bytes + 2000


def test_columns_are_chosen_and_limits_hold(master):
    planned = plan_range(source_of(master))
    with pytest.raises(UsageError, match="without views"):
        RangeReader(Selection(views=True))
    with pytest.raises(CorruptionError, match="max_batch_bytes"):
        read(planned, selection=Selection(columns=COLUMNS.columns, max_batch_bytes=100))
    reader = RangeReader(Selection(columns=Column.VALUE, batch_rows=7))
    assert [taken.rows for _, taken in reader.read(planned)] == [6] * 20
