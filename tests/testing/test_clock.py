"""A clock in the hands of a test."""

from __future__ import annotations

import pytest

from stratalog.clock import Clock
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
