"""Never lie: a log that could not write or sync says so, refuses what it cannot promise, and goes on where
that is safe. The file system fails where the test wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stratalog.errors import LogFailedError, StorageError, UsageError
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.partition_log import PartitionLog
from stratalog.testing import Call, Fault, FaultyFileSystem
from tests.storage.logs import SIZE, T, again, batch, log_bytes, offsets, open_log, reopen, values


@pytest.fixture
def files() -> FaultyFileSystem:
    return FaultyFileSystem(OsFileSystem())


@pytest.fixture
def log(tmp_path: Path, files: FaultyFileSystem) -> Iterator[PartitionLog]:
    """Three records, synced; a segment takes ten."""
    made = open_log(tmp_path, {"internal.segment.bytes": 10 * SIZE}, file_system=files)
    for at in range(3):
        made.append(batch(b"%011d" % at, timestamp=T + at), sync=True)
    yield made
    files.heal()
    made.close()


def one(log: PartitionLog, *, sync: bool = False) -> int:
    data = batch(b"%011d" % log.log_end, timestamp=T + log.log_end)
    return log.append(data, sync=sync).last_offset


def recovered(log: PartitionLog, files: FaultyFileSystem) -> PartitionLog:
    files.heal()
    log.close()
    return again(log, file_system=files, recovery_point=0)


def test_a_failed_write_fails_the_log_until_it_is_opened_again(
    log: PartitionLog, files: FaultyFileSystem
) -> None:
    files.arm(1, fault=Fault.EIO, calls={Call.WRITE})
    with pytest.raises(StorageError, match="input/output error"):
        one(log)
    files.heal()  # that it would work again is not enough
    calls: tuple[Callable[[], object], ...] = (
        lambda: one(log),
        lambda: log.append_as_follower(batch(b"x", base_offset=3)),
        log.sync,
        log.flush,
        log.roll,
        log.retain,
        lambda: log.truncate(1),
        lambda: log.restart(0),
        lambda: log.advance_start(0),
        lambda: log.assign_epoch(5),
    )
    for call in calls:
        with pytest.raises(LogFailedError, match="reopen the log directory"):
            call()
    assert log.failure is not None
    assert (log.log_end, offsets(log)) == (3, [0, 1, 2])  # reading goes on
    other = recovered(log, files)
    assert (other.log_end, other.failure) == (3, None)
    assert one(other) == 3
    other.close()


@pytest.mark.parametrize("fault", [Fault.ENOSPC, Fault.SHORT_WRITE])
def test_a_full_disk_is_an_error_and_no_failure(
    log: PartitionLog, files: FaultyFileSystem, fault: Fault
) -> None:
    before = log_bytes(log)
    files.arm(1, fault=fault, sticky=True, calls={Call.WRITE})
    for _ in range(3):
        with pytest.raises(StorageError, match="no space") as caught:
            one(log)
        assert not isinstance(caught.value, LogFailedError)
    assert (log.log_end, log.failure, offsets(log)) == (3, None, [0, 1, 2])
    path = Path(log.segments[0].log.path)
    assert path.read_bytes() == before  # nothing of a half-written batch is left
    files.heal()
    assert one(log) == 3
    other = reopen(log, file_system=files)
    assert (other.report.cuts, offsets(other)) == ([], [0, 1, 2, 3])
    other.close()


def test_a_write_that_cannot_be_taken_back_fails_the_log(
    log: PartitionLog, files: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a batch is in the file, and the cut behind it fails too."""
    whole = log.size_bytes

    def refuse(size: int) -> None:
        raise StorageError("input/output error", path="log", errno=5)

    files.arm(1, fault=Fault.SHORT_WRITE, calls={Call.WRITE})
    monkeypatch.setattr(log.segments[-1].log, "truncate", refuse)
    with pytest.raises(StorageError):
        one(log)
    monkeypatch.undo()
    assert log.failure is not None
    other = recovered(log, files)
    assert (other.log_end, other.size_bytes) == (3, whole)
    assert other.report.cut_bytes == SIZE // 2
    other.close()


@pytest.mark.parametrize("call", ["sync", "flush", "roll", "close", "append"])
def test_a_failed_sync_is_never_retried(
    log: PartitionLog, files: FaultyFileSystem, call: str
) -> None:
    one(log)
    files.arm(1, fault=Fault.EIO, calls={Call.SYNC})
    does: Callable[[], object] = (
        (lambda: one(log, sync=True)) if call == "append" else getattr(log, call)
    )
    with pytest.raises(StorageError):
        does()
    syncs = files.counts[Call.SYNC]
    assert log.failure is not None
    assert log.synced_offset == 3
    assert log.recovery_point <= 3
    with pytest.raises((LogFailedError, UsageError)):
        log.sync()
    log.close()
    assert files.counts[Call.SYNC] == syncs
    other = recovered(log, files)
    assert other.log_end >= 3
    other.close()


def test_a_failed_sync_of_the_folder_fails_the_log(tmp_path: Path, files: FaultyFileSystem) -> None:
    log = open_log(tmp_path / "new", file_system=files)
    log.append(batch(b"a"))
    files.arm(1, fault=Fault.EIO, calls={Call.SYNC_DIR})
    with pytest.raises(StorageError):
        log.sync()
    assert (log.synced_offset, log.failure is not None) == (0, True)
    log.close()


def test_a_roll_for_which_there_is_no_room(log: PartitionLog, files: FaultyFileSystem) -> None:
    """The segment stays, full as it is; when there is room again the log goes on."""
    while log.log_end < 10:
        one(log)
    for number in range(1, 30):
        files.arm(number, fault=Fault.ENOSPC, calls={Call.CREATE, Call.EXTEND, Call.WRITE})
        try:
            one(log)
        except StorageError:
            assert (log.log_end, log.failure) == (10, None), number
            assert offsets(log) == list(range(10))
        else:
            break
    assert number > 3
    assert (log.log_end, len(log.segments)) == (11, 2)
    files.heal()
    other = reopen(log, file_system=files)
    assert (other.report.recovered_segments, offsets(other)) == ([], list(range(11)))
    other.close()


def test_a_roll_for_which_there_is_no_room_does_not_stop_a_smaller_append(
    tmp_path: Path, files: FaultyFileSystem
) -> None:
    log = open_log(tmp_path / "log", {"internal.segment.bytes": 1000}, file_system=files)
    log.append(batch(bytes(700), timestamp=T))
    files.arm(1, fault=Fault.ENOSPC, sticky=True, calls={Call.CREATE})
    with pytest.raises(StorageError):
        log.append(batch(bytes(600), timestamp=T + 1))
    log.append(batch(b"fits", timestamp=T + 2))
    files.heal()
    log.append(batch(bytes(600), timestamp=T + 3))
    log.close()
    other = again(log, is_clean=True, recovery_point=log.recovery_point)
    assert [len(value or b"") for value in values(other)] == [700, 4, 600]
    found = other.offset_for_time(T + 2)
    assert found is not None
    assert found.offset == 1
    other.close()


def test_an_epoch_that_could_not_be_written_is_written_with_the_next_append(
    log: PartitionLog, files: FaultyFileSystem
) -> None:
    files.arm(1, fault=Fault.ENOSPC, calls={Call.CREATE})
    with pytest.raises(StorageError):
        log.append(batch(b"x"), leader_epoch=7)
    files.heal()
    assert log.append(batch(b"y"), leader_epoch=7).first_offset == 3
    assert log.epochs == ((0, 0), (7, 3))
    other = reopen(log)
    assert other.epochs == ((0, 0), (7, 3))
    other.close()


@pytest.mark.parametrize("what", ["truncate", "restart"])
def test_a_cut_that_fails_halfway_fails_the_log(
    log: PartitionLog, files: FaultyFileSystem, what: str
) -> None:
    """Whatever step fails: nothing is appended to a log of which nobody knows where it ends."""
    while log.log_end < 25:
        one(log)
    log.flush()
    number = 0
    while True:
        number += 1
        files.arm(number, fault=Fault.EIO, calls=set(Call) - {Call.STAT, Call.READ, Call.MAP})
        try:
            log.truncate(7) if what == "truncate" else log.restart(0)
        except StorageError:
            files.heal()
            with pytest.raises(LogFailedError):
                one(log)
        else:
            break
        log.close()
        log = again(log, file_system=files, recovery_point=0, log_start=0)
        # It was cut, or it was not, or part of its segments went: of a restart, the first ones.
        found = offsets(log)
        assert found == list(range(log.log_end - len(found), log.log_end))
        assert what == "restart" or log.log_end - len(found) == log.log_start
        while log.log_end < 25:
            one(log)
        log.flush()
    assert number > 5
    files.heal()
    assert log.log_end == (7 if what == "truncate" else 0)
    log.close()


def test_an_interrupted_append_is_whole_or_not_there(
    log: PartitionLog, files: FaultyFileSystem
) -> None:
    """Ctrl-C when the bytes are in the file, and nothing else of the append is done."""
    files.arm(1, fault=Fault.INTERRUPT, calls={Call.WRITE})
    with pytest.raises(KeyboardInterrupt):
        log.append(batch(b"%011d" % 3) + batch(b"%011d" % 4))
    files.heal()
    assert one(log) == 3  # it was taken back
    other = recovered(log, files)
    assert (offsets(other), other.report.cuts) == ([0, 1, 2, 3], [])
    other.close()


def test_an_append_that_is_interrupted_behind_its_write_fails_the_log(
    log: PartitionLog, files: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one would give the same offsets again."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(log._state, "publish_append", interrupt)
    with pytest.raises(KeyboardInterrupt):
        one(log)
    monkeypatch.undo()
    with pytest.raises(LogFailedError):
        one(log)
    other = recovered(log, files)
    assert offsets(other) == [0, 1, 2, 3]
    other.close()


@pytest.mark.parametrize(
    "call",
    [Call.CREATE, Call.EXTEND, Call.TRUNCATE, Call.WRITE, Call.SYNC, Call.SYNC_DIR, Call.RENAME],
)
def test_whatever_the_disk_refuses_fails_the_log(
    tmp_path: Path, files: FaultyFileSystem, call: Call
) -> None:
    """Appends with a roll and a new epoch: the first call of every kind fails."""
    log = open_log(tmp_path / "log", {"internal.segment.bytes": 2 * SIZE}, file_system=files)
    one(log, sync=True)
    one(log)
    promised = log.synced_offset
    files.arm(1, fault=Fault.EIO, calls={call})
    with pytest.raises(StorageError):
        log.append(batch(b"%011d" % 2, timestamp=T + 2), leader_epoch=9, sync=True)
    files.heal()
    assert log.failure is not None
    with pytest.raises(LogFailedError):
        one(log)
    assert log.synced_offset >= promised
    other = recovered(log, files)
    assert other.log_end in (2, 3)
    assert offsets(other) == list(range(other.log_end))
    other.close()
