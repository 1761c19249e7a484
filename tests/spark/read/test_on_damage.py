"""``onDamage``: a read of a directory with one damaged partition fails with a way out, or goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.errors import StratalogError
from stratalog.spark.jobs.exporting.export import export
from tests.inspect.logs import batch, flipped, segment

pytestmark = pytest.mark.slow

BATCHES, WRONG = 40, 20
INTACT = [offset for offset in range(3 * BATCHES) if not 60 <= offset < 63]


@pytest.fixture
def logs(tmp_path):
    """Two partitions; one has a batch of a wrong size in the middle of its only segment."""
    folder = tmp_path / "logs"
    folder.mkdir()
    made = [batch(3 * number) for number in range(BATCHES)]
    made[WRONG] = flipped(made[WRONG], 10, 3)
    segment(folder, 0, b"".join(made))
    segment(folder, 0, batch(0), partition="orders-1")
    return str(folder)


def read(spark, path, **options):
    found = spark.read.format("stratalog").options(**options).load(path)
    rows = sorted((row.partition, row.offset) for row in found.collect())
    return [[offset for place, offset in rows if place == number] for number in (0, 1)]


def test_a_read_fails_and_names_the_partition_the_offset_and_the_option(spark, logs):
    with pytest.raises(
        Exception, match=r"orders-0 cannot be read from offset 6[03] on; onDamage=skip"
    ):
        read(spark, logs)


def test_a_read_goes_on_behind_the_damage(spark, logs):
    assert read(spark, logs, onDamage="skip", minPartitions="6") == [INTACT, [0, 1, 2]]


def test_a_stream_goes_on_behind_the_damage(spark, logs, tmp_path):
    stream = spark.readStream.format("stratalog").options(
        onDamage="skip", startingOffsets="earliest", subscribe="orders"
    )
    out = str(tmp_path / "out")
    query = (
        stream.load(logs)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(out)
    )
    query.awaitTermination()
    rows = spark.read.parquet(out).where("partition = 0").collect()
    assert sorted(row.offset for row in rows) == INTACT


@pytest.mark.proof
def test_an_export_takes_everything_that_is_intact(spark, logs, tmp_path):
    report = export(spark, logs, tmp_path / "all", on_damage="skip", decode="text")
    assert report.records == len(INTACT) + 3
    (left_out,) = report.left_out
    assert (left_out.start_offset, left_out.resume_offset, report.is_skipping) == (60, 63, True)


def test_an_export_takes_the_other_partitions_and_says_what_it_left_out(spark, logs, tmp_path):
    with pytest.raises(StratalogError, match="onDamage=skip"):
        export(spark, logs, tmp_path / "failed")
    for mode in ("errorifexists", "append"):  # written under another name first, and in place
        report = export(spark, logs, tmp_path / mode, on_damage="stop", mode=mode)
        assert report.records == 60 + 3
        assert [each.end_offset for each in report.partitions] == [60, 3]
        (left_out,) = report.left_out
        assert (left_out.start_offset, left_out.resume_offset, report.is_skipping) == (
            60,
            63,
            False,
        )
        rows = spark.read.parquet(str(tmp_path / mode)).where("partition = 1").collect()
        assert sorted(row.offset for row in rows) == [0, 1, 2]


@pytest.mark.proof
def test_an_export_with_a_checkpoint_lists_what_it_skipped(spark, logs, tmp_path):
    settings = {"checkpoint": tmp_path / "checkpoint", "on_damage": "skip"}
    report = export(spark, logs, tmp_path / "out", **settings)
    assert report.records == len(INTACT) + 3
    assert [each.start_offset for each in report.left_out] == [60]
    assert export(spark, logs, tmp_path / "out", **settings).left_out == ()


@pytest.mark.proof
def test_an_export_leaves_out_a_partition_whose_damage_cannot_be_placed(spark, logs, tmp_path):
    """A lowered offset may be that of the batch before it: the other partitions are written all the same."""
    made = [batch(3 * number) for number in range(BATCHES)]
    made[WRONG] = flipped(made[WRONG], 7, 2)  # 56 instead of 60
    segment(Path(logs), 0, b"".join(made))
    report = export(spark, logs, tmp_path / "out", on_damage="stop")
    assert report.records == 3
    assert [each.start_offset for each in report.left_out] == [0]
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((row.partition, row.offset) for row in rows) == [(1, 0), (1, 1), (1, 2)]


@pytest.mark.proof
def test_an_export_places_a_raised_offset(spark, logs, tmp_path):
    """Both neighbours contradict the batch: it alone is left out, and it is where a whole read stops."""
    made = [batch(3 * number) for number in range(BATCHES)]
    made[WRONG] = flipped(made[WRONG], 7, 0)  # 61 instead of 60
    segment(Path(logs), 0, b"".join(made))
    for how, records in (("stop", 60), ("skip", len(INTACT))):
        report = export(spark, logs, tmp_path / how, on_damage=how)
        assert report.records == records + 3
        assert [(each.start_offset, each.resume_offset) for each in report.left_out] == [(60, 63)]
    rows = spark.read.parquet(str(tmp_path / "skip")).where("partition = 0").collect()
    assert sorted(row.offset for row in rows) == INTACT
