"""A salvage on Spark leaves what the local one leaves, byte for byte: however tasks are cut and tried again,
and whenever it is killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stratalog.errors import StorageError, UsageError
from stratalog.inspect.partition.partition_filter import partition_filter
from stratalog.rewrite.salvage.directory import INCOMPLETE_SUFFIX, write_directory
from stratalog.rewrite.salvage.folders import find_folders
from stratalog.rewrite.salvage.plan import SalvageOptions, SalvagePlan, plan_salvage
from stratalog.rewrite.salvage.report import report_of
from stratalog.rewrite.salvage.segments import segments_of
from stratalog.spark import jobs
from stratalog.spark.jobs.run.log_paths import LogPaths
from stratalog.spark.jobs.run.run_tasks import run_tasks
from stratalog.spark.jobs.salvaging import surveying, writing
from stratalog.spark.jobs.salvaging.salvage import SalvageJob
from stratalog.storage.files.filesystem import OsFileSystem
from tests.cli.runner import run
from tests.inspect.logs import batch, flipped, segment
from tests.judges.peers.golden import golden_set
from tests.rewrite.salvage.worlds import (
    FILES,
    KINDS,
    damage_world,
    duplicate_segment,
    make_world,
    states_of,
    verify,
)
from tests.scale import fresh, sized
from tests.spark.jobs.kills import calls_of, killed_at

#: Their times are those of the originals; other files are as old as the salvage.
DATED = (".log", ".index", ".timeindex", ".txnindex", ".kafka")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def tree(folder: Path) -> dict[str, tuple[bytes | None, int]]:
    """All folders and files, with the times that a salvage sets."""
    found: dict[str, tuple[bytes | None, int]] = {}
    for path in sorted(folder.rglob("*")):
        data = path.read_bytes() if path.is_file() else None
        dated = path.stat().st_mtime_ns // 1_000_000 if path.name.endswith(DATED) else 0
        found[str(path.relative_to(folder))] = (data, dated)
    return found


def locally(
    paths: Sequence[str | Path], target: Path, options: SalvageOptions | None = None
) -> list[SalvagePlan]:
    folders = find_folders(FILES, [str(path) for path in paths], partition_filter(None, None))
    plans = [plan_salvage(FILES, each.path, options or SalvageOptions()) for each in folders]
    write_directory(FILES, plans, str(target))
    return plans


def decided(plan: SalvagePlan) -> tuple[Any, ...]:
    return plan.kept, plan.ranges, plan.facts, report_of(plan)


def damaged_partitions(root: Path, count: int) -> Path:
    """A log directory with a partition of every format, each damaged in several places, some of them with
    segments that overlap, and with leftovers."""
    kinds = list(KINDS)
    for number in range(count):
        rng = random.Random(fresh(number))
        world = make_world(root / "making", kinds[number % len(kinds)], rng)
        whole = dict(world.files)
        if number % 4 == 1 and not world.is_v07:
            duplicate_segment(world)
        damage_world(world, rng, number % 7)
        world.store()
        if number % 3 == 0:
            name = min(whole)
            (world.partition / f"{name}.deleted").write_bytes(whole[name])
        shutil.move(world.partition, root / f"orders-{number}")
    shutil.rmtree(root / "making")
    return root


def damaged_log(root: Path) -> Path:
    """Two partitions with damage and a sound one."""
    root.mkdir()
    segment(root, 0, batch(0) + flipped(batch(3), 80) + batch(6))
    segment(root, 9, flipped(batch(9), 80) + batch(12))
    segment(root, 0, b"\x07" * 300 + batch(40), partition="orders-1")
    segment(root, 0, batch(0), partition="other-0")
    return root


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every segment, range and run has a task of its own."""
    monkeypatch.setattr(surveying, "task_size", lambda *_: 1)
    monkeypatch.setattr(writing, "task_size", lambda *_: 1)


# --- the same as the local one -------------------------------------------------------------------


@pytest.mark.scaled
@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("with_leftovers", [False, True])
def test_random_damage_leaves_what_the_local_one_leaves(
    spark: Any, tmp_path: Path, with_leftovers: bool
) -> None:
    root = damaged_partitions(tmp_path / "old", sized(len(KINDS), 5 * len(KINDS)))
    before = states_of(root)
    options = SalvageOptions(with_leftovers=with_leftovers)
    expected = locally([root], tmp_path / "local", options)
    plans = jobs.salvage(spark, root, tmp_path / "new", write=True, options=options)
    assert list(map(decided, plans)) == list(map(decided, expected))
    assert sum(len(plan.ranges) for plan in plans) > 20
    assert list((tmp_path / "new").rglob("*.txnindex"))
    assert tree(tmp_path / "new") == tree(tmp_path / "local")
    assert states_of(root) == before
    assert names_in(tmp_path) == ["local", "new", "old"]


@pytest.mark.parametrize(
    "name",
    ["v2-torn", "v2-transactions", "v2-multi-dir", "v2-leader-epochs", "v1-gzip", "v07-gzip"],
)
def test_golden_sets_are_salvaged_as_the_local_one_does(
    spark: Any, tmp_path: Path, name: str
) -> None:
    roots = []
    rng = random.Random(fresh(7))
    for folder in golden_set(name).log_dirs:
        roots.append(tmp_path / "old" / folder.name)
        shutil.copytree(folder, roots[-1], copy_function=shutil.copy2)
        for path in sorted(roots[-1].rglob("*.log")) + sorted(roots[-1].rglob("*.kafka")):
            data = bytearray(path.read_bytes())
            for _ in range(3 if data else 0):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
    expected = locally(roots, tmp_path / "local")
    plans = jobs.salvage(spark, roots, tmp_path / "new", write=True)
    assert list(map(decided, plans)) == list(map(decided, expected))
    assert any(plan.has_losses for plan in plans)
    assert tree(tmp_path / "new") == tree(tmp_path / "local")


def test_headers_of_batches_that_were_moved_are_read_in_tasks(
    spark: Any, tmp_path: Path, one_by_one: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    def noted(*given: Any, **options: Any) -> Any:
        names.append(options["name"])
        return run_tasks(*given, **options)

    monkeypatch.setattr(surveying, "run_tasks", noted)
    (tmp_path / "old").mkdir()
    segment(tmp_path / "old", 0, batch(0) + batch(6, leader_epoch=1) + batch(3))
    segment(tmp_path / "old", 9, batch(9, leader_epoch=1))
    locally([tmp_path / "old"], tmp_path / "local")
    jobs.salvage(spark, tmp_path / "old", tmp_path / "new", write=True)
    assert names == ["salvage: headers"]
    assert tree(tmp_path / "new") == tree(tmp_path / "local")


def test_chosen_partitions_are_planned_without_writing(spark: Any, tmp_path: Path) -> None:
    root = damaged_log(tmp_path / "old")
    plans = jobs.salvage(spark, root, tmp_path / "new", topics="orders", partitions=[0])
    assert [(plan.topic_partition.partition, plan.kept_records) for plan in plans] == [(0, 9)]
    assert [tuple(each) for each in plans[0].lost] == [(3, 6), (9, 12)]
    assert names_in(tmp_path) == ["old"]


def test_progress_ends_with_all_bytes(spark: Any, tmp_path: Path, one_by_one: None) -> None:
    root = damaged_log(tmp_path / "old")
    done: list[int] = []
    plans = jobs.salvage(spark, root, tmp_path / "new", write=True, progress=done.append)
    read = sum(path.stat().st_size for path in root.rglob("*.log"))
    written = sum(plan.kept_bytes + plan.lost_bytes for plan in plans)
    assert done == sorted(done)
    assert all(each <= read + written for each in done)


# --- the command ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("output", ["table", "json", "ndjson"])
def test_the_command_prints_what_the_local_one_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    """With paths that mean nothing where tasks run."""
    damaged_log(tmp_path / "old")
    monkeypatch.chdir(tmp_path)
    for arguments in (["old"], ["old", "-t", "other"], ["./old/orders-0", "--include-leftovers"]):
        shown = [
            run(*verb, *arguments, "-o", output) for verb in (["salvage"], ["spark", "salvage"])
        ]
        assert shown[0] == shown[1]
    arguments = ["old", "--out", "new", "--write", "-o", output]
    written = [run("salvage", *arguments)]
    (tmp_path / "new").rename(tmp_path / "local")
    written.append(run("spark", "salvage", *arguments))
    assert written[0] == written[1]
    assert written[0].code == 1
    assert tree(tmp_path / "new") == tree(tmp_path / "local")
    assert verify(tmp_path / "new") == []


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_partition_that_cannot_be_read_is_reported_and_nothing_is_written(tmp_path: Path) -> None:
    root = damaged_log(tmp_path / "old")
    path = root / "orders-1/00000000000000000000.log"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    done = run("spark", "salvage", root, "--out", tmp_path / "new", "--write", "-o", "ndjson")
    assert (done.code, "link" in done.err) == (3, True)
    assert [row["topic"] for row in done.rows()] == ["orders", "other"]
    assert names_in(tmp_path) == ["elsewhere", "old"]


# --- what is refused -----------------------------------------------------------------------------


def test_a_file_that_becomes_shorter_is_an_error_of_its_partition(
    spark: Any, tmp_path: Path
) -> None:
    root = damaged_log(tmp_path / "old")
    job = SalvageJob(root, None, SalvageOptions())
    job.find(None, None)
    os.truncate(root / "orders-0/00000000000000000009.log", 100)
    errors: list[StorageError] = []
    job.plan(spark, errors.append, None)
    assert ["became shorter" in str(each) for each in errors] == [True]
    assert [str(plan.topic_partition) for plan in job.plans] == ["orders-1", "other-0"]


def test_errors_are_raised_unless_they_are_asked_for(spark: Any, tmp_path: Path) -> None:
    root = damaged_log(tmp_path / "old")
    path = root / "orders-1/00000000000000000000.log"
    path.unlink()
    path.symlink_to(root / "other-0/00000000000000000000.log")
    with pytest.raises(StorageError, match="link"):
        jobs.salvage(spark, root, tmp_path / "new", write=True)
    errors: list[Any] = []
    plans = jobs.salvage(spark, root, tmp_path / "new", write=True, on_error=errors.append)
    assert (len(plans), len(errors)) == (2, 1)
    assert names_in(tmp_path) == ["old"]


def test_wrong_targets_are_refused(spark: Any, tmp_path: Path) -> None:
    root = damaged_log(tmp_path / "old")
    with pytest.raises(UsageError, match="needs a target"):
        jobs.salvage(spark, root, write=True)
    with pytest.raises(UsageError, match="lie in each other"):
        jobs.salvage(spark, root, root / "new", write=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(UsageError, match="not empty"):
        jobs.salvage(spark, root, tmp_path / "full", write=True)


def test_a_file_that_changed_since_the_plan_is_noticed(spark: Any, tmp_path: Path) -> None:
    root = damaged_log(tmp_path / "old")
    errors: list[StorageError] = []
    job = SalvageJob(root, str(tmp_path / "new"), SalvageOptions())
    job.find(None, None)
    job.plan(spark, errors.append, None)
    (root / "other-0/00000000000000000000.log").write_bytes(flipped(batch(0), 80))
    with pytest.raises(StorageError, match="changed while it was salvaged"):
        job.write(spark, None)
    assert errors == []
    assert names_in(tmp_path) == [f"new{INCOMPLETE_SUFFIX}", "old"]
    (attempts,) = (tmp_path / f"new{INCOMPLETE_SUFFIX}").iterdir()
    assert list(attempts.iterdir()) == []
    locally([root], tmp_path / "new")
    assert names_in(tmp_path) == ["new", "old"]


# --- tasks and drivers that die ------------------------------------------------------------------


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("is_killed", [False, True])
def test_tasks_that_die_after_their_work_are_tried_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    root = damaged_log(tmp_path / "old")
    locally([root], tmp_path / "local")
    failures = tmp_path / "failures"
    failures.mkdir()

    def failing(
        spark: Any, work: Callable[[Any], Any], items: Sequence[Any], **options: Any
    ) -> Any:
        def tried(item: tuple[int, Any]) -> Any:
            number, given = item
            answer = work(given)
            path = failures / str(number)
            if not path.exists():
                path.touch()
                if is_killed:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise ConnectionResetError("the answer of this attempt is lost")
            return answer

        return run_tasks(spark, tried, list(enumerate(items)), **options)

    monkeypatch.setattr(writing, "run_tasks", failing)
    jobs.salvage(spark, root, tmp_path / "new", write=True)
    assert len(names_in(failures)) == 7  # four segments, three ranges
    assert tree(tmp_path / "new") == tree(tmp_path / "local")


def in_this_process(
    spark: Any,
    work: Callable[[Any], Any],
    items: Sequence[Any],
    **options: Any,
) -> list[Any]:
    """Every task twice, the first attempt lost."""
    return [[work(item), work(item)][1] for item in items]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.scaled
@pytest.mark.usefixtures("one_by_one")
def test_a_driver_killed_before_any_call_leaves_a_complete_target_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    monkeypatch.setattr(writing, "run_tasks", in_this_process)
    root = damaged_log(tmp_path / "old")
    plans = locally([root], tmp_path / "local")
    before = states_of(root)
    target = tmp_path / "new"

    def write() -> None:
        logs = LogPaths((str(root),), folder=str(Path.cwd()))
        no_spark: Any = None
        writing.write_on_spark(no_spark, OsFileSystem(), logs, plans, str(target), None)

    calls = calls_of(write)
    assert calls > 100
    complete = 0
    numbers = range(1, calls + 1, sized(23, 1))
    for number in numbers:
        shutil.rmtree(target, ignore_errors=True)
        killed_at(write, number)
        if target.exists():
            complete += 1
            assert tree(target) == tree(tmp_path / "local")
        else:
            write()
            assert tree(target) == tree(tmp_path / "local")
            assert names_in(tmp_path) == ["local", "new", "old"]
    assert states_of(root) == before
    assert complete <= 2
    record_property("counted: kills of a driver that salvages", len(numbers))


@pytest.mark.proof
@pytest.mark.parametrize("call", [12])
def test_a_spark_driver_is_killed(tmp_path: Path, call: int) -> None:
    """The whole job, in a process with a Java of its own; then the same job again."""
    root = damaged_log(tmp_path / "old")
    locally([root], tmp_path / "local")
    before = states_of(root)
    first = run_job(root, tmp_path / "new", call)
    assert first.returncode == -signal.SIGKILL, first.stdout[-2000:]
    assert names_in(tmp_path) == ["local", f"new{INCOMPLETE_SUFFIX}", "old"]
    again = run_job(root, tmp_path / "new", 0)
    assert again.returncode == 0, again.stdout[-2000:]
    assert names_in(tmp_path) == ["local", "new", "old"]
    assert tree(tmp_path / "new") == tree(tmp_path / "local")
    assert states_of(root) == before


def run_job(root: Path, target: Path, call: int) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "tests.spark_programs.killed_salvage"]
    return subprocess.run(
        [*program, str(root), str(target), str(call)], cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_an_attempt_that_goes_on_writing_fails(tmp_path: Path) -> None:
    """Its executor was thought dead. It writes neither into the target nor under its former name."""
    root = damaged_log(tmp_path / "old")
    plans = locally([root], tmp_path / "new")
    settings = writing.Writing(
        LogPaths((str(root),), folder=str(Path.cwd())), f"{tmp_path}/new{INCOMPLETE_SUFFIX}"
    )
    items = list(writing.items_to_write(plans, [segments_of(plan) for plan in plans]))
    before = tree(tmp_path / "new")
    with pytest.raises(StorageError):
        writing.write_items(settings, items)
    assert tree(tmp_path / "new") == before
    assert names_in(tmp_path) == ["new", "old"]


def test_report_names_the_folder_as_it_was_given(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged_log(tmp_path / "old")
    monkeypatch.chdir(tmp_path)
    jobs.salvage(spark, "old", "new", write=True)
    report = json.loads((tmp_path / "new/orders-0/stratalog-damaged/report.json").read_text())
    assert report["source"] == "old/orders-0"
