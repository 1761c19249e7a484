"""Readers that hold a view while its segments are replaced: in the process that owns the log they finish on
the old files; in another process they never read a new file as an old one."""

from __future__ import annotations

import errno
import gc
import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from stratalog.errors import StorageError
from stratalog.records.columns import RECORD_COLUMNS, Selection, records_of
from stratalog.records.control import ControlType
from stratalog.storage.files.filesystem import OsFileSystem, ReadableFile
from stratalog.storage.names import FileKind
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.segment.segment import Segment
from stratalog.storage.views.log_view import Isolation, LogView
from stratalog.storage.views.read_columns import read_columns
from stratalog.storage.views.read_only import open_view
from tests.storage.logs import T, batch, end_txn, in_txn, open_log
from tests.storage.replace.rewrites import Keep, even, rewrite

CONFIGS = {"internal.segment.bytes": 400, "index.interval.bytes": 64}
#: What of a segment a reader may have opened before the swap.
LOOKS: dict[str, Callable[[Segment], object]] = {
    "log": lambda segment: segment.log.size(),
    "index": lambda segment: segment.max_timestamp,
    "aborted": lambda segment: segment.aborted,
}
PARTS = tuple(LOOKS)
RECORDS = Selection(columns=RECORD_COLUMNS)
COMBINATIONS = list(product([False, True], repeat=3))


class Watched(OsFileSystem):
    """The machine's files; ``before_open`` is called before a file is opened to be read."""

    before_open: Callable[[str], None] | None = None

    def open_readable(self, path: str) -> ReadableFile:
        if self.before_open is not None:
            self.before_open(path)
        return super().open_readable(path)


def fill(folder: Path) -> None:
    log = open_log(folder, CONFIGS, watermark="written")
    for number in range(8):
        log.append(batch(b"plain %d" % number, timestamp=T + number))
        log.append(in_txn(7, number * 2, b"aborted %d" % number, timestamp=T + number))
        end_txn(log, ControlType.ABORT, 7)
        log.append(in_txn(7, number * 2 + 1, b"committed %d" % number, timestamp=T + number))
        end_txn(log, ControlType.COMMIT, 7)
    log.close()


def opened(folder: Path, files: OsFileSystem | None = None) -> PartitionLog:
    return open_log(folder, CONFIGS, is_clean=True, watermark="written", file_system=files)


def read(view: LogView, again: Callable[[], LogView] | None = None) -> list[tuple[int, int]]:
    """Offset and time of the committed records, and what the time indexes say: all files are needed."""
    return [
        (record.offset, record.timestamp)
        for taken in read_columns(view, RECORDS, Isolation.COMMITTED, again=again)
        for record in records_of(taken)
    ]


def times(view: LogView) -> list[int]:
    return [segment.max_timestamp for segment in view.segments.segments]


def swap(log: PartitionLog, keep: Keep = even) -> None:
    old = log.segments[1:4]
    assert log.replace_segments(old, rewrite(log, old, keep))


def open_parts(view: LogView, parts: tuple[str, ...]) -> None:
    for segment in view.segments.segments[1:4]:
        for part in parts:
            LOOKS[part](segment)


@pytest.mark.parametrize("are_opened", COMBINATIONS)
@pytest.mark.parametrize("is_removed", [False, True])
def test_an_old_view_of_the_owner_is_read_to_its_end(
    tmp_path: Path, are_opened: tuple[bool, ...], is_removed: bool
) -> None:
    fill(tmp_path)
    log = opened(tmp_path)
    expected, expected_times = read(log.view), times(log.view)
    log.close()
    log = opened(tmp_path)
    held = log.view
    open_parts(
        held, tuple(part for part, is_open in zip(PARTS, are_opened, strict=True) if is_open)
    )
    swap(log)
    if is_removed:
        assert log.remove_due(all_of_them=True) > 0
    swap(log)  # a second one takes the names under which the first set the files aside
    assert read(held) == expected
    assert times(held) == expected_times
    assert held.segments.segments[1].find_offset(held.segments[1].base_offset) is not None
    assert read(log.view) == [row for row in expected if row in read(log.view)]
    assert read(log.view) != expected
    log.close()


@pytest.mark.parametrize("are_opened", COMBINATIONS)
@pytest.mark.parametrize("is_removed", [False, True])
def test_a_view_of_another_process_is_old_or_new_and_never_both(
    tmp_path: Path, are_opened: tuple[bool, ...], is_removed: bool
) -> None:
    fill(tmp_path)
    log = opened(tmp_path)
    expected = read(log.view)

    def look() -> LogView:
        return open_view(str(tmp_path), OsFileSystem(), config=log.config).view

    held, other = look(), look()
    for view in (held, other):
        parts = (part for part, is_open in zip(PARTS, are_opened, strict=True) if is_open)
        open_parts(view, tuple(parts))
    before = times(look())
    swap(log)
    if is_removed:
        log.remove_due(all_of_them=True)
    after = read(log.view)
    assert after != expected
    # Each segment is the old one to its end or an error that leads to a new view.
    for number, segment in enumerate(held.segments.segments[:-1]):
        is_replaced = 1 <= number < 4
        has_log, has_index, has_aborted = are_opened if is_replaced else (True, True, True)
        assert (outcome(segment, "log") == segment.size_bytes) == has_log
        assert (outcome(segment, "index") == before[number]) == (has_log or has_index)
        assert bool(outcome(segment, "aborted")) == has_aborted
    assert read(other, again=look) in (expected, after)
    log.close()


def outcome(segment: Segment, part: str) -> object:
    """What a part of a segment is; None if its file is gone."""
    try:
        return LOOKS[part](segment)
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        return None


@pytest.mark.parametrize("kind", [".log", ".index", ".timeindex", ".txnindex"])
@pytest.mark.parametrize("part", PARTS)
def test_a_swap_between_any_two_openings_of_a_reader(tmp_path: Path, kind: str, part: str) -> None:
    """The owner swaps just before the reader opens a file of a certain kind: the reader gets what was there
    before, though it found nothing open when it began."""
    fill(tmp_path)
    log = opened(tmp_path)
    expected = LOOKS[part](log.segments[1])
    log.close()
    files = Watched()
    log = opened(tmp_path, files)
    segment = log.segments[1]
    name = Path(segment.path(FileKind.LOG)).name.replace(".log", kind)

    def before_open(path: str) -> None:
        if Path(path).name == name:
            files.before_open = None
            swapping = threading.Thread(target=swap, args=(log,))
            swapping.start()
            swapping.join()

    files.before_open = before_open
    found = LOOKS[part](segment)
    assert found == expected
    log.close()


@pytest.mark.parametrize("kind", [".log", ".index", ".timeindex", ".txnindex"])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("has_log", [False, True])
def test_a_swap_between_any_two_openings_of_a_reader_elsewhere(
    tmp_path: Path, kind: str, part: str, has_log: bool
) -> None:
    fill(tmp_path)
    log = opened(tmp_path)
    files = Watched()
    view = open_view(str(tmp_path), files, config=log.config).view
    segment = view.segments[1]
    expected = LOOKS[part](log.segments[1])
    if has_log:
        _ = segment.log
    name = Path(segment.path(FileKind.LOG)).name.replace(".log", kind)

    def before_open(path: str) -> None:
        if Path(path).name == name:
            files.before_open = None
            swap(log, lambda header: header.base_offset % 2 == 0 and not header.is_transactional)

    files.before_open = before_open
    assert outcome(segment, part) in (expected, None)
    log.close()


def test_files_that_are_held_for_readers_are_closed_with_the_last_of_them(tmp_path: Path) -> None:
    fill(tmp_path)
    log = opened(tmp_path)
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    held = log.view
    count = len(log.segments[1:4])
    swap(log)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + count
    del held
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
    log.close()


def test_a_segment_that_was_made_again_is_not_read_as_the_old_one(tmp_path: Path) -> None:
    """Without a swap: a log that starts over at the same offset has a new file of the old name."""
    log = open_log(tmp_path, CONFIGS)
    for number in range(20):
        log.append(batch(b"old %d" % number))
    log.close()
    log = opened(tmp_path)
    held = log.view
    first = held.segments[1].base_offset
    log.restart(first)
    for number in range(20):
        log.append(batch(b"new %d" % number))
    with pytest.raises(StorageError) as caught:
        _ = held.segments[1].log
    assert caught.value.errno == errno.ENOENT
    log.close()
