"""One call that the system refused, or a moment between two, left a log that forgot or could not go on."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import StorageError
from stratalog.storage.files.filesystem import OsFileSystem, WritableFile
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import PartitionLog
from stratalog.testing import Call, Fault, FaultyFileSystem, MemoryFileSystem
from tests.storage.logs import (
    again,
    bases,
    batch,
    crash,
    in_txn,
    offsets,
    open_log,
    sent,
    write_segments,
)


def test_a_snapshot_that_cannot_be_opened_is_not_deleted(tmp_path: Path) -> None:
    """The batch that a producer sends again was stored a second time."""
    files = FaultyFileSystem(OsFileSystem())
    log = open_log(tmp_path, {"retention.bytes": 0}, file_system=files, watermark="written")
    log.append(sent(7, 0, b"a"))
    log.append(sent(7, 1, b"b"))
    log.roll()
    log.append(batch(b"x"))
    log.retain()
    log.close()
    assert log.log_start == 3
    snapshots = sorted(tmp_path.glob("*.snapshot"))
    opens = 0
    while True:
        opens += 1
        files.arm(opens, fault=Fault.EMFILE, calls={Call.OPEN_READABLE})
        try:
            log = again(log, file_system=files, is_clean=True, recovery_point=3)
        except StorageError:
            files.heal()
            assert sorted(tmp_path.glob("*.snapshot")) == snapshots
        else:
            break
    files.heal()
    assert opens > 1
    assert log.append(sent(7, 1, b"b")).is_duplicate
    log.close()


class Killed(BaseException):
    pass


class Killing(OsFileSystem):
    """Dies instead of the call of that number, once it is told to."""

    left = 10**9

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def open_writable(self, path: str, *, create: bool = False) -> WritableFile:
        self._count()
        return super().open_writable(path, create=create)

    def rename(self, old: str, new: str) -> None:
        self._count()
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)

    def sync_dir(self, path: str) -> None:
        self._count()
        super().sync_dir(path)


@pytest.mark.parametrize(
    ("first", "offset"), [(0, 1000), (0, 10), (0, 12), (0, 20), (100, 110), (100, 40), (100, 100)]
)
def test_a_log_that_is_killed_in_a_restart_never_begins_at_zero(
    tmp_path: Path, first: int, offset: int
) -> None:
    """All segments went before the new one was there."""
    for step in range(100):
        files = Killing()
        folder = tmp_path / f"t-{step}"
        log = open_log(folder, file_system=files, watermark="written", log_start=first)
        for _ in range(2):
            for _ in range(10):
                log.append(batch(b"x"))
            log.roll()
        log.flush()
        ends = {first + 20, offset}
        files.left = step
        try:
            log.restart(offset)
        except Killed:
            files.left = 10**9
            log = crash(log, file_system=files, log_start=0)
            assert log.log_end in ends
            assert bases(log)
            log.abandon()
        else:
            break
    files.left = 10**9
    assert step > 3
    assert (log.log_start, log.log_end) == (offset, offset)
    log.close()


def test_segments_that_retention_could_not_rename_are_tried_again(tmp_path: Path) -> None:
    """They had left the view, the start was noted nowhere, and after a restart they were back."""
    for number in range(1, 100):
        files = FaultyFileSystem(OsFileSystem())
        folder = tmp_path / f"t-{number}"
        log = open_log(folder, {"retention.bytes": 0}, file_system=files, watermark="written")
        for _ in range(3):
            for _ in range(5):
                log.append(batch(b"x"))
            log.roll()
        files.arm(number, fault=Fault.ENOSPC, calls={Call.RENAME})
        try:
            log.retain()
        except StorageError:
            files.heal()
        else:
            break
        start = log.log_start
        # What is still there below the start is known: so that the start is written down.
        on_disk = {int(path.stem) for path in folder.glob("*.log")}
        assert {segment.base_offset for segment in log.segments} == on_disk
        assert log.append(batch(b"y")).first_offset == 15
        log.retain()
        log.close()
        log = again(log, is_clean=True, recovery_point=log.recovery_point, log_start=0)
        assert (log.log_start, log.log_end) == (16, 16)
        assert start in (0, 15)
        log.close()
    assert number > 3


def test_a_snapshot_that_retention_takes_away_under_a_flush_fails_nothing(tmp_path: Path) -> None:
    """The log took that for a failed sync, and refused to be written for good."""
    configs = {"internal.segment.bytes": 200, "retention.bytes": 0}
    log = open_log(tmp_path, configs)
    for _ in range(6):
        log.append(batch(b"x" * 60))
    log.abandon()
    is_there, is_gone = threading.Event(), threading.Event()

    class Slow(OsFileSystem):
        def open_writable(self, path: str, *, create: bool = False) -> WritableFile:
            if path.endswith(".snapshot") and threading.current_thread().name == "flush":
                is_there.set()
                is_gone.wait(10)
            return super().open_writable(path, create=create)

    log = open_log(tmp_path, configs, file_system=Slow(), watermark="written")
    thread = threading.Thread(target=log.flush, name="flush")
    thread.start()
    assert is_there.wait(10)
    assert log.retain().deletions
    is_gone.set()
    thread.join()
    assert log.failure is None
    assert log.append(batch(b"y")).first_offset == 6
    assert log.flush() == 7
    log.close()


def test_a_snapshot_of_a_segment_that_was_not_made_is_not_believed() -> None:
    """A transaction that was open was forgotten, and what it had written was shown as committed."""
    memory = MemoryFileSystem()
    memory.make_dir("/t-0")
    files = FaultyFileSystem(memory)
    config = LogConfig.of({"internal.segment.bytes": 5000})
    log = PartitionLog.open("/t-0", config, file_system=files, watermark="written")
    for offset in range(10):
        log.append_as_follower(batch(b"x", base_offset=offset, leader_epoch=0))
    far = batch(b"y" * 4500, base_offset=100, leader_epoch=0)
    refused: list[str] = []
    while not refused or not refused[-1].endswith(".log"):
        files.arm(
            len(refused) + 1, fault=Fault.ENOSPC, calls={Call.CREATE, Call.WRITE, Call.EXTEND}
        )
        with pytest.raises(StorageError) as caught:
            log.append_as_follower(far)
        files.heal()
        refused.append(caught.value.path)
        assert log.failure is None
    log.append_as_follower(in_txn(7, 0, b"open", base_offset=10, leader_epoch=1))
    log.append_as_follower(
        batch(*[b"z"] * 140, timestamp=[0] * 140, base_offset=11, leader_epoch=1)
    )
    log.append_as_follower(batch(b"w", base_offset=151, leader_epoch=1))
    assert log.last_stable_offset == 10
    log.truncate(151)
    assert log.last_stable_offset == 10
    log.close()


def opened_with_fault(root: Path, number: int, fault: Fault) -> bool:
    """Open a partition of a clean directory while one call fails, and close it; whether there was such a
    call."""
    with stratalog.open(str(root), sync=False) as logs:
        logs.create("t", 1)
        logs.append("t", ["x"] * 50)
    for path in (root / "t-0").glob("*.snapshot"):
        path.unlink()
    files = FaultyFileSystem(OsFileSystem())
    logs = stratalog.open(str(root), file_system=files)
    files.arm(number, fault=fault)
    with suppress(StorageError):
        logs.latest("t")
    failed = bool(files.failed)
    files.heal()
    logs.close()
    return failed


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC, Fault.EMFILE])
def test_a_directory_is_not_clean_with_indexes_that_a_failed_opening_made_long(
    tmp_path: Path, fault: Fault
) -> None:
    """Kafka believes the whole length of an index after an orderly stop."""
    number = 1
    while opened_with_fault(tmp_path / str(number), number, fault):
        root = tmp_path / str(number)
        long = [path.name for path in (root / "t-0").glob("*index") if path.stat().st_size > 1000]
        assert not long or not (root / ".kafka_cleanshutdown").exists(), (number, long)
        with stratalog.open(str(root)) as logs:
            assert logs.latest("t") == 50
        number += 1
    assert number > 1


def test_a_transaction_index_of_any_size_is_no_reason_to_run_out_of_memory(tmp_path: Path) -> None:
    folder = write_segments(tmp_path / "t-0", 0, 5)
    path = folder / "00000000000000000000.txnindex"
    path.touch()
    os.truncate(path, 34 << 30)
    with stratalog.open(str(tmp_path), read_only=True) as logs:
        rows = logs.read("t", isolation="read_committed")
        with pytest.raises(stratalog.CorruptionError, match="file_size"):
            rows.to_table()
        assert logs.read("t", isolation="read_uncommitted").to_table().num_rows == 10
    log = open_log(folder, recovery_point=10, is_clean=True)
    assert offsets(log) == list(range(10))
    log.close()
