"""Remove batches: from the end of a log (``truncate``, ``restart``), and whole segments from its start."""

from __future__ import annotations

from collections.abc import Sequence

from stratalog.errors import OffsetOutOfRangeError, StorageError
from stratalog.storage.log.retention import RetentionPlan
from stratalog.storage.log.rolling import roll
from stratalog.storage.log.state import LogState
from stratalog.storage.names import FileKind
from stratalog.storage.producers.rebuild import rebuild_producers
from stratalog.storage.segment.activate import activate
from stratalog.storage.segment.sealed import SealedSegment
from stratalog.storage.segment.segment import Segment

__all__ = ["advance_start", "delete_segments", "restart", "truncate"]


def truncate(state: LogState, offset: int) -> bool:
    """Truncate the log so that it ends at ``offset``. Return False if it ends there or before already."""
    state.guard.check_process()
    with state.flush_lock, state.guard.changing():
        view = state.view
        if offset >= view.log_end:
            state.epochs.truncate_from_end(view.log_end)
            return False
        with state.guard.unbroken():
            if view.segments[0].base_offset > offset:
                _start_over(state, offset, offset)
            else:
                _truncate_end(state, offset)
        return True


def restart(state: LogState, offset: int, log_start: int) -> None:
    """Remove everything; the log continues at ``offset``."""
    state.guard.check_process()
    with state.flush_lock, state.guard.changing(), state.guard.unbroken():
        _start_over(state, offset, log_start)


def _truncate_end(state: LogState, offset: int) -> None:
    view, active = state.view, state.active
    last = view.segments.floor(offset)
    before, changed = view.segments.segments[:last], view.segments.segments[last:]
    gone = changed[1:]
    if gone:
        active.finish()
        # The newest first: an interruption leaves no hole.
        _remove(state, list(reversed(gone)))
        sealed = changed[0]
        assert isinstance(sealed, SealedSegment)
        active = activate(state.file_system, state.clock, sealed)
    active.truncate(offset)
    state.guard.synced(active.sync_log)
    state.epochs.truncate_from_end(offset)
    state.recovery_point = min(state.recovery_point, offset)
    state.commit.lower(offset)
    state.sync_queue.lower(offset)
    log_start = min(offset, view.log_start)
    high_watermark = min(view.high_watermark, offset)
    _rebuild_producers(state, [*before, active], log_start, offset)
    state.replace_segments(
        changed,
        [active],
        log_start=log_start,
        log_end=offset,
        end_position=active.size_bytes,
        high_watermark=high_watermark,
        last_stable_offset=min(state.stable_offset(high_watermark, log_start), high_watermark),
    )


def _rebuild_producers(state: LogState, segments: list[Segment], log_start: int, end: int) -> None:
    producers, snapshots = state.producers, state.snapshots
    for each in snapshots.offsets:
        if each > end:
            snapshots.delete(each)
    rebuild_producers(
        producers, snapshots, segments, log_start, end,
        now_ms=state.clock.now_ms(), ttl_ms=state.producer_ttl_ms,
    )  # fmt: skip
    producers.on_high_watermark(min(state.view.high_watermark, end))
    if end > 0 and end not in snapshots.offsets:
        snapshots.write(producers, end)


def _start_over(state: LogState, offset: int, log_start: int) -> None:
    changed, active = state.view.segments.segments, state.active
    # There is a segment at any time: a log without one would start at offset 0 after a crash.
    _remove(state, changed[:-1])
    if active.base_offset == offset:
        active.truncate(offset)
        state.guard.synced(active.sync_log)
    else:
        # A sealed segment is whole, whatever happens: until its files are gone, this is one.
        active.finish()
        state.guard.synced(active.sync_log)
        state.guard.synced(active.sync_indexes)
        active = state.create_segment(offset)
        state.guard.synced(state.sync_folder)
        _remove(state, changed[-1:])
    state.epochs.clear()
    state.producers.clear()
    for each in state.snapshots.offsets:
        state.snapshots.delete(each)
    state.producers.map_end_offset = offset
    state.recovery_point = min(state.recovery_point, offset)
    state.commit.lower(offset)
    state.sync_queue.lower(0)  # every record is gone, also if the log goes on at a higher offset
    state.commit.raise_to(offset)  # nothing lies below it
    state.replace_segments(
        changed,
        [active],
        log_start=log_start,
        log_end=offset,
        end_position=0,
        high_watermark=offset,
        last_stable_offset=offset,
    )


def advance_start(state: LogState, offset: int) -> bool:
    """Raise the log start offset. Return False if it is there already."""
    with state.guard.changing():
        view = state.view
        if offset > view.high_watermark or offset < 0:
            raise OffsetOutOfRangeError(offset, view.log_start, view.high_watermark)
        return _raise_start(state, offset)


def _raise_start(state: LogState, offset: int) -> bool:
    view = state.view
    if offset <= view.log_start:
        return False
    state.epochs.truncate_from_start(offset)
    # Only up to what is on the disk: above that, recovery must be free to truncate.
    state.recovery_point = max(state.recovery_point, min(offset, state.commit.synced_offset))
    state.view = view._replace(
        log_start=offset,
        high_watermark=max(view.high_watermark, offset),
        last_stable_offset=max(view.last_stable_offset, offset),
    )
    return True


def delete_segments(state: LogState, plan: RetentionPlan) -> None:
    """Carry out a retention plan. The caller has held the lock since the plan was made."""
    if not plan.deletions:
        return
    if plan.needs_roll:
        roll(state, state.view.log_end)
    assert plan.new_log_start is not None
    _raise_start(state, plan.new_log_start)
    view = state.view
    count = len(plan.deletions)
    gone, kept = view.segments.segments[:count], view.segments.segments[count:]
    state.replace_segments(gone, ())
    try:
        _remove(state, gone)
    except StorageError:
        # Those that still have their names return, below the log start: the next retention tries again.
        there = [each for each in gone if state.file_system.stat(each.path(FileKind.LOG))]
        state.replace_segments(kept, [*there, *kept])
        raise


def _remove(state: LogState, segments: Sequence[Segment]) -> None:
    state.removals.remove(segments, state.settings.config.file_delete_delay_ms)
