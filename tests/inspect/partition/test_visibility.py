"""Whoever reads files sees all of a commit or nothing of it: scan, count, ls; verify looks at the bytes."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from stratalog.clock import SYSTEM_CLOCK
from stratalog.inspect.count.partition import count_partition
from stratalog.inspect.partition.ends import EndsCache, partition_ends
from stratalog.inspect.partition.sources import PartitionSource, find_sources
from stratalog.inspect.scan import scan
from stratalog.inspect.verify import verify_files
from stratalog.manager.commits.commits import TopicPlan
from stratalog.manager.logs import open_logs
from stratalog.storage.commits import journal as commit_journal
from stratalog.storage.commits.journal import read_journal
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.testing import Call, Fault, FaultyFileSystem, MemoryFileSystem
from tests.cli.runner import run
from tests.manager.staging import Committing

ROOT = "/data"


def open_commit(disk, root: str = ROOT) -> None:
    """Two partitions with a record each, and a commit of two more for each of which only one is there."""
    faulty = FaultyFileSystem(disk)
    here = Committing(faulty, root, getattr(disk, "clock", SYSTEM_CLOCK))
    here.put(CommitKey("q", 0), {("t", 0): ["a"], ("t", 1): ["b"]}, {"t": TopicPlan(2)})
    pieces = here.stage(CommitKey("q", 1), {("t", 0): ["c", "d"], ("t", 1): ["e", "f"]})
    faulty.arm(3, fault=Fault.INTERRUPT, calls=[Call.WRITE])
    with pytest.raises(KeyboardInterrupt):
        here.commit(CommitKey("q", 1), pieces)
    assert read_journal(disk, root).open


@pytest.fixture
def disk() -> MemoryFileSystem:
    made = MemoryFileSystem(folders=[ROOT])
    open_commit(made)
    return made


def sources(disk: MemoryFileSystem, *paths: str) -> dict[int, PartitionSource]:
    found = find_sources(paths or (ROOT,), file_system=disk).partitions
    return {
        each.topic_partition.partition: each for each in found if each.topic_partition is not None
    }


def values(disk: MemoryFileSystem, *paths: str, **names) -> list[Any]:
    found: list[Any] = (
        scan(paths or (ROOT,), file_system=disk, **names).to_table()["value"].to_pylist()
    )
    return found


def test_an_open_commit_is_not_shown(disk):
    assert {n: each.visible_end for n, each in sources(disk).items()} == {0: 1, 1: 1}
    assert values(disk) == [b"a", b"b"]
    assert values(disk, offsets="-5") == [b"a", b"b"]
    for source in sources(disk).values():
        counted = count_partition(source, file_system=disk)
        assert sum(each.file.records for each in counted.segments) == 1
        assert counted.end_offset == 1
    assert {partition_ends(s, disk).end for s in sources(disk).values()} == {1}


def test_a_partition_s_folder_is_bounded_by_its_directory_s_journal(disk):
    assert sources(disk, f"{ROOT}/t-0")[0].visible_end == 1
    assert values(disk, f"{ROOT}/t-0") == [b"a"]


def test_files_that_are_named_are_read_to_their_end(disk):
    assert values(disk, f"{ROOT}/t-0/{0:020d}.log") == [b"a", b"c", b"d"]


def test_verify_looks_at_all_bytes(disk):
    reports = list(verify_files(find_sources(ROOT, file_system=disk).files, file_system=disk))
    assert [report.records for report in reports] == [3, 1]


def test_the_end_is_that_of_the_listing(disk):
    """What is committed between the listing and the reading is seen in no partition."""
    here = Committing(disk, ROOT, disk.clock)
    here.commit(CommitKey("q", 2), [])  # finishes the open one
    rows = scan(ROOT, file_system=disk)
    listed = sources(disk)
    here.put(CommitKey("q", 3), {("t", 0): ["g"], ("t", 1): ["h"]})
    assert [s.visible_end for s in listed.values()] == [3, 3]
    assert rows.to_table()["value"].to_pylist() == [b"a", b"c", b"d", b"b", b"e", b"f"]
    assert len(values(disk)) == 8


def test_without_a_journal_nothing_is_bounded():
    disk = MemoryFileSystem(folders=[ROOT])
    with open_logs(ROOT, file_system=disk, clock=disk.clock) as logs:
        logs.create("t", 1)
        logs.append("t", ["a"])
    assert sources(disk)[0].visible_end is None


def test_a_damaged_journal_is_told_and_the_rest_is_read(disk):
    file = disk.open_writable(f"{ROOT}/stratalog-commits.journal")
    file.write_at(20, b"#")
    found = find_sources(ROOT, file_system=disk)
    assert len(found.warnings) == 1
    assert "parts of a commit may be shown" in found.warnings[0]
    assert values(disk) == [b"a", b"c", b"d", b"b"]


def test_damage_of_a_log_is_not_hidden_by_its_end(disk):
    Committing(disk, ROOT, disk.clock).commit(CommitKey("q", 2), [])
    path = f"{ROOT}/t-0/{0:020d}.log"
    disk.open_writable(path).write_at(16, b"\x07")  # the magic of the first batch
    assert sources(disk)[0].visible_end is None


def test_a_listing_begins_again_where_the_journal_has_forgotten(disk, monkeypatch):
    """Between the listing and the second reading of the journal, more is committed than it remembers."""
    monkeypatch.setattr(commit_journal, "DETAILS_KEPT", 2)
    here = Committing(disk, ROOT, disk.clock)
    version = 2

    class Busy(FaultyFileSystem):
        is_over = False

        def list_dir(self, path):
            nonlocal version
            found = super().list_dir(path)
            if path.endswith("t-1") and not self.is_over:
                self.is_over = True
                for version in range(3, 9):
                    here.put(CommitKey("q", version), {("t", 0): ["x"], ("t", 1): ["y"]})
            return found

    rows = scan(ROOT, file_system=Busy(disk)).to_table()
    seen = rows["value"].to_pylist()
    assert seen.count(b"x") == seen.count(b"y") == 6


def test_a_cache_is_asked_in_place_of_the_files(disk):
    cache = EndsCache(disk)
    for _ in range(2):
        found = find_sources(ROOT, file_system=disk, cache=cache).partitions
        assert [each.visible_end for each in found] == [1, 1]


def test_ls_and_count_say_what_is_seen(tmp_path):
    open_commit(OsFileSystem(), str(tmp_path))
    counted = run("count", tmp_path, "-o", "ndjson").rows()
    assert [row["records"] for row in counted] == [1, 1]
    listed = run("ls", tmp_path, "-o", "ndjson")
    assert "staged pieces without a commit: 2" in listed.err


def test_commits_while_a_directory_is_scanned(tmp_path):
    """A reader beside a committer: what it sees is the same in both partitions, at every look."""
    here = Committing(OsFileSystem(), str(tmp_path), SYSTEM_CLOCK)
    here.put(CommitKey("q", 0), {("t", 0): ["0"], ("t", 1): ["0"]}, {"t": TopicPlan(2)})
    stop = threading.Event()

    def write() -> None:
        for version in range(1, 40):
            here.put(CommitKey("q", version), {("t", 0): [f"{version}"], ("t", 1): [f"{version}"]})
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    looks = 0
    while not stop.is_set():
        seen = here.seen()
        assert seen[("t", 0)] == seen[("t", 1)] == [str(n) for n in range(len(seen[("t", 0)]))]
        looks += 1
    writer.join()
    assert looks > 2
    assert len(here.seen()[("t", 0)]) == 40
