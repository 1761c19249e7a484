"""Each thing that a power cut may leave, shown by a small example; and that it leaves nothing else.

Method: a disk with a few changes that were not synced; all states that many seeds give are collected and
compared with those that the model allows, written down by hand.
"""

from __future__ import annotations

import contextlib
from random import Random

import pytest

from stratalog.errors import StorageError
from stratalog.storage.files.filesystem import WritableFile, replace_file
from stratalog.testing import (
    ContentFate,
    CrashPlan,
    CrashPoint,
    MemoryFileSystem,
    NameFate,
    PowerCut,
    crash,
    crash_all_kept,
    crash_all_lost,
    crash_planned,
    crash_state,
    crash_states,
    has_unsynced,
    kill,
)
from stratalog.testing.crash import EXTREMES
from stratalog.testing.open_files import MemoryWritableFile


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem(folders=["/d", "/e"])


def durable_file(fs: MemoryFileSystem, path: str, data: bytes) -> WritableFile:
    file = fs.open_writable(path, create=True)
    file.write_at(0, data)
    fs.sync_all()
    return file


def contents(fs: MemoryFileSystem, fate: ContentFate, seeds: int = 300) -> set[bytes]:
    """Everything that this fate makes of the one file."""
    plan = CrashPlan(NameFate.KEPT, fate)
    after = [crash_planned(fs, plan, Random(seed)) for seed in range(seeds)]
    return {each.read_bytes("/d/a") for each in after}


def names(fs: MemoryFileSystem, fate: NameFate, seeds: int = 200) -> set[tuple[str, ...]]:
    plan = CrashPlan(fate, ContentFate.KEPT)
    return {tuple(crash_planned(fs, plan, Random(seed)).paths()) for seed in range(seeds)}


def test_synced_bytes_and_names_survive_everything(fs):
    durable_file(fs, "/d/a", b"abc")
    assert not has_unsynced(fs)
    for seed in range(50):
        after = crash(fs, Random(seed))
        assert after.paths() == ["/d/a"]
        assert after.read_bytes("/d/a") == b"abc"


def test_sync_of_a_file_does_not_keep_its_name(fs):
    file = fs.open_writable("/d/a", create=True)
    file.write_at(0, b"abc")
    file.sync()
    assert crash_all_lost(fs).paths() == []
    fs.sync_dir("/d")
    assert crash_all_lost(fs).read_bytes("/d/a") == b"abc"


def test_sync_of_a_folder_does_not_keep_bytes(fs):
    fs.open_writable("/d/a", create=True).write_at(0, b"abc")
    fs.sync_dir("/d")
    assert crash_all_lost(fs).read_bytes("/d/a") == b""
    assert crash_all_kept(fs).read_bytes("/d/a") == b"abc"


def test_file_in_a_folder_whose_name_was_not_synced_is_gone(fs):
    fs.make_dir("/d/sub")
    file = fs.open_writable("/d/sub/a", create=True)
    file.write_at(0, b"abc")
    file.sync()
    fs.sync_dir("/d/sub")
    assert crash_all_lost(fs).paths() == []
    fs.sync_dir("/d")
    assert crash_all_lost(fs).paths() == ["/d/sub/a"]


def test_prefix_keeps_the_first_few_writes(fs):
    file = durable_file(fs, "/d/a", b"0")
    for position in (1, 2, 3):
        file.write_at(position, b"%d" % position)
    assert contents(fs, ContentFate.LOST) == {b"0"}
    assert contents(fs, ContentFate.KEPT) == {b"0123"}
    assert contents(fs, ContentFate.PREFIX) == {b"0", b"01", b"012", b"0123"}


def test_torn_write_is_cut_at_any_byte(fs):
    file = durable_file(fs, "/d/a", b"0")
    file.write_at(1, b"ab")
    file.write_at(3, b"cd")
    assert contents(fs, ContentFate.TORN) == {b"0", b"0a", b"0ab", b"0abc", b"0abcd"}


def test_halved_write_is_the_last_one(fs):
    file = durable_file(fs, "/d/a", b"0")
    file.write_at(1, b"ab")
    file.write_at(3, b"cdef")
    assert contents(fs, ContentFate.HALF) == {b"0abcd"}
    file.truncate(1)
    assert contents(fs, ContentFate.HALF) == {b"0abcdef"}


def test_torn_write_is_cut_at_sectors_more_often(fs):
    file = durable_file(fs, "/d/a", b"0" * 100)
    file.write_at(100, b"x" * 2000)
    sizes = [len(data) for data in contents(fs, ContentFate.TORN)]
    plan = CrashPlan(NameFate.KEPT, ContentFate.TORN)
    all_sizes = [
        len(crash_planned(fs, plan, Random(seed)).read_bytes("/d/a")) for seed in range(300)
    ]
    assert {512, 1024, 1536, 2048} <= set(sizes)
    assert sum(size % 512 == 0 for size in all_sizes) > 60


def test_subset_leaves_zeros_where_an_earlier_write_was_lost(fs):
    file = durable_file(fs, "/d/a", b"0")
    file.write_at(1, b"a")
    file.write_at(2, b"b")
    assert contents(fs, ContentFate.SUBSET) == {b"0", b"0a", b"0\0b", b"0ab"}


def test_sectors_of_one_write_are_lost_one_by_one(fs):
    file = durable_file(fs, "/d/a", b"")
    file.write_at(500, b"x" * 1000)
    gap, a, b, c = bytes(500), b"x" * 12, b"x" * 512, b"x" * 476
    assert contents(fs, ContentFate.SECTORS) == {
        b"", gap + a, gap + a + b, gap + a + b + c, gap + bytes(12) + b, gap + bytes(12) + b + c,
        gap + bytes(524) + c, gap + a + bytes(512) + c,
    }  # fmt: skip


def test_size_without_data_is_zeros_from_a_sector_on(fs):
    file = durable_file(fs, "/d/a", b"0")
    file.write_at(1, b"x" * 1100)
    assert contents(fs, ContentFate.SIZE_ONLY) == {b"0" + bytes(1100)}
    assert contents(fs, ContentFate.ZERO_TAIL) == {
        b"0" + bytes(1100),
        b"0" + b"x" * 511 + bytes(589),
        b"0" + b"x" * 1023 + bytes(77),
    }


def test_truncate_is_lost_or_kept(fs):
    file = durable_file(fs, "/d/a", b"abcdef")
    file.truncate(2)
    for fate in (ContentFate.PREFIX, ContentFate.SUBSET, ContentFate.SECTORS):
        assert contents(fs, fate) == {b"abcdef", b"ab"}
    file.write_at(2, b"X")
    assert b"abXdef" in contents(fs, ContentFate.SUBSET)


def test_preallocated_file_comes_up_with_zeros_or_data(fs):
    file = durable_file(fs, "/d/a", b"")
    file.truncate(10 << 20)
    file.write_at(0, b"x" * 600)
    seen = {(len(data), data.rstrip(b"\0")) for data in contents(fs, ContentFate.ZERO_TAIL, 40)}
    assert seen == {(10 << 20, b""), (10 << 20, b"x" * 512)}


def test_names_come_back_as_a_prefix_of_all_steps(fs):
    durable_file(fs, "/d/a", b"")
    fs.rename("/d/a", "/d/b")
    fs.open_writable("/e/c", create=True)
    fs.unlink("/d/b")
    steps = {("/d/a",), ("/d/b",), ("/d/b", "/e/c"), ("/e/c",)}
    assert names(fs, NameFate.PREFIX) == steps
    assert names(fs, NameFate.LOST) == {("/d/a",)}
    assert names(fs, NameFate.KEPT) == {("/e/c",)}


def test_folders_may_lose_their_steps_each_for_itself(fs):
    durable_file(fs, "/d/a", b"")
    fs.rename("/d/a", "/d/b")
    fs.open_writable("/e/c", create=True)
    assert names(fs, NameFate.PREFIX_EACH) == {
        ("/d/a",), ("/d/b",), ("/d/b", "/e/c"), ("/d/a", "/e/c"),
    }  # fmt: skip


def test_move_between_folders_happens_in_both_or_in_none(fs):
    durable_file(fs, "/d/a", b"")
    fs.rename("/d/a", "/e/a")
    fs.open_writable("/d/x", create=True)
    fs.open_writable("/e/y", create=True)
    assert names(fs, NameFate.PREFIX_EACH) == {
        ("/d/a",), ("/e/a",), ("/d/x", "/e/a"), ("/e/a", "/e/y"), ("/d/x", "/e/a", "/e/y"),
    }  # fmt: skip


def test_sync_of_one_folder_keeps_what_the_move_stands_on(fs):
    fs.open_writable("/d/a", create=True)
    fs.rename("/d/a", "/e/a")
    fs.open_writable("/d/x", create=True)
    fs.sync_dir("/e")
    assert crash_all_lost(fs).paths() == ["/e/a"]
    assert crash_all_kept(fs).paths() == ["/d/x", "/e/a"]


def test_a_file_of_two_names_is_one_file_after_a_crash(fs):
    file = durable_file(fs, "/d/a", b"abc")
    fs.link("/d/a", "/e/a")
    assert crash_all_lost(fs).paths() == ["/d/a"]
    fs.sync_dir("/e")
    file.write_at(0, b"12345")
    for seed in range(50):
        after = crash(fs, Random(seed))
        assert after.paths() == ["/d/a", "/e/a"]
        assert after.read_bytes("/d/a") == after.read_bytes("/e/a")
        after.open_writable("/d/a").write_at(0, b"!")
        assert after.read_bytes("/e/a")[:1] == b"!"


def test_rename_over_a_file_leaves_the_old_or_the_new_one(fs):
    replace_file(fs, "/d/a", "/d/a.tmp", b"old")
    file = fs.open_writable("/d/a.tmp", create=True)
    file.write_at(0, b"new")
    file.sync()
    fs.rename("/d/a.tmp", "/d/a")
    found = {crash(fs, Random(seed)).read_bytes("/d/a") for seed in range(100)}
    assert found == {b"old", b"new"}


def test_rename_without_sync_of_the_file_may_leave_an_empty_one(fs):
    replace_file(fs, "/d/a", "/d/a.tmp", b"old")
    fs.open_writable("/d/a.tmp", create=True).write_at(0, b"new")
    fs.rename("/d/a.tmp", "/d/a")
    found = {crash(fs, Random(seed)).read_bytes("/d/a") for seed in range(200)}
    assert {b"old", b"new", b"", b"\0\0\0", b"n"} <= found


def test_each_file_has_its_own_fate(fs):
    files = [durable_file(fs, f"/d/{name}", b"") for name in "ab"]
    for file in files:
        file.write_at(0, b"x")
    plan = CrashPlan(NameFate.KEPT, None)
    pairs = set()
    for seed in range(100):
        after = crash_planned(fs, plan, Random(seed))
        pairs.add((after.read_bytes("/d/a"), after.read_bytes("/d/b")))
    assert {(b"", b"x"), (b"x", b""), (b"", b""), (b"x", b"x")} <= pairs


def test_what_comes_up_is_durable_unlocked_and_another_disk(fs):
    file = durable_file(fs, "/d/a", b"abc")
    fs.lock("/d/.lock")
    fs.sync_dir("/d")
    file.write_at(0, b"xyz")
    after = crash_all_kept(fs)
    assert not has_unsynced(after)
    assert has_unsynced(fs)
    after.lock("/d/.lock")
    after.unlink("/d/a")
    assert fs.read_bytes("/d/a") == b"xyz"


def test_killed_process_leaves_all_and_a_later_power_cut_still_loses_it(fs):
    durable_file(fs, "/d/a", b"abc").write_at(0, b"xyz")
    fs.lock("/d/.lock")
    after = kill(fs)
    assert after.read_bytes("/d/a") == b"xyz"
    after.lock("/d/.lock")
    assert crash_all_lost(after).read_bytes("/d/a") == b"abc"


def test_failed_sync_loses_for_good_what_reads_still_show(fs):
    """As ext4 and XFS do: the second sync succeeds, and lies."""
    file = durable_file(fs, "/d/a", b"abc")
    assert isinstance(file, MemoryWritableFile)
    file.write_at(0, b"xyz")
    file.lose_unsynced()
    file.sync()
    assert fs.read_bytes("/d/a") == b"xyz"
    assert has_unsynced(fs)
    assert crash_all_kept(fs).read_bytes("/d/a") == b"abc"
    file.write_at(4, b"!")
    file.sync()
    assert fs.read_bytes("/d/a") == b"xyz\0!"
    assert crash_all_lost(fs).read_bytes("/d/a") == b"abc\0!"
    assert kill(fs).read_bytes("/d/a") == b"xyz\0!"


def test_states_are_the_extremes_then_chance_and_the_name_makes_them_again(fs):
    durable_file(fs, "/d/a", b"").write_at(0, b"x" * 3000)
    states = list(crash_states(fs, Random(1), 8))
    assert [state.name for state in states[:5]] == list(EXTREMES)
    assert all(state.name.startswith("random-") for state in states[5:])
    assert len(states) == 8
    for state in states:
        again = crash_state(fs, state.name)
        assert again.read_bytes("/d/a") == state.file_system.read_bytes("/d/a")
    with pytest.raises(ValueError, match="no state"):
        crash_state(fs, "half")


def test_same_seed_makes_the_same_of_a_disk_and_of_its_copies(fs):
    """Also where names came in another order than they are in now: a path must lead to the same place."""
    for name in "cab":
        durable_file(fs, f"/d/{name}", b"")
    fs.rename("/d/a", "/d/x")
    fs.sync_dir("/d")
    fs.rename("/d/x", "/d/a")
    fs.sync_dir("/d")
    for name in "abc":
        fs.open_writable(f"/d/{name}").write_at(0, name.encode() * 2000)
    fs.rename("/d/b", "/e/b")
    fs.open_writable("/e/f", create=True)
    fs.rename("/e/b", "/d/g")

    def made(disk: MemoryFileSystem) -> list[list[tuple[str, bytes]]]:
        states = [crash(disk, Random(seed)) for seed in range(50)]
        return [[(path, each.read_bytes(path)) for path in each.paths()] for each in states]

    assert made(fs) == made(fs.fork()) == made(fs.fork().fork())
    assert len({tuple(each) for each in made(fs)}) > 20


def test_one_state_where_nothing_can_be_lost(fs):
    durable_file(fs, "/d/a", b"abc")
    assert [state.name for state in crash_states(fs, Random(1), 8)] == ["all-kept"]


def test_power_cut_comes_before_the_change_and_everything_after_it_fails(fs):
    fs.watcher = point = CrashPoint(crash_at=3)
    file = fs.open_writable("/d/a", create=True)
    file.write_at(0, b"ab")
    with pytest.raises(PowerCut, match="change 3: write /d/a"):
        file.write_at(2, b"cd")
    assert point.seen == 3
    for call in (
        lambda: file.write_at(0, b"x"), file.sync, file.size, lambda: fs.stat("/d/a"),
        lambda: fs.list_dir("/d"), lambda: fs.sync_dir("/d"), lambda: fs.open_readable("/d/a"),
    ):  # fmt: skip
        with pytest.raises(PowerCut):
            call()
    file.close()  # who unwinds closes what it has: that does nothing
    assert crash_all_kept(fs).read_bytes("/d/a") == b"ab"


def test_power_cut_in_the_middle_of_a_write(fs):
    file = durable_file(fs, "/d/a", b"")
    fs.watcher = CrashPoint(crash_at=1, torn_bytes=2)
    with pytest.raises(PowerCut):
        file.write_at(0, b"abcd")
    assert crash_all_kept(fs).read_bytes("/d/a") == b"ab"


def test_power_cut_is_not_caught_as_an_error_of_ours(fs):
    fs.watcher = CrashPoint(crash_at=1)
    with pytest.raises(PowerCut), contextlib.suppress(StorageError, Exception):
        fs.make_dir("/d/x")


def test_crash_point_without_a_number_only_counts(fs):
    fs.watcher = point = CrashPoint()
    durable_file(fs, "/d/a", b"abc")
    assert point.seen == fs.changes == 2


def test_many_unsynced_writes_are_one_list_for_all_forks(fs):
    """A log that is never synced: neither depth nor time may grow with what it holds."""
    file = fs.open_writable("/d/a", create=True)
    forks = []
    for position in range(5000):
        file.write_at(position, b"x")
        if position % 1000 == 0:
            forks.append(fs.fork())
    assert [crash_all_kept(each).read_bytes("/d/a") for each in forks] == [
        b"x" * size for size in (1, 1001, 2001, 3001, 4001)
    ]
