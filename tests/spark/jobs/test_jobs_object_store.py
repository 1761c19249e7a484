"""Jobs on logs in an object store: the answers that the same files give in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stratalog
from stratalog.errors import StorageError
from stratalog.spark import jobs
from tests.cli.runner import run
from tests.judges.peers.golden import golden_set

pytestmark = pytest.mark.slow

WHERE = "s3://backup/logs"
LOCAL = str(golden_set("v2-plain").log_dirs[0])


@pytest.fixture
def store(endpoint: str) -> dict[str, str]:
    return {
        "endpoint_override": endpoint,
        "scheme": "http",
        "region": "us-east-1",
        "access_key": "nobody",
        "secret_key": "nothing",
    }


def rows(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


@pytest.mark.parametrize("job", [jobs.count, jobs.stat, jobs.verify])
def test_questions(spark, store, job):
    found = rows(job(spark, WHERE, store=store))
    # The bucket holds the folders of partitions, not the files of the root.
    wanted = [row for row in rows(job(spark, LOCAL)) if row["topic"] is not None]
    assert found
    for each in (*found, *wanted):
        if "path" in each:
            each["path"] = Path(each["path"]).name
    assert found == wanted


@pytest.mark.proof
def test_export_once_and_by_checkpoint(spark, store, tmp_path):
    whole = rows(spark.read.format("stratalog").load(LOCAL).select("topic", "offset", "value"))
    for name, checkpoint in (("all", None), ("new", str(tmp_path / "checkpoint"))):
        to = tmp_path / name
        report = jobs.export(spark, WHERE, to, store=store, checkpoint=checkpoint)
        assert report.records == len(whole)
        read = spark.read.parquet(str(to)).select("topic", "offset", "value")
        assert sorted(map(repr, rows(read))) == sorted(map(repr, whole))
    again = jobs.export(
        spark, WHERE, tmp_path / "new", store=store, checkpoint=str(tmp_path / "checkpoint")
    )
    assert not again.records


def test_mirror_brings_a_backup_home(spark, store, tmp_path):
    report = jobs.mirror(spark, WHERE, tmp_path / "home", store=store)
    assert report.partitions
    with (
        stratalog.open(tmp_path / "home", read_only=True) as copy,
        stratalog.open(LOCAL, read_only=True) as original,
    ):
        assert copy.topics().keys() == original.topics().keys()
        for topic in original.topics():
            assert list(copy.read(topic).records()) == list(original.read(topic).records())


def test_a_bucket_that_is_not_there_is_said_before_any_task(spark, store):
    with pytest.raises(StorageError, match="nowhere"):
        jobs.count(spark, "s3://nowhere/logs", store=store)


def test_the_command_takes_an_address_with_its_options(spark, endpoint):
    query = f"endpoint_override={endpoint}&scheme=http&region=us-east-1"
    counted = run("spark", "count", f"s3://nobody:nothing@backup/logs?{query}", "-o", "ndjson")
    assert counted.code == 0, counted.err
    assert counted.rows() == run("count", "--by", "partition", LOCAL, "-o", "ndjson").rows()
