"""What an export must not lose, nor say wrongly: what stands behind a JSON value, what does not fit a schema,
what retention took before it was exported, what a condition left out, and a checkpoint without a batch."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import stratalog
from stratalog.errors import UsageError
from stratalog.spark import jobs

pytestmark = pytest.mark.proof


def log_of(path: Path, *values: str | bytes | None, topic: str = "t") -> str:
    with stratalog.open(str(path)) as logs:
        if topic not in logs.topics():
            logs.create(topic, 1, {"retention.ms": -1})
        logs.append(topic, [{"value": each} for each in values])
    return str(path)


def exported(spark: Any, path: str, out: Path, schema: str | None = None) -> list[tuple[Any, Any]]:
    """Of each record what was made of its value, as JSON, and what is kept as it was."""
    jobs.export(spark, path, out, decode="json", schema=schema, partition_by=())
    shown = "to_json(value)" if schema is None else "to_json(struct(value))"
    rows = spark.read.parquet(str(out)).orderBy("offset").selectExpr(shown, "value_raw").collect()
    return [(row[0], None if row[1] is None else bytes(row[1])) for row in rows]


#: No JSON as a whole, though it begins with a whole value.
TRAILING = (
    '{"id":1}\n{"id":2}',
    "1 2 3",
    '{"a":1}garbage',
    '"x"y',
    "1,2",
    "1],[2",
    '1,"b":2',
    "",
    '{"a":1,}',
)
WHOLE = ('{"id": 1}', ' [1, {"a": null}]\n', "null", "5", '"x"')


def test_export_of_json_lost_what_stood_behind_the_first_value(spark: Any, tmp_path: Path) -> None:
    path = log_of(tmp_path / "logs", *TRAILING, *WHOLE, None, b"\xff")
    found = exported(spark, path, tmp_path / "out")
    assert found[: len(TRAILING)] == [(None, each.encode()) for each in TRAILING]
    assert found[len(TRAILING) : -2] == [
        (each, None) for each in ('{"id":1}', '[1,{"a":null}]', "null", "5", '"x"')
    ]
    assert found[-2:] == [(None, None), (None, b"\xff")]


def test_export_of_json_lost_what_did_not_fit_its_schema(spark: Any, tmp_path: Path) -> None:
    fits = {
        '{"id":1}': '{"value":{"id":1}}',
        '{"other":1}': '{"value":{}}',  # the schema does not ask for it
        '{"id":null,"in":{"x":2}}': '{"value":{"in":{"x":2}}}',
    }
    misfits = {
        '{"id":"abc"}': '{"value":{}}',
        '{"id":1,"in":{"x":"q"}}': '{"value":{"id":1,"in":{}}}',
        '{"id":99999999999999999999}': '{"value":{}}',
        '{"id":1,"id":2}': '{"value":{"id":2}}',
        '[{"id":1},{"id":2}]': "{}",
        "5": "{}",
        "null": "{}",
        '{"id":1} trailing': "{}",
        "no json": "{}",
    }
    path = log_of(tmp_path / "logs", *fits, *misfits, None)
    found = exported(spark, path, tmp_path / "out", "id bigint, in struct<x: int>")
    assert found == [
        *((made, None) for made in fits.values()),
        *((made, text.encode()) for text, made in misfits.items()),
        ("{}", None),
    ]
    path = log_of(tmp_path / "lists", "[1,2]", "[1,", '["x"]')
    found = exported(spark, path, tmp_path / "out-lists", "array<int>")
    assert found == [('{"value":[1,2]}', None), ("{}", b"[1,"), ("{}", b'["x"]')]


def test_export_had_no_way_on_after_retention(spark: Any, tmp_path: Path) -> None:
    path, out, checkpoint = log_of(tmp_path / "logs", *"abcde"), tmp_path / "out", tmp_path / "ck"

    def export(**settings: Any) -> jobs.ExportReport:
        return jobs.export(spark, path, out, checkpoint=checkpoint, **settings)

    assert export().records == 5
    log_of(tmp_path / "logs", *"fghij")
    log_of(tmp_path / "logs", *"xyz", topic="late")
    with stratalog.open(path) as logs:
        logs.delete_records("t", 0, 7)
        logs.delete_records("late", 0, 1)
    lost = (
        "late-0: offsets 0 to 0 were deleted before they were exported",
        "t-0: offsets 5 to 6 were deleted before they were exported",
    )
    with pytest.raises(UsageError, match=f"{lost[0]}; allow_loss=True continues without them"):
        export()
    planned = export(dry_run=True)
    assert planned.warnings == tuple(
        f"{each}; allow_loss=True continues without them" for each in lost
    )
    assert [(row.topic, row.start_offset) for row in planned.partitions] == [("late", 1), ("t", 7)]
    report = export(allow_loss=True)
    assert report.warnings == lost
    assert report.records == 5
    assert export().warnings == ()


def test_export_of_a_log_that_began_later_goes_on(spark: Any, tmp_path: Path) -> None:
    """The first offset that a stream writes down has more in it than topics."""
    path, checkpoint = log_of(tmp_path / "logs", *"abcde"), tmp_path / "ck"
    with stratalog.open(path) as logs:
        logs.delete_records("t", 0, 2)
    assert jobs.export(spark, path, tmp_path / "out", checkpoint=checkpoint).records == 3
    assert jobs.export(spark, path, tmp_path / "out", checkpoint=checkpoint).records == 0


def test_export_goes_on_with_a_log_that_was_made_anew(spark: Any, tmp_path: Path) -> None:
    path, out, checkpoint = log_of(tmp_path / "logs", *"abcde"), tmp_path / "out", tmp_path / "ck"
    jobs.export(spark, path, out, checkpoint=checkpoint)
    shutil.rmtree(path)
    log_of(tmp_path / "logs", *"xy")
    with pytest.raises(UsageError, match="t-0 ends at 2, and was exported up to 5"):
        jobs.export(spark, path, out, checkpoint=checkpoint)
    (row,) = jobs.export(
        spark, path, out, checkpoint=checkpoint, allow_loss=True, dry_run=True
    ).partitions
    assert (row.start_offset, row.end_offset) == (0, 2)
    assert jobs.export(spark, path, out, checkpoint=checkpoint, allow_loss=True).records == 2


@pytest.mark.proof
def test_export_counted_records_that_its_condition_left_out(spark: Any, tmp_path: Path) -> None:
    path, out, checkpoint = (
        log_of(tmp_path / "logs", *"abcdefghij"),
        tmp_path / "out",
        tmp_path / "ck",
    )
    settings: dict[str, Any] = {"checkpoint": checkpoint, "where": "offset >= 7"}
    assert jobs.export(spark, path, out, **settings).records == 3
    assert spark.read.parquet(str(out)).count() == 3
    log_of(tmp_path / "logs", "k", "l")
    assert jobs.export(spark, path, out, **settings).records == 2
    for other in ({"where": "offset >= 8"}, {"topics": "t"}, {"partitions": 0}):
        with pytest.raises(UsageError, match="name another checkpoint"):
            jobs.export(spark, path, out, **{**settings, **other})


def test_export_that_failed_at_once_spoiled_its_checkpoint(spark: Any, tmp_path: Path) -> None:
    path, checkpoint = log_of(tmp_path / "logs", *"abc"), tmp_path / "ck"
    with pytest.raises(UsageError, match="nosuch"):
        jobs.export(spark, path, tmp_path / "out", checkpoint=checkpoint, format="nosuch")
    assert jobs.export(spark, path, tmp_path / "out", checkpoint=checkpoint).records == 3
    with pytest.raises(UsageError, match="export with format 'parquet', not 'json'"):
        jobs.export(spark, path, tmp_path / "out", checkpoint=checkpoint, format="json")
