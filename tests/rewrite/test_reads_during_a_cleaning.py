"""A cleaner removes records whose successors were appended after a reader of the files had begun."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import stratalog
from stratalog.inspect.partition.ends import EndsCache, PartitionEnds
from stratalog.inspect.partition.sources import PartitionSource
from stratalog.manager.logs import Logs, open_logs
from stratalog.storage.files.filesystem import FileStat, OsFileSystem

CONFIGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": 1500,
    "index.interval.bytes": 200,
    "segment.index.bytes": 1000,
    "file.delete.delay.ms": 0,
}
ISOLATIONS = ["read_uncommitted", "read_committed"]
NEWEST = [(29, b"a", b"19"), (30, b"b", b"x"), (31, b"c", b"x")]


class Cleaned:
    """A log with two keys, whose records are superseded, rolled and cleaned away when asked for."""

    def __init__(self, root: Path, logs: Logs) -> None:
        self.root = root
        self.logs = logs
        self.is_cleaned = False
        logs.create("t", 1, CONFIGS)
        for number in range(10):
            logs.append("t", [(b"a", b"%d" % number), (b"b", b"%d" % number)], partition=0)

    def clean(self) -> None:
        if self.is_cleaned:
            return
        self.is_cleaned = True
        for number in range(10, 20):
            self.logs.append("t", [(b"a", b"%d" % number)], partition=0)
        self.logs.append("t", [(b"b", b"x")], partition=0)
        self.logs.clean("t", roll=True)
        self.logs.append("t", [(b"c", b"x")], partition=0)
        self.logs.partition("t").remove_due(all_of_them=True)

    def scan(
        self, isolation: str, *, end: int | None = None, batch_rows: int = 1000
    ) -> stratalog.Scan:
        columns = ("offset", "key", "value")
        return stratalog.scan(
            self.root, columns=columns, isolation=isolation, end=end, batch_rows=batch_rows
        )


@pytest.fixture
def cleaned(tmp_path: Path) -> Iterator[Cleaned]:
    with stratalog.open(tmp_path, sync=False) as logs:
        yield Cleaned(tmp_path, logs)


class Pausing(OsFileSystem):
    """Calls a function before it looks at a file that has this name for the first time."""

    def __init__(self, name: str, call: Callable[[], None]) -> None:
        self._name = name
        self._calls = [call]

    def stat(self, path: str) -> FileStat | None:
        if Path(path).name == self._name and self._calls:
            self._calls.pop()()
        return super().stat(path)


def rows(scan: stratalog.Scan) -> list[tuple[int, bytes, bytes]]:
    return [tuple(row.values()) for row in scan.to_table().to_pylist()]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_no_key_is_missing_if_the_log_is_cleaned_after_it_was_listed(
    cleaned: Cleaned, isolation: str
) -> None:
    scan = cleaned.scan(isolation)
    cleaned.clean()
    assert rows(scan) == NEWEST
    assert not scan.vanished


def test_no_key_is_missing_if_the_log_is_cleaned_after_its_end_was_found(
    cleaned: Cleaned, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_of: Callable[..., PartitionEnds] = EndsCache.ends_of

    def then_clean(cache: EndsCache, source: PartitionSource, *, stable: bool) -> PartitionEnds:
        found = ends_of(cache, source, stable=stable)
        cleaned.clean()
        return found

    monkeypatch.setattr(EndsCache, "ends_of", then_clean)
    assert rows(cleaned.scan("read_committed")) == NEWEST


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_no_key_is_missing_if_the_log_is_cleaned_while_it_is_read(
    cleaned: Cleaned, isolation: str
) -> None:
    """The first records were read from the old files; what follows comes from the new ones."""
    batches = iter(cleaned.scan(isolation, batch_rows=2))
    seen = next(batches).to_pylist()
    cleaned.clean()
    for batch in batches:
        seen += batch.to_pylist()
    offsets = [row["offset"] for row in seen]
    assert offsets == sorted(set(offsets))
    newest = {row["key"]: row["offset"] for row in seen}
    assert newest[b"a"] >= 18
    assert newest[b"b"] >= 19


def test_a_scan_up_to_an_offset_reads_nothing_beyond_it(cleaned: Cleaned) -> None:
    scan = cleaned.scan("read_uncommitted", end=30)
    cleaned.clean()
    assert rows(scan) == NEWEST[:1]


def records(logs: Logs, end: int | None = None) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    read = logs.read("t", end=end).records()
    return ((record.offset, record.key, record.value) for record in read)


def test_no_key_is_missing_from_a_read_only_view_whose_segments_are_replaced(
    cleaned: Cleaned,
) -> None:
    cleaned.logs.partition("t").roll()
    cleaned.logs.append("t", [(b"d", b"x")], partition=0)
    with stratalog.open(cleaned.root, read_only=True) as reader:
        found, bounded = records(reader), records(reader, end=30)
        cleaned.clean()
        assert [key for _, key, _ in found] == [b"d", b"a", b"b", b"c"]
        assert [key for _, key, _ in bounded] == [b"d"]


def test_no_key_is_missing_if_the_log_is_rolled_and_cleaned_while_a_view_is_opened(
    cleaned: Cleaned,
) -> None:
    """The last segment that was listed is not the last one any more, and has been cleaned."""
    last = max(path.name for path in (cleaned.root / "t-0").glob("*.log"))
    files = Pausing(last, cleaned.clean)
    with open_logs(cleaned.root, read_only=True, file_system=files) as reader:
        assert list(records(reader)) == NEWEST
