"""Flush a log: sync it with what points into it, and move the recovery point."""

from __future__ import annotations

from stratalog.storage.log.state import LogState

__all__ = ["finish", "flush", "flush_if_due"]


def flush(state: LogState) -> int:
    """Sync the log and what points into it; return the recovery point, which is the log end then: recovery
    need not check what lies below."""
    guard = state.guard
    guard.check_process()
    with state.flush_lock:
        state.reach(state.view.log_end)
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
    """Flush if ``flush.ms`` have passed since the last time and there is something to flush."""
    flush_ms = state.settings.flush_ms
    if flush_ms is None or state.view.log_end <= state.recovery_point:
        return False
    if state.clock.monotonic_ms() - state.flushed_ms < flush_ms:
        return False
    flush(state)
    return True


def finish(state: LogState) -> None:
    """Sync everything, as a clean shutdown leaves it. The caller holds both locks."""
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
