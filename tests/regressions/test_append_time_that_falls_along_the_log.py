"""The append time is read before the lock: an append that was slow to be checked brought an earlier time than
those which had overtaken it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.records.scan import STRICT, scan_batches
from stratalog.storage.partition_log import PartitionLog
from stratalog.testing.clock import ManualClock
from tests.storage.logs import T, batch, log_bytes, open_log

CONFIGS = {"message.timestamp.type": "LogAppendTime"}


class SlowClock(ManualClock):
    """Who asks it the time is overtaken before he gets the answer."""

    overtake: Callable[[], None] | None = None

    def now_ms(self) -> int:
        now = super().now_ms()
        meanwhile, self.overtake = self.overtake, None
        if meanwhile is not None:
            meanwhile()
        return now


def overtaken(log: PartitionLog, clock: SlowClock, *, rolls: bool) -> None:
    clock.advance(5)
    log.append(batch(b"fast"))
    if rolls:
        log.roll()
    clock.advance(2)


@pytest.mark.parametrize("rolls", [False, True])
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("codec", ["producer", "lz4"])
def test_it_rises(tmp_path: Path, batches: int, rolls: bool, codec: str) -> None:
    clock = SlowClock()
    log = open_log(tmp_path, {**CONFIGS, "compression.type": codec}, clock=clock)
    log.append(batch(b"first"))
    clock.overtake = lambda: overtaken(log, clock, rolls=rolls)
    assert log.append(batch(b"slow") * batches).append_time == T + 7
    found = [each.max_timestamp for each in scan_batches(log_bytes(log), check=STRICT)]
    assert found == [T, T + 5] + [T + 7] * batches
    time_found = log.offset_for_time(T + 6)
    assert time_found is not None
    assert time_found[:2] == (2, T + 7)
    log.close()


def test_a_clock_that_was_set_back_is_believed(tmp_path: Path) -> None:
    """As in Kafka: the log keeps to the clock, not to its own past."""
    clock = ManualClock()
    log = open_log(tmp_path, CONFIGS, clock=clock)
    log.append(batch(b"a"))
    clock.set(T - 1000)
    assert log.append(batch(b"b")).append_time == T - 1000
    log.close()
