"""A small file is read as a whole up to a limit; a missing one is not an error."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from stratalog.errors import CorruptionError, LimitExceededError, StorageError
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem, ReadableFile
from stratalog.storage.files.small_file import SMALL_FILE_MAX, read_small_file


class Replacing(OsFileSystem):
    """Replaces each file by a longer one as soon as it is open."""

    def open_readable(self, path: str) -> ReadableFile:
        file = super().open_readable(path)
        new = Path(f"{path}.tmp")
        new.write_bytes(b"longer than before")
        new.rename(path)
        return file


def read(path: Path, file_system: FileSystem | None = None, **limits: int) -> bytes | None:
    return read_small_file(file_system or OsFileSystem(), str(path), **limits)


def test_file_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"", b"0\n1\n", os.urandom(100_000)):
        path.write_bytes(content)
        assert read(path) == content


def test_missing_file_is_none(tmp_path: Path) -> None:
    assert read(tmp_path / "none") is None
    assert read(tmp_path / "none" / "none") is None


def test_file_above_the_limit_is_an_error_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, SMALL_FILE_MAX)
    assert read(path) == bytes(SMALL_FILE_MAX)
    os.truncate(path, 1 << 40)
    with pytest.raises(LimitExceededError, match=f"{1 << 40} bytes, .* {SMALL_FILE_MAX}") as raised:
        read(path)
    assert (raised.value.reason, raised.value.path) == ("file_size", str(path))
    assert isinstance(raised.value, CorruptionError)


def test_limit_is_the_largest_size_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1234")
    assert read(path, size_max=4) == b"1234"
    with pytest.raises(LimitExceededError):
        read(path, size_max=3)


def test_file_that_is_replaced_meanwhile_is_not_mixed_with_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    assert read(path, Replacing()) == b"before"
    assert path.read_bytes() == b"longer than before"


def test_what_the_system_refuses_is_raised(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not a regular file"):
        read(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StorageError) as raised:
        read(tmp_path / "file" / "below")
    assert raised.value.errno == errno.ENOTDIR
