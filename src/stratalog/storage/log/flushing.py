"""Onto the disk: what an append waits for, and the recovery point that a flush moves."""

from __future__ import annotations

from stratalog.storage.log.state import LogState, Watermark

__all__ = ["finish", "flush", "flush_if_due", "reach"]


def reach(state: LogState, offset: int) -> None:
    """Wait for the disk; then readers may see it. One sync serves everyone who waits."""
    state.commit.reach(offset)
    if state.watermark is Watermark.SYNCED and offset > state.view.high_watermark:
        state.advance_high_watermark(min(state.commit.synced_offset, state.view.log_end))


def flush(state: LogState) -> int:
    """Sync the log and what points into it. From here on recovery need not look at it: the recovery
    point moves to the end, and is answered."""
    guard = state.guard
    guard.check_process()
    with state.flush_lock:
        reach(state, state.view.log_end)
        with guard.changing():
            active, end = state.active, state.commit.synced_offset
            active.write_indexes()
        guard.synced(active.sync_indexes)
        guard.synced(state.snapshots.sync)
        guard.synced(state.sync_folder)
        state.recovery_point = max(state.recovery_point, min(end, state.view.log_end))
        state.flushed_ms = state.clock.monotonic_ms()
        return state.recovery_point


def flush_if_due(state: LogState) -> bool:
    """Flush where ``flush.ms`` have passed since the last time, and there is something to flush."""
    flush_ms = state.settings.flush_ms
    if flush_ms is None or state.view.log_end <= state.recovery_point:
        return False
    if state.clock.monotonic_ms() - state.flushed_ms < flush_ms:
        return False
    flush(state)
    return True


def finish(state: LogState) -> None:
    """Everything onto the disk, as an orderly stop leaves it; under both locks."""
    guard, active, end = state.guard, state.active, state.view.log_end
    if end > state.producers.snapshot_offset:
        state.snapshots.write(state.producers, end)
    active.finish()
    guard.synced(active.sync_log)
    guard.synced(active.sync_indexes)
    guard.synced(state.snapshots.sync)
    guard.synced(state.sync_folder)
    state.recovery_point = end
    state.commit.raise_to(end)
