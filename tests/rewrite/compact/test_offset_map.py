"""The newest offset of each key in the dirty section of a log: where a cleaning ends, and the next begins."""

from __future__ import annotations

from stratalog.rewrite.compact.clean import CleanerSettings, UnstoredCheckpoint, clean_log
from stratalog.rewrite.compact.sections import CleanableLog
from stratalog.rewrite.limits import RewriteLimits
from stratalog.storage.log_config import LogConfig
from tests.rewrite.compact.workloads import new_disk, open_log
from tests.storage.logs import batch


def test_a_dirty_section_that_was_deleted_since_it_was_planned_is_done() -> None:
    """Otherwise a cleaning in rounds would begin at the same offset for ever."""
    disk = new_disk()
    log = open_log(disk, LogConfig.of({"internal.segment.bytes": 200, "retention.ms": -1}))
    for number in range(8):
        log.append(batch(b"value %d" % number, key=b"k"))

    class Deleted(UnstoredCheckpoint):
        """Retention deletes the dirty segments after they were found."""

        def find(self, limit: int | None = None) -> CleanableLog:
            found = super().find(limit)
            log.advance_start(log.log_end)
            assert log.retain().deletions
            return found

    checkpoint = Deleted(log, now_ms=0)
    result = clean_log(
        log, checkpoint, CleanerSettings(), RewriteLimits(), now_ms=log.clock.now_ms()
    )
    assert result is not None
    assert result.groups == ()
    assert result.end_offset == log.segments[-1].base_offset == checkpoint.offset
    assert not result.is_partial
