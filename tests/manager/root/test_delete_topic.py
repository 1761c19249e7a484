"""Deleting a topic: it is there whole or gone, whatever happens, and nothing else is touched."""

from __future__ import annotations

import errno
import json
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

import stratalog
from stratalog.errors import (
    LogFailedError,
    StorageError,
    StratalogError,
    UnknownPartitionError,
    UsageError,
)
from stratalog.manager.logs import Logs
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.names import deleted_dir_name, is_deleted_dir, parse_partition_dir
from stratalog.testing import (
    Call,
    Facts,
    Fault,
    FaultyFileSystem,
    ManualClock,
    MemoryFileSystem,
    explore,
)
from stratalog.types import TopicPartition
from tests.manager.logdirs import ROOT, memory, open_memory, values
from tests.manager.meddling import Meddling
from tests.manager.staging import stage
from tests.scale import SCALE, fresh, sized
from tests.storage.logs import batch

FILE = "stratalog-topics.json"
TWO = ("/a", "/b")
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)


def filled(logs: Logs, *topics: str, partitions: int = 2) -> None:
    for topic in topics:
        logs.create(topic, partitions, file_delete_delay_ms=1000)
        for number in range(partitions):
            logs.append(topic, [f"{topic}.{number}.{n}" for n in range(3)], partition=number)


def holds(logs: Logs, topic: str, partitions: int = 2) -> bool:
    """Whether a topic is there whole; an error if it is there in part."""
    if topic not in logs.topics():
        return False
    assert logs.topic(topic).partitions == tuple(range(partitions))
    assert values(logs, topic) == [
        f"{topic}.{number}.{n}".encode() for number in range(partitions) for n in range(3)
    ]
    return True


def advance(disk: MemoryFileSystem, by_ms: int) -> None:
    assert isinstance(disk.clock, ManualClock)
    disk.clock.advance(by_ms)


def names(disk: MemoryFileSystem, *roots: str) -> set[str]:
    return {entry.name for root in roots or (ROOT,) for entry in disk.list_dir(root)}


def set_aside(disk: MemoryFileSystem, *roots: str) -> set[str]:
    return {name for name in names(disk, *roots) if is_deleted_dir(name)}


# --- the plain case ----------------------------------------------------------------------------------


def test_a_deleted_topic_is_gone_and_others_stay():
    disk = memory()
    with open_memory(disk) as logs:
        filled(logs, "t", "t-1", "u")
        logs.delete_records("t", 0, 1)
        logs.flush()
        logs.delete_topic("t")
        assert sorted(logs.topics()) == ["t-1", "u"]
        assert holds(logs, "t-1")
        assert holds(logs, "u")
        with pytest.raises(UnknownPartitionError, match="no topic 't'"):
            logs.append("t", ["x"])
        for name in CHECKPOINTS:
            text = disk.read_bytes(f"{ROOT}/{name}").decode()
            assert not re.search(r"^t \d+ ", text, re.MULTILINE), text
        entries = json.loads(disk.read_bytes(f"{ROOT}/{FILE}"))
        assert [each["name"] for each in entries["topics"]] == ["t-1", "u"]
    with open_memory(disk) as logs:
        assert sorted(logs.topics()) == ["t-1", "u"]
        assert holds(logs, "t-1")
        assert holds(logs, "u")


def test_folders_get_kafkas_name_at_once_and_go_after_the_delay():
    disk = memory()
    with open_memory(disk) as logs:
        filled(logs, "t", "u")
        logs.delete_topic("t")
        found = sorted(set_aside(disk))
        assert [re.sub("[0-9a-f]{32}", "*", name) for name in found] == [
            "t-0.*-delete",
            "t-1.*-delete",
        ]
        assert json.loads(disk.read_bytes(f"{ROOT}/{FILE}"))["deleted"] == found
        advance(disk, 999)
        logs.run_due_jobs()
        assert set_aside(disk) == set(found)
        advance(disk, 1)
        assert logs.run_due_jobs() == ["delete-files"]
        assert set_aside(disk) == set()
        assert "deleted" not in json.loads(disk.read_bytes(f"{ROOT}/{FILE}"))
        assert holds(logs, "u")


def test_folders_go_when_the_logs_are_closed():
    disk = memory()
    with open_memory(disk) as logs:
        filled(logs, "t", "u")
        logs.delete_topic("t")
    assert set_aside(disk) == set()
    assert ".kafka_cleanshutdown" in names(disk)


def test_folders_go_when_the_directory_is_next_opened():
    disk = memory()
    logs = open_memory(disk)
    filled(logs, "t", "u")
    logs.delete_topic("t")
    logs._partitions.abandon()
    for directory in logs._directories:
        directory.release()
    assert len(set_aside(disk)) == 2
    with open_memory(disk) as logs:
        assert set_aside(disk) == set()
        assert holds(logs, "u")


def test_a_name_that_is_cut_for_the_length_of_a_folder_name_is_kafkas():
    topic = "t" * 249
    name = deleted_dir_name(TopicPartition(topic, 12), "0123456789abcdef" * 2)
    assert len(name) == 255
    assert parse_partition_dir(name) == TopicPartition("t" * 212, 12)
    disk = memory()
    with open_memory(disk) as logs:
        filled(logs, topic)
        logs.delete_topic(topic)
        assert len(set_aside(disk)) == 2
        assert logs.topics() == {}
    assert set_aside(disk) == set()


def test_a_topic_that_is_created_again_starts_at_zero_with_another_id():
    disk = memory()
    with open_memory(disk) as logs:
        for _ in range(3):
            filled(logs, "t")
            logs.flush()
            before = logs.topic_id("t")
            logs.delete_topic("t")
            filled(logs, "t")
            assert logs.topic_id("t") != before
            assert logs.latest("t", 0) == 3
            assert holds(logs, "t")
            logs.delete_topic("t")
        filled(logs, "t")
        advance(disk, 1000)
        logs.run_due_jobs()
        assert holds(logs, "t")
    with open_memory(disk) as logs:
        assert holds(logs, "t")
    assert set_aside(disk) == set()


def test_unknown_files_and_kafkas_own_deleted_folders_stay():
    disk = memory()
    kafkas = deleted_dir_name(TopicPartition("t", 0), "f" * 32)
    with open_memory(disk) as logs:
        filled(logs, "t")
    disk.make_dir(f"{ROOT}/{kafkas}")
    for path in ("t-0/notes.txt", "t-0/00000000000000000000.log.7.cut", f"{kafkas}/a.log", "t-x"):
        disk.open_writable(f"{ROOT}/{path}", create=True).close()
    disk.make_dir(f"{ROOT}/t-1/inner")
    with open_memory(disk) as logs:
        logs.delete_topic("t")
    left = sorted(path for path in disk.paths() if "-delete/" in path)
    assert f"{ROOT}/{kafkas}/a.log" in left
    (other,) = set(left) - {f"{ROOT}/{kafkas}/a.log"}
    assert other.endswith("-delete/notes.txt")
    assert f"{ROOT}/t-x" in disk.paths()
    assert any(name.startswith("t-1.") for name in set_aside(disk))  # a folder is in it
    with open_memory(disk) as logs:
        assert logs.topics() == {}
        filled(logs, "t")
        assert holds(logs, "t")


def test_a_topic_in_two_directories_goes_from_both():
    disk = memory(*TWO)
    with open_memory(disk, *TWO) as logs:
        filled(logs, "t", "u", partitions=4)
        logs.delete_topic("t")
        assert len(set_aside(disk, "/a")) == len(set_aside(disk, "/b")) == 2
        assert sorted(logs.topics()) == ["u"]
        assert holds(logs, "u", 4)
    for root in TWO:
        with open_memory(disk, root, read_only=True) as logs:
            assert sorted(logs.topics()) == ["u"]
    assert set_aside(disk, *TWO) == set()


def test_a_topic_of_kafkas_that_is_not_in_our_file_can_be_deleted():
    disk = memory()
    with open_memory(disk) as logs:
        filled(logs, "t", "u")
    disk.unlink(f"{ROOT}/{FILE}")
    with open_memory(disk) as logs:
        logs.delete_topic("t")
        assert sorted(logs.topics()) == ["u"]
    with open_memory(disk) as logs:
        assert sorted(logs.topics()) == ["u"]
        assert holds(logs, "u")


# --- refusals ----------------------------------------------------------------------------------------


def test_what_cannot_be_deleted_is_refused_before_anything_changes():
    disk = memory()
    with open_memory(disk) as logs:
        filled(logs, "t")
        logs.create("__consumer_offsets")
        with pytest.raises(UnknownPartitionError, match="no topic 'nothing'"):
            logs.delete_topic("nothing")
        with pytest.raises(UsageError, match="internal topics"):
            logs.delete_topic("__consumer_offsets")
        with logs.transaction() as txn:
            txn.append("t", ["x"], partition=0)
            with pytest.raises(UsageError, match="takes part in a transaction that is open"):
                logs.delete_topic("t")
            txn.abort()
        assert "being_deleted" not in disk.read_bytes(f"{ROOT}/{FILE}").decode()
        assert logs.latest("t", 1) == 3
        logs.delete_topic("t")
    with open_memory(disk, read_only=True) as logs, pytest.raises(UsageError, match="read-only"):
        logs.delete_topic("t")
    with pytest.raises(UsageError, match="closed"):
        logs.delete_topic("t")


def test_a_topic_with_an_unfinished_commit_is_refused_until_it_is_finished():
    disk = memory()
    files = FaultyFileSystem(disk)
    with open_memory(files) as logs:
        filled(logs, "t", "u")
        key = CommitKey("query", 1)
        pieces = stage(disk, ROOT, key, {("t", 0): ["a"], ("u", 0): ["b"]}, clock=disk.clock)
        files.arm(2, fault=Fault.ENOSPC, calls=[Call.WRITE])
        with pytest.raises(StorageError):
            logs.commit(key, pieces)
        files.heal()
        for topic in ("t", "u"):
            with pytest.raises(UsageError, match="a commit that is not finished"):
                logs.delete_topic(topic)
        assert logs.commit(key, pieces).was_done_before
        logs.delete_topic("t")
        assert values(logs, "u", 0)[-1] == b"b"


def test_a_transaction_does_not_join_a_topic_that_was_deleted():
    disk = memory()
    with open_memory(disk) as logs:
        filled(logs, "t", "u")
        with logs.transaction() as txn:
            txn.append("u", ["x"], partition=0)
            logs.delete_topic("t")
            with pytest.raises(UnknownPartitionError):
                txn.append("t", ["x"], partition=0)
            txn.commit()
        assert values(logs, "u", 0)[-1] == b"x"


def test_the_logs_of_a_deleted_topic_are_released_before_others_get_the_lock():
    """A checkpoint in between found a log without a directory."""
    disk = memory()
    with open_memory(disk) as logs:
        filled(logs, "t", "u")
        is_free: list[bool] = []

        def try_lock() -> None:
            is_free.append(logs._lock.acquire(blocking=False))
            if is_free[-1]:
                logs._lock.release()

        def released() -> None:
            other = threading.Thread(target=try_lock)
            other.start()
            other.join()

        logs.partition("t", 0).subscribe(released)
        logs.delete_topic("t")
        assert is_free == [False]
        try_lock()
        assert is_free == [False, True]
        logs.checkpoint()
        assert holds(logs, "u")


# --- readers -----------------------------------------------------------------------------------------


def test_readers_of_a_deleted_topic_get_one_typed_error(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("t", 2, internal_segment_bytes=200)
        for n in range(20):
            logs.append("t", [f"{n}"], partition=n % 2)
        begun, waiting = logs.read("t", batch_rows=1).records(), logs.read("t")
        assert next(begun).value == b"0"
        log = logs.partition("t", 0)
        logs.delete_topic("t")
        with pytest.raises(UnknownPartitionError, match="deleted"):
            waiting.to_table()
        with suppress(UnknownPartitionError):
            assert [record.value for record in begun]
        assert log.is_closed
        with pytest.raises(UsageError, match="t-0 is closed"):
            log.append(batch(b"x"))


def test_a_tail_over_a_deleted_topic_ends(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("t", 3)
        tail = logs.tail("t")
        logs.append("t", ["a"], partition=1)
        assert next(tail).value == b"a"
        threading.Timer(0.05, logs.delete_topic, ("t",)).start()
        assert list(tail) == []


def test_a_tail_over_a_deleted_topic_does_not_go_on_in_a_new_one_of_the_same_name(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("t", 2)
        tail = logs.tail("t")
        logs.append("t", ["a"], partition=1)
        assert next(tail).value == b"a"
        logs.delete_topic("t")
        logs.create("t", 2)
        logs.append("t", ["b", "c"], partition=1)
        assert list(tail) == []


def test_readers_of_another_process_see_the_topic_whole_or_gone():
    """At every change of the disk, a process that only reads looks at what it has open, and opens anew."""
    disk = memory(*TWO)
    with open_memory(disk, *TWO) as logs:
        filled(logs, "t", "u", partitions=4)
    logs = open_memory(disk, *TWO)
    beside = open_memory(disk, *TWO, read_only=True)
    seen: list[bool] = []

    def look(_: object) -> None:
        for other in (beside, open_memory(disk, *TWO, read_only=True)):
            assert holds(other, "u", 4)
            seen.append(holds(other, "t", 4))

    disk.watcher = look
    logs.delete_topic("t")
    disk.watcher = None
    look(None)
    assert seen[0] is True
    assert seen[-2:] == [False, False]
    assert len(seen) > 20
    logs.close()


def test_a_forked_or_stale_reader_finds_configs_and_topics_that_changed():
    disk = memory()
    with open_memory(disk) as logs, open_memory(disk, read_only=True) as beside:
        filled(logs, "t")
        assert beside.topic("t").config.retention_ms != 5
        logs.alter_configs("t", {"retention.ms": 5})
        assert beside.topic("t").config.retention_ms == 5
        logs.delete_topic("t")
        filled(logs, "t")
        assert holds(beside, "t")
        assert beside.topic_id("t") == logs.topic_id("t")


# --- crashes and failures ----------------------------------------------------------------------------


def test_a_power_cut_at_any_step_leaves_the_topic_whole_or_gone(record_property):
    roots = TWO

    def scenario(disk: MemoryFileSystem, facts: Facts[str]) -> None:
        with open_memory(disk, *roots) as logs:
            filled(logs, "t", "u", partitions=3)
            logs.flush()
            facts.note("filled")
            logs.delete_topic("t")
            facts.note("deleted")
            advance(disk, 1000)
            logs.run_due_jobs()
            logs.create("t", 1)
            logs.append("t", ["new"])
            facts.note("new")
            logs.delete_topic("t")
            facts.note("deleted again")

    def check(disk: MemoryFileSystem, facts: Facts[str]) -> None:
        last = facts[-1] if facts else None
        for read_only in (True, False):
            try:
                logs = open_memory(disk, *roots, read_only=read_only)
            except StorageError:  # there is no directory yet
                assert read_only
                assert last is None
                continue
            with logs:
                if last is None:
                    return
                assert holds(logs, "u", 3)
                there = "t" in logs.topics()
                if last == "filled":
                    assert holds(logs, "t", 3) is there
                elif last == "deleted":
                    assert not there or logs.topic("t").partitions == (0,)
                elif last == "new":
                    assert not there or values(logs, "t") == [b"new"]
                else:
                    assert not there
                if not read_only:
                    assert set_aside(disk, *roots) == set()
                    if not there:
                        filled(logs, "t")
                        assert holds(logs, "t")
                        logs.delete_topic("t")
        with open_memory(disk, *roots) as logs:
            assert holds(logs, "u", 3)
        assert set_aside(disk, *roots) == set()

    done = explore(
        scenario, check, seed=fresh(0), states_per_point=sized(1, 2 * SCALE), depth=1,
        start=lambda: MemoryFileSystem(folders=roots),
    )  # fmt: skip
    record_property("counted: power cuts while a topic was deleted", done.crashes)
    assert done.points > 100


@pytest.mark.proof
def test_a_power_cut_in_the_recovery_from_a_power_cut_leaves_the_topic_whole_or_gone():
    def scenario(disk: MemoryFileSystem, facts: Facts[str]) -> None:
        logs = open_memory(disk, *TWO)
        filled(logs, "t", "u", partitions=2)
        logs.flush()
        facts.note("filled")
        logs.delete_topic("t")
        facts.note("deleted")

    def check(disk: MemoryFileSystem, facts: Facts[str]) -> None:
        if not facts:
            return
        with open_memory(disk, *TWO) as logs:
            assert holds(logs, "u")
            there = holds(logs, "t")
            assert not there or "deleted" not in facts
            facts.note("filled" if there else "deleted")

    done = explore(
        scenario, check, seed=fresh(0), states_per_point=SCALE, depth=2,
        start=lambda: MemoryFileSystem(folders=TWO),
    )  # fmt: skip
    assert done.crashes > 100


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_a_deletion_of_which_a_call_fails_is_finished_or_taken_back(fault):
    """Every call of a deletion fails once: the error says what became of the topic, and the next opening
    agrees with what this session showed."""
    number, kept, gone = 0, 0, 0
    while True:
        number += 1
        disk = memory(*TWO)
        faulty = FaultyFileSystem(disk)
        logs = open_memory(faulty, *TWO)
        filled(logs, "t", "u", partitions=3)
        faulty.arm(number, fault=fault)
        error: StorageError | None = None
        try:
            logs.delete_topic("t")
        except StorageError as found:
            error = found
        is_done = not faulty.failed
        faulty.heal()
        there = holds(logs, "t", 3)
        assert holds(logs, "u", 3)
        assert there is (error is not None and not getattr(error, "__notes__", []))
        kept, gone = kept + there, gone + (not there)
        if not there and error is not None and number % 3 == 0:
            filled(logs, "t", partitions=3)  # finishes the deletion first
            there = True
        with suppress(LogFailedError):
            logs.close()
        with open_memory(disk, *TWO) as logs:
            assert holds(logs, "u", 3)
            assert holds(logs, "t", 3) is there
        assert set_aside(disk, *TWO) == set()
        if is_done:
            break
    assert kept > 3
    assert gone > 3


class _DeletingClock(ManualClock):
    """A clock that calls ``meddle`` in another thread when it is read for the ``number``-th time."""

    number = -1
    meddle: Callable[[], object] = staticmethod(lambda: None)

    def now_ms(self) -> int:
        self.number -= 1
        if self.number == 0:
            other = threading.Thread(target=self.meddle)
            other.start()
            other.join()
        return super().now_ms()


@pytest.mark.parametrize("config", ["CreateTime", "LogAppendTime"])
def test_an_append_to_a_topic_that_is_deleted_meanwhile_names_the_topic(config: str):
    outcomes = []
    for number in range(1, 5):
        clock = _DeletingClock()
        with stratalog.open(ROOT, file_system=memory(), clock=clock) as logs:
            logs.create("t", 1, {"message.timestamp.type": config})
            logs.append("t", ["a"])
            clock.number, clock.meddle = number, partial(logs.delete_topic, "t")
            try:
                logs.append("t", ["b"])
            except UnknownPartitionError as error:
                outcomes.append(str(error))
    assert "topic 't' was deleted in the meantime" in outcomes


def test_a_disk_that_fails_for_good_after_the_first_mark_loses_nothing_that_was_acknowledged():
    """The mark cannot be taken back: then nothing may be appended to what the next opening deletes."""
    for number in range(1, 12):
        disk = memory(*TWO)
        faulty = FaultyFileSystem(disk)
        logs = open_memory(faulty, *TWO)
        filled(logs, "t", partitions=2)
        faulty.arm(number, fault=Fault.EIO, sticky=True, calls=[Call.RENAME, Call.SYNC_DIR])
        with suppress(StorageError):
            logs.delete_topic("t")
        faulty.heal()
        acknowledged = False
        with suppress(UnknownPartitionError):
            logs.append("t", ["more"], partition=0)
            acknowledged = True
        with suppress(StorageError):
            logs.close()
        with open_memory(disk, *TWO) as logs:
            if acknowledged:
                assert values(logs, "t", 0)[-1] == b"more"


def test_a_deletion_of_which_nothing_was_written_keeps_the_topic():
    """On a full disk the mark cannot be written, nor anything that would take it back."""
    for number in range(1, 4):
        disk = memory(*TWO)
        faulty = FaultyFileSystem(disk)
        logs = open_memory(faulty, *TWO)
        logs.create("t", 2, retention_ms=-1)
        logs.append("t", [str(n) for n in range(10)], partition=0)
        logs.delete_records("t", 0, 6)
        before = logs.topic("t")
        faulty.arm(number, fault=Fault.ENOSPC, sticky=True, calls=[Call.CREATE, Call.WRITE])
        with pytest.raises(StorageError, match="no space") as caught:
            logs.delete_topic("t")
        faulty.heal()
        if number == 3:  # the first directory is marked, and the mark stays
            assert "may be marked" in caught.value.__notes__[0]
            with pytest.raises(UsageError, match="open the log directory again"):
                logs.create("t", 2, exist_ok=True)
        else:
            assert not hasattr(caught.value, "__notes__")
            assert logs.create("t", 2, exist_ok=True) == before
            logs.append("t", ["more"], partition=0)
        logs.close()
        with open_memory(disk, *TWO) as logs:
            assert logs.topic("t") == before
            assert (logs.earliest("t"), logs.latest("t")) == (6, 10 + (number != 3))


@pytest.mark.parametrize("is_open", [True, False])
def test_a_directory_with_a_topic_whose_deletion_failed_is_not_marked_as_clean(is_open):
    disk = memory(*TWO)
    faulty = FaultyFileSystem(disk)
    logs = open_memory(faulty, *TWO)
    filled(logs, "t", "u")
    if not is_open:  # after a crash, so that partitions must be recovered
        logs._partitions.abandon()
        for directory in logs._directories:
            directory.release()
        logs = open_memory(faulty, *TWO)
        values(logs, "u")
    # One of two directories says that the topic is deleted, and that cannot be taken back.
    faulty.arm(2, fault=Fault.EIO, sticky=True, calls=[Call.RENAME])
    with pytest.raises(StorageError):
        logs.delete_topic("t")
    faulty.heal()
    assert list(logs.topics()) == ["u"]
    logs.close()
    assert ".kafka_cleanshutdown" not in names(disk, *TWO)
    with open_memory(disk, *TWO) as logs:
        assert holds(logs, "t")
        assert holds(logs, "u")
    assert all(".kafka_cleanshutdown" in names(disk, root) for root in TWO)


def test_a_directory_is_marked_as_clean_after_a_deletion():
    disk = memory()
    with open_memory(disk) as logs:
        filled(logs, "t", "u")
        logs.delete_topic("t")
    assert ".kafka_cleanshutdown" in names(disk)


def test_a_sync_of_a_deleted_topic_that_fails_leaves_no_note_in_a_new_topic_of_the_same_name():
    disk = Meddling(memory())
    logs = open_memory(disk)
    filled(logs, "t", partitions=1)

    def replace_topic() -> None:
        logs.delete_topic("t")
        logs.create("t")
        raise StorageError("input/output error", path=f"{ROOT}/t-0", errno=errno.EIO)

    disk.meddle = replace_topic
    disk.at = (Call.SYNC, ".log")
    with pytest.raises(StratalogError):
        logs.append("t", ["old"])
    assert not [path for path in disk.memory.paths() if "failed-sync" in path]
    logs.append("t", ["new"])
    logs.close()
    with open_memory(disk) as logs:
        assert values(logs, "t") == [b"new"]


# --- directories that are opened apart ---------------------------------------------------------------


@pytest.mark.parametrize("order", [TWO, TWO[::-1]])
def test_a_deletion_that_is_not_decided_is_taken_back(order):
    disk = memory(*TWO)
    with open_memory(disk, *TWO) as logs:
        filled(logs, "t", partitions=2)
    logs = open_memory(disk, *TWO)
    stop_after(disk, lambda path: path.endswith(FILE), 1)
    with pytest.raises(KeyboardInterrupt):
        # As a process that dies after the first of two files.
        logs._catalogue._deletions.begin(logs.topic("t"), {0: (0,), 1: (1,)})
    disk.watcher = None
    logs._partitions.abandon()
    for directory in logs._directories:
        directory.release()
    with open_memory(disk, "/a") as alone:
        assert alone.topics() == {}  # pending: the other directory may know more
        with pytest.raises(UsageError, match="one of its log directories is not open"):
            alone.create("t")
    with open_memory(disk, "/b") as alone:
        assert alone.topic("t").partitions == (1,)
    with open_memory(disk, *order) as logs:
        assert holds(logs, "t")


@pytest.mark.parametrize("root", TWO)
def test_a_topic_is_not_deleted_without_one_of_its_directories(root):
    disk = memory(*TWO)
    with open_memory(disk, *TWO) as logs:
        filled(logs, "t", partitions=1)
        logs.add_partitions("t", 2)  # the first directory must learn of it
        filled(logs, "u", partitions=4)
    lacks = {"/a": "1, 3", "/b": "0, 2"}[root]
    with open_memory(disk, root) as logs:
        with pytest.raises(UsageError, match=f"'u' cannot be deleted: .* lack partitions {lacks};"):
            logs.delete_topic("u")
        with pytest.raises(UsageError, match=r"'t' cannot be deleted: .*; open all its log direct"):
            logs.delete_topic("t")
    with open_memory(disk, *TWO) as logs:
        assert holds(logs, "u", 4)
        logs.delete_topic("u")
        logs.delete_topic("t")
        assert logs.topics() == {}


def test_a_topic_in_directories_that_have_no_id_is_deleted_only_from_one():
    """Directories of Kafka before 3.7: a deletion that is decided in one cannot name the other."""
    disk = memory(*TWO)
    with open_memory(disk, *TWO) as logs:
        filled(logs, "t", "u", partitions=1)
        filled(logs, "v", partitions=4)
    for root in TWO:
        path = f"{root}/meta.properties"
        text = disk.read_bytes(path)
        disk.unlink(path)
        file = disk.open_writable(path, create=True)
        file.write_at(0, re.sub(rb"directory\.id=.*\n", b"", text))
        file.close()
    with open_memory(disk, *TWO) as logs:
        with pytest.raises(UsageError, match=r"/a has no directory\.id in its meta\.properties"):
            logs.delete_topic("v")
        assert holds(logs, "v", 4)
        logs.delete_topic("t")
        logs.delete_topic("u")
    with open_memory(disk, *TWO) as logs:
        assert list(logs.topics()) == ["v"]
        assert holds(logs, "v", 4)


def test_a_topic_whose_folder_was_taken_away_can_be_deleted():
    disk = memory(*TWO)
    with open_memory(disk, *TWO) as logs:
        logs.create("t", 4)
    disk.unlink("/b/t-3/partition.metadata")
    disk.remove_dir("/b/t-3")
    with open_memory(disk, *TWO) as logs:
        assert logs.topic("t").partitions == (0, 1, 2)
        logs.delete_topic("t")
        assert logs.topics() == {}


def test_topics_of_one_name_that_are_not_one_topic_are_damage_and_not_shown():
    """As left by an earlier version, which deleted a topic without one of its directories."""
    disk = memory(*TWO)
    with open_memory(disk, *TWO) as logs:
        filled(logs, "t", "u", partitions=4)
    for name in ("t-0", "t-2"):
        for entry in disk.list_dir(f"/a/{name}"):
            disk.unlink(f"/a/{name}/{entry.name}")
        disk.remove_dir(f"/a/{name}")
    with open_memory(disk, "/a") as logs:
        logs.create("t", 1, retention_ms=7)
        logs.append("t", ["new"])
    before = {root: disk.read_bytes(f"{root}/{FILE}") for root in TWO}
    for read_only in (True, False):
        with open_memory(disk, *TWO, read_only=read_only) as logs:
            assert list(logs.topics()) == ["u"]
            assert holds(logs, "u", 4)
            (error,) = logs.damage
            assert error.reason == "topic_id"
            assert re.search("topic 't' is not one topic: .* in /a, .* in /b", str(error))
            if not read_only:
                with pytest.raises(UsageError, match="t-0 cannot be created"):
                    logs.create("t", exist_ok=True)
    assert {root: disk.read_bytes(f"{root}/{FILE}") for root in TWO} == before
    with open_memory(disk, "/a") as logs:
        assert values(logs, "t") == [b"new"]
    with open_memory(disk, "/b", read_only=True) as logs:
        assert len(values(logs, "t")) == 6


def stop_after(disk: MemoryFileSystem, matches: Callable[[str], bool], count: int) -> None:
    """Raise KeyboardInterrupt when a file was renamed so often, at the next change."""
    seen = 0

    def watch(change: object) -> None:
        nonlocal seen
        if seen >= count and ".tmp" in str(change):
            raise KeyboardInterrupt
        if "rename" in str(change):
            seen += 1

    disk.watcher = watch
