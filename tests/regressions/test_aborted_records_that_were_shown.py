"""An append of a transaction was in the log when its caller got an error: the abort wrote no marker, and the
next transaction, under the same producer id, committed what had been aborted."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from stratalog.errors import StorageError, TransactionStateError
from stratalog.manager.logs import Logs
from stratalog.storage.log import flushing
from stratalog.storage.partition_log import PartitionLog
from tests.manager.logdirs import COMMITTED, memory, open_memory, values


def no_room(*_: Any) -> int:
    raise StorageError("no space left on device", path="index", errno=errno.ENOSPC)


def flush_finds_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushing, "flush", no_room)


def signal_comes_as_the_append_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    append = PartitionLog.append

    def interrupted(self: PartitionLog, *given: Any, **named: Any) -> None:
        append(self, *given, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(PartitionLog, "append", interrupted)


@pytest.fixture
def logs() -> Logs:
    opened = open_memory(memory())
    opened.create("a", 1, {"flush.messages": 1})
    opened.append("a", ["before"])
    return opened


WAYS = [flush_finds_no_room, signal_comes_as_the_append_returns]
Way = Callable[[pytest.MonkeyPatch], None]


def append_with_an_error(logs: Logs, way: Way) -> Any:
    txn = logs.transaction()
    with pytest.MonkeyPatch.context() as patched:
        way(patched)
        with pytest.raises((StorageError, KeyboardInterrupt)):
            txn.append("a", ["never"])
    assert logs.latest("a") == 2, "the record must be in the log, or this tests nothing"
    return txn


@pytest.mark.parametrize("way", WAYS)
def test_record_of_an_aborted_transaction_is_not_shown_by_the_next_one(
    logs: Logs, way: Way
) -> None:
    append_with_an_error(logs, way).abort()
    assert logs.partition("a").last_stable_offset == logs.latest("a")
    with logs.transaction() as txn:
        txn.append("a", ["good"])
    assert values(logs, "a", isolation=COMMITTED) == [b"before", b"good"]


@pytest.mark.parametrize("way", WAYS)
def test_transaction_is_not_committed_without_the_append_that_failed(logs: Logs, way: Way) -> None:
    txn = append_with_an_error(logs, way)
    with pytest.raises(TransactionStateError, match="abort it"):
        txn.commit()
    logs.close()
    with open_memory(logs._file_system) as again:
        assert values(again, "a", isolation=COMMITTED) == [b"before"]


@pytest.mark.parametrize("way", WAYS)
def test_marker_that_got_there_with_an_error_is_not_written_again(logs: Logs, way: Way) -> None:
    txn = logs.transaction()
    txn.append("a", ["kept"])
    with pytest.MonkeyPatch.context() as patched:
        way(patched)
        with pytest.raises((StorageError, KeyboardInterrupt)):
            txn.commit()
    txn.commit()
    assert logs.latest("a") == 3  # before, kept, one marker
    assert values(logs, "a", isolation=COMMITTED) == [b"before", b"kept"]
