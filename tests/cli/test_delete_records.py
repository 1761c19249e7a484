"""``stratalog delete-records``: everything is checked before anything is deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

import stratalog
from tests.cli.runner import run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with stratalog.open(tmp_path / "logs") as logs:
        logs.create("t", 2)
        logs.append("t", ["v"] * 10, partition=0)
        logs.append("t", ["v"], partition=1)
        logs.create("c", 1, {"cleanup.policy": "compact"})
        logs.append("c", [("a", "1"), ("b", "2")])
        logs.create("both", 1, {"cleanup.policy": "compact,delete"})
        logs.append("both", [("a", "1"), ("b", "2")])
    return tmp_path / "logs"


def starts(root: Path) -> dict[str, list[int]]:
    with stratalog.open(root, read_only=True) as logs:
        return {
            name: [logs.earliest(name, number) for number in topic.partitions]
            for name, topic in logs.topics().items()
        }


@pytest.mark.parametrize("write", [[], ["--write"]])
def test_an_offset_that_one_partition_lacks_deletes_nothing(root: Path, write: list[str]) -> None:
    done = run("delete-records", root, "-t", "t", "--before", "8", *write)
    assert (done.code, done.out) == (2, b"")
    assert starts(root)["t"] == [0, 0]


@pytest.mark.parametrize("write", [[], ["--write"]])
def test_a_compacted_topic_is_refused_as_by_kafka(root: Path, write: list[str]) -> None:
    done = run("delete-records", root, "-t", "t,c", "--before", "1", *write)
    assert (done.code, done.out) == (2, b"")
    assert "'c' has cleanup.policy=compact" in done.err
    assert starts(root) == {"both": [0], "c": [0], "t": [0, 0]}
    with stratalog.open(root) as logs, pytest.raises(stratalog.UsageError, match="compact,delete"):
        logs.delete_records("c", 0, 1)


def test_records_are_deleted(root: Path) -> None:
    done = run("delete-records", root, "-t", "t,both", "--before", "1", "--write")
    assert {row["status"] for row in done.rows()} == {"deleted"}
    assert starts(root) == {"both": [1], "c": [0], "t": [1, 1]}
    again = run("delete-records", root, "-t", "t", "--before", "-1", "--write")
    assert [row["new_start_offset"] for row in again.rows()] == [10, 1]
    assert [row["status"] for row in again.rows()] == ["deleted", "unchanged"]
