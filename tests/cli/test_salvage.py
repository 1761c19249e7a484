"""``stratalog salvage``: the plan, the new directory, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from stratalog.errors import StorageError
from stratalog.rewrite.salvage.plan import plan_salvage
from tests.cli.runner import run
from tests.inspect.logs import batch, flipped, segment
from tests.judges.peers.golden import golden_set

TORN = golden_set("v2-torn").path


def damaged(folder: Path) -> Path:
    folder.mkdir()
    segment(folder, 0, batch(0) + flipped(batch(3), 80) + batch(6))
    segment(folder, 0, batch(0), partition="orders-1")
    segment(folder, 0, batch(0), partition="other-0")
    return folder


def test_plan_says_what_would_be_kept_and_lost(tmp_path):
    done = run("salvage", damaged(tmp_path / "logs"), "-t", "orders", "-o", "ndjson")
    assert done.code == 1
    first, second = done.rows()
    assert (first["kept_records"], first["lost_offsets"], first["ranges"]) == (6, 3, 1)
    assert first["report"]["lost"]["offsets"] == [{"first": 3, "last": 5}]
    assert (second["kept_records"], second["lost_offsets"], second["ranges"]) == (3, 0, 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs"]


def test_sound_directory_is_exit_code_0(tmp_path):
    done = run("salvage", damaged(tmp_path / "logs"), "-t", "other")
    assert (done.code, done.err) == (0, "")


def test_written_directory_passes_verify(tmp_path):
    logs = damaged(tmp_path / "logs")
    done = run("salvage", logs, "--out", tmp_path / "new", "--write", "-o", "ndjson")
    assert (done.code, len(done.rows())) == (1, 3)
    assert run("verify", tmp_path / "new").code == 0
    stored = sorted((tmp_path / "new/orders-0/stratalog-damaged").iterdir())
    names = [path.name for path in stored]
    assert names == ["00000000000000000000.148-296.bin", "report.json"]
    assert stored[0].read_bytes() == flipped(batch(3), 80)
    assert json.loads(stored[1].read_text())["kept"]["records"] == 6
    counted = run("count", tmp_path / "new", "--by", "topic").rows()
    assert [row["records"] for row in counted] == [9, 3]


def test_one_partition_folder_can_be_named(tmp_path):
    done = run("salvage", damaged(tmp_path / "logs") / "orders-0", "-o", "ndjson")
    assert [row["partition"] for row in done.rows()] == [0]


def test_without_write_nothing_is_written(tmp_path):
    run("salvage", damaged(tmp_path / "logs"), "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["logs", "--write"], "--out"),
        (["logs", "--out", "logs/new"], "lie in each other"),
        (["logs", "--out", "full"], "not empty"),
        (["logs", "-t", "missing"], "missing"),
        (["full"], "not a log directory"),
        (["logs/orders-0/00000000000000000000.log"], "is a file"),
    ],
)
def test_what_cannot_be_is_exit_code_2(tmp_path, monkeypatch, arguments, words):
    damaged(tmp_path / "logs")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    monkeypatch.chdir(tmp_path)
    done = run("salvage", *arguments)
    assert done.code == 2
    assert words in done.err
    assert done.out == b""


def test_missing_directory_is_exit_code_3(tmp_path):
    assert run("salvage", tmp_path / "missing").code == 3


def test_partition_that_cannot_be_read_is_reported_and_nothing_is_written(tmp_path):
    logs = damaged(tmp_path / "logs")
    (logs / "orders-1/00000000000000000000.log").unlink()
    (logs / "orders-1/00000000000000000000.log").symlink_to(TORN / "set.json")
    done = run("salvage", logs, "--out", tmp_path / "new", "--write", "-o", "ndjson")
    assert done.code == 3
    assert "link" in done.err
    assert [row["topic"] for row in done.rows()] == ["orders", "other"]
    assert not (tmp_path / "new").exists()


def test_leftovers_are_named_and_used_on_request(tmp_path):
    folder = damaged(tmp_path / "logs") / "orders-0"
    (folder / "00000000000000000000.log.deleted").write_bytes(batch(0) + batch(3))
    shown = run("salvage", folder, "-o", "table").out.decode()
    assert "--include-leftovers" in shown
    done = run("salvage", folder, "--include-leftovers", "-o", "ndjson")
    assert [(row["kept_records"], row["lost_offsets"]) for row in done.rows()] == [(9, 0)]


def test_many_ranges_are_not_all_printed(tmp_path):
    (tmp_path / "logs").mkdir()
    data = b"".join(flipped(batch(6 * n), 80) + batch(6 * n + 3) for n in range(60))
    segment(tmp_path / "logs", 0, data)
    lines = run("salvage", tmp_path / "logs", "-o", "table").out.decode().splitlines()
    assert len(lines) < 60
    assert "more: see -o json" in lines[-1]


def test_original_is_as_it_was(tmp_path):
    copy = tmp_path / "torn"
    shutil.copytree(TORN, copy)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files_of(copy)}
    run("salvage", copy, "--out", tmp_path / "new", "--write")
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files_of(copy)} == before


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_nothing_is_written_if_a_partition_cannot_be_read_and_that_is_said(tmp_path, monkeypatch):
    logs = damaged(tmp_path / "logs")

    def refused(files, folder, *given):
        if folder.endswith("orders-1"):
            raise StorageError("permission denied", path=folder)
        return plan_salvage(files, folder, *given)

    monkeypatch.setattr("stratalog.cli.commands.salvage.plan_salvage", refused)
    done = run("salvage", logs, "--out", tmp_path / "new", "--write")
    assert done.code == 3
    assert "nothing was written" in done.err
    assert not (tmp_path / "new").exists()
