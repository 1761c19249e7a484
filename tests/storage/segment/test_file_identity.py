"""Which file it is, whatever its name: what a segment goes by that was listed and is opened later."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.storage.files.filesystem import FileStat, FileSystem, OsFileSystem
from stratalog.testing import FaultyFileSystem, MemoryFileSystem


@pytest.fixture(params=["os", "memory", "faulty"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    if request.param == "os":
        return OsFileSystem(), str(tmp_path)
    memory = MemoryFileSystem(folders=["/d"])
    return (memory if request.param == "memory" else FaultyFileSystem(memory)), "/d"


def write(files: FileSystem, path: str, data: bytes) -> FileStat:
    file = files.open_writable(path, create=True)
    file.write_at(0, data)
    file.close()
    return stat(files, path)


def stat(files: FileSystem, path: str) -> FileStat:
    found = files.stat(path)
    assert found is not None
    return found


def test_a_file_keeps_its_identity_when_it_is_renamed_linked_or_written(
    world: tuple[FileSystem, str],
) -> None:
    files, folder = world
    made = write(files, f"{folder}/a", b"one")
    opened = files.open_readable(f"{folder}/a")
    files.link(f"{folder}/a", f"{folder}/b")
    files.rename(f"{folder}/a", f"{folder}/c")
    file = files.open_writable(f"{folder}/c")
    file.write_at(3, b"more")
    for each in (opened.identity, file.identity, stat(files, f"{folder}/b").identity):
        assert each == made.identity is not None
    assert not made.is_same_file(stat(files, f"{folder}/c")), "its bytes are not the same"
    assert made.is_same_file(stat(files, f"{folder}/c")._replace(size=3))
    opened.close()
    file.close()


def test_another_file_of_the_same_name_and_size_is_another(world: tuple[FileSystem, str]) -> None:
    files, folder = world
    first = write(files, f"{folder}/a", b"one")
    files.rename(f"{folder}/a", f"{folder}/a.deleted")
    second = write(files, f"{folder}/a", b"two")
    assert not first.is_same_file(second)
    assert first.is_same_file(stat(files, f"{folder}/a.deleted"))
    opened = files.open_readable(f"{folder}/a")
    assert opened.identity == second.identity != first.identity
    opened.close()
    assert not first.is_same_file(None)


def test_a_copy_of_a_disk_has_the_same_files() -> None:
    files = MemoryFileSystem(folders=["/d"])
    made = write(files, "/d/a", b"one")
    assert files.fork().stat("/d/a") == made


def test_without_identities_size_and_time_decide() -> None:
    stored = FileStat(3, 1000)
    assert stored.is_same_file(FileStat(3, 1000))
    assert not stored.is_same_file(FileStat(3, 1001))
    assert not stored.is_same_file(FileStat(4, 1000))
