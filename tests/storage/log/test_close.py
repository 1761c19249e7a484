"""The end of a log, beside those who still read it or flush it: nobody gets bytes of another file, and who
comes late is told that the log is closed."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from stratalog.errors import StorageError, StratalogError, UsageError
from stratalog.storage.files import filesystem
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.views.log_view import FileRegion, Isolation
from tests.storage.logs import batch, open_log, values

ENDS = [PartitionLog.close, PartitionLog.abandon]
both_ends = pytest.mark.parametrize("end", ENDS, ids=["close", "abandon"])
End = Callable[[PartitionLog], None]


def filled(folder: Path) -> PartitionLog:
    """Six batches, two a segment."""
    log = open_log(folder, {"internal.segment.bytes": 2 * len(batch(b"value 0"))})
    for at in range(6):
        log.append(batch(b"value %d" % at))
    assert len(log.segments) == 3
    return log


def region_at(log: PartitionLog, offset: int) -> FileRegion:
    region = log.read(offset).region
    assert region is not None
    return region


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@both_ends
def test_a_region_that_is_held_is_read_to_its_end(tmp_path: Path, end: End) -> None:
    log = filled(tmp_path)
    held = [region_at(log, offset) for offset in (0, 5)]
    wanted = [region.read() for region in held]
    end(log)
    with ExitStack() as stack:
        # Whoever takes the lowest numbers that are free gets none of theirs.
        for at in range(20):
            stack.enter_context((tmp_path / f"other-{at}").open("wb"))
        assert [region.read() for region in held] == wanted
        for region in held:
            assert os.pread(region.file.fileno(), 8, region.position) == region.read()[:8]


@both_ends
def test_the_files_are_closed_with_their_last_reader(tmp_path: Path, end: End) -> None:
    gc.collect()  # what other tests left must not be closed in between
    before = open_files()
    log = filled(tmp_path)
    regions = [region_at(log, offset) for offset in (0, 3, 5)]
    end(log)
    assert open_files() == before + 3
    regions.pop()
    assert open_files() == before + 2
    regions.clear()
    assert open_files() == before


@both_ends
def test_who_asks_a_closed_log_is_told_so(tmp_path: Path, end: End) -> None:
    log = filled(tmp_path)
    before = open_files()
    end(log)
    calls: list[Callable[[], object]] = [
        lambda: log.read(0),
        lambda: log.read(5),
        lambda: log.offset_for_time(1),
        log.offset_of_largest_time,
        log.sync,
        log.roll,
    ]
    for call in calls:
        with pytest.raises(UsageError, match="is closed"):
            call()
    assert log.wait(6, timeout_s=0) is False
    assert open_files() < before, "a file was opened again, and nobody closes it"


@both_ends
def test_a_view_from_before_the_end_is_told_so(tmp_path: Path, end: End) -> None:
    log = filled(tmp_path)
    view = log.view
    end(log)
    before = open_files()
    for segment in view.segments.segments:
        calls: list[Callable[[], object]] = [
            lambda log_file=segment.log: log_file.read(0, 8),  # type: ignore[misc]
            lambda log_file=segment.log: log_file.map(0, 8),  # type: ignore[misc]
            segment.log.size,
            segment.log.fileno,
        ]
        for call in calls:
            with pytest.raises(StorageError, match="the log was closed: open it again"):
                call()
    with pytest.raises(StorageError, match="the log was closed"):
        view.read(0, 100, Isolation.LOG_END)
    assert open_files() == before


def test_readers_beside_a_closing_log_never_get_bytes_of_another_file(tmp_path: Path) -> None:
    """A descriptor that is closed under a reader is the next file's: each round closes a log while four
    threads read it, and opens files full of other bytes at once."""
    other = tmp_path / "other"
    other.write_bytes(b"\xee" * 4096)
    wrong: list[object] = []

    def read_on(log: PartitionLog) -> None:
        try:
            while True:
                for offset in range(6):
                    data = region_at(log, offset).read()
                    if b"value %d" % offset not in data:
                        wrong.append((offset, data))
        except UsageError:
            pass  # the log is closed
        except StratalogError as error:
            if "the log was closed" not in str(error):
                wrong.append(error)

    for number in range(6):
        folder = tmp_path / f"log-{number}"
        folder.mkdir()
        log = filled(folder)
        readers = [threading.Thread(target=read_on, args=(log,)) for _ in range(4)]
        for reader in readers:
            reader.start()
        log.close()
        taken = [os.open(other, os.O_RDONLY) for _ in range(50)]
        for reader in readers:
            reader.join()
        for fd in taken:
            os.close(fd)
    assert wrong == []


def test_a_sync_that_runs_while_the_log_is_abandoned_is_of_its_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of a closed descriptor is soon another file's: that one would be synced instead."""
    log = filled(tmp_path)
    log.sync()
    log.append(batch(b"last"))
    inode = Path(log.segments[-1].log.path).stat().st_ino
    begun, go_on = threading.Event(), threading.Event()
    synced: list[int] = []

    def slow(fd: int) -> None:
        begun.set()
        assert go_on.wait(60)
        synced.append(os.fstat(fd).st_ino)
        os.fdatasync(fd)

    monkeypatch.setattr(filesystem, "_datasync", slow)
    thread = threading.Thread(target=log.sync)
    thread.start()
    assert begun.wait(60)
    log.abandon()
    taken = [os.open(tmp_path, os.O_RDONLY) for _ in range(20)]
    go_on.set()
    thread.join()
    for fd in taken:
        os.close(fd)
    assert synced == [inode]


def test_a_closed_log_opens_again_with_all_that_was_in_it(tmp_path: Path) -> None:
    log = filled(tmp_path)
    held = region_at(log, 4)
    log.close()
    again = open_log(tmp_path, {}, is_clean=True, recovery_point=log.log_end)
    assert values(again) == [b"value %d" % at for at in range(6)]
    again.append(batch(b"more"))
    assert b"value 4" in held.read()
    again.close()
