"""Seal the active segment and begin the next. A segment is fsynced before the next one begins, so a power cut
can only tear the end of the last."""

from __future__ import annotations

from stratalog.errors import StorageError
from stratalog.storage.admission.admit import Admitted
from stratalog.storage.log.roll_plan import new_base_offset, plan_roll
from stratalog.storage.log.state import LogState
from stratalog.storage.segment.active import ActiveSegment
from stratalog.types import NO_TIMESTAMP

__all__ = ["roll", "roll_if_needed"]


def roll_if_needed(state: LogState, admitted: Admitted, last_offset: int) -> None:
    """Begin a new segment if the active one has no room for an append that ends at ``last_offset``."""
    active, settings = state.active, state.settings
    first_timestamp = active.first_timestamp
    index = active.index
    reason = plan_roll(
        active.size_bytes,
        settings.segment_bytes,
        len(admitted.data),
        admitted.max_timestamp,
        NO_TIMESTAMP if first_timestamp is None else first_timestamp,
        state.clock.now_ms() if (first_timestamp or 0) < 0 else 0,
        active.created_ms,
        settings.max_segment_ms,
        active.jitter_ms,
        index.is_offset_full,
        index.is_time_full,
        active.base_offset,
        last_offset,
    )
    if reason is not None:
        roll(state, new_base_offset(admitted.first_offset, last_offset, state.view.log_end))


def roll(state: LogState, base_offset: int) -> None:
    """Seal the active segment, fsynced, and begin the next at ``base_offset``."""
    guard, active, view = state.guard, state.active, state.view
    if active.base_offset == base_offset and active.size_bytes == 0:
        return  # the empty segment serves
    if base_offset < active.base_offset and active.size_bytes == 0:
        _replace_empty(state, base_offset)
        return
    if base_offset <= active.base_offset:
        raise StorageError(
            f"a segment at {base_offset} cannot follow one at {active.base_offset}",
            path=state.folder,
        )
    active.finish()
    guard.synced(active.sync_log)
    guard.synced(active.sync_indexes)
    if active.is_new:
        guard.synced(state.sync_folder)
    fresh = _begin_segment(state, base_offset)
    state.replace_segments([active], [active.seal(), fresh])
    state.recovery_point = max(state.recovery_point, view.log_end)
    state.commit.raise_to(view.log_end)


def _begin_segment(state: LogState, base_offset: int) -> ActiveSegment:
    """Create a segment, and the snapshot of the producers' state before it."""
    producers = state.producers
    if base_offset <= producers.snapshot_offset:
        return state.create_segment(base_offset)
    before = producers.snapshot_offset, producers.map_end_offset
    try:
        producers.map_end_offset = base_offset
        state.snapshots.write(producers, base_offset)
        state.guard.synced(state.snapshots.sync)
        return state.create_segment(base_offset)
    except BaseException:
        # If there was no room, the log may grow up to this offset in the old segment, with other producers.
        producers.snapshot_offset, producers.map_end_offset = before
        state.snapshots.delete(base_offset)
        raise


def _replace_empty(state: LogState, base_offset: int) -> None:
    """Begin the active segment at a lower offset: the append with a gap that was to begin it failed."""
    empty = state.active
    with state.guard.unbroken():
        state.removals.remove([empty], state.settings.config.file_delete_delay_ms)
        state.producers.snapshot_offset = max(state.snapshots.offsets, default=0)
        lower = state.create_segment(base_offset, jitter_ms=empty.jitter_ms)
        state.replace_segments([empty], [lower])
