"""Cleaning topics of open directories: now, in the background, and what is known of each partition."""

from __future__ import annotations

from pathlib import Path

import pytest

import stratalog
from stratalog.errors import CorruptionError
from stratalog.manager.logs import Logs
from stratalog.storage.formats.checkpoints import decode_offsets
from stratalog.testing import ManualClock
from stratalog.types import TopicPartition

COMPACTED = {"cleanup.policy": "compact", "internal.segment.bytes": 2000}
QUICK = {"log.cleaner.backoff.ms": 1000, "log.cleaner.dedupe.buffer.size": 2 << 20}


def opened(root: Path, clock: ManualClock | None = None, **how: object) -> Logs:
    how = {"config": QUICK, **how}
    return stratalog.open(str(root), clock=clock or ManualClock(), **how)  # type: ignore[arg-type]


def fill(logs: Logs, topic: str, updates: int, keys: int = 5) -> dict[bytes, bytes]:
    """Append so many updates of so many keys; return the newest value of each."""
    newest: dict[bytes, bytes] = {}
    for update in range(updates):
        records = [(b"key-%d" % key, b"%s %04d" % (b"x" * 40, update)) for key in range(keys)]
        logs.append(topic, records, partition=0)
        newest.update(records)
    return newest


def content(logs: Logs, topic: str) -> dict[bytes | None, bytes | None]:
    records = list(logs.read(topic).records())
    found = {record.key: record.value for record in records}
    assert len(found) <= len(records)
    return found


def count(logs: Logs, topic: str) -> int:
    return sum(1 for _ in logs.read(topic).records())


def partition(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)


def test_clean_keeps_the_newest_record_of_each_key(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        logs.create("t", 1, COMPACTED)
        newest = fill(logs, "t", 40)
        before = count(logs, "t")
        (rounds,) = logs.clean("t", roll=True).values()
        assert content(logs, "t") == newest
        assert count(logs, "t") == len(newest) < before
        assert [each.end_offset for each in rounds] == [before]
    with opened(tmp_path) as logs:
        assert content(logs, "t") == newest
        assert logs.clean("t") == {partition("t"): []}


def test_a_topic_is_cleaned_on_request_whatever_its_policy(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        logs.create("t", 1, {**COMPACTED, "cleanup.policy": "delete"})
        newest = fill(logs, "t", 40)
        assert logs.cleaner_status() == {}
        assert not logs.cleaner_status("t")[partition("t")].is_compacted
        logs.clean("t", roll=True)
        assert content(logs, "t") == newest


def test_background_cleans_the_dirtiest_log_first_and_then_the_others(tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(tmp_path, clock, background=True) as logs:
        logs.create("clean", 1, COMPACTED)
        logs.create("dirty", 1, COMPACTED)
        fill(logs, "clean", 40)
        logs.clean("clean", roll=True)
        fill(logs, "clean", 20)
        newest = fill(logs, "dirty", 40)
        ratios = {each.topic: found.dirty_ratio for each, found in logs.cleaner_status().items()}
        assert 0.5 < ratios["clean"] < ratios["dirty"]
        clock.advance(1000)
        assert "clean-0" in logs.run_due_jobs()
        assert logs.cleaner_status()[partition("dirty")].last_run is not None
        assert content(logs, "dirty") == newest
        assert logs.cleaner_status()[partition("clean")].needs_cleaning is not None
        logs.run_due_jobs()  # the next one at once
        assert logs.cleaner_status()[partition("clean")].needs_cleaning is None


def test_nothing_is_cleaned_below_the_dirty_ratio(tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(tmp_path, clock, background=True) as logs:
        logs.create("t", 1, {**COMPACTED, "min.cleanable.dirty.ratio": "1"})
        fill(logs, "t", 40)
        clock.advance(1000)
        logs.run_due_jobs()
        assert logs.cleaner_status()[partition("t")].last_run is None


def test_status_says_what_blocks_a_cleaning(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        logs.create("t", 1, COMPACTED)
        logs.create("young", 1, {**COMPACTED, "min.compaction.lag.ms": 60_000})
        with logs.transaction() as transaction:
            transaction.append("t", [("a", "b")])
            fill(logs, "t", 40)
            status = logs.cleaner_status("t")[partition("t")]
            assert "open transaction" in status.blocked_by
            assert status.cleanable_bytes == 0
        assert "active segment" in logs.cleaner_status("t")[partition("t")].blocked_by
        fill(logs, "young", 40)
        assert (
            "min.compaction.lag.ms=60000"
            in logs.cleaner_status("young")[partition("young")].blocked_by
        )


def test_checkpoint_is_kafkas_and_forgets_deleted_topics(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        logs.create("t", 1, COMPACTED)
        logs.create("gone", 1, COMPACTED)
        for topic in ("t", "gone"):
            fill(logs, topic, 40)
            logs.clean(topic, roll=True)
        end = logs.latest("t")
        path = tmp_path / "cleaner-offset-checkpoint"
        assert decode_offsets(path.read_bytes()) == {partition("t"): end, partition("gone"): end}
        logs.delete_topic("gone")
        assert decode_offsets(path.read_bytes()) == {partition("t"): end}


def test_an_uncleanable_partition_is_tried_again_when_its_segments_change(tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(tmp_path, clock) as logs:
        logs.create("t", 1, COMPACTED)
        fill(logs, "t", 40)
    path = min((tmp_path / "t-0").glob("*.log"))
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    with opened(tmp_path, clock, background=True) as logs:
        clock.advance(1000)
        logs.run_due_jobs()
        status = logs.cleaner_status()[partition("t")]
        assert status.uncleanable is not None
        assert "CRC" in status.uncleanable
        assert any(isinstance(job.last_error, CorruptionError) for job in logs.jobs)
        for _ in range(3):
            clock.advance(1000)
            logs.run_due_jobs()
        assert logs.cleaner_status()[partition("t")].last_run == status.last_run
        path.write_bytes(whole)
        newest = fill(logs, "t", 40)
        clock.advance(1000)
        logs.run_due_jobs()
        assert logs.cleaner_status()[partition("t")].uncleanable is None
        logs.clean("t", roll=True)
        assert content(logs, "t") == newest


def test_cleaner_threads_share_the_dedupe_buffer(tmp_path: Path) -> None:
    config = {"log.cleaner.threads": 2, "log.cleaner.dedupe.buffer.size": 4 << 20}
    with opened(tmp_path, config=config, background=True) as logs:
        assert {"clean-0", "clean-1"} <= {job.name for job in logs.jobs}
        logs.create("t", 1, COMPACTED)
        fill(logs, "t", 20)
        ((only,),) = logs.clean("t", roll=True).values()
        assert only.map_slots == (2 << 20) // 24


def test_no_cleaner_runs_if_it_is_disabled(tmp_path: Path) -> None:
    with opened(tmp_path, config={"log.cleaner.enable": False}, background=True) as logs:
        assert not any(job.name.startswith("clean") for job in logs.jobs)


def test_closing_gives_up_a_cleaning_and_leaves_a_sound_log(tmp_path: Path) -> None:
    """Under the system clock, with a throttle so low that the cleaning would take minutes."""
    with stratalog.open(str(tmp_path)) as logs:
        logs.create("t", 1, COMPACTED)
        newest = fill(logs, "t", 200)
    config = {"log.cleaner.backoff.ms": 0, "log.cleaner.io.max.bytes.per.second": 100}
    with stratalog.open(str(tmp_path), config=config, background=True) as logs:
        assert content(logs, "t") == newest
    with stratalog.open(str(tmp_path)) as logs:
        assert content(logs, "t") == newest
        assert not list((tmp_path / "t-0").glob("*.cleaned"))


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_retention_beside_compaction(tmp_path: Path, policy: str) -> None:
    clock = ManualClock()
    with opened(tmp_path, clock, background=True) as logs:
        logs.create("t", 1, {**COMPACTED, "cleanup.policy": policy, "retention.ms": 60_000})
        fill(logs, "t", 40)
        clock.advance(3_600_000)
        for _ in range(4):
            logs.run_due_jobs()
            clock.advance(1000)
        # A record is left of each key, unless retention deletes it.
        assert (count(logs, "t") == 0) == (policy == "compact,delete")
