"""An export that was killed half way can be run again, and takes nothing of another with it."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from stratalog.errors import UsageError
from stratalog.spark.jobs.exporting.folder import can_be_renamed, whole_folder
from stratalog.spark.jobs.run.targets import check_target


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def abandoned(tmp_path: Path, name: str = "out") -> Path:
    """What a run that was killed leaves: files, and a lock that nobody holds."""
    folder = tmp_path / f".{name}.stratalog-export-0123456789ab"
    (folder / "_temporary").mkdir(parents=True)
    (folder / "_temporary" / "part-0.parquet").write_bytes(b"half")
    (folder / "_lock").touch()
    return folder


def test_target_is_there_when_it_is_whole_and_not_before(tmp_path):
    to = tmp_path / "new" / "out"
    with whole_folder(str(to)) as folder:
        Path(folder, "part").touch()
        assert not to.exists()
    assert names(to) == ["part"]
    assert names(to.parent) == ["out"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_failed_run_leaves_nothing(tmp_path, error):
    with pytest.raises(error), whole_folder(str(tmp_path / "out")):
        raise error
    assert names(tmp_path) == []


def test_what_a_killed_run_left_is_removed_and_that_of_a_running_one_stays(tmp_path):
    dead, other = abandoned(tmp_path), abandoned(tmp_path, "another")
    running = tmp_path / ".out.stratalog-export-running"
    running.mkdir()
    with (running / "_lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with whole_folder(str(tmp_path / "out")):
            assert not dead.exists()
        assert (running / "_lock").exists()
    assert other.exists()
    assert (tmp_path / "out").is_dir()


def test_what_is_there_is_never_replaced(tmp_path):
    to = tmp_path / "out"
    to.mkdir()
    (to / "someone's").touch()
    with pytest.raises(UsageError, match="already exists"), whole_folder(str(to)):
        pytest.fail("not reached")
    with pytest.raises(UsageError, match="already exists"), whole_folder(str(tmp_path / "late")):
        (tmp_path / "late").mkdir()  # it came while the export ran
    assert names(tmp_path) == ["late", "out"]
    assert names(to) == ["someone's"]


def test_only_new_folders_of_files_are_renamed():
    assert can_be_renamed("/out", "Parquet", "errorifexists")
    assert not can_be_renamed("/out", "parquet", "append")
    assert not can_be_renamed("/out", "iceberg", "errorifexists"), "has its own path in it"
    assert not can_be_renamed("s3://bucket/out", "parquet", "errorifexists")


def test_run_that_was_killed_before_its_first_batch_can_use_a_new_checkpoint(tmp_path):
    """Spark makes its log in the target first: empty, it is nothing that another export wrote."""
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    check_target(str(tmp_path), "parquet", checkpoint_is_new=True, mode="errorifexists")
    (log / "0").touch()
    with pytest.raises(UsageError, match="holds the output of another export"):
        check_target(str(tmp_path), "parquet", checkpoint_is_new=True, mode="errorifexists")


@pytest.mark.slow
def test_export_after_one_that_was_killed(spark, make_log, tmp_path):
    from stratalog.spark import jobs

    path, out = make_log(30), tmp_path / "out"
    dead = abandoned(tmp_path)
    assert jobs.export(spark, path, out).records == 30
    assert spark.read.parquet(str(out)).count() == 30
    assert not dead.exists()
    assert not (out / "_lock").exists()
    with pytest.raises(UsageError, match="already exists"):
        jobs.export(spark, path, out)
    checkpoint, streamed = tmp_path / "checkpoint", tmp_path / "streamed"
    (streamed / "_spark_metadata").mkdir(parents=True)  # killed before its first batch
    assert jobs.export(spark, path, streamed, checkpoint=checkpoint).records == 30
    assert jobs.export(spark, path, streamed, checkpoint=checkpoint).records == 0
