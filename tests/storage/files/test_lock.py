"""The lock of a log directory is that of the file that has the name now, not of one that had it before."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stratalog.errors import LockedError
from stratalog.storage.files import file_lock
from stratalog.storage.files.filesystem import OsFileSystem


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
    set_lock = file_lock._set_lock
    taken = []

    def removed_first(fd: int, kind: int) -> None:
        if kind == fcntl.F_WRLCK:
            taken.append(fd)
            if len(taken) == 1:
                path.unlink()
        set_lock(fd, kind)

    monkeypatch.setattr(file_lock, "_set_lock", removed_first)
    held = OsFileSystem().lock(str(path))
    assert len(taken) == 2
    assert path.exists()
    with pytest.raises(LockedError):
        OsFileSystem().lock(str(path))
    held.close()
    assert len(list(tmp_path.iterdir())) == 1


def other_process_locks(path: Path) -> bool:
    """Whether another process gets the lock that Java takes: a plain POSIX one."""
    code = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=False)
    return ran.returncode == 0


def test_a_lock_of_ours_keeps_those_out_that_take_a_plain_one(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    held = OsFileSystem().lock(str(path))
    assert not other_process_locks(path)
    held.close()
    assert other_process_locks(path)


def test_a_plain_lock_of_another_process_keeps_us_out(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.touch()
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX);"
        "print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(LockedError, match="another writer"):
            OsFileSystem().lock(str(path))
        other.communicate()
    OsFileSystem().lock(str(path)).close()


@pytest.mark.skipif(not hasattr(fcntl, "F_OFD_SETLK"), reason="needs locks of open files (Linux)")
def test_reading_the_lock_file_in_the_same_process_does_not_let_go_of_it(tmp_path: Path) -> None:
    """As a backup of the folder does."""
    path = tmp_path / ".lock"
    held = OsFileSystem().lock(str(path))
    path.read_bytes()
    assert not other_process_locks(path)
    held.close()


def test_of_threads_that_lock_at_once_one_gets_it(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    for _ in range(50):
        barrier = threading.Barrier(4)
        held: list[object] = []

        def take(barrier: threading.Barrier = barrier, held: list[object] = held) -> None:
            barrier.wait()
            try:
                held.append(OsFileSystem().lock(path))
            except LockedError:
                held.append(None)

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(each is not None for each in held) == 1
        held.clear()


def test_a_forked_process_neither_holds_the_lock_nor_lets_go_of_it(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    held = OsFileSystem().lock(str(path))
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            held.close()
            os.write(ready[1], b"1")
            os.read(go[0], 1)
        finally:
            os._exit(0)
    os.read(ready[0], 1)
    assert not other_process_locks(path)
    held.close()
    assert other_process_locks(path)  # while the child is still there
    os.write(go[1], b"1")
    os.waitpid(child, 0)
    for fd in (*ready, *go):
        os.close(fd)
