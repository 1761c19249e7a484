"""A fetch of many partitions keeps to its budget, gives at least one batch, and no one fails the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.errors import OffsetOutOfRangeError
from stratalog.records.builder import build_batch
from stratalog.records.model import Record
from stratalog.records.scan import scan_batches
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.views.fetch import FetchRequest, fetch
from stratalog.storage.views.log_view import Isolation, LogRead, LogView


@pytest.fixture
def views(tmp_path: Path) -> list[LogView]:
    """Three partitions: ten batches of about 1 KiB, nothing, and ten more."""
    found: list[LogView] = []
    for number, count in enumerate((10, 0, 10)):
        folder = tmp_path / f"t-{number}"
        folder.mkdir()
        log = PartitionLog.open(str(folder), watermark="written")
        for _ in range(count):
            log.append(build_batch([Record(b"v" * 1000, timestamp=1)]))
        found.append(log.view)
    return found


def sizes(views: list[LogView], max_bytes: int = 1 << 20) -> list[int]:
    answers = fetch([FetchRequest(view, 0) for view in views], max_bytes=max_bytes)
    assert all(isinstance(answer, LogRead) for answer in answers)
    return [answer.size_bytes for answer in answers if isinstance(answer, LogRead)]


def test_everything_within_the_budget_comes(views: list[LogView]) -> None:
    assert sizes(views) == [views[0].end_position, 0, views[2].end_position]


def test_the_budget_is_shared(views: list[LogView]) -> None:
    assert sizes(views, max_bytes=12000) == [
        views[0].end_position,
        0,
        12000 - views[0].end_position,
    ]
    assert sizes(views, max_bytes=5000) == [5000, 0, 0]


def test_the_first_with_anything_gives_a_whole_batch(views: list[LogView]) -> None:
    batch = next(iter(scan_batches(_data(views[0])))).size_bytes
    assert sizes(views, max_bytes=1) == [batch, 0, 0]
    assert sizes(views, max_bytes=0) == [batch, 0, 0]
    assert sizes([views[1], views[2], views[0]], max_bytes=1) == [0, batch, 0]


def test_a_partitions_own_limit_holds(views: list[LogView]) -> None:
    answers = fetch([FetchRequest(views[0], 0, 3000), FetchRequest(views[2], 0, 2000)])
    assert [answer.size_bytes for answer in answers if isinstance(answer, LogRead)] == [3000, 2000]


def test_one_that_fails_does_not_fail_the_others(views: list[LogView]) -> None:
    answers = fetch(
        [FetchRequest(views[0], 99), FetchRequest(views[2], 3)], isolation=Isolation.LOG_END
    )
    assert isinstance(answers[0], OffsetOutOfRangeError)
    assert (answers[0].start, answers[0].end) == (0, 10)
    assert isinstance(answers[1], LogRead)
    assert answers[1].size_bytes > 0


def _data(view: LogView) -> bytes:
    region = view.read(0, 1 << 20).region
    assert region is not None
    return region.read()
