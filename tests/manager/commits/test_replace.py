"""Replacing segments by staged ones: the plain case, what is refused before anything has changed, and what is
left as others have made it."""

from __future__ import annotations

import errno
import pickle
import threading
from dataclasses import replace
from unittest import mock

import pytest

from stratalog.errors import CorruptionError, StorageError, UnknownPartitionError, UsageError
from stratalog.manager.commits.commits import discard_staged
from stratalog.manager.commits.replace import GroupSwaps
from stratalog.manager.logs import open_logs
from stratalog.storage.commits.journal import CommitJournal, read_journal
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.records import Done, Intent, ReplacedPartition
from stratalog.storage.commits.segment_groups import FileContent, OldSegment, PartitionGroups
from stratalog.storage.names import FileKind
from stratalog.testing import Call, Fault, FaultyFileSystem, MemoryFileSystem
from stratalog.types import TopicPartition
from tests.manager.meddling import Meddling
from tests.manager.rewriting import Replacing, live_bases, stage_group
from tests.storage.replace.rewrites import even, everything, nothing

ROOT = "/data"
T0 = ("t", 0)
CONFIGS: dict[str, object] = {
    "internal.segment.bytes": 400,
    "segment.index.bytes": 120,
    "index.interval.bytes": 100,
    "file.delete.delay.ms": 0,
}
COUNT = 24
ALL = [f"v{number:02d}" for number in range(COUNT)]
KEY = CommitKey("rewrite", 0)


@pytest.fixture
def disk() -> MemoryFileSystem:
    made = MemoryFileSystem(folders=[ROOT])
    fill(made)
    return made


def fill(disk: MemoryFileSystem) -> None:
    with open_logs(ROOT, file_system=disk, clock=disk.clock) as logs:
        logs.create("t", 2, CONFIGS)
        for number in range(COUNT):
            for partition in (0, 1):
                logs.append("t", [(f"k{number % 3}", f"v{number:02d}")], partition=partition)
    disk.sync_all()


@pytest.fixture
def here(disk: MemoryFileSystem) -> Replacing:
    return Replacing(disk, ROOT, disk.clock)


def kept(disk: MemoryFileSystem) -> list[str]:
    """What is left if ``even`` goes over all sealed segments."""
    active = live_bases(disk, f"{ROOT}/t-0")[-1]
    return [value for number, value in enumerate(ALL) if number % 2 == 0 or number >= active]


def left_over(disk: MemoryFileSystem) -> list[str]:
    signs = ("stratalog-piece", ".cleaned", ".swap", ".deleted")
    return [path for path in disk.paths() if any(sign in path for sign in signs)]


def unchanged(disk: MemoryFileSystem) -> dict[str, bytes]:
    """The segments. Opening a log removes snapshots that it does not need."""
    return {
        path: disk.read_bytes(path)
        for path in disk.paths()
        if f"{ROOT}/t-" in path and not path.endswith(".snapshot")
    }


# --- the plain case --------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 4])
def test_segments_of_several_partitions_are_replaced(here, disk, threads):
    before = live_bases(disk, f"{ROOT}/t-0")
    plans = [here.plan(KEY, ("t", n), even, first_task=10 * n) for n in (0, 1)]
    result = here.commit(KEY, *plans, threads=threads)
    count = len(plans[0].groups)
    assert result.replaced == tuple(
        ReplacedPartition(TopicPartition("t", n), count, count) for n in (0, 1)
    )
    assert result.is_complete
    assert (result.was_done_before, result.replayed, result.reports) == (False, False, ())
    assert here.values(*T0) == here.values("t", 1) == kept(disk)
    assert live_bases(disk, f"{ROOT}/t-0") == [*before[:-1:2], before[-1]]
    assert left_over(disk) == []
    assert f"{ROOT}/.kafka_cleanshutdown" in disk.paths()


def test_the_same_replacement_again_does_nothing(here, disk):
    plan = here.plan(KEY, T0, even)
    first = here.commit(KEY, plan)
    files = unchanged(disk)
    again = here.commit(KEY, plan)
    assert again.was_done_before
    assert again.replaced == first.replaced
    assert unchanged(disk) == files


def test_a_result_and_a_plan_travel(here):
    plan = here.plan(KEY, T0, even)
    assert pickle.loads(pickle.dumps(plan)) == plan
    result = here.commit(KEY, plan)
    assert pickle.loads(pickle.dumps(result)) == result


def test_no_segments_at_all_count_as_done(here):
    assert here.commit(KEY).replaced == ()
    assert here.commit(KEY).was_done_before


def test_a_segment_that_becomes_empty_is_replaced(here, disk):
    here.commit(KEY, here.plan(KEY, T0, nothing))
    assert here.values(*T0) == ALL[live_bases(disk, f"{ROOT}/t-0")[-1] :]
    assert left_over(disk) == []


def test_new_files_have_the_time_that_was_planned(here, disk):
    plan = here.plan(KEY, T0, even)
    wanted = replace(plan.groups[0], modified_ms=1_234_000)
    here.commit(KEY, replace(plan, groups=(wanted, *plan.groups[1:])))
    for kind in wanted.new[0].files:
        found = disk.stat(f"{ROOT}/t-0/{0:020d}{kind.value}")
        assert found is not None
        assert found.modified_ms == 1_234_000


def test_open_logs_replace_while_others_append_and_read(here, disk):
    with open_logs(ROOT, file_system=disk, clock=disk.clock) as logs:
        reader = iter(logs.read("t", 0).records())
        first = next(reader)
        plan = here.plan(KEY, T0, even)
        logs.append("t", ["later"], partition=0)
        assert logs.replace_segments(KEY, [plan]).is_complete
        seen = [(each.value or b"").decode() for each in (first, *reader)]
        assert seen == ALL, "a reader finishes on the old segments"
        found = [(each.value or b"").decode() for each in logs.read("t", 0).records()]
        assert found == [*kept(disk), "later"]
    assert here.values(*T0) == [*kept(disk), "later"]


def test_the_cleaner_checkpoint_is_written_when_all_is_done(here, disk):
    end = live_bases(disk, f"{ROOT}/t-0")[-1]
    here.commit(KEY, here.plan(KEY, T0, even, cleaned_to=end))
    assert disk.read_bytes(f"{ROOT}/cleaner-offset-checkpoint") == f"0\n1\nt 0 {end}\n".encode()


def test_without_second_names_files_are_copied(disk):
    class NoLinks(FaultyFileSystem):
        def link(self, old: str, new: str) -> None:
            raise StorageError("operation not permitted", path=new, errno=errno.EPERM)

    here = Replacing(NoLinks(disk), ROOT, disk.clock)
    assert here.commit(KEY, here.plan(KEY, T0, even)).is_complete
    assert here.values(*T0) == kept(disk)
    assert left_over(disk) == []


def test_what_was_staged_by_other_attempts_is_removed(here, disk):
    here.plan(KEY, T0, everything, attempt=7)
    here.commit(KEY, here.plan(KEY, T0, even, attempt=8))
    assert left_over(disk) == []
    assert here.values(*T0) == kept(disk)


# --- what is refused before anything has changed -----------------------------------------------------


def test_a_log_that_was_retained_since_is_refused(here, disk):
    plan = here.plan(KEY, T0, even)
    with open_logs(ROOT, file_system=disk, clock=disk.clock) as logs:
        logs.delete_records("t", 0, 6)
        logs.retain()
    files = unchanged(disk)
    with pytest.raises(StorageError, match="have changed since the rewrite was planned"):
        here.commit(KEY, plan)
    assert unchanged(disk) == files
    assert not read_journal(disk, ROOT).is_there


def test_a_log_that_was_compacted_since_is_refused(here, disk):
    plan = here.plan(KEY, T0, even)
    with open_logs(ROOT, file_system=disk, clock=disk.clock) as logs:
        logs.clean("t")
    files = unchanged(disk)
    with pytest.raises(StorageError, match="changed since the rewrite was planned"):
        here.commit(KEY, plan)
    assert unchanged(disk) == files


def test_a_segment_of_the_same_size_with_other_bytes_is_refused(here, disk):
    plan = here.plan(KEY, T0, even)
    group = plan.groups[0]
    old = OldSegment(group.old[0].base_offset, FileContent(group.old[0].log.size_bytes, 1))
    wrong = replace(group, old=(old, *group.old[1:]))
    with pytest.raises(StorageError, match="changed since"):
        here.commit(KEY, replace(plan, groups=(wrong, *plan.groups[1:])))
    assert here.values(*T0) == ALL


def test_the_active_segment_is_never_replaced(here, disk):
    bases = live_bases(disk, f"{ROOT}/t-0")
    group = stage_group(disk, ROOT, KEY, T0, bases[-1:], COUNT, everything)
    with pytest.raises(StorageError, match="changed since"):
        here.commit(KEY, PartitionGroups(TopicPartition(*T0), (group,)))


def test_a_log_that_was_appended_to_and_rolled_since_is_not_refused(here, disk):
    plan = here.plan(KEY, T0, even)
    with open_logs(ROOT, file_system=disk, clock=disk.clock) as logs:
        logs.append("t", ["later"], partition=0)
        logs.partition("t", 0).roll()
    assert here.commit(KEY, plan).is_complete
    assert here.values(*T0)[-1] == "later"


@pytest.mark.parametrize("kind", [FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX])
def test_a_damaged_staged_file_is_refused(here, disk, kind):
    plan = here.plan(KEY, T0, even)
    path = f"{ROOT}/{plan.groups[1].new[0].file_name(kind)}"
    data = bytearray(disk.read_bytes(path))
    data[-1] ^= 1
    disk.open_writable(path).write_at(0, data)
    files = unchanged(disk)
    with pytest.raises(CorruptionError) as caught:
        here.commit(KEY, plan)
    assert caught.value.reason == "piece_damaged"
    assert unchanged(disk) == files


def test_a_missing_staged_file_is_refused(here, disk):
    plan = here.plan(KEY, T0, even)
    disk.unlink(f"{ROOT}/{plan.groups[0].new[0].name}")
    with pytest.raises(CorruptionError) as caught:
        here.commit(KEY, plan)
    assert caught.value.reason == "piece_missing"
    assert here.values(*T0) == ALL


def test_staged_batches_of_other_offsets_are_refused(here, disk):
    """A task that read the wrong segments: sound batches, which do not belong there."""
    bases = live_bases(disk, f"{ROOT}/t-0")
    plan = here.plan(KEY, T0, even)
    beyond = stage_group(disk, ROOT, KEY, T0, bases[0:4], bases[4], everything, task=99)
    wrong = replace(plan.groups[0], new=beyond.new, records=beyond.records)
    with pytest.raises(CorruptionError) as caught:
        here.commit(KEY, replace(plan, groups=(wrong, *plan.groups[1:])))
    assert caught.value.reason == "offset_range"
    assert here.values(*T0) == ALL


def test_staged_segments_that_lack_records_are_refused(here):
    plan = here.plan(KEY, T0, even)
    wrong = replace(plan.groups[0], records=99)
    with pytest.raises(CorruptionError) as caught:
        here.commit(KEY, replace(plan, groups=(wrong, *plan.groups[1:])))
    assert caught.value.reason == "record_count"


def test_segments_staged_for_another_commit_are_refused(here):
    plan = here.plan(KEY, T0, even)
    with pytest.raises(UsageError, match="was not staged for the commit rewrite 1"):
        here.commit(CommitKey("rewrite", 1), plan)


def test_a_partition_that_is_there_twice_is_refused(here):
    plans = [here.plan(KEY, T0, even), here.plan(KEY, T0, even, first_task=50)]
    with pytest.raises(UsageError, match="twice"):
        here.commit(KEY, *plans)


def test_a_partition_that_does_not_exist_is_refused(here):
    plan = replace(here.plan(KEY, T0, even), topic_partition=TopicPartition("nope", 0))
    with pytest.raises(UnknownPartitionError):
        here.commit(KEY, plan)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda group: replace(group, old=()), "does not begin"),
        (lambda group: replace(group, end=group.start), "not in order"),
        (lambda group: replace(group, new=group.new[::-1] * 2), "not in order"),
    ],
)
def test_a_group_that_cannot_be_is_no_value(here, change, match):
    group = here.plan(KEY, T0, even).groups[0]
    with pytest.raises(ValueError, match=match):
        change(group)


def test_groups_that_overlap_are_no_value(here):
    groups = here.plan(KEY, T0, even).groups
    with pytest.raises(ValueError, match="overlap"):
        PartitionGroups(TopicPartition(*T0), groups[::-1])


def test_what_was_staged_for_nothing_can_be_discarded(here, disk):
    here.plan(KEY, T0, even)
    other = here.plan(CommitKey("rewrite", 1), T0, even)
    discard_staged(ROOT, KEY, file_system=disk)
    assert len(left_over(disk)) == 3 * len(other.groups)


def test_what_is_decided_cannot_be_discarded(here, disk):
    decide(disk, here.plan(KEY, T0, even))
    staged = left_over(disk)
    discard_staged(ROOT, KEY, file_system=disk)
    assert left_over(disk) == staged


# --- after the decision ------------------------------------------------------------------------------


def decide(disk: MemoryFileSystem, *plans: PartitionGroups) -> None:
    """Write the intent, and die."""
    journal = CommitJournal(disk, ROOT)
    journal.read()
    journal.append(Intent(journal.state.last_number + 1, KEY, 0, (), replaced=plans))


def settle(disk: MemoryFileSystem) -> Done:
    """Open and close the directory, as the next writer does."""
    with open_logs(ROOT, file_system=disk, clock=disk.clock):
        pass
    state = read_journal(disk, ROOT)
    assert not state.open
    return state.done[state.last_number]


def test_what_was_decided_is_done_by_the_next_open(here, disk):
    end = live_bases(disk, f"{ROOT}/t-0")[-1]
    plans = [here.plan(KEY, ("t", n), even, first_task=10 * n, cleaned_to=end) for n in (0, 1)]
    decide(disk, *plans)
    done = settle(disk)
    assert [(each.planned, each.done) for each in done.replaced] == [
        (len(plans[0].groups),) * 2
    ] * 2
    assert here.values(*T0) == here.values("t", 1) == kept(disk)
    assert left_over(disk) == []
    assert f"t 0 {end}\n".encode() in disk.read_bytes(f"{ROOT}/cleaner-offset-checkpoint")
    again = here.commit(KEY, *plans)
    assert (again.was_done_before, again.replaced) == (True, done.replaced)


def test_a_retry_finishes_its_own_commit(here, disk):
    plan = here.plan(KEY, T0, even)
    decide(disk, plan)
    result = here.commit(KEY, plan)
    assert (result.was_done_before, result.replayed) == (True, True)
    assert result.reports == ("the commit rewrite 0 was interrupted, and is completed now",)
    assert here.values(*T0) == kept(disk)


def test_records_appended_before_the_replay_stay(here, disk):
    decide(disk, here.plan(KEY, T0, even))
    append_beside(disk, "later")
    settle(disk)
    assert here.values(*T0) == [*kept(disk), "later"]


def test_a_group_that_others_compacted_is_left_with_those_after_it(here, disk):
    plan = here.plan(KEY, T0, even, cleaned_to=8)
    decide(disk, plan)
    second = plan.groups[1]
    swap_beside(disk, [each.base_offset for each in second.old], second.end, nothing)
    done = settle(disk)
    assert done.replaced == (ReplacedPartition(TopicPartition(*T0), len(plan.groups), 1),)
    expected = [
        value
        for number, value in enumerate(ALL)
        if not second.start <= number < second.end
        and (number % 2 == 0 or number >= plan.groups[0].end)
    ]
    assert here.values(*T0) == expected
    assert f"{ROOT}/cleaner-offset-checkpoint" not in disk.paths() or (
        b"t 0 " not in disk.read_bytes(f"{ROOT}/cleaner-offset-checkpoint")
    )
    assert left_over(disk) == []


def test_a_dropped_group_is_reported(here, disk):
    plan = here.plan(KEY, T0, even)
    decide(disk, plan)
    first = plan.groups[0]
    swap_beside(disk, [each.base_offset for each in first.old], first.end, nothing)
    result = here.commit(KEY, plan)
    assert not result.is_complete
    assert "others have changed the segments from offset 0 on" in result.reports[-1]


def test_groups_that_retention_deleted_do_not_keep_the_others_from_being_replaced(here, disk):
    plan = here.plan(KEY, T0, even)
    decide(disk, plan)
    # As Kafka does, which knows nothing of the journal.
    first = plan.groups[0]
    for old in first.old:
        for kind in FileKind:
            disk.unlink(f"{ROOT}/t-0/{old.base_offset:020d}{kind.value}")
    done = settle(disk)
    assert done.replaced == (
        ReplacedPartition(TopicPartition(*T0), len(plan.groups), len(plan.groups)),
    )
    assert here.values(*T0) == [value for value in kept(disk) if int(value[1:]) >= first.end]


def test_a_piece_that_is_gone_is_reported_and_the_old_segments_stay(here, disk):
    plan = here.plan(KEY, T0, even)
    decide(disk, plan)
    disk.unlink(f"{ROOT}/{plan.groups[0].new[0].name}")
    result = here.commit(KEY, plan)
    assert result.replaced == (ReplacedPartition(TopicPartition(*T0), len(plan.groups), 0),)
    assert any("a file of a staged segment is gone" in each for each in result.reports)
    assert here.values(*T0) == ALL


def test_a_topic_that_was_deleted_meanwhile_is_reported(here, disk):
    plans = [here.plan(KEY, ("t", n), even, first_task=10 * n) for n in (0, 1)]
    decide(disk, *plans)
    for path in list(disk.paths()):
        if path.startswith(f"{ROOT}/t-1/"):
            disk.unlink(path)
    disk.remove_dir(f"{ROOT}/t-1")
    result = here.commit(KEY, *plans)
    assert [each.done for each in result.replaced or ()] == [len(plans[0].groups), 0]
    assert here.values(*T0) == kept(disk)


def test_a_swap_that_fails_says_that_the_commit_will_happen(disk):
    faulty = FaultyFileSystem(disk)
    here = Replacing(faulty, ROOT, disk.clock)
    plan = here.plan(KEY, T0, even)
    faulty.arm(1, fault=Fault.ENOSPC, calls=(Call.LINK,))
    with pytest.raises(StorageError) as caught:
        here.commit(KEY, plan)
    assert any("the commit is decided" in note for note in caught.value.__notes__)
    faulty.heal()
    assert here.commit(KEY, plan).was_done_before
    assert here.values(*T0) == kept(disk)
    assert left_over(disk) == []


def test_retention_between_the_decision_and_the_swap_is_no_error(disk):
    meddling = Meddling(disk)
    here = Replacing(meddling, ROOT, disk.clock)
    with open_logs(ROOT, file_system=meddling, clock=disk.clock) as logs:
        plan = here.plan(KEY, T0, even)

        def retain() -> None:
            log = logs.partition("t", 0)
            log.advance_start(plan.groups[0].end)
            log.retain()

        meddling.at = (Call.SYNC, "journal")
        meddling.meddle = retain
        result = logs.replace_segments(KEY, [plan])
    assert result.replaced == (ReplacedPartition(TopicPartition(*T0), len(plan.groups), 0),)
    assert left_over(disk) == []


def test_a_cleaner_in_the_same_process_waits(here, disk):
    """Two rewrites of one log at once would find each other's files."""
    with open_logs(ROOT, file_system=disk, clock=disk.clock) as logs:
        plan = here.plan(KEY, T0, even)
        real, cleaned = GroupSwaps.carry_out, []
        thread = threading.Thread(target=lambda: cleaned.append(logs.clean("t", 0)))

        def carry_out(swaps: GroupSwaps, *given: object) -> object:
            thread.start()
            return real(swaps, *given)  # type: ignore[arg-type]

        with mock.patch.object(GroupSwaps, "carry_out", carry_out):
            assert logs.replace_segments(KEY, [plan]).is_complete
        thread.join()
        assert cleaned
    assert here.values(*T0)[-1] == ALL[-1]
    assert left_over(disk) == []


def test_a_topic_with_an_open_replacement_cannot_be_deleted(here, disk):
    faulty = FaultyFileSystem(disk)
    with open_logs(ROOT, file_system=faulty, clock=disk.clock) as logs:
        plan = here.plan(KEY, T0, even)
        faulty.arm(1, fault=Fault.ENOSPC, calls=(Call.LINK,))
        with pytest.raises(StorageError):
            logs.replace_segments(KEY, [plan])
        faulty.heal()
        with pytest.raises(UsageError, match="commit"):
            logs.delete_topic("t")


# --- what others do beside us -------------------------------------------------------------------------


def append_beside(disk: MemoryFileSystem, value: str) -> None:
    """A record of one who knows nothing of our journal."""
    from tests.crash.commit_world import World

    World(disk, Notes(), disk.clock, CONFIGS).append_beside(T0, value)


class Notes(list):  # type: ignore[type-arg]
    def note(self, fact: object) -> None:
        self.append(fact)


def swap_beside(disk: MemoryFileSystem, bases: list[int], end: int, keep: object) -> None:
    """A compaction of some segments by one who knows nothing of our journal."""
    from stratalog.storage.log_config import LogConfig
    from stratalog.storage.partition_log import PartitionLog
    from tests.storage.replace.rewrites import rewrite

    log = PartitionLog.open(
        f"{ROOT}/t-0", LogConfig.of(CONFIGS), file_system=disk, clock=disk.clock
    )
    old = [each for each in log.segments if each.base_offset in bases]
    assert log.replace_segments(old, rewrite(log, old, keep))  # type: ignore[arg-type]
    log.close()
    log.remove_due(all_of_them=True)
