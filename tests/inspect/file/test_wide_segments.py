"""Readers of a segment that is wider than its indexes can say: all of it is there, by every way."""

from __future__ import annotations

from pathlib import Path

import pytest

import stratalog
from stratalog.inspect.count.partition import count_partition, tally
from stratalog.inspect.range.plan import plan_range
from stratalog.inspect.verify import verify_files
from tests.inspect.ranges import read, source_of, whole
from tests.storage.logs import T, write_segment
from tests.storage.wide_segments import FAR, WIDE, content, wide


@pytest.fixture(params=[False, True], ids=["no-index", "index"])
def has_index(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=[False, True], ids=["middle", "last"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, has_index: bool) -> Path:
    made = wide(tmp_path / "t-0", has_index=has_index)
    if not request.param:
        write_segment(made, 3 * FAR)
    return made


def test_readers_see_all_of_it_and_change_nothing(folder: Path) -> None:
    expected = [*WIDE]
    if len(list(folder.glob("*.log"))) > 1:
        expected += range(3 * FAR, 3 * FAR + 5)
    before = content(folder)
    source = source_of(folder)
    assert [offset for offset, _ in whole(source)] == expected
    assert [offset for offset, _ in read(plan_range(source))] == expected
    assert tally(count_partition(source).segments).records == len(expected)
    for at in (0, 1, FAR - 1, FAR, FAR + 1, 2 * FAR):
        kept = [offset for offset in expected if offset >= at]
        assert [offset for offset, _ in read(plan_range(source, at))] == kept
        text = f"{at}:"
        found = stratalog.scan(str(folder.parent), offsets=text).to_table()["offset"].to_pylist()
        assert found == kept
    with stratalog.open(str(folder.parent), read_only=True) as logs:
        for at in (0, 1, FAR - 1, FAR, FAR + 1, 2 * FAR):
            kept = [offset for offset in expected if offset >= at]
            assert [record.offset for record in logs.read("t", start=at).records()] == kept
        for at in expected:
            kept = [offset for offset in expected if offset >= at]
            by_time = logs.read("t", start_time=T + at).records()
            assert [record.offset for record in by_time] == kept
    assert content(folder) == before


def test_nothing_is_wrong_with_it_and_it_is_noted(folder: Path) -> None:
    first, *others = verify_files([str(path) for path in sorted(folder.glob("*.log"))])
    (note,) = first.findings
    assert (first.status, note.severity, note.reason) == ("ok", "note", "offset_range")
    assert note.detail.startswith(f"offsets reach {WIDE[-1]} above the segment's first")
    assert [report.findings for report in others] == [()] * len(others)
