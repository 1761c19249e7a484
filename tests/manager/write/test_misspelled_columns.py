"""A misspelled column or field is refused: ignored, it would make tombstones, or records without keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import stratalog
from stratalog.errors import UsageError
from stratalog.records.columns import COLUMN_NAMES


def arrow(columns: dict[str, list[Any]]) -> Any:
    return pytest.importorskip("pyarrow").table(columns)


def pandas(columns: dict[str, list[Any]]) -> Any:
    return pytest.importorskip("pandas").DataFrame(columns)


def polars(columns: dict[str, list[Any]]) -> Any:
    return pytest.importorskip("polars").DataFrame(columns)


def dicts(columns: dict[str, list[Any]]) -> Any:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


Make = Callable[[dict[str, list[Any]]], Any]


@pytest.mark.parametrize("make", [arrow, pandas, polars, dicts])
@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"key": ["a"], "vlaue": ["v"]}, "'vlaue'"),
        ({"kye": ["a"], "value": ["v"]}, "'kye'"),
        ({"Value": ["v"], "value": ["v"]}, "'Value'"),
        ({"key": ["a"]}, "'value'.*for a tombstone give it as None"),
    ],
    ids=["value", "key", "case", "missing"],
)
def test_misspelled_or_missing_column_is_refused_and_nothing_is_written(
    tmp_path, make: Make, columns: dict[str, list[Any]], says: str
):
    with stratalog.open(tmp_path) as logs:
        logs.create("t", 2)
        with pytest.raises(UsageError, match=says):
            logs.append("t", make(columns))
        assert list(logs.read("t").records()) == []


@pytest.mark.parametrize("make", [arrow, pandas, polars, dicts])
def test_null_that_is_asked_for_is_a_tombstone(tmp_path, make: Make):
    with stratalog.open(tmp_path) as logs:
        logs.create("t")
        logs.append("t", make({"key": ["a", "b"], "value": [None, None]}))
        found = [(record.key, record.value) for record in logs.read("t").records()]
    assert found == [(b"a", None), (b"b", None)]


def test_all_columns_of_a_scan_and_the_index_of_a_pandas_frame_can_be_appended(tmp_path):
    pytest.importorskip("pandas")
    source, target = tmp_path / "source", tmp_path / "target"
    with stratalog.open(source) as logs:
        logs.create("t")
        logs.append("t", [{"key": str(n), "value": str(n), "timestamp": n} for n in range(4)])
    frame = stratalog.scan(source, columns=("topic", "partition", *COLUMN_NAMES)).to_table()
    selected = frame.to_pandas().query("offset >= 2")  # has an index that Arrow makes a column of
    with stratalog.open(target) as logs:
        logs.create("t")
        logs.append("t", frame)
        logs.append("t", selected)
        found = [(record.value, record.timestamp) for record in logs.read("t").records()]
    assert found == [(str(n).encode(), n) for n in (0, 1, 2, 3, 2, 3)]
