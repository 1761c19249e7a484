"""What jobs refuse, and in how many words."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from stratalog.errors import InvalidRecordError, StratalogError, UsageError
from stratalog.spark import jobs

pytestmark = pytest.mark.slow


def test_dry_run_of_an_import_with_a_null_topic(spark: Any, tmp_path: Path) -> None:
    """It ended in a TypeError: names and nothing cannot be sorted."""
    rows = spark.sql("select 'a' as value, cast(null as string) as topic union all select 'b', 'x'")
    with pytest.raises(StratalogError, match="the topic of a row is null") as written:
        jobs.import_rows(spark, rows, tmp_path / "logs")
    with pytest.raises(InvalidRecordError, match="the topic of a row is null") as planned:
        jobs.import_rows(spark, rows, tmp_path / "logs", dry_run=True)
    assert str(planned.value) == str(written.value)


@pytest.mark.parametrize(
    "wrong", [{"where": "nope > 3"}, {"where": "cast("}, {"decode": "json", "schema": "id bigit"}]
)
def test_a_wrong_expression_printed_the_frames_of_java(
    spark: Any, make_log: Any, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    printed: list[logging.LogRecord] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            printed.append(record)

    loggers = [logging.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    kept = Kept()
    for each in loggers:
        each.addHandler(kept)
    try:
        with pytest.raises(UsageError) as refused:
            jobs.export(spark, make_log(3), tmp_path / "out", **wrong)
    finally:
        for each in loggers:
            each.removeHandler(kept)
    assert "\n" not in str(refused.value)
    assert printed == []
