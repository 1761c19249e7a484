"""``stratalog retain``: what it deletes of topics whose configs are known, and of those of Kafka."""

from __future__ import annotations

import shutil
from pathlib import Path

import stratalog
from tests.cli.runner import run
from tests.judges.peers.golden import golden_set
from tests.rewrite.directories import rows


def of_kafka(folder: Path) -> Path:
    """A log directory of real Kafka, with records that are older than any default retention."""
    copy = folder / "logs"
    shutil.copytree(golden_set("v2-compacted").log_dirs[0], copy)
    return copy


def test_topics_with_unknown_configs_keep_their_records(tmp_path: Path) -> None:
    folder = of_kafka(tmp_path)
    before = rows(folder)
    done = run("retain", folder, "--write")
    assert done.code == 0
    assert {row["status"] for row in done.rows()} == {"kept"}
    assert rows(folder) == before
    topics = {row[0] for row in before}
    assert all(topic in done.err for topic in topics)
    assert "give the limit with -c retention.ms=N" in done.err


def test_retain_of_the_library_keeps_them_too(tmp_path: Path) -> None:
    folder = of_kafka(tmp_path)
    before = rows(folder)
    with stratalog.open(folder, config={"log.retention.hours": 1}) as logs:
        assert logs.retain() == 0
    assert rows(folder) == before


def test_limits_that_are_given_count_and_no_others(tmp_path: Path) -> None:
    folder = of_kafka(tmp_path)
    before = rows(folder)
    large = run("retain", folder, "--write", "-c", "retention.bytes=1000000000")
    assert (large.code, large.err, rows(folder)) == (0, "", before)
    other = run("retain", folder, "--write", "-c", "segment.bytes=1048576")
    assert "are not known" in other.err
    assert rows(folder) == before
    week = run("retain", folder, "--write", "-t", "Invoices_tundra", "-c", "retention.ms=604800000")
    assert (week.code, week.err) == (0, "")
    assert {row[0] for row in rows(folder)} == {"__transaction_state", "clicks"}


def test_topics_with_known_configs_are_retained_by_defaults(tmp_path: Path) -> None:
    with stratalog.open(tmp_path / "logs") as logs:
        logs.create("t", 1)
        logs.append("t", [{"value": "old", "timestamp": 1_500_000_000_000}])
    done = run("retain", tmp_path / "logs", "--write")
    assert (done.code, done.err) == (0, "")
    assert rows(tmp_path / "logs") == []
