"""Undoing a rewrite: what comes back, and when it is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import StorageError, UsageError
from stratalog.manager.rewrites import RewriteOptions
from tests.cli.runner import run
from tests.rewrite.directories import filled, is_sound, rows

KEPT = RewriteOptions(roll=True, keep_undo=True, configs={"internal.segment.bytes": 1 << 20})


def data_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "t-0").glob("*.log"))}


def test_undo_brings_the_same_files_back(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    with stratalog.open(folder) as logs:
        logs.partition("t").roll()
        before, found = data_of(folder), rows(folder)
        report = logs.erase("t", ["k1", "k2"], options=KEPT)
        assert data_of(folder) != before
        (kept,) = logs.kept_rewrites()
        assert kept.kept.id == report.id
        assert kept.kept.size_bytes == report.bytes_before
        logs.undo(report.id)
        assert data_of(folder) == before
        assert logs.kept_rewrites() == []
        with pytest.raises(UsageError, match="nothing is kept"):
            logs.undo(report.id)
    assert rows(folder) == found
    assert is_sound(folder)


def test_rewrites_are_undone_in_reverse_order(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    with stratalog.open(folder) as logs:
        logs.partition("t").roll()
        before = data_of(folder)
        first = logs.merge("t", options=KEPT)
        second = logs.recompress("t", "none", options=KEPT)
        with pytest.raises(UsageError, match="was rewritten since"):
            logs.undo(first.id)
        logs.undo(second.id)
        logs.undo(first.id)
        assert data_of(folder) == before


def test_undo_is_refused_after_retention_took_a_segment(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    with stratalog.open(folder) as logs:
        report = logs.recompress("t", "none", options=KEPT)
        logs.delete_records("t", 0, 100)
        logs.retain()
        with pytest.raises(UsageError, match="is gone: retention"):
            logs.undo(report.id)
        found = rows(folder)
        logs.forget_rewrite(report.id)
        assert logs.kept_rewrites() == []
    assert rows(folder) == found
    assert is_sound(folder)


def test_undo_is_refused_if_the_originals_are_not_what_they_were(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    with stratalog.open(folder) as logs:
        report = logs.recompress("t", "none", options=KEPT)
        kept = Path(logs.kept_rewrites()[0].kept.folder)
        original = min(kept.glob("*.log"))
        data = bytearray(original.read_bytes())
        data[100] ^= 1
        original.write_bytes(data)
        with pytest.raises(UsageError, match="not the original"):
            logs.undo(report.id)
        original.unlink()
        with pytest.raises(UsageError, match="is gone"):
            logs.undo(report.id)


def test_a_folder_without_a_manifest_can_only_be_dropped(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    half_made = folder / "t-0" / "stratalog-undo.20240101T000000000-merge"
    half_made.mkdir()
    shutil.copy(min((folder / "t-0").glob("*.log")), half_made)
    with stratalog.open(folder) as logs:
        (found,) = logs.kept_rewrites()
        assert found.kept.manifest is None
        with pytest.raises(UsageError, match="no manifest"):
            logs.undo(found.kept.id)
        logs.forget_rewrite(found.kept.id)
    assert not half_made.exists()


def test_files_that_are_not_ours_are_never_dropped(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    with stratalog.open(folder) as logs:
        report = logs.merge("t", options=KEPT)
        notes = Path(logs.kept_rewrites()[0].kept.folder) / "notes.txt"
        notes.write_text("mine")
        with pytest.raises(StorageError, match="not a file of ours"):
            logs.forget_rewrite(report.id)
        assert notes.read_text() == "mine"
        notes.unlink()
        logs.forget_rewrite(report.id)


def test_deleting_a_topic_removes_what_is_kept_of_it(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    with stratalog.open(folder) as logs:
        logs.merge("t", options=KEPT)
        logs.delete_topic("t")
    assert [path.name for path in folder.iterdir() if path.is_dir()] == []


def test_readers_do_not_see_what_is_kept(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    before = rows(folder)
    with stratalog.open(folder) as logs:
        report = logs.merge("t", options=KEPT)
    assert rows(folder) == before
    done = run("verify", folder)
    assert done.code == 0
    assert f"originals kept to undo rewrites: {report.id}" in done.err
    assert "unknown" not in done.err
