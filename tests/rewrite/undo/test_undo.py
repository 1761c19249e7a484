"""Undoing a rewrite: what comes back, and when it is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import stratalog
from stratalog.errors import StorageError, UsageError
from stratalog.manager.logs import Logs
from stratalog.manager.rewrites import RewriteOptions
from stratalog.records.layout import Codec
from stratalog.rewrite.recompress import Recompress
from stratalog.storage.partition_log import PartitionLog
from stratalog.types import TopicPartition
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


def undone_during(
    logs: Logs, rewrite_id: str, rewrite: Callable[[RewriteOptions], object]
) -> Exception | None:
    """Call for an undo in another thread while a rewrite holds the log; return what it raised."""
    with ThreadPoolExecutor(1) as threads:
        asked: list[Future[object]] = []

        def ask(_: int) -> None:
            if not asked:
                asked.append(threads.submit(logs.undo, rewrite_id))
                wait(asked, timeout=0.3)  # it has planned by now, and waits for the rewrite

        rewrite(replace(KEPT, keep_undo=False, progress=ask))
        error = asked[0].exception(60)
        assert error is None or isinstance(error, Exception)
        return error


def test_undo_that_waited_for_another_rewrite_plans_again(tmp_path: Path) -> None:
    """It had compared the segments before the merge made one of all of them."""
    folder = filled(tmp_path / "logs")
    with stratalog.open(folder) as logs:
        report = logs.erase("t", ["k1"], options=RewriteOptions(roll=True, keep_undo=True))
        found = rows(folder)
        error = undone_during(logs, report.id, lambda options: logs.merge("t", options=options))
        assert isinstance(error, UsageError)
        assert "rewritten since" in str(error) or "which it made, is gone" in str(error)
        assert rows(folder) == found
    assert is_sound(folder)


def test_undo_of_a_merge_does_not_bring_back_what_was_erased_meanwhile(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    with stratalog.open(folder) as logs:
        report = logs.merge("t", options=KEPT)
        error = undone_during(
            logs, report.id, lambda options: logs.erase("t", ["k1"], options=options)
        )
        assert isinstance(error, UsageError)
        assert b"k1" not in [record.key for record in logs.read("t").records()]


def compact_in_rounds(folder: Path) -> str:
    """Compact a log whose keys need several maps, and keep the originals; return the id."""
    configs = {"log.cleaner.dedupe.buffer.size": (1 << 20) + 1}
    with stratalog.open(folder, sync=False, config=configs) as logs:
        logs.create("t", 1, {"cleanup.policy": "compact"})
        for start in (0, 0, 30_000, 60_000):
            logs.append("t", [(f"k{start + number}", "v") for number in range(30_000)])
            logs.partition("t").roll()
        logs.append("t", [("last", "v")])
    with stratalog.open(folder, sync=False, config=configs) as logs:
        run = logs.begin_rewrite(
            logs.compaction(), [TopicPartition("t", 0)], RewriteOptions(keep_undo=True)
        )
        report = run.run()
        (partition,) = report.partitions
        assert partition.error is None
        assert len(partition.groups) > 1, "one round was enough"
        return report.id


def test_compaction_in_several_rounds_is_undone_to_the_originals(tmp_path: Path) -> None:
    rewrite_id = compact_in_rounds(tmp_path / "logs")
    with stratalog.open(tmp_path / "logs") as logs:
        assert len(rows(tmp_path / "logs")) == 90_001
        (kept,) = logs.kept_rewrites()
        assert kept.kept.segments == 4
        (plan,) = logs.plan_undo(rewrite_id)
        assert plan.plan is not None
        assert plan.plan.refusal is None
        logs.undo(rewrite_id)
        assert len(rows(tmp_path / "logs")) == 120_001
    assert is_sound(tmp_path / "logs")


def test_interrupt_after_the_swap_keeps_the_originals_and_reports_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = filled(tmp_path / "logs")
    with stratalog.open(folder) as logs:
        logs.partition("t").roll()
        before = data_of(folder)
        real = PartitionLog.replace_segments

        def interrupted(log: PartitionLog, *args: Any, **options: Any) -> bool:
            real(log, *args, **options)
            raise KeyboardInterrupt

        monkeypatch.setattr(PartitionLog, "replace_segments", interrupted)
        rewrite = Recompress(Codec.NONE)
        run = logs.begin_rewrite(rewrite, [TopicPartition("t", 0)], KEPT)
        with pytest.raises(KeyboardInterrupt):
            run.run()
        monkeypatch.undo()
        (partition,) = run.report.partitions
        assert len(partition.groups) == 1
        assert partition.groups[0].result.old_bytes == partition.groups[0].planned.size_bytes
        logs.undo(run.report.id)
        assert data_of(folder) == before


def test_error_before_the_swap_drops_the_originals_that_were_kept_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = filled(tmp_path / "logs")
    with stratalog.open(folder) as logs:
        logs.partition("t").roll()

        def refused(*_: Any, **__: Any) -> bool:
            raise StorageError("refused", path=str(folder))

        monkeypatch.setattr(PartitionLog, "replace_segments", refused)
        with pytest.raises(StorageError, match="refused"):
            logs.recompress("t", "none", options=KEPT)
        assert logs.kept_rewrites() == []
