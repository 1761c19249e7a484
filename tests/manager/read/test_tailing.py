"""Tails over logs of this process: they look when a log has moved, and only then."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import OffsetOrderError
from stratalog.manager.logs import Logs
from stratalog.manager.read.reading import PartitionView
from stratalog.manager.read.tailing import LogMoves, OwnLog, tail_records
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.views.log_view import Isolation
from stratalog.testing import Call
from stratalog.types import TopicPartition
from tests.manager.logdirs import ROOT, memory, open_memory
from tests.manager.meddling import Meddling
from tests.manager.staging import batches, stage


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    with stratalog.open(tmp_path) as opened:
        opened.create("t", 3)
        yield opened


class Looks:
    """Counts the looks of a tail over the partitions of a topic, and may do something at one of them."""

    def __init__(self, logs: Logs) -> None:
        self.count = 0
        self.at: dict[int, Callable[[], object]] = {}
        self.own = {TopicPartition("t", n): logs.partition("t", n) for n in range(3)}

    def _look(self, topic_partition: TopicPartition, log: PartitionLog) -> PartitionView:
        self.count += 1
        view = PartitionView(topic_partition, log.view)
        self.at.pop(self.count, lambda: None)()
        return view

    def tail(self, timeout_s: float | None) -> Iterator[bytes | None]:
        tailed = {
            each: OwnLog(log, partial(self._look, each, log)) for each, log in self.own.items()
        }
        moves = LogMoves(self.own.values())
        for record in tail_records(tailed, moves, None, Isolation.COMMITTED, timeout_s):
            yield record.value

    @property
    def subscriptions(self) -> list[int]:
        return [log._state.waiters.count for log in self.own.values()]


def test_an_idle_tail_over_three_partitions_looks_at_each_three_times_in_all(logs: Logs) -> None:
    looks = Looks(logs)
    assert list(looks.tail(0.6)) == []
    # When it is made, before it waits, and when the time is over. Polling would look every 50 ms.
    assert looks.count == 9
    assert looks.subscriptions == [0, 0, 0]


def test_an_append_is_followed_by_two_rounds_of_looks(logs: Logs) -> None:
    looks = Looks(logs)
    tail = looks.tail(60)
    looks.at[6] = lambda: logs.append("t", [b"a"], partition=1)  # before it waits
    assert next(tail) == b"a"
    # 3 when it is made, 3 without a record, and up to the second partition of the next round. The append
    # moves the log twice (written, then visible), so it may take a round more.
    assert looks.count in (8, 11)


@pytest.mark.parametrize("look", [4, 5, 6])
@pytest.mark.parametrize("partition", [0, 1, 2])
def test_an_append_between_a_look_and_the_wait_is_not_lost(
    logs: Logs, look: int, partition: int
) -> None:
    looks = Looks(logs)
    looks.at[look] = lambda: logs.append("t", [b"a"], partition=partition)
    tail = looks.tail(None)  # would wait for ever
    assert next(tail) == b"a"


@pytest.mark.parametrize("look", [4, 5, 6])
def test_a_close_between_a_look_and_the_wait_is_not_lost(logs: Logs, look: int) -> None:
    looks = Looks(logs)
    looks.at[look] = logs.close
    assert list(looks.tail(None)) == []


def test_close_wakes_a_tail_that_waits(logs: Logs) -> None:
    looks, ended = Looks(logs), threading.Event()
    waiting = threading.Event()
    looks.at[6] = waiting.set

    def run() -> None:
        assert list(looks.tail(None)) == []
        ended.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert waiting.wait(60)
    logs.close()
    assert ended.wait(60)
    thread.join()


def test_a_tail_subscribes_when_it_is_first_asked_and_not_after_it_is_dropped(logs: Logs) -> None:
    looks = Looks(logs)
    tail = looks.tail(60)
    assert looks.subscriptions == [0, 0, 0]
    looks.at[4] = lambda: logs.append("t", [b"a"], partition=0)
    assert next(tail) == b"a"
    assert looks.subscriptions == [1, 1, 1]
    tail.close()  # type: ignore[attr-defined]
    assert looks.subscriptions == [0, 0, 0]


def test_a_thousand_tails_leave_no_subscription(logs: Logs) -> None:
    tails = [logs.tail("t", timeout_s=0) for _ in range(1000)]
    logs.append("t", [b"a"], partition=2)
    assert all([record.value for record in tail] == [b"a"] for tail in tails)
    assert Looks(logs).subscriptions == [0, 0, 0]


def test_a_tail_ends_if_the_logs_are_closed_while_a_commit_is_not_finished() -> None:
    disk = Meddling(memory())
    logs = open_memory(disk)
    logs.create("t")
    logs.append("t", ["a"])
    tail = logs.tail("t", start=0)
    assert next(tail).value == b"a"
    key = CommitKey("query", 1)
    pieces = stage(disk, ROOT, key, {("t", 0): ["b"]}, clock=disk.memory.clock)
    data = batches(["c"], now_ms=disk.memory.clock.now_ms())
    disk.meddle = lambda: logs.partition("t").append(data)
    disk.at = (Call.SYNC, ".journal")
    with pytest.raises(OffsetOrderError):
        logs.commit(key, pieces)
    logs.close()
    assert list(tail) == []
