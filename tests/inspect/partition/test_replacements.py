"""Readers beside a broker that replaces segments, or after one that died at it, step by step.

At every step of a replacement all records are there: nothing that was kept is missed because its file is on
the way to its final name, and nothing is read twice. Who only reads changes nothing.
"""

from __future__ import annotations

import errno
import shutil
from itertools import pairwise, product
from pathlib import Path
from random import Random

import pytest

import stratalog
from stratalog.errors import StorageError
from stratalog.inspect.count.partition import count_partition, tally
from stratalog.inspect.partition.sources import find_sources
from stratalog.inspect.range.plan import plan_range
from stratalog.inspect.scan import scan
from stratalog.inspect.verify import verify_files
from stratalog.storage.files.filesystem import DirEntry, FileStat, OsFileSystem, ReadableFile
from stratalog.storage.replace.settle import read_settled
from stratalog.storage.views.log_view import Isolation
from tests.inspect.ranges import read, source_of, whole
from tests.inspect.replacing import Step, fill, parts, replacement
from tests.storage.logs import T


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("master")
    fill(root / "t-0")
    assert len(list((root / "t-0").glob("*.log"))) > 8
    return root


Seen = tuple[list[int], list[int]]


def seen(root: Path) -> Seen:
    """The offsets by every way of reading, with and without those that were aborted."""
    source = source_of(root / "t-0")
    found = []
    for isolation in (Isolation.UNCOMMITTED, Isolation.COMMITTED):
        with stratalog.open(str(root), read_only=True) as logs:
            by_view = [record.offset for record in logs.read("t", isolation=isolation).records()]
        assert [offset for offset, _ in read(plan_range(source, isolation=isolation))] == by_view
        found.append(by_view)
    everything, committed = found
    assert [offset for offset, _ in whole(source)] == everything
    assert tally(count_partition(source).segments).records == len(everything)
    return everything, committed


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_every_record_is_there_at_every_step_of_a_replacement(
    tmp_path: Path, master: Path, is_compacted: bool, seed: int | None
) -> None:
    root = Path(shutil.copytree(master, tmp_path / "logs"))
    folder = root / "t-0"
    before = seen(root)
    random = None if seed is None else Random(seed)
    steps, decided = replacement(folder, is_compacted=is_compacted, random=random)
    found = [seen(root)]
    for step in steps:
        step()
        held = content(folder)
        found.append(seen(root))
        assert content(folder) == held
    after = found[-1]
    assert (after == before) is not is_compacted
    assert set(after[0]) <= set(before[0])
    # Old until the last file is complete, new from then on: never anything else.
    assert found == [before] * decided + [after] * (len(found) - decided)


def test_a_reader_sees_what_recovery_makes_of_it(tmp_path: Path, master: Path) -> None:
    for stop in range(1, 40):
        root = Path(shutil.copytree(master, tmp_path / f"logs-{stop}"))
        steps, _ = replacement(root / "t-0", is_compacted=True)
        for step in steps[:stop]:
            step()
        found = seen(root)
        stratalog.open(str(root)).close()  # settles it
        assert seen(root) == found


def test_a_folder_that_is_changed_while_it_is_listed_is_listed_again(
    tmp_path: Path, master: Path
) -> None:
    """A file that is renamed meanwhile may be listed under neither name."""
    root = Path(shutil.copytree(master, tmp_path / "logs"))
    folder = root / "t-0"
    steps, decided = replacement(folder, is_compacted=False)
    for step in steps[:decided]:
        step()
    rest = iter(steps[decided:])

    class Moving(OsFileSystem):
        listings = 0

        def list_dir(self, path: str) -> list[DirEntry]:
            before = {entry.name: entry for entry in super().list_dir(path)}
            self.listings += 1
            for _ in range(4):
                step = next(rest, None)
                if step is not None:
                    step()
            after = {entry.name: entry for entry in super().list_dir(path)}
            return [entry for name, entry in before.items() if name in after]

    files = Moving()
    settled = read_settled(files, str(folder))
    assert files.listings > 8
    bases = settled.names.bases()
    assert all(low < high for low, high in pairwise(bases))
    assert seen(root) == seen(master)
    assert len(bases) == len(sorted((master / "t-0").glob("*.log"))) - 4


class Restless(OsFileSystem):
    """A folder in which there is another file every time that it is listed."""

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix
        self.number = 0

    def list_dir(self, path: str) -> list[DirEntry]:
        self.number += 1
        Path(path, f"{self.number:020d}{self.suffix}").touch()
        return super().list_dir(path)


@pytest.mark.parametrize("suffix", [".log.cleaned", ".index.swap"])
def test_a_folder_that_never_comes_to_rest_is_an_error(
    tmp_path: Path, master: Path, suffix: str
) -> None:
    root = Path(shutil.copytree(master, tmp_path / "logs"))
    with pytest.raises(StorageError, match="changes faster than it can be listed: try again"):
        read_settled(Restless(suffix), str(root / "t-0"))


@pytest.mark.parametrize("suffix", [".log.deleted", ".snapshot"])
def test_files_that_no_replacement_is_about_may_come_and_go(
    tmp_path: Path, master: Path, suffix: str
) -> None:
    """Beside a real broker that had much to remove, no two listings in a row were the same."""
    root = Path(shutil.copytree(master, tmp_path / "logs"))
    names = read_settled(OsFileSystem(), str(root / "t-0")).names
    (root / "t-0" / f"{99:020d}.log.cleaned").touch()
    found = read_settled(Restless(suffix), str(root / "t-0")).names
    assert found.bases() == names.bases()


def test_a_file_that_was_named_is_read_itself(tmp_path: Path, master: Path) -> None:
    root = Path(shutil.copytree(master, tmp_path / "logs"))
    folder = root / "t-0"
    replaced = sorted(folder.glob("*.log"))[1]
    wanted = scan(str(replaced)).to_table()
    steps, decided = replacement(folder, is_compacted=True)
    for step in steps[:decided]:
        step()
    assert scan(str(replaced)).to_table() == wanted
    swap = replaced.with_suffix(".log.swap")
    assert scan(str(swap)).to_table().num_rows > wanted.num_rows


@pytest.mark.parametrize("isolation", [Isolation.UNCOMMITTED, Isolation.COMMITTED])
@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("taken", [0, 1, 9, 30])
def test_a_read_goes_on_when_segments_are_replaced_under_it(
    tmp_path: Path, master: Path, taken: int, is_compacted: bool, isolation: Isolation
) -> None:
    root = Path(shutil.copytree(master, tmp_path / "logs"))
    before = seen(root)[isolation is Isolation.COMMITTED]
    steps, _ = replacement(root / "t-0", is_compacted=is_compacted)
    with stratalog.open(str(root), read_only=True) as logs:
        rows = logs.read("t", isolation=isolation, batch_rows=1).records()
        found = [next(rows).offset for _ in range(taken)]
        for step in steps:
            step()
        found += [record.offset for record in rows]
    after = seen(root)[isolation is Isolation.COMMITTED]
    assert found == sorted(set(found))
    assert set(after) <= set(found) <= set(before)
    assert (found == before) or is_compacted


def test_a_read_by_time_finds_its_beginning_when_segments_are_replaced_before_it(
    tmp_path: Path, master: Path
) -> None:
    root = Path(shutil.copytree(master, tmp_path / "logs"))
    everything = seen(root)[0]
    steps, _ = replacement(root / "t-0", is_compacted=False)
    with stratalog.open(str(root), read_only=True) as logs:
        rows = logs.read("t", start_time=T, isolation="read_uncommitted")
        for step in steps:
            step()
        assert [record.offset for record in rows.records()] == everything


def test_a_read_under_which_retention_deletes_says_so(tmp_path: Path, master: Path) -> None:
    root = Path(shutil.copytree(master, tmp_path / "logs"))
    with stratalog.open(str(root), read_only=True) as logs:
        rows = logs.read("t", batch_rows=1).records()
        next(rows)
        for path in sorted((root / "t-0").glob("*.log"))[:5]:
            for each in parts(path):
                each.unlink()
        with pytest.raises(StorageError) as told:
            list(rows)
    assert told.value.errno == errno.ENOENT


def test_a_tail_goes_on_when_segments_are_replaced_under_it(tmp_path: Path, master: Path) -> None:
    root = Path(shutil.copytree(master, tmp_path / "logs"))
    everything = seen(root)[0]
    steps, _ = replacement(root / "t-0", is_compacted=False)
    with stratalog.open(str(root), read_only=True) as logs:
        tail = logs.tail("t", start=0, isolation="read_uncommitted", timeout_s=0.1)
        found = [next(tail).offset]
        for step in steps:
            step()
        found += [record.offset for record in tail]
    assert found == everything


def test_verify_goes_through_it_in_the_order_of_offsets(tmp_path: Path, master: Path) -> None:
    root = Path(shutil.copytree(master, tmp_path / "logs"))
    steps, decided = replacement(root / "t-0", is_compacted=True)
    for step in steps[: decided + 9]:
        step()
    reports = list(verify_files(find_sources(str(root)).files))
    bases = [int(Path(report.path).name[:20]) for report in reports]
    assert bases == sorted(set(bases))
    assert {Path(report.path).suffix for report in reports} == {".log", ".swap"}
    assert [finding for report in reports for finding in report.findings] == []


class Swapping(OsFileSystem):
    """The file system of a reader, beside which a broker takes steps of a replacement: up to ``first`` when
    the reader looks for the ``look``-th time at a transaction index, up to ``second`` at its next look."""

    def __init__(self, steps: list[Step], look: int, first: int, second: int) -> None:
        super().__init__()
        self._steps = steps
        self._pauses = [*[0] * (look - 1), first, second - first]

    def _step(self, path: str) -> None:
        if ".txnindex" in path and self._pauses:
            count = self._pauses.pop(0)
            for step in self._steps[:count]:
                step()
            del self._steps[:count]

    def stat(self, path: str) -> FileStat | None:
        self._step(path)
        return super().stat(path)

    def open_readable(self, path: str) -> ReadableFile:
        self._step(path)
        return super().open_readable(path)


@pytest.mark.parametrize("way", ["view", "scan", "range"])
@pytest.mark.parametrize("begun", ["before the listing", "after the listing"])
def test_no_aborted_record_is_shown_while_a_transaction_index_gets_its_name(
    tmp_path: Path, master: Path, way: str, begun: str
) -> None:
    """A broker renames the data file of a segment first, and its transaction index last. The reader lists the
    folder before the swap or between two renames, and reads after one or two more."""
    shown = committed(master, way, OsFileSystem())
    assert shown == seen(master)[1]
    root = tmp_path / "logs"
    for look, number in product(range(1, 9), range(8)):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(master, root)
        steps, _ = replacement(root / "t-0", is_compacted=False)
        first = len(steps) - number
        if begun == "before the listing":
            for step in steps[: first - 1]:
                step()
            del steps[: first - 1]
            first = 1
        files = Swapping(steps, look, first, first + look % 2)
        assert committed(root, way, files) == shown, (look, number)


def committed(root: Path, way: str, files: OsFileSystem) -> list[int]:
    """The offsets of all committed records."""
    if way == "scan":
        batches = stratalog.scan(root, isolation="read_committed", file_system=files)
        return [offset for each in batches for offset in each.column("offset").to_pylist()]
    if way == "range":
        (source,) = find_sources([str(root)], file_system=files).partitions
        planned = plan_range(source, file_system=files, isolation=Isolation.COMMITTED)
        return [offset for offset, _ in read(planned, file_system=files)]
    with stratalog.open(root, read_only=True, file_system=files) as logs:
        return [record.offset for record in logs.read("t", isolation="read_committed").records()]
