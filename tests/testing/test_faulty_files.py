"""Exactly the call that is meant fails, as OsFileSystem would, over memory and over the machine's disk."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from stratalog.errors import StorageError
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem, WritableFile
from stratalog.testing import (
    Call,
    Fault,
    FaultyFileSystem,
    MemoryFileSystem,
    crash_all_kept,
    crash_all_lost,
)


@pytest.fixture(params=["memory", "machine"])
def inner(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    if request.param == "machine":
        return OsFileSystem(), str(tmp_path)
    return MemoryFileSystem(folders=["/d"]), "/d"


def work(fs: FileSystem, folder: str) -> None:
    """One of each call that can fail: nineteen."""
    fs.make_dir(f"{folder}/sub")
    fs.remove_dir(f"{folder}/sub")
    lock = fs.lock(f"{folder}/.lock")
    try:
        file = fs.open_writable(f"{folder}/a", create=True)
        try:
            file.write_at(0, b"abcdef")
            file.truncate(100)
            file.truncate(4)
            file.reserve(4, 100)
            file.release()
            file.begin_sync(0, 4)
            file.sync()
        finally:
            file.close()
        fs.sync_dir(folder)
        fs.link(f"{folder}/a", f"{folder}/b")
        fs.rename(f"{folder}/a", f"{folder}/c")
        fs.set_modified(f"{folder}/b", 5)
        fs.open_writable(f"{folder}/b").close()
        stat = fs.stat(f"{folder}/b")
        assert stat is not None
        assert stat[:2] == (4, 5)
        found = fs.open_readable(f"{folder}/b")
        try:
            found.read_ahead(0, 4)
            found.forget(0, 4)
            assert found.size() == found.read_into(0, memoryview(bytearray(9))) == 4
            assert bytes(found.map(1, 2)) == b"bc"
        finally:
            found.close()
        assert len(fs.list_dir(folder)) == 3
        fs.unlink(f"{folder}/b")
    finally:
        lock.close()


def test_without_a_fault_it_counts_and_passes_on(inner):
    fs = FaultyFileSystem(inner[0])
    work(fs, inner[1])
    assert fs.counts == dict.fromkeys(Call, 1)
    assert fs.failed == []


@pytest.mark.parametrize(
    ("fault", "eligible", "number"),
    [
        (Fault.EIO, 19, errno.EIO),
        (Fault.ENOSPC, 9, errno.ENOSPC),
        (Fault.EMFILE, 6, errno.EMFILE),
        (Fault.SHORT_WRITE, 1, errno.ENOSPC),
    ],
)
def test_each_call_fails_in_its_turn_with_its_errno(fault, eligible, number):
    failed = []
    for fail_at in range(1, eligible + 1):
        fs = FaultyFileSystem(MemoryFileSystem(folders=["/d"]), fail_at=fail_at, fault=fault)
        with pytest.raises(StorageError) as caught:
            work(fs, "/d")
        (call,) = fs.failed
        assert (call.number, call.path) == (fail_at, caught.value.path)
        assert caught.value.errno == number
        failed.append(call.call)
    fs = FaultyFileSystem(MemoryFileSystem(folders=["/d"]), fail_at=eligible + 1, fault=fault)
    work(fs, "/d")
    assert fs.failed == []
    assert len(set(failed)) == eligible


@pytest.mark.parametrize(
    ("fault", "kind"), [(Fault.MEMORY, MemoryError), (Fault.INTERRUPT, KeyboardInterrupt)]
)
def test_memory_and_interrupts_come_as_python_raises_them(fault, kind):
    for fail_at in range(1, 19):
        memory = MemoryFileSystem(folders=["/d"])
        fs = FaultyFileSystem(memory, fail_at=fail_at, fault=fault)
        with pytest.raises(kind):
            work(fs, "/d")
        memory.lock("/d/.lock").close()  # nobody holds it


def test_interrupt_comes_after_the_call_was_done_and_memory_error_before():
    for fault, size in ((Fault.INTERRUPT, 3), (Fault.MEMORY, 0)):
        memory = MemoryFileSystem()
        fs = FaultyFileSystem(memory, fail_at=1, fault=fault, calls={Call.WRITE})
        file = fs.open_writable("/a", create=True)
        with pytest.raises((KeyboardInterrupt, MemoryError)):
            file.write_at(0, b"abc")
        assert file.size() == size


def test_short_write_leaves_half_of_it(inner):
    fs = FaultyFileSystem(inner[0], fail_at=2, fault=Fault.SHORT_WRITE)
    file = fs.open_writable(f"{inner[1]}/a", create=True)
    file.write_at(0, b"abcd")
    with pytest.raises(StorageError) as caught:
        file.write_at(4, b"efgh")
    assert caught.value.errno == errno.ENOSPC
    assert content(file) == b"abcdef"
    file.close()


def test_only_the_calls_that_are_meant_can_fail(inner):
    fs = FaultyFileSystem(inner[0], fail_at=1, calls={Call.SYNC})
    with pytest.raises(StorageError):
        work(fs, inner[1])
    assert [each.call for each in fs.failed] == [Call.SYNC]


def test_full_disk_refuses_growth_until_it_is_healed(inner):
    fs = FaultyFileSystem(
        inner[0], fail_at=2, fault=Fault.ENOSPC, sticky=True, calls={Call.WRITE, Call.EXTEND}
    )
    file = fs.open_writable(f"{inner[1]}/a", create=True)
    file.write_at(0, b"abcd")
    for _ in range(2):
        with pytest.raises(StorageError) as caught:
            file.write_at(4, b"efgh")
        assert caught.value.errno == errno.ENOSPC
    file.truncate(2)  # what is cut takes no room
    with pytest.raises(StorageError):
        file.truncate(100)
    file.sync()
    fs.rename(f"{inner[1]}/a", f"{inner[1]}/b")
    assert content(file) == b"ab"
    fs.heal()
    file.write_at(2, b"CD")
    assert content(file) == b"abCD"
    file.close()


def test_full_disk_lets_names_change_and_files_sync():
    fs = FaultyFileSystem(MemoryFileSystem(), fail_at=2, fault=Fault.ENOSPC, sticky=True)
    file = fs.open_writable("/a", create=True)
    with pytest.raises(StorageError):
        file.write_at(0, b"abc")
    file.sync()
    fs.rename("/a", "/b")
    fs.sync_dir("/")
    with pytest.raises(StorageError):
        fs.make_dir("/c")
    assert [each.call for each in fs.failed] == [Call.WRITE, Call.MAKE_DIR]


def test_arming_again_counts_from_there(inner):
    fs = FaultyFileSystem(inner[0])
    file = fs.open_writable(f"{inner[1]}/a", create=True)
    file.write_at(0, b"abcd")
    fs.arm(2, fault=Fault.EIO)
    file.write_at(4, b"efgh")
    with pytest.raises(StorageError):
        file.write_at(8, b"ijkl")
    file.write_at(8, b"ijkl")
    assert content(file) == b"abcdefghijkl"
    file.close()


def test_failed_sync_is_never_made_good_by_the_next():
    """fsyncgate: who retries a sync believes what is not so."""
    memory = MemoryFileSystem()
    fs = FaultyFileSystem(memory, fail_at=2, calls={Call.SYNC})
    file = fs.open_writable("/a", create=True)
    fs.sync_dir("/")
    file.write_at(0, b"old")
    file.sync()
    file.write_at(0, b"new")
    with pytest.raises(StorageError) as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    file.sync()
    assert content(file) == b"new"
    assert crash_all_kept(memory).read_bytes("/a") == b"old"
    file.write_at(0, b"new")
    file.sync()
    assert crash_all_lost(memory).read_bytes("/a") == b"new"


def test_failed_sync_of_a_folder_can_be_repeated():
    memory = MemoryFileSystem()
    fs = FaultyFileSystem(memory, fail_at=1, calls={Call.SYNC_DIR})
    fs.open_writable("/a", create=True)
    with pytest.raises(StorageError):
        fs.sync_dir("/")
    assert crash_all_lost(memory).paths() == []
    fs.sync_dir("/")
    assert crash_all_lost(memory).paths() == ["/a"]


def content(file: WritableFile) -> bytes:
    return bytes(file.map(0, file.size()))
