"""Retention in a log: what its plan does on the disk, now and after the delay.

``test_retention.py`` tests the plans; here is a log that carries them out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from stratalog.errors import OffsetOutOfRangeError
from stratalog.storage.log.retention import SegmentFacts
from stratalog.storage.partition_log import PartitionLog, Watermark
from stratalog.testing.clock import ManualClock
from tests.storage.logs import (
    SIZE,
    T,
    bases,
    batch,
    crash,
    files,
    name,
    offsets,
    open_log,
    reopen,
    sent,
)

DAY = 86_400_000


def filled(
    folder: Path, count: int = 15, clock: ManualClock | None = None, **configs: object
) -> PartitionLog:
    """One record a batch, five batches a segment, a minute between records."""
    log = open_log(
        folder,
        {
            "internal.segment.bytes": 5 * SIZE,
            **{k.replace("_", "."): v for k, v in configs.items()},
        },
        clock=clock,
        watermark=Watermark.WRITTEN,
    )
    for at in range(count):
        log.append(batch(b"%011d" % at, timestamp=T + 60_000 * at))
    return log


def test_nothing_is_old_and_nothing_goes(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert log.retain().deletions == ()
    assert bases(log) == [0, 5, 10]
    log.close()


def test_old_segments_go_by_their_newest_record(tmp_path: Path) -> None:
    clock = ManualClock()
    log = filled(tmp_path, clock=clock, retention_ms=DAY)
    clock.set(T + 60_000 * 4 + DAY)
    assert log.retain().deletions == ()
    clock.advance(1)
    (gone,) = log.retain().deletions
    assert (gone.base_offset, gone.policy) == (0, "retention.ms")
    assert (bases(log), log.log_start) == ([5, 10], 5)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(4)
    assert offsets(log) == list(range(5, 15))
    log.close()


def test_all_of_it_goes_and_one_empty_segment_stays(tmp_path: Path) -> None:
    clock = ManualClock()
    log = filled(tmp_path, clock=clock, retention_ms=DAY)
    clock.set(T + 30 * DAY)
    plan = log.retain()
    assert (len(plan.deletions), plan.needs_roll, plan.new_log_start) == (3, True, 15)
    assert (bases(log), log.log_start, log.log_end, log.size_bytes) == ([15], 15, 15, 0)
    assert log.retain().deletions == ()  # an empty one never goes
    log.append(batch(b"next", timestamp=T + 30 * DAY))
    assert offsets(log) == [15]
    log = crash(log)
    assert (bases(log), log.log_start, offsets(log)) == ([15], 15, [15])
    log.close()


def test_sizes_stay_at_or_above_the_limit(tmp_path: Path) -> None:
    log = filled(tmp_path, 18, retention_bytes=10 * SIZE)
    (gone,) = log.retain().deletions
    assert (gone.base_offset, gone.policy, log.size_bytes) == (0, "retention.bytes", 13 * SIZE)
    assert log.retain().deletions == ()
    log.close()


def test_a_limit_of_no_bytes_takes_everything_that_readers_may_see(tmp_path: Path) -> None:
    log = filled(tmp_path, 7, retention_bytes=0)
    log.retain()
    assert (bases(log), log.log_start) == ([7], 7)
    log.close()


def test_nothing_goes_that_readers_may_not_see_yet(tmp_path: Path) -> None:
    clock = ManualClock()
    configs = {"internal.segment.bytes": 5 * SIZE, "retention.ms": 1}
    log = open_log(tmp_path, configs, clock=clock)
    for at in range(15):
        log.append(batch(b"%011d" % at, timestamp=T + at))
    clock.advance(DAY)
    assert log.retain().deletions == ()
    log.advance_high_watermark(9)
    assert [each.base_offset for each in log.retain().deletions] == [0]
    log.advance_high_watermark(15)
    assert [each.base_offset for each in log.retain().deletions] == [5, 10]
    log.close()


def test_a_compacted_log_only_loses_what_lies_below_its_start(tmp_path: Path) -> None:
    clock = ManualClock()
    configs = {"internal.segment.bytes": 5 * SIZE, "cleanup.policy": "compact", "retention.ms": 1}
    log = open_log(tmp_path, configs, clock=clock, watermark=Watermark.WRITTEN)
    for at in range(12):
        log.append(batch(b"%08d" % at, key=b"key", timestamp=T + at))
    clock.advance(DAY)
    assert log.retain().deletions == ()
    log.advance_start(6)
    assert [each.policy for each in log.retain().deletions] == ["log-start"]
    log.close()


def test_files_without_times_go_by_their_own(tmp_path: Path) -> None:
    clock = ManualClock()
    log = open_log(tmp_path, {"retention.ms": DAY}, clock=clock, watermark=Watermark.WRITTEN)
    log.append(batch(b"a", timestamp=-1))
    log.roll()
    path = tmp_path / name(0, ".log")
    os.utime(path, (T / 1000, T / 1000))
    clock.set(T + DAY)
    assert log.retain().deletions == ()
    clock.advance(1)
    assert len(log.retain().deletions) == 1
    log.close()


def test_one_record_from_the_future_holds_all_behind_it(tmp_path: Path) -> None:
    clock = ManualClock()
    configs = {"retention.ms": DAY, "message.timestamp.after.max.ms": 100 * DAY}
    log = open_log(tmp_path, configs, clock=clock, watermark=Watermark.WRITTEN)
    for timestamp in (T, T + 50 * DAY, T):
        log.append(batch(b"a", timestamp=timestamp))
        log.roll()
    clock.set(T + 2 * DAY)
    assert [each.base_offset for each in log.retain().deletions] == [0]
    clock.set(T + 51 * DAY + 1)
    assert [each.base_offset for each in log.retain().deletions] == [1, 2]
    log.close()


def test_files_stay_for_the_delay_and_not_longer(tmp_path: Path) -> None:
    clock = ManualClock()
    log = filled(tmp_path, clock=clock, retention_bytes=5 * SIZE, file_delete_delay_ms=1000)
    assert len(log.retain().deletions) == 2
    there = files(tmp_path)
    gone = {
        f"{base}.{kind}.deleted" for base in (0, 5) for kind in ("log", "index", "timeindex")
    } | {"5.snapshot.deleted"}
    assert gone <= set(there)
    assert there["0.log.deleted"] == 5 * SIZE
    clock.advance(999)
    assert log.remove_due() == 0
    clock.set(0)  # a wall clock that jumps does not count
    assert log.remove_due() == 0
    clock.advance(1)
    assert log.remove_due() == 7
    assert not gone & set(files(tmp_path))
    assert log.remove_due() == 0
    log.close()


def test_what_a_dead_process_did_not_remove_is_removed_at_the_next_start(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_bytes=5 * SIZE)
    log.retain()
    log = crash(log)
    assert set(log.report.deleted_files) >= {name(0, ".log.deleted"), name(5, ".log.deleted")}
    assert not list(tmp_path.glob("*.deleted"))
    assert (bases(log), log.log_start) == ([10], 10)
    log.close()


def test_segments_that_were_renamed_halfway_do_not_come_back(tmp_path: Path) -> None:
    """The data file is renamed first: without it the rest is swept away."""
    log = filled(tmp_path)
    log.close()
    (tmp_path / name(0, ".log")).rename(tmp_path / name(0, ".log.deleted"))
    log = reopen(log, log_start=0)
    assert (bases(log), log.log_start) == ([5, 10], 5)
    assert not list(tmp_path.glob("0" * 20 + ".*"))
    log.close()


def test_producers_survive_the_segments_they_wrote(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"retention.bytes": 0}, watermark=Watermark.WRITTEN)
    log.append(sent(7, 0, b"a"))
    log.append(sent(7, 1, b"b"))
    log.retain()
    assert (log.log_start, log.log_end) == (2, 2)
    assert log.append(sent(7, 1, b"b")).is_duplicate
    log = reopen(log, watermark=Watermark.WRITTEN)
    assert log.append(sent(7, 1, b"b")).is_duplicate
    log.close()


def test_a_policy_of_ones_own(tmp_path: Path) -> None:
    class KeepTwo:
        name = "keep-two"

        def __call__(self, segments: Sequence[SegmentFacts]) -> Iterator[str]:
            for segment in segments[:-2]:
                yield f"{segment.base_offset} is one too many"

    log = filled(tmp_path, 23)
    plan = log.retain((KeepTwo(),))
    assert [(each.base_offset, each.reason) for each in plan.deletions] == [
        (0, "0 is one too many"), (5, "5 is one too many"), (10, "10 is one too many"),
    ]  # fmt: skip
    assert bases(log) == [15, 20]
    log.close()


def test_epochs_below_the_start_are_forgotten(tmp_path: Path) -> None:
    log = open_log(tmp_path, {"retention.bytes": 0}, watermark=Watermark.WRITTEN)
    for epoch in (1, 4, 6):
        log.append(batch(b"a"), leader_epoch=epoch)
    log.retain()
    assert log.epochs == ((6, 3),)
    log.close()
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n1\n6 3\n"


def test_many_segments_are_not_kept_open(tmp_path: Path) -> None:
    """Retention looks at every segment, and leaves no file open for it."""
    log = filled(tmp_path, 60)
    log = reopen(log, watermark=Watermark.WRITTEN)
    log.retain()
    assert sum(segment._log is not None for segment in log.segments[:-1]) == 0  # type: ignore[attr-defined]
    log.close()
