"""A crash in the middle of a commit may leave nonsense where it was being written. Nobody is shown that part
before the commit is finished, and so nobody is told of damage there: it is what recovery will write anew.

Found by the nightly crash simulation: readers of a directory that nobody had recovered yet got the damage in
place of the records, where it began at just the offset from which on nothing is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stratalog.errors import CorruptionError
from stratalog.inspect.partition.ends import partition_ends
from stratalog.inspect.partition.sources import find_sources
from stratalog.inspect.range.offset_range import WHOLE
from stratalog.inspect.range.partition_reader import PartitionReader
from stratalog.inspect.range.plan import plan_range
from stratalog.inspect.range.reader import RangeReader
from stratalog.manager.commits.commits import TopicPlan
from stratalog.manager.logs import open_logs
from stratalog.manager.read.visibility import without_hidden
from stratalog.records.columns import Selection
from stratalog.records.layout import Check, Column
from stratalog.storage.commits.journal import read_journal
from stratalog.storage.commits.key import CommitKey
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
    assert here.seen() == {("t", 0): ["x"]}
    (source,) = find_sources([ROOT], file_system=disk).partitions
    assert partition_ends(source, disk).end == 1
    planned = plan_range(source, 0, 1, disk)
    read = RangeReader(Selection(columns=Column.OFFSET), disk).read(planned)
    assert sum(taken.rows for _, taken in read) == 1
    with open_logs(ROOT, read_only=True, file_system=disk, clock=disk.clock) as logs:
        assert [record.value for record in logs.read("t").records()] == [b"x"]
    with open_logs(ROOT, file_system=disk, clock=disk.clock) as logs:
        assert [record.value for record in logs.read("t").records()] == [b"x", b"a"]


def test_only_damage_that_is_shown_is_told() -> None:
    disk = MemoryFileSystem(folders=[ROOT])
    with open_logs(ROOT, file_system=disk, clock=disk.clock) as logs:
        logs.create("t")
        logs.append("t", ["a", "b", "c"])
        (view,) = logs._views.look([PLACE])
        damaged = view._replace(damage=CorruptionError("nonsense", "nonsense behind the end"))
        for hidden, is_told in ((3, False), (0, False), (4, True)):
            (shown,) = without_hidden([damaged], {PLACE: hidden})
            assert (shown.damage is not None) == is_told, hidden
        assert without_hidden([damaged], {}) == [damaged]


def test_a_raised_offset_does_not_pass_for_the_end_of_what_is_shown() -> None:
    """The offset of a batch is outside its CRC: what follows is told, though that is beyond the end."""
    disk = MemoryFileSystem(folders=[ROOT])
    with open_logs(ROOT, file_system=disk, clock=disk.clock) as logs:
        logs.create("t")
        for value in ("a", "b", "c"):
            logs.append("t", [value])
    file = disk.open_writable(LOG)
    file.write_at(0, (1 << 40).to_bytes(8, "big"))
    file.close()
    (source,) = find_sources([ROOT], file_system=disk).partitions
    reader = PartitionReader(
        Selection(columns=Column.OFFSET, check=Check.ORDER), WHOLE, disk, lambda _: None
    )
    with pytest.raises(CorruptionError):
        list(reader.read(replace(source, visible_end=2)))
