"""Where jobs write, and what a checkpoint belongs to: nothing is lost, hidden, or out of order."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stratalog
from stratalog.errors import InvalidRecordError, StorageError, StratalogError, UsageError
from stratalog.spark.jobs.exporting.export import export
from stratalog.spark.jobs.importing.import_rows import import_rows
from stratalog.spark.jobs.mirroring.mirror import mirror
from stratalog.spark.jobs.run.task_errors import in_plain_words
from stratalog.spark.options.write_options import WriteOptions

pytest.importorskip("pyspark")

pytestmark = pytest.mark.slow


def files(root: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in Path(root).rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("place", ["itself", "parent", "within", "by another name"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_target_that_is_the_log_directory_is_refused(
    spark: Any, make_log: Callable[..., str], tmp_path: Path, place: str, dry_run: bool
) -> None:
    path = make_log(100)
    (tmp_path / "link").symlink_to(path)
    to = {
        "itself": path,
        "parent": str(tmp_path),
        "within": f"{path}/out",
        "by another name": str(tmp_path / "link"),
    }[place]
    before = files(path)
    with pytest.raises(UsageError, match="one within the other"):
        export(spark, path, to, mode="overwrite", dry_run=dry_run)
    with pytest.raises(UsageError, match="one within the other"):
        export(spark, path, tmp_path.parent / "out", checkpoint=to, dry_run=dry_run)
    assert files(path) == before


def test_a_copy_within_its_source_is_refused(
    spark: Any, make_log: Callable[..., str], tmp_path: Path
) -> None:
    path = make_log(10)
    for to in (f"{path}/copy", str(tmp_path)):
        with pytest.raises(UsageError, match="one within the other"):
            mirror(spark, path, to)
    assert not Path(path, "copy").exists()


def test_a_target_of_another_checkpoint_is_refused(
    spark: Any, make_log: Callable[..., str], tmp_path: Path
) -> None:
    """Spark passes over batches whose numbers the target has already, and would say that all is well."""
    path, to, checkpoint = make_log(100), tmp_path / "out", tmp_path / "checkpoint"
    assert export(spark, path, to, checkpoint=checkpoint).records == 100
    make_log(50, first=100)
    with pytest.raises(UsageError, match="this checkpoint is new"):
        export(spark, path, to, checkpoint=tmp_path / "other")
    with pytest.raises(UsageError, match="with a checkpoint"):
        export(spark, path, to, mode="append")
    assert export(spark, path, to, checkpoint=checkpoint).records == 50
    shutil.rmtree(checkpoint)
    make_log(50, first=150)
    with pytest.raises(UsageError, match="this checkpoint is new"):
        export(spark, path, to, checkpoint=checkpoint)
    assert spark.read.parquet(str(to)).count() == 150


def test_a_target_without_a_log_of_its_own_is_not_taken_over(
    spark: Any, make_log: Callable[..., str], tmp_path: Path
) -> None:
    path, to = make_log(100), tmp_path / "out"
    export(spark, path, to)
    with pytest.raises(UsageError, match="this checkpoint is new"):
        export(spark, path, to, checkpoint=tmp_path / "checkpoint")
    assert export(spark, path, to, mode="append").records == 100
    assert spark.read.parquet(str(to)).count() == 200


def test_a_checkpoint_is_of_one_source_and_one_layout(
    spark: Any, make_log: Callable[..., str], tmp_path: Path
) -> None:
    path, other = make_log(100), make_log(150, name="other")
    given: dict[str, Any] = {"to": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    export(spark, path, **given)
    for changed, what in (
        ({"paths": other}, "source"),
        ({"paths": path, "partition_by": ["date", "topic"]}, "partition_by"),
        ({"paths": path, "committed": True}, "committed"),
    ):
        with pytest.raises(UsageError, match=f"an export with {what}"):
            export(spark, **given, **changed)
    assert export(spark, path, **given).records == 0


def test_a_checkpoint_whose_path_looks_like_a_pattern(
    spark: Any, make_log: Callable[..., str], tmp_path: Path
) -> None:
    path = make_log(100, partitions=1)
    given: dict[str, Any] = {"to": tmp_path / "out", "checkpoint": tmp_path / "check[1]{a}"}
    export(spark, path, **given)
    (row,) = export(spark, path, **given, dry_run=True).partitions
    assert (row.start_offset, row.end_offset) == (100, 100)


def test_a_checkpoint_that_cannot_be_one_is_one_error(
    spark: Any, make_log: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="no checkpoint can be kept here"):
        export(spark, make_log(10), tmp_path / "out", checkpoint=tmp_path / "file")


@pytest.mark.proof
def test_a_condition_may_name_columns_that_are_not_written(
    spark: Any, make_log: Callable[..., str], tmp_path: Path
) -> None:
    path = make_log(100)
    for number, where in enumerate(("codec = 'none'", "`producerid` = -1 and codec <> 'zstd'")):
        report = export(
            spark,
            path,
            tmp_path / f"out-{number}",
            where=where,
            checkpoint=tmp_path / f"checkpoint-{number}",
        )
        assert report.records == 100


def test_a_topic_that_is_gone_is_not_reported_as_exported_again(
    spark: Any, make_log: Callable[..., str], tmp_path: Path
) -> None:
    path = make_log(10, topic="stays", partitions=1)
    make_log(10, topic="goes", partitions=1)
    given: dict[str, Any] = {"to": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    export(spark, path, **given)
    shutil.rmtree(Path(path, "goes-0"))
    make_log(5, topic="stays", first=10)
    report = export(spark, path, allow_loss=True, **given)
    reached = {each.topic: (each.start_offset, each.end_offset) for each in report.partitions}
    assert report.records == 5
    assert reached["stays"] == (10, 15)
    assert reached.get("goes", (10, 10)) == (10, 10)


@pytest.mark.proof  # four exports, each of which starts a stream
def test_what_was_exported_is_imported_in_its_order(
    spark: Any, make_log: Callable[..., str], tmp_path: Path
) -> None:
    """Spark packs files by their sizes: the order of its rows is not that of the files' names."""
    path, to, copy = str(make_log(0, partitions=1)), tmp_path / "out", str(tmp_path / "copy")
    for first, count in ((0, 5), (5, 60), (65, 1), (66, 34)):
        make_log(count, first=first)
        export(spark, path, to, checkpoint=tmp_path / "checkpoint")
    import_rows(spark, str(to), copy, topic="orders", columns={"partition": "null"})
    read = spark.read.format("stratalog").load
    wanted, found = (
        [bytes(row.value) for row in read(each).orderBy("offset").collect()]
        for each in (path, copy)
    )
    assert len(wanted) == 100
    assert found == wanted
    import_rows(spark, str(to), copy, topic="backwards", order_by=["offset desc"])
    rows = read(copy).where("topic = 'backwards'").orderBy("offset").collect()
    assert [bytes(row.value) for row in rows] == wanted[::-1]
    with pytest.raises(UsageError):
        import_rows(spark, str(to), copy, topic="orders", order_by=[" "])


def test_a_whole_row_as_json_keeps_nulls_and_microseconds(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql(
        "select timestamp'2024-01-01 00:00:00.123456Z' as at, "
        "timestamp_ntz'2024-01-01 00:00:00.123456' as local, cast(null as int) as nothing, "
        "named_struct('a', cast(null as int)) as nested"
    )
    to = str(tmp_path / "logs")
    import_rows(spark, frame, to, topic="rows", columns={"value": "*", "key": "nested"})
    with stratalog.open(to, read_only=True) as logs:
        (record,) = logs.read("rows").records()
    assert json.loads(record.value or b"") == {
        "at": "2024-01-01T00:00:00.123456Z",
        "local": "2024-01-01T00:00:00.123456",
        "nothing": None,
        "nested": {"a": None},
    }
    assert json.loads(record.key or b"") == {"a": None}


def test_a_dry_run_of_a_mirror_tells_what_a_run_would_refuse(
    spark: Any, make_log: Callable[..., str], tmp_path: Path
) -> None:
    path, copy = make_log(100, partitions=1), str(tmp_path / "copy")
    mirror(spark, path, copy)
    make_log(100, first=100)
    with stratalog.open(path) as logs:
        logs.delete_records("orders", 0, 150)
    (warning,) = mirror(spark, path, copy, dry_run=True).warnings
    assert "offsets 100 to 149 were deleted before they were copied" in warning
    assert mirror(spark, path, copy, dry_run=True, allow_loss=True).warnings == ()
    with pytest.raises(StratalogError, match="allow_loss=True"):
        mirror(spark, path, copy)


def test_names_of_writes_are_not_those_of_others() -> None:
    given = {"path": "logs", "txnappid": "a > b", "txnversion": "1"}
    with pytest.raises(UsageError, match="txnAppId"):
        WriteOptions.of(given)


def test_a_promise_reaches_whoever_runs_the_job() -> None:
    from pyspark.errors import PySparkException

    text = (
        "Traceback (most recent call last):\n"
        "stratalog.errors.StorageError: logs/t-0: no space left on device\n"
        "the commit is decided: whoever opens the log directory next to write finishes it, so do not "
        "write it again: a second try would be another commit\n"
    )
    with pytest.raises(StorageError, match="do not write it again"), in_plain_words():
        raise PySparkException(text)


def test_a_topic_that_is_no_text_is_one_error(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql("select 'v' as value, cast(X'ff' as string) as topic")
    with pytest.raises(Exception, match="not valid UTF-8") as caught:
        frame.write.format("stratalog").mode("append").save(str(tmp_path / "logs"))
    assert InvalidRecordError.__name__ in str(caught.value)


def test_a_directory_whose_parent_is_missing_is_named(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="x/y") as caught:
        spark.sql("select 'v' as value").write.format("stratalog").mode("append").option(
            "topic", "t"
        ).save(str(tmp_path / "x" / "y"))
    line = next(line for line in str(caught.value).splitlines() if "stratalog.errors" in line)
    assert "stratalog-piece" not in line
