"""A clock in the hands of a test."""

from __future__ import annotations

import threading
from queue import SimpleQueue

import pytest

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.testing import ManualClock


def test_advance_moves_both_kinds_of_time():
    clock: Clock = (manual := ManualClock(now_ms=100))
    manual.advance(7)
    assert (clock.now_ms(), clock.monotonic_ms()) == (107, 7)


def test_set_jumps_back_and_leaves_monotonic_time():
    clock = ManualClock(now_ms=100)
    clock.advance(5)
    clock.set(10)
    assert (clock.now_ms(), clock.monotonic_ms()) == (10, 5)


def test_time_does_not_go_back_by_advancing():
    with pytest.raises(ValueError, match="set"):
        ManualClock().advance(-1)


def test_fork_goes_its_own_way():
    clock = ManualClock()
    clock.advance(3)
    other = clock.fork()
    clock.advance(4)
    assert (other.monotonic_ms(), clock.monotonic_ms()) == (3, 7)


def test_a_thread_that_waits_is_woken_when_its_time_has_come():
    clock = ManualClock()
    wake_ups: SimpleQueue[None] = SimpleQueue()
    woken: SimpleQueue[int] = SimpleQueue()

    def wait() -> None:
        clock.wait(wake_ups, 10)
        woken.put(clock.monotonic_ms())

    threading.Thread(target=wait).start()
    clock.advance(9)
    assert woken.empty()
    clock.advance(1)
    assert woken.get(timeout=30) == 10
    clock.wait(wake_ups, 10)  # it has come already


@pytest.mark.parametrize("clock", [ManualClock(), SYSTEM_CLOCK])
def test_a_wake_up_ends_a_wait_before_its_time(clock: Clock):
    wake_ups: SimpleQueue[None] = SimpleQueue()
    for until in (None, clock.monotonic_ms() + 10**9):
        wake_ups.put(None)
        clock.wait(wake_ups, until)
        assert wake_ups.empty()


def test_the_system_clock_waits_until_a_time():
    until = SYSTEM_CLOCK.monotonic_ms() + 20
    while SYSTEM_CLOCK.monotonic_ms() < until:
        SYSTEM_CLOCK.wait(SimpleQueue(), until)
