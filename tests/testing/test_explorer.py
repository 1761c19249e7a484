"""The explorer finds what is wrong with a log, and nothing where nothing is wrong.

Method: a toy log with files, a roll, a checkpoint and a recovery, in a right version and with one bug planted
in each of several others. The same scenario and check are explored with all of them.
"""

from __future__ import annotations

import time
import zlib
from functools import partial

import pytest

from stratalog.storage.files.filesystem import FileSystem, WritableFile, replace_file
from stratalog.testing import (
    CrashCheckError,
    CrashPoint,
    Explorer,
    Facts,
    MemoryFileSystem,
    PowerCut,
    explore,
    replay,
)
from tests.scale import SCALE, fresh, sized

FOLDER = "/log"
CHECKPOINT = f"{FOLDER}/start"
RECORDS_PER_FILE = 3


class ToyLog:
    """Records in files of three, each record synced before ``append`` returns; ``drop_file`` drops the oldest
    file, and the checkpoint says which one is the first."""

    def __init__(self, fs: FileSystem, bug: str = "") -> None:
        self.fs = fs
        self.bug = bug
        if not any(entry.name == FOLDER[1:] for entry in fs.list_dir("/")):
            fs.make_dir(FOLDER)
        fs.sync_dir("/")
        self.first = self.read_checkpoint()
        numbers = [int(entry.name[:-4]) for entry in fs.list_dir(FOLDER) if ".log" in entry.name]
        for number in sorted(numbers):
            if number < self.first:
                fs.unlink(path_of(number))
        self.numbers = sorted(number for number in numbers if number >= self.first)
        assert self.numbers[:1] in ([], [self.first]), "the first file is missing"
        self.records: list[list[bytes]] = []
        self.file: WritableFile | None = None
        self.end = 0
        for number in self.numbers:
            self.recover(number)

    def recover(self, number: int) -> None:
        file = self.fs.open_writable(path_of(number))
        data = bytes(file.map(0, file.size()))
        records, end = parse(data)
        is_last = number == self.numbers[-1]
        assert is_last or end == len(data), f"file {number} is damaged in the middle of the log"
        if end < len(data) and self.bug != "torn tail is left":
            file.truncate(end)
        if is_last and self.bug != "recovery does not sync":
            file.sync()  # what is shown from now on must be there after the next power cut
            self.fs.sync_dir(FOLDER)
        self.records.append(records)
        self.file, self.end = file, end

    def append(self, record: bytes) -> None:
        if self.file is None or len(self.records[-1]) == RECORDS_PER_FILE:
            self.roll()
        assert self.file is not None
        frame = len(record).to_bytes(2) + zlib.crc32(record).to_bytes(4) + record
        self.file.write_at(self.end, frame)
        if self.bug != "append does not sync":
            self.file.sync()
        self.end += len(frame)
        self.records[-1].append(record)

    def roll(self) -> None:
        number = self.numbers[-1] + 1 if self.numbers else self.first
        self.file, self.end = self.fs.open_writable(path_of(number), create=True), 0
        self.numbers.append(number)
        self.records.append([])
        if self.bug != "roll does not sync the folder":
            self.fs.sync_dir(FOLDER)

    def drop_file(self) -> None:
        if self.bug == "files go before the checkpoint":
            self.fs.unlink(path_of(self.first))
            self.fs.sync_dir(FOLDER)
        text = b"%06d" % (self.first + 1)
        text += b" %08x" % zlib.crc32(text)
        if self.bug == "checkpoint is written in place" and self.fs.stat(CHECKPOINT):
            file = self.fs.open_writable(CHECKPOINT)
            file.write_at(0, text)
            file.sync()
        elif self.bug == "checkpoint is renamed before it is synced":
            self.fs.open_writable(f"{CHECKPOINT}.tmp", create=True).write_at(0, text)
            self.fs.rename(f"{CHECKPOINT}.tmp", CHECKPOINT)
            self.fs.sync_dir(FOLDER)
        else:
            replace_file(self.fs, CHECKPOINT, f"{CHECKPOINT}.tmp", text)
        self.fs.unlink(path_of(self.first))
        self.first += 1
        del self.numbers[0], self.records[0]

    def read_checkpoint(self) -> int:
        if self.fs.stat(CHECKPOINT) is None:
            return 1
        file = self.fs.open_readable(CHECKPOINT)
        text = bytes(file.map(0, file.size()))
        assert text[7:] == b"%08x" % zlib.crc32(text[:6]), f"damaged checkpoint: {text!r}"
        return int(text[:6])


def path_of(number: int) -> str:
    return f"{FOLDER}/{number:06d}.log"


def parse(data: bytes) -> tuple[list[bytes], int]:
    records, at = [], 0
    while at + 6 <= len(data):
        record = data[at + 6 : at + 6 + int.from_bytes(data[at : at + 2])]
        if not record or data[at + 2 : at + 6] != zlib.crc32(record).to_bytes(4):
            break
        records.append(record)
        at += 6 + len(record)
    return records, at


Noted = tuple[str, bytes]


def scenario(fs: MemoryFileSystem, facts: Facts[Noted], bug: str = "") -> None:
    """Eleven records in four files; the first two files are dropped on the way."""
    log = ToyLog(fs, bug)
    for number in range(11):
        append(log, facts, b"record %d" % number * (1 + number % 3))
        if number in (6, 9):
            for record in log.records[0]:
                facts.note(("dropping", record))
            log.drop_file()


def append(log: ToyLog, facts: Facts[Noted], record: bytes) -> None:
    facts.note(("tried", record))
    log.append(record)
    facts.note(("acked", record))


def check(fs: MemoryFileSystem, facts: Facts[Noted], bug: str = "") -> None:
    """All that was acknowledged, or once shown, is there, in order; and the log goes on."""
    acked = {record for kind, record in facts if kind in ("acked", "seen")}
    dropping = {record for kind, record in facts if kind == "dropping"}
    tried = [record for kind, record in facts if kind == "tried"]
    log = ToyLog(fs, bug)
    found = [record for records in log.records for record in records]
    assert acked - dropping <= set(found), "an acknowledged record is lost"
    assert found == [record for record in tried if record in set(found)], "records are not in order"
    for record in found:
        facts.note(("seen", record))
    for number in range(3):
        append(log, facts, b"%d+%d" % (len(facts), number))


def explorer(bug: str = "", **options) -> Explorer[Noted]:
    return Explorer(partial(scenario, bug=bug), partial(check, bug=bug), **options)


BUGS = {
    "append does not sync": 1,
    "roll does not sync the folder": 1,
    "checkpoint is written in place": 1,
    "checkpoint is renamed before it is synced": 1,
    "files go before the checkpoint": 1,
    "torn tail is left": 2,
    "recovery does not sync": 2,
}


@pytest.mark.scaled
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_right_log_survives_every_crash(depth):
    began = time.perf_counter()
    result = explorer(depth=depth, states_per_point=sized(4, 12 * SCALE), seed=fresh(depth)).run()
    took = time.perf_counter() - began
    print(
        f"\n{result.crashes} crashes at {result.points} points, depth {depth}: "
        f"{result.crashes / took:.0f} a second"
    )
    assert result.failures == []
    assert all(count > sized(30, 100) for count in result.crashes_by_depth)
    assert result.points > 40


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_found_and_replayed(bug):
    failing = explorer(bug, depth=2, seed=1)
    with pytest.raises(CrashCheckError, match="to see it again: replay") as caught:
        failing.run()
    with pytest.raises(AssertionError) as replayed:
        replay(failing.scenario, failing.check, caught.value.path)
    assert str(replayed.value).splitlines()[0] in str(caught.value)
    replay(scenario, check, caught.value.path)  # the right log passes there


@pytest.mark.parametrize("bug", [bug for bug, depth in BUGS.items() if depth == 2])
def test_bug_in_recovery_is_found_only_by_a_crash_after_it(bug):
    """What a single power cut cannot show: depth is there for a reason."""
    assert explorer(bug, depth=1, seed=1).run().failures == []
    with pytest.raises(CrashCheckError):
        explorer(bug, depth=2, seed=1).run()


def test_same_seed_same_failure_and_another_seed_other_states():
    paths: dict[int, list[list[str]]] = {}
    for seed in (1, 1, 2):
        runs = explorer("append does not sync", seed=seed, keep_going=True).run()
        paths.setdefault(seed, []).append([failure.path for failure in runs.failures])
    assert paths[1][0] == paths[1][1] != paths[2][0]


def test_keep_going_counts_every_loss():
    result = explorer("append does not sync", keep_going=True).run()
    assert 50 < len(result.failures) < result.crashes
    assert all(failure.seed == 0 for failure in result.failures)


def test_failure_tells_what_was_cut_and_what_was_left():
    with pytest.raises(CrashCheckError) as caught:
        explorer("append does not sync").run()
    text = str(caught.value)
    assert "an acknowledged record is lost" in text
    assert "power cut at 6, before write /log/000001.log; all-lost left:" in text
    assert "/log/000001.log: 0 bytes of 14" in text
    assert caught.value.path == "6:all-lost"


def test_every_point_is_what_a_power_cut_there_would_find():
    """The disks that are set aside in one run, against runs that are really stopped at each change."""
    result = explorer().run()
    seen: list[list[tuple[str, bytes]]] = []

    def look(fs: MemoryFileSystem, facts: Facts[Noted]) -> None:
        seen.append([(path, fs.read_bytes(path)) for path in fs.paths()] + list(facts))

    Explorer(scenario, look, states_per_point=2).run()
    for point in range(1, result.points):
        fs, facts = MemoryFileSystem(), Facts[Noted]()
        fs.watcher = CrashPoint(crash_at=point)
        with pytest.raises(PowerCut):
            scenario(fs, facts)
        fork = fs.fork()
        assert [(path, fork.read_bytes(path)) for path in fork.paths()] + list(facts) in seen


def test_every_point_of_a_recovery_is_tried_when_asked():
    sampled = explorer(depth=2, states_per_point=3).run()
    every = explorer(depth=2, states_per_point=3, nested_points=None).run()
    assert every.crashes_by_depth[0] == sampled.crashes_by_depth[0]
    assert every.crashes_by_depth[1] > 2 * sampled.crashes_by_depth[1]


def test_start_is_the_disk_that_the_scenario_begins_with():
    def prepared() -> MemoryFileSystem:
        fs = MemoryFileSystem()
        scenario(fs, Facts())
        fs.sync_all()
        return fs

    def go_on(fs: MemoryFileSystem, facts: Facts[Noted]) -> None:
        append(ToyLog(fs), facts, b"one more")

    def look(fs: MemoryFileSystem, facts: Facts[Noted]) -> None:
        records = [record for records in ToyLog(fs).records for record in records]
        assert b"record 10" * 2 in records
        assert all(record in records for kind, record in facts if kind == "acked")

    result = explore(go_on, look, seed=3, states_per_point=6, depth=2, start=prepared)
    assert result.points == 3
    assert result.crashes > 10

    def refuse(fs: MemoryFileSystem, facts: Facts[Noted]) -> None:
        raise ZeroDivisionError

    with pytest.raises(CrashCheckError) as caught:
        explore(go_on, refuse, start=prepared)
    assert caught.value.path == "1:all-kept"
    with pytest.raises(ZeroDivisionError):
        replay(go_on, refuse, "3:killed", start=prepared)


def test_error_of_the_scenario_itself_comes_out():
    def broken(fs: MemoryFileSystem, facts: Facts[Noted]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        explore(broken, check)


def test_replay_of_a_point_that_is_not_there_says_so():
    with pytest.raises(ValueError, match="there is no point 9999"):
        replay(scenario, check, "9999:all-lost")


def test_facts_of_a_fork_are_those_up_to_it():
    facts = Facts([1])
    fork = facts.fork()
    facts.note(2)
    fork.note(3)
    other = fork.fork()
    assert (list(facts), list(fork), list(other)) == ([1, 2], [1, 3], [1, 3])
    assert (facts[-1], fork[-1], len(other), facts[:1]) == (2, 3, 2, [1])
    with pytest.raises(IndexError):
        facts.fork()[2]
