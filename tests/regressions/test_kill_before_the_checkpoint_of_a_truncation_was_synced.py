"""A kill between a truncation and the fsync of its checkpoint, then a power cut: the log did not open.

The killed process had renamed the lowered recovery point and not synced the folder. The next process saw it,
appended after it, and lost its power: the rename was undone. The old recovery point lay beyond the torn
batch, which then passed for one that was stored safely once. So a process must sync the names in the root
before it writes to a log. ``LogDirectory.begin`` did; the keeper of the crash tests, their manager, did not.
"""

from __future__ import annotations

import pytest

import stratalog
from stratalog.errors import DamagedLogError
from stratalog.records.builder import build_batch
from stratalog.records.model import Record
from stratalog.storage.names import RECOVERY_CHECKPOINT
from stratalog.testing import Explorer, Facts, MemoryFileSystem, crash_state, replay
from stratalog.testing.machine import Change, PowerCut
from tests.crash.driver import new_disk
from tests.crash.keeper import Keeper
from tests.crash.promises import Promise
from tests.crash.scenarios import SCENARIOS

SCENARIO = SCENARIOS["truncation"]
STATES = ["all-lost", "all-kept", *(f"random-{number}" for number in range(12))]


class UnsyncedRoot(Keeper):
    """Writes without syncing the names that a killed process left."""

    def sync_root(self) -> None:
        pass


def test_unsynced_name_of_the_checkpoint_makes_the_log_refuse() -> None:
    """The path as it was found: without the sync the log is refused, so the sync is what it needs."""
    path = "73:killed/12:random-3693318923"
    runs, check = SCENARIO.runs(UnsyncedRoot), SCENARIO.check(UnsyncedRoot)
    with pytest.raises(DamagedLogError, match="below the recovery point 14"):
        replay(runs, check, path, start=new_disk)


def test_log_opens_after_the_kill_and_a_power_cut() -> None:
    """The power is cut at every step of the next process, up to the end of its first append."""
    disk, facts = killed_before_sync_of(RECOVERY_CHECKPOINT)
    steps = changes_of_check(disk.fork(), facts.fork())
    assert steps > 10
    for step in range(1, steps + 1):
        for state in STATES:
            left, noted = cut_at(disk.fork(), facts.fork(), step)
            SCENARIO.check()(crash_state(left, state), noted)


def killed_before_sync_of(name: str) -> tuple[MemoryFileSystem, Facts[Promise]]:
    """The disk of a process that was killed after it renamed the checkpoint of the first truncation."""
    disk, facts = new_disk(), Facts[Promise]()
    renamed: list[int] = []

    def watch(change: Change) -> None:
        if renamed and change.number == renamed[-1] + 1 and is_lowered(disk, name):
            raise PowerCut("killed before the folder is synced")
        if str(change).startswith("rename") and name in str(change):
            renamed.append(change.number)

    disk.watcher = watch
    with pytest.raises(PowerCut):
        SCENARIO.runs()(disk, facts)
    disk.watcher = None
    return crash_state(disk.fork(), "killed"), facts.fork()


def is_lowered(disk: MemoryFileSystem, name: str) -> bool:
    return disk.read_bytes(f"/data/{name}") == b"0\n1\nt 0 10\n"


def changes_of_check(disk: MemoryFileSystem, facts: Facts[Promise]) -> int:
    before = disk.changes
    SCENARIO.check()(disk, facts)
    return disk.changes - before


def cut_at(
    disk: MemoryFileSystem, facts: Facts[Promise], step: int
) -> tuple[MemoryFileSystem, Facts[Promise]]:
    """The next process, as far as the change of this number, which it does not make."""
    begun = disk.changes

    def watch(change: Change) -> None:
        if change.number - begun == step:
            raise PowerCut(f"change {step} is reached")

    disk.watcher = watch
    with pytest.raises(PowerCut):
        SCENARIO.check()(disk, facts)
    disk.watcher = None
    return disk.fork(), facts.fork()


ROOT = "/logs"


def test_log_of_a_log_directory_opens_wherever_its_truncation_is_interrupted() -> None:
    """The same by ``stratalog.open``: killed or without power at each step, and again in the next process."""
    explorer = Explorer(
        truncated,
        opens,
        seed=1,
        states_per_point=4,
        depth=2,
        nested_points=3,
        nested_states=1,
        start=lambda: MemoryFileSystem(folders=[ROOT]),
    ).run()
    assert explorer.crashes > 500


def truncated(disk: MemoryFileSystem, facts: Facts[int]) -> None:
    """Note how many records must be there."""
    with stratalog.open(ROOT, file_system=disk, clock=disk.clock) as logs:
        logs.create("t", 1)
        log = logs.partition("t", 0)
        for number in range(7):
            log.append(batch_of(2 * number), sync=True)
    facts.note(14)
    with stratalog.open(ROOT, file_system=disk, clock=disk.clock) as logs:
        facts.note(10)
        logs.partition("t", 0).truncate(10)


def opens(disk: MemoryFileSystem, facts: Facts[int]) -> None:
    logs = stratalog.open(ROOT, file_system=disk, clock=disk.clock)
    if logs.topics():
        log = logs.partition("t", 0)
        end = log.log_end
        assert end >= (facts[-1] if facts else 0)
        values = [int(record.value or b"") for record in logs.read("t").records()]
        assert values == list(range(end))
        log.append(batch_of(end), sync=True)
        facts.note(end + 2)


def batch_of(number: int) -> bytes:
    return build_batch([Record(b"%d" % each, timestamp=0) for each in (number, number + 1)])
