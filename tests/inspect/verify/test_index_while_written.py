"""An index that its writer trims while it is read is read again, and not called damaged."""

from __future__ import annotations

import os

from stratalog.inspect.check.index_files import load_index
from stratalog.inspect.check.report import CheckedKind
from stratalog.storage.files.filesystem import FileStat, OsFileSystem, ReadableFile


class Trimming(OsFileSystem):
    """Truncates an index while it is read for the first time, as a roll does."""

    def __init__(self) -> None:
        self._sizes = [19, 12]  # what a read in the middle of it meets, and what is left

    def open_readable(self, path: str) -> ReadableFile:
        self._trim(path)
        return super().open_readable(path)

    def stat(self, path: str) -> FileStat | None:
        if len(self._sizes) == 1:
            self._trim(path)
        return super().stat(path)

    def _trim(self, path: str) -> None:
        if self._sizes:
            os.truncate(path, self._sizes.pop(0))


def test_index_that_becomes_shorter_while_it_is_read_is_read_again(tmp_path):
    path = tmp_path / "00000000000000000000.timeindex"
    path.write_bytes(
        bytes(range(1, 13)) + bytes(1200 - 12 + 7)
    )  # a size that is not of whole entries
    index = load_index(Trimming(), str(path), CheckedKind.TIME_INDEX)
    assert index is not None
    assert (index.damage, index.size_bytes, index.count) == (None, 12, 1)


def test_index_of_a_wrong_size_is_damaged_where_nothing_changes_it(tmp_path):
    path = tmp_path / "00000000000000000000.timeindex"
    path.write_bytes(bytes(range(1, 20)))
    index = load_index(OsFileSystem(), str(path), CheckedKind.TIME_INDEX)
    assert index is not None
    assert index.damage is not None
