"""A crash in the middle of a commit may leave nonsense where it was being written. Nobody is shown that part
before the commit is finished, and so nobody is told of damage there: it is what recovery will write anew.

Found by the nightly crash simulation: readers of a directory that nobody had recovered yet got the damage in
place of the records, where it began at just the offset from which on nothing is shown."""

from __future__ import annotations

import pytest

from stratalog.errors import CorruptionError
from stratalog.manager.commits import TopicPlan
from stratalog.manager.logs import open_logs
from stratalog.manager.visibility import without_hidden
from stratalog.storage.commit_journal import read_journal
from stratalog.storage.commit_key import CommitKey
from stratalog.testing import Call, Fault, FaultyFileSystem, MemoryFileSystem
from stratalog.types import TopicPartition
from tests.manager.staging import Committing

ROOT = "/data"
PLACE = TopicPartition("t", 0)
LOG = f"{ROOT}/t-0/{0:020d}.log"


def test_nonsense_where_a_commit_was_being_written() -> None:
    disk = MemoryFileSystem(folders=[ROOT])
    faulty = FaultyFileSystem(disk)
    here = Committing(faulty, ROOT, disk.clock)
    here.put(CommitKey("before", 0), {("t", 0): ["x"]}, {"t": TopicPlan(1)})
    whole = len(disk.read_bytes(LOG))
    pieces = here.stage(CommitKey("query", 0), {("t", 0): ["a"]})
    faulty.arm(2, fault=Fault.INTERRUPT, calls=[Call.WRITE])
    with pytest.raises(KeyboardInterrupt):
        here.commit(CommitKey("query", 0), pieces)
    assert read_journal(disk, ROOT).open
    # What a torn write leaves: the beginning of the batch, and zeros.
    file = disk.open_writable(LOG)
    file.write_at(whole, (1).to_bytes(8, "big") + bytes(72))
    file.close()
    with open_logs(ROOT, read_only=True, file_system=disk, clock=disk.clock) as logs:
        assert [record.value for record in logs.read("t").records()] == [b"x"]
    with open_logs(ROOT, file_system=disk, clock=disk.clock) as logs:
        assert [record.value for record in logs.read("t").records()] == [b"x", b"a"]


def test_only_damage_that_is_shown_is_told() -> None:
    disk = MemoryFileSystem(folders=[ROOT])
    with open_logs(ROOT, file_system=disk, clock=disk.clock) as logs:
        logs.create("t")
        logs.append("t", ["a", "b", "c"])
        (view,) = logs._look([PLACE])
        damaged = view._replace(damage=CorruptionError("nonsense", "nonsense behind the end"))
        for hidden, is_told in ((3, False), (0, False), (4, True)):
            (shown,) = without_hidden([damaged], {PLACE: hidden})
            assert (shown.damage is not None) == is_told, hidden
        assert without_hidden([damaged], {}) == [damaged]
