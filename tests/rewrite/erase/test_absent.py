"""The proof that keys are absent: nothing is left out without being reported, also while files change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import stratalog
from stratalog.manager.rewrites import RewriteOptions
from stratalog.rewrite.erase.absent import SearchedFile, SearchPaths, search_files
from stratalog.rewrite.erase.keys import KeySet
from stratalog.storage.files.filesystem import OsFileSystem, ReadableFile
from stratalog.types import TopicPartition
from tests.cli.runner import run

DATA = "0" * 20 + ".log"


class MeddledFiles(OsFileSystem):
    """Calls ``meddle`` after each file that was opened, with the number of files opened so far."""

    def __init__(self, meddle: Callable[[int], None]) -> None:
        self.meddle = meddle
        self.opened = 0

    def open_readable(self, path: str) -> ReadableFile:
        file = super().open_readable(path)
        self.opened += 1
        self.meddle(self.opened)
        return file


def searched(root: Path, meddle: Callable[[int], None]) -> dict[str, SearchedFile]:
    keys, paths = KeySet.of(["secret"]), SearchPaths([str(root)])
    found = search_files(keys, MeddledFiles(meddle), paths, lambda _: None)
    return {Path(each.path).name: each for each in found}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with stratalog.open(tmp_path / "logs") as logs:
        logs.create("t", 1)
        logs.append("t", [("secret", "v")])
    return tmp_path / "logs"


def absent(path: Path) -> tuple[int, set[str]]:
    done = run("verify", path, "--absent", "-", stdin="secret\n")
    return done.code, {row["status"] for row in done.rows()}


def test_a_path_without_logs_is_refused(root: Path) -> None:
    done = run("verify", root.parent, "--absent", "-", stdin="secret\n")
    assert (done.code, done.out) == (3, b"")
    assert "not a log directory or partition folder" in done.err


def test_a_folder_without_live_segments_is_searched(root: Path) -> None:
    (root / "t-0" / DATA).rename(root / "t-0" / f"{DATA}.deleted")
    assert absent(root / "t-0") == (1, {"found"})
    assert absent(root) == (1, {"found"})


def test_a_link_to_a_folder_is_reported(root: Path) -> None:
    (root / "t-0").rename(root.parent / "elsewhere")
    (root / "t-0").symlink_to(root.parent / "elsewhere")
    assert absent(root) == (1, {"unknown"})


def test_a_link_to_a_segment_is_reported(root: Path) -> None:
    (root / "t-0" / DATA).rename(root.parent / "segment")
    (root / "t-0" / DATA).symlink_to(root.parent / "segment")
    assert absent(root) == (1, {"unknown"})


@pytest.mark.parametrize("name", ["t-0.bak", f"{DATA}.bak"])
def test_an_unknown_entry_of_the_log_directory_is_reported(root: Path, name: str) -> None:
    moved = root / "t-0" if name.startswith("t") else root / "t-0" / DATA
    moved.rename(root / name)
    assert absent(root) == (1, {"unknown"})


def test_damaged_bytes_that_salvage_stored_are_reported(root: Path) -> None:
    (root / "t-0" / "stratalog-damaged").mkdir()
    done = run("verify", root, "--absent", "-", stdin="other\n")
    assert (done.code, [row["status"] for row in done.rows()]) == (1, ["ok", "unknown"])
    assert "salvage" in done.rows()[1]["detail"]


def test_a_directory_without_files_proves_nothing(tmp_path: Path) -> None:
    with stratalog.open(tmp_path / "logs"):
        pass
    done = run("verify", tmp_path / "logs", "--absent", "-", "-o", "table", stdin="secret\n")
    assert done.code == 1
    assert "no file to search" in done.err
    assert b"not proved" in done.out


def test_only_chosen_partitions_are_searched(root: Path) -> None:
    with stratalog.open(root) as logs:
        logs.create("other", 1)
        logs.append("other", [("a", "v")])
    done = run("verify", root, "-t", "other", "--absent", "-", stdin="secret\n")
    assert (done.code, [row["topic"] for row in done.rows()]) == (0, ["other"])


def test_records_that_a_merge_moves_during_the_search_are_found(tmp_path: Path) -> None:
    with stratalog.open(tmp_path / "logs") as logs:
        logs.create("t", 1, {"file.delete.delay.ms": 0})
        for key in ("a", "b", "secret"):
            logs.append("t", [(key, "v")])
            logs.rewrite_target(TopicPartition("t", 0), RewriteOptions(roll=True))

        def merge(opened: int) -> None:
            if opened == 1:
                logs.merge("t")
                logs.partition("t", 0).remove_due()

        found = searched(tmp_path / "logs", merge)
    assert (found[DATA].status, found[DATA].records) == ("found", 3)


def test_records_that_move_to_a_folder_that_was_searched_are_found(root: Path) -> None:
    with stratalog.open(root) as logs:
        logs.create("a", 1)
    source, target = root / "t-0" / DATA, root / "a-0" / f"{DATA}.swap"

    def move(opened: int) -> None:
        if opened == 1:
            source.rename(target)

    assert searched(root, move)[target.name].status == "found"


def test_a_file_that_changes_all_the_time_is_not_proved(root: Path) -> None:
    path = root / "t-0" / DATA
    data = path.read_bytes().replace(b"secret", b"public")

    def grow(_: int) -> None:
        with path.open("ab") as file:
            file.write(data)

    found = searched(root, grow)
    assert found[DATA].status == "unreadable"
    assert "changed during every search" in str(found[DATA].detail)


def test_a_file_that_changed_once_is_searched_again(root: Path) -> None:
    path = root / "t-0" / DATA

    def replace(opened: int) -> None:
        if opened == 1:
            path.unlink()
            path.write_bytes(b"")

    found = searched(root, replace)
    assert (found[DATA].status, found[DATA].size_bytes) == ("ok", 0)
