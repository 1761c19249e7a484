"""How long and how fast a rewrite may run."""

from __future__ import annotations

import math
from queue import SimpleQueue

import pytest

from stratalog.rewrite.limits import RewriteLimits, RewriteStoppedError, Throttle
from stratalog.testing import ManualClock


class PassingClock(ManualClock):
    """A clock that moves while somebody waits, and says for how long."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[int] = []

    def wait(self, wake_ups: SimpleQueue[None], until_ms: int | None) -> None:
        assert until_ms is not None
        self.waits.append(until_ms - self.monotonic_ms())
        self.advance(until_ms - self.monotonic_ms())


def test_a_rewrite_without_limits_is_not_stopped() -> None:
    limits = RewriteLimits()
    limits.note(1 << 40)
    limits.check()
    assert limits.bytes_done == 1 << 40


def test_a_rewrite_stops_after_so_many_bytes() -> None:
    limits = RewriteLimits(bytes_max=100)
    limits.note(60)
    limits.note(40)
    with pytest.raises(RewriteStoppedError, match="limit of 100 bytes"):
        limits.note(1)


def test_a_rewrite_stops_at_its_deadline() -> None:
    clock = ManualClock()
    limits = RewriteLimits(deadline_ms=clock.monotonic_ms() + 50, clock=clock)
    clock.advance(49)
    limits.check()
    clock.set(0)  # a wall clock that jumps does not count
    limits.check()
    clock.advance(1)
    with pytest.raises(RewriteStoppedError, match="time limit"):
        limits.check()


def test_a_rewrite_stops_on_request() -> None:
    stops = [False, True]
    limits = RewriteLimits(is_stopped=lambda: stops.pop(0))
    limits.note(1)
    with pytest.raises(RewriteStoppedError, match="on request"):
        limits.note(1)


def test_progress_is_reported_before_a_limit_stops_it() -> None:
    seen: list[int] = []
    limits = RewriteLimits(bytes_max=5, progress=seen.append)
    limits.note(3)
    with pytest.raises(RewriteStoppedError):
        limits.note(4)
    assert seen == [3, 4]


def test_a_throttle_spreads_bytes_over_time() -> None:
    clock = PassingClock()
    throttle = Throttle(1000, clock)
    for _ in range(5):
        throttle.note(100, lambda: None)
    assert clock.monotonic_ms() == 500
    assert clock.waits == [100] * 5


def test_a_throttle_does_not_wait_for_bytes_that_came_late() -> None:
    clock = PassingClock()
    throttle = Throttle(1000, clock)
    clock.advance(300)
    throttle.note(300, lambda: None)
    assert clock.waits == []
    throttle.note(1, lambda: None)
    assert clock.waits == [], "a pause of a millisecond would cost more than it gives"
    throttle.note(1, lambda: None)
    assert clock.waits == [2]


def test_a_throttle_does_not_save_up_idle_time() -> None:
    clock = PassingClock()
    throttle = Throttle(1000, clock)
    throttle.note(100, lambda: None)
    clock.advance(3_600_000)
    begin = clock.monotonic_ms()
    for _ in range(50):
        throttle.note(100, lambda: None)
    assert clock.monotonic_ms() - begin == 5000 - 300


def test_a_long_pause_of_a_throttle_can_be_ended() -> None:
    clock = PassingClock()
    limits = RewriteLimits(
        throttle=Throttle(1, clock), is_stopped=lambda: len(clock.waits) >= 3, clock=clock
    )
    with pytest.raises(RewriteStoppedError):
        limits.note(1 << 20)
    assert len(clock.waits) == 3
    assert max(clock.waits) <= 200


@pytest.mark.parametrize("rate", [math.inf, 1.7976931348623157e308, 2.0**63])
def test_a_rate_without_bound_never_waits(rate: float) -> None:
    clock = PassingClock()
    Throttle(rate, clock).note(1 << 60, lambda: None)
    assert clock.waits == []
