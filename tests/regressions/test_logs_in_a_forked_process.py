"""A forked process shared the open logs of its parent: what it appended was acknowledged, and overwritten by
the parent; what it closed was marked as closed in order while the parent went on writing."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import UsageError
from stratalog.manager.logs import Logs
from stratalog.storage.partition_log import PartitionLog
from tests.manager.logdirs import tree, values
from tests.storage.logs import batch

MARKER = ".kafka_cleanshutdown"


def in_child(call: Callable[[], object]) -> None:
    """Run it in a forked process; its error is the test's. One that hangs is the test's time limit."""
    told = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            call()
        except BaseException:  # noqa: BLE001
            os.write(told[1], traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(0)
    os.close(told[1])
    with os.fdopen(told[0]) as answer:
        error = answer.read()
    os.waitpid(child, 0)
    assert not error, error


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    opened = stratalog.open(tmp_path / "logs")
    opened.create("a", 1, {"flush.messages": 1})
    opened.append("a", ["0", "1"])
    return opened


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(UsageError, match="the process that this one was forked from"):
        call()


def test_every_change_is_refused_in_the_child(tmp_path: Path, logs: Logs) -> None:
    log = logs.partition("a")
    txn = logs.transaction()
    txn.append("a", ["in the transaction"])
    before = tree(tmp_path)

    def child() -> None:
        for call in (
            lambda: logs.append("a", ["x"]),
            lambda: logs.create("b"),
            lambda: logs.add_partitions("a", 2),
            lambda: logs.partition("a"),
            lambda: logs.delete_records("a", 0, 1),
            logs.retain,
            logs.flush,
            logs.checkpoint,
            logs.transaction,
            lambda: txn.append("a", ["x"]),
            txn.commit,
            txn.abort,
            lambda: log.append(batch(b"x")),
            lambda: log.append(batch(b"x"), sync=True),
            lambda: log.append_as_follower(batch(b"x", base_offset=9)),
            log.roll,
            log.sync,
            log.flush,
            lambda: log.truncate(0),
            lambda: log.when_synced(1, print),
        ):
            refused(call)
        (answer,) = log.append_each([batch(b"x")])
        assert isinstance(answer, UsageError)
        with pytest.raises(UsageError, match="forked"), txn:
            pass

    in_child(child)
    assert tree(tmp_path) == before
    txn.commit()
    logs.append("a", ["2"])
    assert values(logs, "a") == [b"0", b"1", b"in the transaction", b"2"]
    logs.close()
    with stratalog.open(tmp_path / "logs") as again:
        assert values(again, "a") == [b"0", b"1", b"in the transaction", b"2"]


@pytest.mark.parametrize("log_too", [False, True])
def test_closing_in_the_child_changes_nothing(tmp_path: Path, logs: Logs, log_too: bool) -> None:
    log = logs.partition("a")
    txn = logs.transaction()
    txn.append("a", ["in the transaction"])
    before = tree(tmp_path)

    def child() -> None:
        if log_too:
            log.close()
            assert log.is_closed
        with logs:
            pass
        logs.close()
        with pytest.raises(UsageError, match="closed"):
            logs.read("a")

    in_child(child)
    assert tree(tmp_path) == before
    assert not (tmp_path / "logs" / MARKER).exists()
    txn.commit()
    logs.close()
    assert (tmp_path / "logs" / MARKER).exists()


def test_child_reads_as_beside_another_writer(logs: Logs) -> None:
    step = os.pipe()

    def child() -> None:
        assert values(logs, "a")[:2] == [b"0", b"1"]
        tailed = logs.tail("a", start=2, timeout_s=30)
        assert next(tailed).value == b"2"
        assert logs.latest("a") == 3
        assert values(logs, "b") == [b"new"]

    def parent() -> None:
        os.read(step[0], 1)
        logs.create("b")
        logs.append("b", ["new"])
        logs.append("a", ["2"])

    writer = threading.Thread(target=parent)
    os.write(step[1], b"1")
    writer.start()
    in_child(child)
    writer.join()
    logs.close()
    for fd in step:
        os.close(fd)


def test_what_was_opened_to_be_read_is_the_childs_too(tmp_path: Path, logs: Logs) -> None:
    with stratalog.open(tmp_path / "logs", read_only=True) as beside:

        def child() -> None:
            assert values(beside, "a") == [b"0", b"1"]
            beside.close()

        in_child(child)
        assert values(beside, "a") == [b"0", b"1"]
    logs.close()


def test_child_does_not_wait_for_a_thread_that_it_does_not_have(logs: Logs) -> None:
    """Another thread holds the log's lock, and that of all logs, when the fork comes."""
    log = logs.partition("a")
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with logs._lock, log._state.flush_lock, log._state.guard.lock:
            held.set()
            go.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()

    def child() -> None:
        refused(lambda: log.append(batch(b"x")))
        refused(log.flush)
        refused(lambda: log.truncate(0))
        refused(log.remove_due)
        refused(logs.transaction)
        assert values(logs, "a") == [b"0", b"1"]
        logs.close()
        log.close()

    in_child(child)
    go.set()
    holder.join()
    logs.close()


def test_child_may_open_logs_of_its_own(tmp_path: Path, logs: Logs) -> None:
    def child() -> None:
        with stratalog.open(tmp_path / "other") as own:
            own.create("a")
            own.append("a", ["x"])
        log = PartitionLog.open(str(tmp_path / "other" / "a-0"))
        log.append(batch(b"y"), sync=True)
        log.close()

    in_child(child)
    with stratalog.open(tmp_path / "other") as other:
        assert values(other, "a") == [b"x", b"y"]
    logs.close()
