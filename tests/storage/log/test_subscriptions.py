"""Callbacks of a log that moves: when they are called, and what they may do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from stratalog.errors import UsageError
from stratalog.storage.partition_log import PartitionLog, Watermark
from tests.storage.logs import batch


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    (tmp_path / "t-0").mkdir()
    opened = PartitionLog.open(str(tmp_path / "t-0"))
    yield opened
    opened.close()


def test_every_move_is_called_when_the_log_shows_it(log: PartitionLog) -> None:
    seen: list[tuple[int, int, bool]] = []
    log.subscribe(lambda: seen.append((log.log_end, log.high_watermark, log.is_closed)))
    log.append(batch(b"a", b"b"))
    log.advance_high_watermark(1)
    log.advance_high_watermark(1)  # moves nothing
    log.append(batch(b"c"), sync=True)
    log.close()
    assert seen == [(2, 0, False), (2, 1, False), (3, 1, False), (3, 1, True)]


@pytest.mark.parametrize("watermark", [Watermark.WRITTEN, Watermark.SYNCED])
def test_the_high_watermark_has_moved_when_the_last_call_comes(
    tmp_path: Path, watermark: Watermark
) -> None:
    (tmp_path / "t-0").mkdir()
    log = PartitionLog.open(str(tmp_path / "t-0"), watermark=watermark)
    seen: list[int] = []
    log.subscribe(lambda: seen.append(log.high_watermark))
    log.append(batch(b"a"), sync=True)
    assert seen[-1] == 1
    log.close()


def test_a_cancelled_subscription_is_not_called(log: PartitionLog) -> None:
    seen: list[str] = []
    first = log.subscribe(lambda: seen.append("first"))
    second = log.subscribe(lambda: seen.append("second"))
    log.append(batch(b"a"))
    first.cancel()
    first.cancel()
    log.append(batch(b"b"))
    second.cancel()
    log.append(batch(b"c"))
    assert seen == ["first", "second", "second"]


def test_callbacks_may_cancel_each_other_and_subscribe_during_a_call(log: PartitionLog) -> None:
    seen: list[str] = []

    def once() -> None:
        seen.append("once")
        own.cancel()
        other.cancel()  # it is next, and not called any more
        log.subscribe(lambda: seen.append("new"))  # from the next move on

    own = log.subscribe(once)
    other = log.subscribe(lambda: seen.append("other"))
    log.append(batch(b"a"))
    assert seen == ["once"]
    log.append(batch(b"b"))
    assert seen == ["once", "new"]


def test_a_callback_that_raises_stops_neither_the_append_nor_the_others(
    log: PartitionLog, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []

    def fail() -> None:
        raise ValueError("a bug")

    log.subscribe(fail)
    log.subscribe(lambda: seen.append(log.log_end))
    assert log.append(batch(b"a")).last_offset == 0
    assert seen == [1]
    assert log.failure is None
    assert [record.name for record in caplog.records] == ["stratalog.subscriptions"]


def test_threads_that_wait_are_woken_next_to_subscriptions(log: PartitionLog) -> None:
    moved = threading.Event()
    subscription = log.subscribe(moved.set)
    answers: list[bool] = []
    waiter = threading.Thread(target=lambda: answers.append(log.wait(0, timeout_s=60)))
    waiter.start()
    log.append(batch(b"a"))
    waiter.join(60)
    assert answers == [True]
    assert moved.is_set()
    subscription.cancel()
    assert log._state.waiters.count == 0


def test_thousands_of_subscriptions_are_all_called_and_leave_nothing(log: PartitionLog) -> None:
    calls = [0] * 5000

    def count(number: int) -> None:
        calls[number] += 1

    subscriptions = [log.subscribe(partial(count, n)) for n in range(len(calls))]
    for _ in range(3):
        log.append(batch(b"a"))
    assert set(calls) == {3}
    for each in subscriptions[::2]:
        each.cancel()
    log.append(batch(b"a"))
    assert (set(calls[::2]), set(calls[1::2])) == ({3}, {4})
    for each in subscriptions:
        each.cancel()
    assert log._state.waiters.count == 0


def test_subscriptions_come_and_go_while_threads_append(log: PartitionLog) -> None:
    stop = threading.Event()

    def append() -> None:
        while not stop.is_set():
            log.append(batch(b"a"))

    writers = [threading.Thread(target=append) for _ in range(2)]
    for each in writers:
        each.start()
    for _ in range(300):
        called = threading.Event()
        subscription = log.subscribe(called.set)
        assert called.wait(60)
        subscription.cancel()
    stop.set()
    for each in writers:
        each.join()
    assert log._state.waiters.count == 0


def test_an_event_loop_waits_without_a_thread(log: PartitionLog) -> None:
    async def long_poll() -> int:
        loop, moved = asyncio.get_running_loop(), asyncio.Event()
        subscription = log.subscribe(lambda: loop.call_soon_threadsafe(moved.set))
        try:
            writer = threading.Thread(target=log.append, args=(batch(b"a"),))
            writer.start()
            while log.log_end == 0:
                await asyncio.wait_for(moved.wait(), 60)
                moved.clear()
            writer.join()
            return log.log_end
        finally:
            subscription.cancel()

    assert asyncio.run(long_poll()) == 1


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_callback_that_ends_the_program_does_not_fail_the_log(
    log: PartitionLog, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def leave() -> None:
        raise error

    log.subscribe(leave)
    assert log.append(batch(b"a")).last_offset == 0
    assert log.append(batch(b"b"), sync=True).last_offset == 1
    assert log.failure is None
    assert "a callback of a log that moved has failed" in caplog.text


def test_what_cannot_be_called_is_refused(log: PartitionLog) -> None:
    with pytest.raises(UsageError, match="a callback is a function without arguments, not None"):
        log.subscribe(None)  # type: ignore[arg-type]
