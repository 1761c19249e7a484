"""A rewrite that does not fit on the disk is refused before it begins."""

from __future__ import annotations

import errno
from pathlib import Path
from unittest import mock

import pytest

from stratalog.errors import StorageError
from stratalog.rewrite import space
from stratalog.rewrite.space import check_space
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.log_config import LogConfig
from stratalog.testing import MemoryFileSystem
from tests.rewrite.compact.workloads import batches_of, clean, new_disk, open_log
from tests.storage.logs import batch

MARGIN = 16 << 20


class Disk(MemoryFileSystem):
    """A disk with so much room."""

    free: int | None = None

    def free_bytes(self, path: str) -> int | None:
        return self.free


def test_what_fits_with_a_margin_is_not_refused() -> None:
    disk = Disk()
    disk.free = MARGIN + 100
    check_space(disk, "/", 100)
    with pytest.raises(StorageError, match=r"need 101 bytes and 16777216 .* make room") as caught:
        check_space(disk, "/", 101)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.path == "/"


def test_a_file_system_that_does_not_say_how_much_is_free_refuses_nothing() -> None:
    check_space(Disk(), "/", 1 << 60)


def test_a_real_disk_says_how_much_is_free(tmp_path: Path) -> None:
    check_space(OsFileSystem(), str(tmp_path), 0)
    with pytest.raises(StorageError):
        check_space(OsFileSystem(), str(tmp_path), 1 << 62)


def test_a_cleaning_without_room_leaves_the_log_as_it_was() -> None:
    disk = new_disk()
    log = open_log(disk, LogConfig.of({"internal.segment.bytes": 200}))
    for number in range(8):
        log.append(batch(b"%d" % number, key=b"k"))
    before = batches_of(log)
    with (
        mock.patch.object(MemoryFileSystem, "free_bytes", return_value=space._MARGIN_BYTES + 10),
        pytest.raises(StorageError) as caught,
    ):
        clean(log)
    assert caught.value.errno == errno.ENOSPC
    assert batches_of(log) == before
    assert log.failure is None
    clean(log)
    assert batches_of(log) != before
