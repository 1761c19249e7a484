"""A bytearray is stamped in place: one whose append had failed could not be brought again, since it had the
offset, or the append time, that the log had meant to give it."""

from __future__ import annotations

import pytest

from stratalog.errors import OutOfOrderSequenceError, StorageError
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import AppendResult, PartitionLog
from stratalog.testing import Call, Fault, FaultyFileSystem, ManualClock, MemoryFileSystem
from tests.storage.logs import T, batch, sent

ONE = {
    "plain": batch(b"second"),
    "idempotent": sent(7, 0, b"second"),
    "two": batch(b"second") + batch(b"third"),
}


def opened(configs: dict[str, object] | None = None) -> tuple[PartitionLog, FaultyFileSystem]:
    memory = MemoryFileSystem()
    memory.make_dir("/t-0")
    files = FaultyFileSystem(memory)
    config = LogConfig.of(configs or {})
    log = PartitionLog.open("/t-0", config, file_system=files, clock=ManualClock())
    log.append(batch(b"first"))
    return log, files


@pytest.mark.parametrize("case", ONE)
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_what_found_no_room_may_come_again(case: str, kind: str) -> None:
    log, files = opened({"message.timestamp.type": kind})
    data = bytearray(ONE[case])
    files.arm(1, fault=Fault.ENOSPC, calls={Call.WRITE})
    with pytest.raises(StorageError):
        log.append(data)
    files.heal()
    result = log.append(data)
    assert (result.first_offset, result.is_duplicate) == (1, False)
    assert result.append_time == (T if kind == "LogAppendTime" else -1)
    log.close()


def test_what_came_too_early_may_come_again() -> None:
    log, _ = opened()
    log.append(sent(7, 0, b"a"))
    early = bytearray(sent(7, 2, b"c"))
    with pytest.raises(OutOfOrderSequenceError):
        log.append(early)
    log.append(sent(7, 1, b"b"))
    assert log.append(early).first_offset == 3
    log.close()


def test_a_duplicate_may_come_again() -> None:
    log, _ = opened()
    log.append(sent(7, 0, b"a"))
    data = bytearray(sent(7, 0, b"a"))
    for _ in range(2):
        again = log.append(data)
        assert (again.first_offset, again.is_duplicate) == (1, True)
    log.close()


def test_a_group_that_failed_the_log_may_go_to_another() -> None:
    log, files = opened()
    group = [bytearray(batch(b"a")), bytearray(batch(b"b"))]
    files.arm(1, fault=Fault.EIO, calls={Call.WRITE})
    assert all(isinstance(each, StorageError) for each in log.append_each(group))
    assert log.failure is not None
    log.abandon()
    other, _ = opened()
    answers = other.append_each(group)
    assert [each.first_offset for each in answers if isinstance(each, AppendResult)] == [1, 2]
    other.close()
