"""flush.ms: what is older than that is on the disk after the next append, or when a scheduler asks."""

from __future__ import annotations

from pathlib import Path

from stratalog.records.builder import build_batch
from stratalog.records.model import Record
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import PartitionLog
from stratalog.testing import ManualClock


def test_an_append_flushes_when_the_time_has_come(tmp_path: Path) -> None:
    clock = ManualClock()
    log = PartitionLog.open(str(tmp_path), LogConfig.of(flush_ms=1000), clock=clock)
    batch = build_batch([Record(b"v", timestamp=clock.now_ms())])
    log.append(batch)
    clock.advance(999)
    log.append(batch)
    assert (log.recovery_point, log.synced_offset) == (0, 0)
    clock.advance(1)
    log.append(batch)
    assert (log.recovery_point, log.synced_offset) == (3, 3)
    log.append(batch)
    assert log.recovery_point == 3
    clock.advance(1000)
    assert log.flush_if_due()
    assert log.recovery_point == 4
    clock.advance(5000)
    assert not log.flush_if_due(), "there is nothing to flush"
    log.close()


def test_without_the_config_nothing_is_due(tmp_path: Path) -> None:
    clock = ManualClock()
    log = PartitionLog.open(str(tmp_path), clock=clock)
    log.append(build_batch([Record(b"v", timestamp=clock.now_ms())]))
    clock.advance(10**12)
    assert not log.flush_if_due()
    log.close()
