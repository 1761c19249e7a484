"""A log is merged, truncated, reconfigured or shortened by retention while it is cleaned, or afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

import pytest

import stratalog
from stratalog.manager.logs import Logs
from stratalog.manager.rewrites import RewriteOptions
from stratalog.rewrite.compact import clean as cleaning
from stratalog.rewrite.limits import RewriteLimits, RewriteStoppedError
from stratalog.storage.formats.checkpoints import decode_offsets
from stratalog.types import TopicPartition

PARTITION = TopicPartition("t", 0)
COMPACTED = {"cleanup.policy": "compact", "delete.retention.ms": 0, "file.delete.delay.ms": 0}
DAY_MS = 86_400_000


class Once:
    """A progress callback that does something at its first call."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._calls = [call]

    def __call__(self, _: int) -> None:
        if self._calls:
            self._calls.pop()()


def roll(logs: Logs) -> None:
    logs.partition("t").roll()


def values(logs: Logs) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in logs.read("t").records()]


def stored(root: Path) -> int | None:
    path = root / "cleaner-offset-checkpoint"
    return decode_offsets(path.read_bytes()).get(PARTITION) if path.exists() else None


def test_cleaning_that_waited_for_a_merge_is_planned_after_it(tmp_path: Path) -> None:
    """By the old plan an aborted record of the merged segment counted as the newest of its key."""
    with stratalog.open(tmp_path) as logs:
        logs.create("t", 1, {**COMPACTED, "min.compaction.lag.ms": 3_600_000})
        old = int(time.time() * 1000) - DAY_MS
        logs.append("t", [{"key": "K", "value": "committed", "timestamp": old}])
        roll(logs)
        logs.append("t", [{"key": "x", "value": "1", "timestamp": old}])
        roll(logs)
        transaction = logs.transaction()
        transaction.append("t", [("K", "aborted")])
        transaction.abort()
        roll(logs)
        before = values(logs)
        with ThreadPoolExecutor(1) as threads:
            asked: list[Future[object]] = []

            def ask() -> None:
                asked.append(threads.submit(logs.clean, "t"))
                wait(asked, timeout=0.3)  # it waits for the merge now

            logs.merge("t", options=RewriteOptions(progress=Once(ask)))
            asked[0].result(60)
        assert values(logs) == before


def test_truncation_lowers_the_cleaner_checkpoint(tmp_path: Path) -> None:
    """Otherwise what is appended below it would count as compacted, and a tombstone go before its key."""
    with stratalog.open(tmp_path) as logs:
        logs.create("t", 1, COMPACTED)
        logs.append("t", [(f"k{number}", "x") for number in range(100)])
        logs.clean("t", roll=True)
        assert stored(tmp_path) == 100
        logs.partition("t").truncate(30)
        assert stored(tmp_path) == 30
        logs.partition("t").restart(10)
        assert stored(tmp_path) == 10


def test_log_that_recovery_truncates_has_no_higher_checkpoint(tmp_path: Path) -> None:
    with stratalog.open(tmp_path) as logs:
        logs.create("t", 1, COMPACTED)
        for number in range(20):
            logs.append("t", [(f"k{number}", "x")])
            if number == 9:
                roll(logs)
        logs.clean("t", roll=True)
        assert stored(tmp_path) == 20
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (tmp_path / name).unlink(missing_ok=True)
    *_, last, active = sorted((tmp_path / "t-0").glob("*.log"))
    for path in tmp_path.glob(f"t-0/{active.stem}.*"):
        path.unlink()
    last.write_bytes(last.read_bytes()[:-5])
    with stratalog.open(tmp_path, on_damage="cut", on_recovery=lambda *_: None) as logs:
        end = logs.latest("t")
        assert end < 20
        assert stored(tmp_path) == end


def test_policy_without_compaction_stops_the_background_cleaner(tmp_path: Path) -> None:
    config = {
        "log.initial.task.delay.ms": 0,
        "log.cleaner.backoff.ms": 1,
        "log.cleaner.io.max.bytes.per.second": 100_000,
        "log.cleaner.dedupe.buffer.size": 2 << 20,
    }
    with stratalog.open(tmp_path, background=True, sync=False, config=config) as logs:
        logs.create("t", 1, {**COMPACTED, "min.cleanable.dirty.ratio": 0.99})
        for _ in range(6):
            logs.append("t", [(f"k{number}", "x" * 500) for number in range(100)])
            roll(logs)
        logs.alter_configs("t", {"min.cleanable.dirty.ratio": 0})
        deadline = time.monotonic() + 60
        while not logs.cleaner_status("t")[PARTITION].is_in_progress:
            assert time.monotonic() < deadline, "the cleaner does not begin"
            time.sleep(0.001)
        logs.alter_configs("t", {"cleanup.policy": "delete"})
        assert not logs.cleaner_status("t")[PARTITION].is_in_progress
        assert stored(tmp_path) is None
        assert len(values(logs)) == 600


def test_retention_during_a_cleaning_does_not_make_the_log_uncleanable(tmp_path: Path) -> None:
    with stratalog.open(tmp_path, sync=False) as logs:
        logs.create("t", 1, {**COMPACTED, "cleanup.policy": "compact,delete"})
        for _ in range(5):
            logs.append("t", [(f"k{number}", "x" * 300) for number in range(100)])
            roll(logs)

        def retain() -> None:
            logs.alter_configs("t", {"retention.bytes": 30_000})
            assert logs.retain()
            logs.partition("t").remove_due(all_of_them=True)

        with suppress(RewriteStoppedError):  # or what is left was cleaned
            logs.clean("t", limits=RewriteLimits(progress=Once(retain)))
        assert logs.cleaner_status("t")[PARTITION].uncleanable is None
        logs.clean("t")


def test_unexpected_error_is_remembered_with_the_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stratalog.open(tmp_path, sync=False) as logs:
        logs.create("t", 1, COMPACTED)
        logs.append("t", [("k", "1")] * 10)

        def fail(*_: object, **__: object) -> int:
            raise ZeroDivisionError("float division by zero")

        monkeypatch.setattr(cleaning, "build_offset_map", fail)
        with pytest.raises(ZeroDivisionError):
            logs.clean("t", roll=True)
        status = logs.cleaner_status("t")[PARTITION]
        assert status.uncleanable == "ZeroDivisionError('float division by zero')"
        assert status.last_run is not None
        assert status.last_run.error == status.uncleanable


def test_undo_of_a_compaction_forgets_the_cleaner_checkpoint(tmp_path: Path) -> None:
    """The originals that came back were not compacted."""
    with stratalog.open(tmp_path, sync=False) as logs:
        logs.create("t", 1, COMPACTED)
        logs.append("t", [("k", "1"), ("k", "2")])
        run = logs.begin_rewrite(
            logs.compaction(), [PARTITION], RewriteOptions(roll=True, keep_undo=True)
        )
        report = run.run()
        assert stored(tmp_path) == 2
        logs.undo(report.id)
        assert stored(tmp_path) is None
        assert len(values(logs)) == 2
