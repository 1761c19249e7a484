"""Room on the disk is asked for ahead of appends, and given back: no byte of a file tells, and no time."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from stratalog.storage.files.filesystem import OsWritableFile
from stratalog.storage.partition_log import PartitionLog
from tests.storage.logs import batch, open_log

MIB = 1 << 20
CONFIGS = {"max.message.bytes": 4 * MIB}


@pytest.fixture(autouse=True)
def needs_room_ahead(tmp_path: Path) -> None:
    path = tmp_path / "probe"
    file = OsWritableFile(str(path), create=True)
    file.reserve(0, MIB)
    file.close()
    if path.stat().st_blocks == 0:
        pytest.skip("no room can be reserved on this file system")
    path.unlink()


def data_file(folder: Path) -> Path:
    return max(folder.glob("*.log"))


def idle_bytes(path: Path) -> int:
    """What the file has of the disk beyond its bytes; the last block is seldom full."""
    found = path.stat()
    return found.st_blocks * 512 - found.st_size


def fill(log: PartitionLog, count: int, size: int = MIB // 2) -> None:
    for _ in range(count):
        log.append(batch(bytes(size)))


def test_a_small_log_reserves_nothing(tmp_path: Path) -> None:
    with closing(open_log(tmp_path / "t-0", CONFIGS)) as log:
        fill(log, 10, size=50_000)
        assert idle_bytes(data_file(tmp_path / "t-0")) < 2 * 4096


def test_a_large_one_reserves_as_much_as_it_has_and_no_more_than_4_mib(tmp_path: Path) -> None:
    with closing(open_log(tmp_path / "t-0", CONFIGS)) as log:
        path = data_file(tmp_path / "t-0")
        for _ in range(40):
            fill(log, 1)
            size = path.stat().st_size
            assert idle_bytes(path) < min(size, 4 * MIB) + 2 * 4096
            assert size == log.view.end_position
        assert size > 20 * MIB
        assert idle_bytes(path) > MIB // 2


def test_close_and_roll_give_it_back_and_the_time_of_change_stays(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    log = open_log(folder, CONFIGS)
    fill(log, 5)
    path = data_file(folder)
    os.utime(path, ns=(10**18, 10**18 + 7))
    before = path.read_bytes()
    assert idle_bytes(path) > MIB
    log.roll()
    assert idle_bytes(path) < 2 * 4096
    fill(log, 5)
    second = data_file(folder)
    assert second != path
    assert idle_bytes(second) > MIB
    log.close()
    assert idle_bytes(second) < 2 * 4096
    assert path.stat().st_mtime_ns == 10**18 + 7
    assert path.read_bytes() == before


def test_what_a_killed_writer_had_reserved_is_given_back_by_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    log = open_log(folder, CONFIGS)
    fill(log, 5)
    log.abandon()
    path = data_file(folder)
    assert idle_bytes(path) > MIB
    open_log(folder, CONFIGS).close()
    assert idle_bytes(path) < 2 * 4096


def test_a_cut_gives_it_back_and_the_next_append_asks_again(tmp_path: Path) -> None:
    with closing(open_log(tmp_path / "t-0", CONFIGS)) as log:
        path = data_file(tmp_path / "t-0")
        fill(log, 6)
        log.truncate(4)
        assert idle_bytes(path) < 2 * 4096
        fill(log, 1)
        assert idle_bytes(path) > MIB


def test_a_disk_that_is_nearly_full_is_left_to_who_writes(tmp_path: Path) -> None:
    little = SimpleNamespace(f_bavail=64, f_frsize=MIB)
    with (
        mock.patch("os.fstatvfs", return_value=little),
        closing(open_log(tmp_path / "t-0", CONFIGS)) as log,
    ):
        fill(log, 6)
        assert idle_bytes(data_file(tmp_path / "t-0")) < 2 * 4096


def test_a_file_system_that_cannot_reserve_is_written_all_the_same(tmp_path: Path) -> None:
    with (
        mock.patch("stratalog.storage.files.filesystem.system_call", return_value=None),
        closing(open_log(tmp_path / "t-0", CONFIGS)) as log,
    ):
        fill(log, 6)
        assert log.log_end == 6
