"""What takes batches away: at the end (``truncate``, ``restart``) and at the start of a log."""

from __future__ import annotations

from stratalog.errors import OffsetOutOfRangeError, StorageError
from stratalog.storage.log.retention import RetentionPlan
from stratalog.storage.log.rolling import roll
from stratalog.storage.log.state import LogState
from stratalog.storage.names import FileKind
from stratalog.storage.producers.rebuild import rebuild_producers
from stratalog.storage.segment.activate import activate
from stratalog.storage.segment.sealed import SealedSegment
from stratalog.storage.segment.segment import Segment
from stratalog.storage.views.log_view import LogView, SegmentList

__all__ = ["advance_start", "delete_segments", "restart", "truncate"]


def truncate(state: LogState, offset: int) -> bool:
    """Cut the log so that it ends at ``offset``; False where it ends there or before already."""
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
                _cut(state, offset)
        return True


def restart(state: LogState, offset: int, log_start: int) -> None:
    """Throw everything away and go on at ``offset``."""
    state.guard.check_process()
    with state.flush_lock, state.guard.changing(), state.guard.unbroken():
        _start_over(state, offset, log_start)


def _cut(state: LogState, offset: int) -> None:
    view = state.view
    keep = view.segments.floor(offset) + 1
    gone = view.segments.segments[keep:]
    kept = list(view.segments.segments[:keep])
    if gone:
        state.active.finish()
        # The newest first: no hole, should it be interrupted.
        _remove(state, list(reversed(gone)))
        last = kept.pop()
        assert isinstance(last, SealedSegment)
        state.active = activate(state.file_system, state.clock, last)
        kept.append(state.active)
    state.active.truncate(offset)
    state.guard.synced(state.active.sync_log)
    state.epochs.truncate_from_end(offset)
    state.recovery_point = min(state.recovery_point, offset)
    state.commit.lower(offset)
    log_start = min(offset, view.log_start)
    high_watermark = min(view.high_watermark, offset)
    _rebuild_producers(state, kept, log_start, offset)
    state.view = LogView(
        SegmentList(kept),
        log_start,
        offset,
        state.active.size_bytes,
        high_watermark,
        min(state.stable_offset(high_watermark, log_start), high_watermark),
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
    *older, _ = state.view.segments.segments
    # There is a segment at any time: a log that has none would begin at 0 after a crash.
    _remove(state, older)
    if state.active.base_offset == offset:
        state.active.truncate(offset)
        state.guard.synced(state.active.sync_log)
    else:
        last = state.active
        last.finish()
        # Sealed ones are whole, whatever happens: until it is gone, this is one.
        state.guard.synced(last.sync_log)
        state.guard.synced(last.sync_indexes)
        state.active = state.create_segment(offset)
        state.guard.synced(state.sync_folder)
        _remove(state, [last])
    state.epochs.clear()
    state.producers.clear()
    for each in state.snapshots.offsets:
        state.snapshots.delete(each)
    state.producers.map_end_offset = offset
    state.recovery_point = min(state.recovery_point, offset)
    state.commit.lower(offset)
    state.commit.raise_to(offset)  # there is nothing below it
    state.view = LogView(SegmentList([state.active]), log_start, offset, 0, offset, offset)


def advance_start(state: LogState, offset: int) -> bool:
    """Raise the log's start; False where it is there already."""
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
    # Only up to what is on the disk: behind it recovery must be free to cut.
    state.recovery_point = max(state.recovery_point, min(offset, state.commit.synced_offset))
    state.view = view._replace(
        log_start=offset,
        high_watermark=max(view.high_watermark, offset),
        last_stable_offset=max(view.last_stable_offset, offset),
    )
    return True


def delete_segments(state: LogState, plan: RetentionPlan) -> None:
    """Do what retention has planned; the lock is held since."""
    if not plan.deletions:
        return
    if plan.needs_roll:
        roll(state, state.view.log_end)
    assert plan.new_log_start is not None
    _raise_start(state, plan.new_log_start)
    view = state.view
    count = len(plan.deletions)
    gone, kept = view.segments.segments[:count], view.segments.segments[count:]
    state.view = view._replace(segments=SegmentList(kept))
    try:
        _remove(state, list(gone))
    except StorageError:
        # Those that still have their names are there again, below the start: to be tried once more.
        there = [each for each in gone if state.file_system.stat(each.path(FileKind.LOG))]
        state.view = state.view._replace(segments=SegmentList([*there, *kept]))
        raise


def _remove(state: LogState, segments: list[Segment]) -> None:
    state.removals.remove(segments, state.settings.config.file_delete_delay_ms)
