"""The tests are tested: each of these bugs is planted in turn, and the harness that claims it must find it.

The numbers are those of the project's list of bugs that logs are known to have had; those that are missing
here belong to parts that are not there yet. What concerns a manager (10, 11, 22, 24, 25) is planted in the
keeper of these tests.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple
from unittest import mock

import pytest

from stratalog.errors import CorruptionError, LockedError, StorageError
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.model import Record
from stratalog.storage.epochs import epoch_file
from stratalog.storage.files.filesystem import FileLock, FileSystem, OsWritableFile
from stratalog.storage.log.group_sync import GroupCommit
from stratalog.storage.log.guard import LogGuard
from stratalog.storage.log.removal import Removals
from stratalog.storage.log.retention import RetentionPlan, plan_retention
from stratalog.storage.log_roles import maintenance
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.producers import entry as producer_entry
from stratalog.storage.producers.open_transactions import Transactions
from stratalog.storage.producers.snapshot_files import SnapshotFiles
from stratalog.storage.recovery import load as loading
from stratalog.storage.recovery import recover_segment as segment_recovery
from stratalog.storage.segment import sealed as sealed_segment
from stratalog.storage.segment import segment
from stratalog.storage.segment.active import ActiveSegment
from stratalog.storage.segment.sealed import SealedSegment
from stratalog.storage.segment.tail_verdict import Verdict
from stratalog.testing import Explorer, Facts, FaultyFileSystem, crash_state
from tests.crash import keeper as keeper_module
from tests.crash import test_bit_flips
from tests.crash.driver import CONFIG, Driver, new_disk
from tests.crash.keeper import Keeper
from tests.crash.promises import Promise
from tests.crash.scenarios import SCENARIOS
from tests.crash.test_failures import TROUBLES, sweep
from tests.crash.test_sync_order import check_sync_order

Harness = Callable[[], None]
Planting = Callable[[ExitStack], None]


# The harnesses, each small enough to be run for every bug that it claims.


def crashes(name: str, *, depth: int = 1) -> Harness:
    """The power is cut at every step of a scenario."""

    def run() -> None:
        scenario = SCENARIOS[name]
        Explorer(
            scenario.runs(planted_keeper()),
            scenario.check(planted_keeper()),
            seed=3,
            states_per_point=5,
            depth=depth,
            nested_points=2,
            nested_states=1,
            start=new_disk,
        ).run()

    return run


def failures(name: str, trouble: str) -> Harness:
    """The n-th call of a scenario fails."""
    return lambda: assert_positive(sweep(SCENARIOS[name], TROUBLES[trouble]))


def assert_positive(count: int) -> None:
    assert count > 0


def short_writes() -> None:
    """The system takes only part of a write at a time; everything is there nevertheless."""
    real = os.pwrite

    def stingy(fd: int, data: Any, position: int) -> int:
        return real(fd, bytes(data)[: max(1, len(data) // 2)], position)

    with tempfile.TemporaryDirectory() as folder, mock.patch("os.pwrite", stingy):
        log = PartitionLog.open(folder, CONFIG)
        log.append(build_batch([Record(b"whole", timestamp=0)]), sync=True)
        log.abandon()
        log = PartitionLog.open(folder, CONFIG)
        log.abandon()
        assert log.log_end == 1, "the record is lost"


def spoilt_indexes() -> None:
    for damage in ("astray", "zeros", "ones", "longer"):
        test_bit_flips.test_a_spoilt_index_is_made_anew(".index", damage)


def flipped_bits() -> None:
    """A bit of a batch that others follow is flipped: the log does not open."""
    sound = test_bit_flips.original()
    path = max(sound.logs)
    disk = sound.disk.fork()
    disk.open_writable(path).write_at(70, bytes([sound.logs[path][70] ^ 4]))
    assert test_bit_flips.outcome(disk, "recovered") == "refused"


def remembered_batches() -> None:
    """The last five batches of a producer are known when they come again, and the sixth last is not."""
    disk = new_disk()
    log = PartitionLog.open("/data/t-0", CONFIG, file_system=disk, clock=disk.clock)

    def batch(sequence: int) -> bytes:
        options = BatchOptions(producer_id=1, producer_epoch=0, base_sequence=sequence)
        return build_batch([Record(b"v", timestamp=disk.clock.now_ms())], options)

    for sequence in range(8):
        log.append(batch(sequence))
    for sequence in range(3, 8):
        try:
            answer = log.append(batch(sequence))
        except Exception as error:
            raise AssertionError(f"batch {sequence} is not known any more") from error
        assert answer.is_duplicate
        assert answer.first_offset == sequence


def failed_recoveries() -> None:
    """A recovery fails at its n-th call, is tried again, and gives what it would have given."""
    scenario = SCENARIOS["unsynced_appends"]
    for number in range(1, 1000):
        disk, facts = new_disk(), Facts[Promise]()
        scenario.runs()(disk, facts)
        # The last batch, which nobody was promised, has its header and not all of its records.
        disk = crash_state(disk, "all-kept")
        torn = max(path for path in disk.paths() if path.endswith(".log"))
        disk.open_writable(torn).write_at(len(disk.read_bytes(torn)) - 4, bytes(4))
        file_system = FaultyFileSystem(disk, fail_at=number)
        with suppress(StorageError):
            planted_keeper()(file_system, disk.clock, CONFIG).abandon()
        if not file_system.failed:
            return
        scenario.check(planted_keeper())(disk, facts.fork())


def two_writers() -> None:
    disk = new_disk()
    driver = Driver(disk, _Nobody(), keeper=planted_keeper())
    driver.append(1)
    try:
        other = Driver(disk, _Nobody(), keeper=planted_keeper())
    except LockedError:
        return
    other.append(1)
    raise AssertionError("two writers at once")


class _Nobody:
    def note(self, fact: object) -> None:
        pass


# The bugs.

_planted_keeper: type[Keeper] = Keeper


def planted_keeper() -> type[Keeper]:
    return _planted_keeper


class Bug(NamedTuple):
    number: int
    name: str
    plant: Planting
    harness: Harness

    @contextmanager
    def planted(self) -> Iterator[None]:
        with ExitStack() as stack:
            self.plant(stack)
            yield


def patched(target: Any, name: str, value: Any) -> Planting:
    return lambda stack: stack.enter_context(mock.patch.object(target, name, value))


def kept_by(keeper: type[Keeper]) -> Planting:
    def plant(stack: ExitStack) -> None:
        stack.enter_context(mock.patch(f"{__name__}._planted_keeper", keeper))

    return plant


def both(*plants: Planting) -> Planting:
    def plant(stack: ExitStack) -> None:
        for each in plants:
            each(stack)

    return plant


def nothing(*_: Any, **__: Any) -> None:
    pass


def retried(self: LogGuard, call: Callable[[], object]) -> None:
    try:
        call()
    except StorageError:
        call()


def forgets_new(create: Any) -> Any:
    def made(*args: Any, **names: Any) -> ActiveSegment:
        fresh: ActiveSegment = create(*args, **names)
        fresh.is_new = False
        return fresh

    return made


def written_late(self: ActiveSegment, *args: Any) -> None:
    """The bytes stay in the process until the next append: an answer comes before they are written."""
    late = self.__dict__.setdefault("late", [])
    if late:
        self._log.write_at(*late.pop())
    real_write = self._log
    self._log = mock.Mock(
        wraps=real_write, write_at=lambda at, each: late.append((at, bytes(each)))
    )
    try:
        _real_append(self, *args)
    finally:
        self._log = real_write


_real_append = ActiveSegment.append


def short(self: OsWritableFile, position: int, data: Any) -> None:
    os.pwrite(self.fileno(), data, position)


def flushed_in_name(self: PartitionLog) -> int:
    self._state.recovery_point = self.log_end
    return self.recovery_point


def read_anyway(real: Any) -> Any:
    def read(self: SnapshotFiles, offset: int) -> Any:
        try:
            return real(self, offset)
        except CorruptionError:
            return []

    return read


def one_further(real: Any) -> Any:
    def first_unstable_offset(self: Transactions, high_watermark: int) -> int | None:
        found: int | None = real(self, high_watermark)
        return None if found is None else found + 1

    return first_unstable_offset


def with_the_active(*args: Any, **names: Any) -> RetentionPlan:
    plan = plan_retention(*args, **names)
    return (
        plan if not plan.deletions else RetentionPlan(plan.deletions, args[0][-1].next_offset, True)
    )


def without_sync_dir(file_system: FileSystem, path: str, temporary: str, data: bytes) -> None:
    file_system.unlink(temporary)
    file = file_system.open_writable(temporary, create=True)
    file.write_at(0, data)
    file.sync()
    file.close()
    file_system.rename(temporary, path)


_real_remove = Removals.remove


def removed_in_name(self: Removals, *args: Any) -> None:
    with mock.patch.object(self._guard, "synced", nothing):
        _real_remove(self, *args)


def in_place(file_system: FileSystem, path: str, temporary: str, data: bytes) -> None:
    file = file_system.open_writable(path, create=file_system.stat(path) is None)
    file.truncate(0)
    file.write_at(0, data)
    file.sync()
    file.close()
    file_system.sync_dir(path.rpartition("/")[0])


class Uncompared(Keeper):
    """A log that goes on beyond its last orderly stop is recovered, which would hide a wrong marker."""

    def clean_end(self) -> int | None:
        return None


class MarkerStays(Uncompared):
    def take_marker(self) -> bool:
        return self.file_system.stat(f"{self.root}/.kafka_cleanshutdown") is not None


class MarkerAfterFailure(Uncompared):
    def on_failed_open(self) -> None:
        with suppress(StorageError):
            self.write_marker()


class WithoutHighWatermark(Keeper):
    def read(self, name: str) -> int:
        return 0 if name.startswith("replication") else super().read(name)


class WithoutLock(Keeper):
    def take_lock(self) -> FileLock:
        return mock.Mock()


_real_create = ActiveSegment.create

BUGS = [
    Bug(1, "no sync before the answer",
        patched(ActiveSegment, "sync_log", nothing), crashes("synced_appends")),
    Bug(2, "no sync of the folder after a segment is made",
        patched(ActiveSegment, "create", forgets_new(_real_create)), crashes("synced_appends")),
    Bug(3, "a failed sync is tried again",
        patched(LogGuard, "synced", retried), failures("synced_appends", "EIO")),
    Bug(4, "the answer comes before the write",
        patched(ActiveSegment, "append", written_late), crashes("synced_appends")),
    Bug(4, "the answer does not wait for the sync",
        patched(GroupCommit, "reach", GroupCommit.raise_to), crashes("synced_appends")),
    Bug(5, "a short write is taken for a whole one",
        patched(OsWritableFile, "write_at", short), short_writes),
    Bug(6, "indexes are synced before the log",
        both(patched(ActiveSegment, "sync_log", ActiveSegment.sync_indexes),
             patched(ActiveSegment, "sync_indexes", ActiveSegment.sync_log)),
        lambda: check_sync_order("synced_appends")),
    Bug(7, "an index entry behind the end is believed",
        both(patched(sealed_segment, "index_is_sane", lambda *_: True),
             patched(sealed_segment, "check_last_entry", nothing),
             patched(sealed_segment, "learn_times", nothing),
             patched(segment, "_before", lambda _, position: position)),
        spoilt_indexes),
    Bug(8, "a damaged batch in the middle is cut away",
        patched(segment_recovery, "judge_tail", lambda *_: Verdict(True, "it is only the tail")),
        flipped_bits),
    Bug(9, "the recovery point moves before the sync",
        patched(PartitionLog, "flush", flushed_in_name), crashes("unsynced_appends")),
    Bug(10, "the marker of an orderly stop stays", kept_by(MarkerStays), crashes("orderly_stops")),
    Bug(11, "the marker is written though recovery failed",
        # A clean shutdown's last batch is checked, which would hide this one.
        both(kept_by(MarkerAfterFailure),
             patched(loading, "check_last_batch", SealedSegment.last_batch)),
        failed_recoveries),
    Bug(12, "snapshots of producers are not synced, and believed",
        both(patched(SnapshotFiles, "sync", nothing),
             patched(SnapshotFiles, "_read", read_anyway(SnapshotFiles._read))),
        crashes("producers", depth=2)),
    Bug(12, "snapshots of producers are not synced",
        patched(SnapshotFiles, "sync", nothing), lambda: check_sync_order("producers")),
    Bug(13, "a batch less is remembered of a producer",
        patched(producer_entry, "_KEPT_BEFORE", producer_entry._KEPT_BEFORE + 1),
        remembered_batches),
    Bug(14, "the last stable offset is one too far",
        patched(Transactions, "first_unstable_offset",
                one_further(Transactions.first_unstable_offset)),
        crashes("transactions")),
    Bug(20, "retention takes the active segment",
        patched(maintenance, "plan_retention", with_the_active), crashes("retention")),
    Bug(22, "the high watermark goes back with a restart",
        kept_by(WithoutHighWatermark), crashes("high_watermarks")),
    Bug(23, "a rename without a sync of its folder",
        both(patched(keeper_module, "replace_file", without_sync_dir),
             patched(epoch_file, "replace_file", without_sync_dir)),
        crashes("retention")),
    Bug(23, "a deletion without a sync of its folder",
        patched(Removals, "remove", removed_in_name), crashes("truncation")),
    Bug(24, "a checkpoint is written in place",
        patched(keeper_module, "replace_file", in_place), crashes("advanced_starts")),
    Bug(25, "the lock is ignored", kept_by(WithoutLock), two_writers),
]  # fmt: skip


@pytest.mark.parametrize("bug", BUGS, ids=[f"{bug.number}: {bug.name}" for bug in BUGS])
def test_a_planted_bug_is_found(bug: Bug, record_property: Callable[[str, object], None]) -> None:
    with bug.planted(), pytest.raises(AssertionError):
        bug.harness()
    record_property("counted: planted bugs found", 1)


def test_every_bug_of_the_list_is_planted() -> None:
    assert {bug.number for bug in BUGS} == {*range(1, 15), 20, 22, 23, 24, 25}


@pytest.mark.parametrize(
    "harness",
    [
        short_writes,
        spoilt_indexes,
        flipped_bits,
        remembered_batches,
        failed_recoveries,
        two_writers,
    ],
)
def test_nothing_is_found_where_no_bug_is_planted(harness: Harness) -> None:
    """The other harnesses are the tests beside this one, and pass there."""
    harness()
