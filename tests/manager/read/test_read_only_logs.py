"""Read-only logs: beside a live writer, over what a dead one left, and without changing a byte."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import stratalog
from stratalog.errors import CorruptionError, StorageError, UnknownPartitionError, UsageError
from stratalog.manager.logs import Logs
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.names import FileKind, segment_file_name
from stratalog.storage.views.read_only import folder_trace, open_view
from stratalog.testing import Call, Fault, FaultyFileSystem
from tests.judges.peers.golden import golden_set
from tests.manager.logdirs import COMMITTED, memory, open_memory, tree, values

MARKER = ".kafka_cleanshutdown"
LOG = "00000000000000000000.log"


def reader(path: Path, **options: Any) -> Logs:
    return stratalog.open(path, read_only=True, **options)


# --- beside a live writer --------------------------------------------------------------------------


def test_reader_sees_what_the_writer_wrote_when_it_looked(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a", 2, internal_segment_bytes=500)
        with reader(tmp_path) as beside:
            assert values(beside, "a") == []
            for n in range(30):
                logs.append("a", [f"{n}" * 50], partition=n % 2)
                assert len(values(beside, "a")) == n + 1
                assert beside.latest("a", n % 2) == n // 2 + 1
            rows = beside.read("a", 0)
            logs.append("a", ["later"], partition=0)
            assert len(list(rows.records())) == 15  # as it was when it was asked for
            logs.delete_records("a", 0, 10)
            assert (beside.earliest("a"), len(values(beside, "a", 0))) == (10, 6)
            assert beside.topic("a") == logs.topic("a")


def test_reader_sees_appends_that_are_only_in_memory_yet(tmp_path):
    """Index entries and aborted transactions stand in the writer's memory until it flushes."""
    with stratalog.open(tmp_path, sync=False) as logs:
        logs.create("a", 1, index_interval_bytes=100)
        for n in range(20):
            txn = logs.transaction()
            txn.append("a", [f"{n}" * 30])
            txn.abort() if n % 2 else txn.commit()
        hanging = logs.transaction()
        hanging.append("a", ["open"])
        with reader(tmp_path) as beside:
            committed = values(beside, "a", isolation=COMMITTED)
            assert committed == [f"{n}".encode() * 30 for n in range(0, 20, 2)]
            assert len(values(beside, "a", isolation="read_uncommitted")) == 21
            found = beside.read("a", start=25, isolation=COMMITTED).records()
            assert [record.offset for record in found] == [28, 32, 36]


def test_reader_changes_no_byte_beside_a_writer(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a", 2)
        logs.append("a", ["x"] * 100, partition=0)
        txn = logs.transaction()
        txn.append("a", ["y"], partition=1)
        before = tree(tmp_path)
        with reader(tmp_path) as beside:
            use(beside)
        assert tree(tmp_path) == before


def use(logs: Logs) -> None:
    """Everything that a reader may do."""
    for name in logs.topics():
        assert logs.topic(name) is not None
        logs.topic_id(name)
        for partition in logs.topic(name).partitions:
            logs.earliest(name, partition)
            logs.latest(name, partition)
            for isolation in ("read_committed", "read_uncommitted", "log_end"):
                values(logs, name, partition, isolation=isolation)
            list(logs.tail(name, partition, start=logs.earliest(name, partition), timeout_s=0))
            logs.read(name, partition, start_time=1_700_000_000_000).to_table()
    for call in (
        lambda: logs.create("new"),
        lambda: logs.append(next(iter(logs.topics())), ["x"]),
        lambda: logs.transaction(),
        lambda: logs.flush(),
        lambda: logs.checkpoint(),
        lambda: logs.retain(),
        lambda: logs.partition(next(iter(logs.topics()))),
        lambda: logs.delete_records(next(iter(logs.topics())), 0, 0),
        lambda: logs.add_partitions(next(iter(logs.topics())), 50),
    ):
        with pytest.raises(UsageError, match="read-only"):
            call()


def test_reader_while_another_thread_appends_rolls_and_deletes(tmp_path):
    """What is seen is always a whole run of the log: no gap, no wrong record, no error but one that
    says that the records are gone."""
    with stratalog.open(tmp_path, sync=False) as logs:
        logs.create("a", 1, internal_segment_bytes=2000, file_delete_delay_ms=0)
        stop = threading.Event()
        failures: list[BaseException] = []

        def write() -> None:
            try:
                for n in count():
                    if n >= 400 and looks > 3:
                        break
                    logs.append("a", [str(10 * n + each) for each in range(10)])
                    if n % 20 == 19:
                        logs.delete_records("a", 0, logs.latest("a") - 100)
                        logs.retain()
            except BaseException as error:  # noqa: BLE001
                failures.append(error)
            stop.set()

        writer = threading.Thread(target=write)
        writer.start()
        looks = 0
        with reader(tmp_path) as beside:
            while not stop.is_set() or looks == 0:
                try:
                    found = list(beside.read("a").records())
                except StorageError as error:
                    assert error.errno == errno.ENOENT  # noqa: PT017
                    continue
                assert [int(r.value or b"") for r in found] == [r.offset for r in found]
                offsets = [r.offset for r in found]
                assert offsets == list(range(offsets[0], offsets[0] + len(offsets))) if found else 1
                looks += 1
        writer.join()
        assert failures == []


def test_reader_tails_what_another_process_writes(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a")
        logs.append("a", ["0"])
    program = (
        "import sys, time, stratalog\n"
        "with stratalog.open(sys.argv[1]) as logs:\n"
        "    for n in range(1, 50):\n"
        "        logs.append('a', [str(n)])\n"
    )
    with reader(tmp_path) as beside:
        tail = beside.tail("a", timeout_s=20)
        writer = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
        seen = [int(next(tail).value or b"") for _ in range(49)]
        assert seen == list(range(1, 50))
        assert writer.wait(30) == 0


def test_reader_tail_ends_with_its_time_or_its_logs(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a", 2)
        logs.append("a", ["0"], partition=0)
    beside = reader(tmp_path)
    assert [r.value for r in beside.tail("a", 0, start=0, timeout_s=0.1)] == [b"0"]
    tail = beside.tail("a", 0)
    threading.Timer(0.1, beside.close).start()
    started = time.monotonic()
    assert list(tail) == []
    assert time.monotonic() - started < 30


def test_reader_finds_topics_and_partitions_that_the_writer_makes_later(tmp_path):
    with stratalog.open(tmp_path) as logs, reader(tmp_path) as beside:
        assert beside.topics() == {}
        with pytest.raises(UnknownPartitionError):
            beside.read("a")
        logs.create("a", 1, retention_ms=5)
        logs.append("a", ["0"])
        assert values(beside, "a") == [b"0"]
        assert beside.topic("a").config.retention_ms == 5
        assert beside.topic_id("a") == logs.topic_id("a")
        logs.add_partitions("a", 2)
        tail = beside.tail("a", 1, timeout_s=30)
        logs.append("a", ["1"], partition=1)
        assert next(tail).value == b"1"
        assert (beside.earliest("a", 1), beside.latest("a", 1)) == (0, 1)
        assert values(beside, "a") == [b"0", b"1"]
        assert beside.topic("a").partitions == (0, 1)
        logs.create("b")
        assert list(beside.topics()) == ["a", "b"]


def test_reader_sees_new_partitions_all_at_once():
    """At every change of the disk, a reader that is open, and one that opens now, look at the topics."""
    roots = ("/a", "/b")
    disk = memory(*roots)
    with open_memory(disk, *roots) as logs, open_memory(disk, *roots, read_only=True) as beside:
        logs.create("old", 2)
        seen: list[dict[str, int]] = []

        def look(_: object) -> None:
            for other in (beside, open_memory(disk, *roots, read_only=True)):
                topics = other.topics()
                seen.append({name: len(topics[name].partitions) for name in topics})

        disk.watcher = look
        logs.create("new", 4)
        logs.add_partitions("old", 6)
        disk.watcher = None
    steps = [each for n, each in enumerate(seen) if n == 0 or each != seen[n - 1]]
    assert steps == [{"old": 2}, {"new": 4, "old": 2}, {"new": 4, "old": 6}]


def test_reader_knows_of_topics_that_are_gone(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a")
        logs.create("b")
    with reader(tmp_path) as beside:
        assert list(beside.topics()) == ["a", "b"]
        (tmp_path / "b-0").rename(tmp_path / f"b-0.{'0' * 32}-delete")  # as Kafka does
        assert list(beside.topics()) == ["a"]
        with pytest.raises(UnknownPartitionError, match="no topic 'b'"):
            beside.latest("b")


@pytest.mark.parametrize("maker", ["ours", "kafkas"])
@pytest.mark.parametrize("new", [0, 3, 8])
def test_reader_tail_ends_when_the_topic_is_deleted_also_if_there_is_a_new_one(
    tmp_path, new, maker
):
    with stratalog.open(tmp_path) as logs:
        logs.create("a", 2)
        logs.append("a", [f"old{n}" for n in range(5)], partition=1)
    if maker == "kafkas":
        (tmp_path / "stratalog-topics.json").unlink()
    with stratalog.open(tmp_path) as logs, reader(tmp_path) as beside:
        tail = beside.tail("a", start=0)  # without a timeout: only the deletion ends it
        assert [next(tail).value for _ in range(5)] == [f"old{n}".encode() for n in range(5)]
        logs.delete_topic("a")
        if new:
            logs.create("a", 2)
            logs.append("a", [f"new{n}" for n in range(new)], partition=1)
        assert list(tail) == []
        if new:
            assert len(list(beside.tail("a", start=0, timeout_s=0))) == new


def test_reader_that_must_look_again_does_not_go_on_in_a_new_topic(tmp_path):
    with stratalog.open(tmp_path) as logs, reader(tmp_path) as beside:
        logs.create("a", 1, internal_segment_bytes=200)
        for n in range(20):
            logs.append("a", [f"old{n}"])
        rows = beside.read("a", batch_rows=1)
        logs.delete_topic("a")
        logs.create("a", 1, internal_segment_bytes=200)
        for n in range(30):
            logs.append("a", [f"new{n}"])
        with pytest.raises(UnknownPartitionError, match="deleted, and another one created"):
            list(rows.records())


def test_reader_needs_no_lock_and_takes_none(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a")
    (tmp_path / ".lock").unlink()
    with reader(tmp_path), reader(tmp_path), stratalog.open(tmp_path) as logs:
        logs.append("a", ["x"])
    assert (tmp_path / ".lock").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_directory_that_cannot_be_written_to_can_be_read(tmp_path):
    with stratalog.open(tmp_path / "x") as logs:
        logs.create("a")
        logs.append("a", ["x"])
    for path in [*(tmp_path / "x").rglob("*"), tmp_path / "x"]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    with reader(tmp_path / "x") as beside:
        assert values(beside, "a") == [b"x"]
    for path in [tmp_path / "x", *(tmp_path / "x").rglob("*")]:
        path.chmod(0o700)


# --- over what a dead one left ---------------------------------------------------------------------


def killed(tmp_path: Path) -> Path:
    """A folder with three batches of one record, as a killed process leaves it."""
    with stratalog.open(tmp_path) as logs:
        logs.create("a")
        for n in range(3):
            logs.append("a", [f"{n}" * 50])
    (tmp_path / MARKER).unlink()
    return tmp_path / "a-0" / LOG


def test_torn_tail_is_simply_not_there(tmp_path):
    path = killed(tmp_path)
    data = path.read_bytes()
    size = len(data) // 3
    for cut in (1, 5, 12, 17, 60, 61, 62, size - 1):
        for tail in (data[-size:][:-cut], bytes(size - cut), bytes(10_000)):
            path.write_bytes(data[: 2 * size] + tail)
            before = tree(tmp_path)
            with reader(tmp_path) as logs:
                assert values(logs, "a") == [b"0" * 50, b"1" * 50]
                assert logs.latest("a") == 2
            assert tree(tmp_path) == before


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("where", ["length", "magic", "payload"])
def test_damage_is_told_when_one_reads_that_far(tmp_path, at, where):
    """Damage before the end is never taken for the end, though a walk over headers cannot pass it."""
    path = killed(tmp_path)
    data = bytearray(path.read_bytes())
    size = len(data) // 3
    position = {"length": 9, "magic": 16, "payload": 80}[where]
    data[at * size + position] ^= 0x88
    path.write_bytes(data)
    with reader(tmp_path) as logs:
        seen: list[int] = []
        with pytest.raises(CorruptionError) as caught:
            seen.extend(record.offset for record in logs.read("a").records())
        assert caught.value.path == str(path)
        assert caught.value.position == at * size
        before = list(logs.read("a", end=at).records())
        assert [record.offset for record in before] == list(range(at))
        with pytest.raises(CorruptionError):
            list(logs.tail("a", start=0, timeout_s=0))
        pytest.importorskip("pyarrow")
        with pytest.raises(CorruptionError):
            logs.read("a").to_table()


def test_segment_without_indexes_or_with_nonsense_in_them_is_read(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a", 1, internal_segment_bytes=300, index_interval_bytes=50)
        for n in range(30):
            logs.append("a", [{"value": str(n), "timestamp": 1_700_000_000_000 + n}])
    folder = tmp_path / "a-0"
    for number, path in enumerate(sorted([*folder.glob("*.index"), *folder.glob("*.timeindex")])):
        if number % 3 == 0:
            path.unlink()
        else:
            path.write_bytes(os.urandom(path.stat().st_size) if number % 3 == 1 else b"\xff" * 7)
    before = tree(tmp_path)
    with reader(tmp_path) as logs:
        assert values(logs, "a") == [str(n).encode() for n in range(30)]
        for start in range(30):
            assert len(values(logs, "a", start=start)) == 30 - start
        found = values(logs, "a", start_time=1_700_000_000_020)
        assert found == [str(n).encode() for n in range(20, 30)]
    assert tree(tmp_path) == before


def test_damaged_snapshots_are_left_where_they_are(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a", 1, internal_segment_bytes=300)
        for n in range(10):
            txn = logs.transaction()
            txn.append("a", [f"{n}" * 20])
            txn.abort() if n % 2 else txn.commit()
    for path in (tmp_path / "a-0").glob("*.snapshot"):
        path.write_bytes(b"nonsense")
    before = tree(tmp_path)
    with reader(tmp_path) as logs:
        assert values(logs, "a", isolation=COMMITTED) == [
            f"{n}".encode() * 20 for n in range(0, 10, 2)
        ]
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["v2-unclean", "v2-preallocated", "v2-transactions", "mixed"])
def test_golden_directory_is_not_changed(tmp_path, name):
    copy = tmp_path / name
    shutil.copytree(golden_set(name).path, copy)
    before = tree(copy)
    with reader(copy) as logs:
        use(logs)
    assert tree(copy) == before


# --- the pieces ------------------------------------------------------------------------------------


def test_folder_without_segments_is_an_empty_log():
    file_system = memory("/logs/a-0")
    found = open_view("/logs/a-0", file_system, log_start=7)
    assert (found.view.log_start, found.view.log_end, found.damage) == (7, 7, None)
    assert folder_trace("/logs/a-0", file_system) == ()


def test_segment_that_vanishes_is_looked_for_again():
    """Retention takes a segment away between the listing and the opening: the folder is listed anew."""

    class Vanishing(FaultyFileSystem):
        left = 2

        def stat(self, path: str) -> Any:
            if path.endswith(LOG) and self.left:
                self.left -= 1
                return None
            return super().stat(path)

    file_system = memory()
    with open_memory(file_system) as logs:
        logs.create("a")
        logs.append("a", ["x"])
    vanishing = Vanishing(file_system)
    assert open_view("/logs/a-0", vanishing).view.log_end == 1
    vanishing.left = 99
    with pytest.raises(StorageError, match="gone while the folder was read"):
        open_view("/logs/a-0", vanishing)


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.EMFILE])
def test_every_call_of_a_reader_may_fail(fault):
    """A failure is one typed error, and the next look is as good as the first."""
    file_system = memory()
    with open_memory(file_system) as logs:
        logs.create("a", 2, internal_segment_bytes=200)
        logs.append("a", [(str(n), "x" * 50) for n in range(10)])
    faulty = FaultyFileSystem(file_system)
    number = 0
    while True:
        number += 1
        faulty.failed.clear()
        faulty.arm(number, fault=fault)
        try:
            with open_memory(faulty, read_only=True) as logs:
                found = len(values(logs, "a"))
            assert found == 10
        except StorageError:
            assert faulty.failed
        if not faulty.failed:
            break
    assert number > 10
    assert not {call for call in faulty.counts if call in (Call.WRITE, Call.SYNC, Call.LOCK)}


def test_trace_changes_with_every_append_and_roll(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a", 1, internal_segment_bytes=300)
        seen = set()
        for n in range(10):
            logs.append("a", [f"{n}" * 60])
            seen.add(folder_trace(str(tmp_path / "a-0"), OsFileSystem()))
        assert len(seen) == 10
        assert segment_file_name(0, FileKind.LOG) in {name for trace in seen for name, _ in trace}
