"""A driver is killed in the commit of a compaction, before each of its calls to the system. The next writer
leaves the old log, or the log that a local compaction leaves; readers in between see sound records."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import stratalog
from stratalog.manager.commit_segments import commit_segments
from stratalog.manager.logs import Logs, open_logs
from stratalog.manager.rewrites import RewriteOptions
from stratalog.spark.jobs.rewriting.compacting import (
    Compacting,
    compact_group,
    plan_groups_to_compact,
)
from stratalog.spark.jobs.rewriting.staged_group import GroupDone, Staging
from stratalog.spark.jobs.rewriting.work import PartitionOutcome
from stratalog.storage.commits.journal import read_journal
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.segment_groups import PartitionGroups
from stratalog.storage.files.filesystem import OsFileSystem
from tests.scale import sized
from tests.spark.jobs.kills import counting, killed_at
from tests.spark.jobs.test_compact_groups import shuffle
from tests.spark.jobs.test_rewriting import (
    clock,
    contents,
    copied,
    data_of,
    left_over,
    locally,
    random_logs,
)

KEY = CommitKey("killed", 0)
Counted = Callable[[str, object], None]


def staged(path: str) -> list[PartitionGroups]:
    """Everything that the job does before its commit, without Spark."""
    staging = Staging(path, KEY)
    with open_logs(path, clock=clock()) as logs:
        work = Compacting()
        plans = [
            work.plan(logs, logs.rewrite_target(each, RewriteOptions()))
            for each in logs.topic_partitions("t", None)
        ]
    outcomes = [PartitionOutcome(each, each.shown) for each in plans]
    for outcome in outcomes:
        outcome.cleaned_to = outcome.plan.detail.cleaning.end
    for group in plan_groups_to_compact(plans, shuffle(staging, plans)):
        done = compact_group(staging, group)
        assert isinstance(done, GroupDone)
        outcomes[group.partition].groups.append(done)
    return [each for each in (outcome.replacement() for outcome in outcomes) if each is not None]


def commit(path: str, partitions: list[PartitionGroups]) -> None:
    commit_segments(path, KEY, partitions, clock=clock(), lock_timeout_s=5)


def killed(path: str, partitions: list[PartitionGroups], call: int) -> None:
    """Commit in a process that is killed before its ``call``-th call."""
    killed_at(lambda: commit(path, partitions), call)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.scaled
def test_a_driver_killed_before_every_call_of_its_commit(
    tmp_path: Path, record_property: Counted
) -> None:
    path = random_logs(tmp_path, seeds=2, steps=40)
    old = records_of(path)
    original = data_of(path)
    local = copied(path, "local")
    locally(local, Logs.compaction, "t")
    partitions = staged(path)
    calls = _calls_of(path, partitions)
    assert calls > 60
    kills = range(1, calls + 1, sized(calls // 12, 1))
    for call in kills:
        here = copied(path, f"killed-{call}")
        killed(here, partitions, call)
        # Whoever looks before anybody has recovered anything sees sound records, and none that are new.
        assert records_of(here) <= old
        with open_logs(here, clock=clock()) as logs:
            logs.recover()
        state = read_journal(OsFileSystem(), here)
        assert not state.open
        expected = contents(local) if state.is_done(KEY) else original
        found = contents(here) if state.is_done(KEY) else data_of(here)
        assert found == expected, f"killed before call {call}"
        commit(here, partitions)
        assert data_of(here) == data_of(local)
        assert left_over(here) == []
        shutil.rmtree(here)
    record_property("counted: kills of a process in the commit of a compaction", len(kills))


def _calls_of(path: str, partitions: list[PartitionGroups]) -> int:
    here = copied(path, "counted")
    count = 0

    def note() -> None:
        nonlocal count
        count += 1

    with counting(note):
        commit(here, partitions)
    shutil.rmtree(here)
    return count


def records_of(path: str) -> set[tuple[int, int, bytes | None, bytes | None]]:
    columns = ["partition", "offset", "key", "value"]
    return {
        tuple(row[name] for name in columns)
        for batch in stratalog.scan(path, columns=columns)
        for row in batch.to_pylist()
    }


@pytest.mark.proof
@pytest.mark.parametrize("call", [20, 45])
def test_a_spark_driver_killed_in_its_commit(tmp_path: Path, call: int) -> None:
    """The whole job, in a process with a Java of its own; then the same job again."""
    path = str(tmp_path / "logs")
    with stratalog.open(path) as logs:
        logs.create("t", 2, {"internal.segment.bytes": 2000})
        for partition in (0, 1):
            for number in range(200):
                logs.append("t", [(f"k{number % 7}", f"v{number}")], partition=partition)
            logs.partition("t", partition).roll()
    local = copied(path, "local")
    with stratalog.open(local) as logs:
        logs.clean("t")
    first = _run_job(path, call)
    assert first.returncode == -signal.SIGKILL, first.stdout[-2000:]
    again = _run_job(path, 0)
    assert again.returncode == 0, again.stdout[-2000:]
    assert data_of(path) == data_of(local)
    assert left_over(path) == []


def _run_job(path: str, call: int) -> subprocess.CompletedProcess[str]:
    arguments = [
        sys.executable,
        "-m",
        "tests.spark_programs.killed_compaction",
        path,
        "t",
        str(call),
    ]
    root = Path(__file__).parents[3]
    return subprocess.run(
        arguments, cwd=root, capture_output=False, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
    )  # fmt: skip
