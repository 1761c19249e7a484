"""Flushes, retention, recovery and checkpoints while a topic is deleted, or while one partition fails."""

from __future__ import annotations

import pytest

from stratalog.errors import StorageError
from stratalog.manager.logs import Logs
from stratalog.testing import Call, Fault, FaultyFileSystem
from tests.manager.logdirs import ROOT, memory, open_memory, values
from tests.manager.meddling import Meddling


@pytest.fixture
def disk() -> Meddling:
    return Meddling(memory())


def filled(logs: Logs, *topics: str) -> None:
    for topic in topics:
        logs.create(topic, segment_bytes=1 << 20)
        logs.append(topic, ["a"], sync=False)


def test_a_flush_passes_over_a_topic_that_is_deleted_meanwhile(disk):
    with open_memory(disk, sync=False) as logs:
        filled(logs, "a", "b", "c")
        disk.meddle = lambda: logs.delete_topic("b")
        disk.at = (Call.SYNC, f"{ROOT}/a-0/")
        logs.flush()
        assert list(logs.topics()) == ["a", "c"]
        assert logs.partition("c").recovery_point == 1


def test_retention_passes_over_a_topic_that_is_deleted_meanwhile(disk):
    with open_memory(disk) as logs:
        filled(logs, "a", "b", "c")
    with open_memory(disk) as logs:
        disk.meddle = lambda: logs.delete_topic("b")
        disk.at = (Call.OPEN_READABLE, f"{ROOT}/a-0/")
        assert logs.retain() == 0
        assert list(logs.topics()) == ["a", "c"]


def test_recovery_passes_over_a_topic_that_is_deleted_meanwhile(disk):
    with open_memory(disk) as logs:
        filled(logs, "a", "b", "c")
    with open_memory(disk) as logs:
        disk.meddle = lambda: logs.delete_topic("b")
        disk.at = (Call.OPEN_READABLE, f"{ROOT}/a-0/")
        logs.recover()
        assert list(logs.topics()) == ["a", "c"]


def test_a_checkpoint_passes_over_a_topic_that_is_being_deleted(disk):
    with open_memory(disk) as logs:
        filled(logs, "a", "b")
        logs._catalogue.begin_delete("b")  # its logs are still open
        logs.checkpoint()
        assert logs.delete_records("a", 0, 0) == 0


@pytest.mark.parametrize("operation", ["flush", "retain"])
def test_an_error_of_one_partition_does_not_keep_the_others_from_their_turn(operation):
    disk = memory()
    faulty = FaultyFileSystem(disk)
    logs = open_memory(faulty, sync=False)
    for topic in ("a", "b"):
        logs.create(topic, 1, {"retention.bytes": 0, "internal.segment.bytes": 100})
        for number in range(3):
            logs.append(topic, [f"{number}" * 30], sync=False)
    fault = (Call.SYNC,) if operation == "flush" else (Call.RENAME,)
    faulty.arm(1, fault=Fault.EIO, calls=fault)
    with pytest.raises(StorageError):
        logs.flush() if operation == "flush" else logs.retain()
    assert [each.path.split("/")[2] for each in faulty.failed] == ["a-0"]
    if operation == "flush":
        assert logs.partition("b").recovery_point == 3
    else:
        assert values(logs, "b") == []
