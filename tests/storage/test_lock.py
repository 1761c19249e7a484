"""The lock of a log directory is that of the file that has the name now, not of one that had it before."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from stratalog.errors import LockedError
from stratalog.storage.filesystem import OsFileSystem


def test_a_second_lock_of_the_same_process_is_refused_and_the_first_stays(tmp_path: Path) -> None:
    files, path = OsFileSystem(), str(tmp_path / ".lock")
    first = files.lock(path)
    for _ in range(2):
        with pytest.raises(LockedError, match="this process"):
            files.lock(path)
    first.close()
    files.lock(path).close()


def test_a_file_that_is_replaced_while_it_is_locked_is_not_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that stops removes its lock file: between our opening and our locking of it."""
    path = tmp_path / ".lock"
    lockf = fcntl.lockf
    calls = []

    def removed_first(fd: int, kind: int) -> None:
        calls.append(fd)
        if len(calls) == 1:
            path.unlink()
        lockf(fd, kind)

    monkeypatch.setattr(fcntl, "lockf", removed_first)
    held = OsFileSystem().lock(str(path))
    assert len(calls) == 2
    assert path.exists()
    with pytest.raises(LockedError):
        OsFileSystem().lock(str(path))
    held.close()
    assert len(list(tmp_path.iterdir())) == 1
