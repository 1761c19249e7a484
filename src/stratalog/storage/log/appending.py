"""Append: admit without the lock; under it, assign offsets, roll, write, update the indexes, publish.

Nothing that depends only on bytes happens under the lock.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

from stratalog.errors import (
    BatchTooLargeError,
    InvalidRecordError,
    OffsetOrderError,
    StorageError,
    UsageError,
)
from stratalog.records.layout import INT32_MAX, ROW_WIDTH, Row
from stratalog.storage.admission.admit import (
    Admitted,
    Plain,
    admit_checked,
    admit_follower,
    admit_plain,
)
from stratalog.storage.log.adoption import StagedFile
from stratalog.storage.log.guard import NO_ROOM
from stratalog.storage.log.rolling import roll, roll_if_needed
from stratalog.storage.log.state import LogState
from stratalog.storage.producers.rebuild import marker_in
from stratalog.storage.producers.states import Admission, Origin
from stratalog.types import NO_LEADER_EPOCH, NO_TIMESTAMP, Bytes

__all__ = [
    "UNSTAMPED",
    "AppendResult",
    "adopt",
    "append_as_follower",
    "append_as_leader",
    "append_group",
    "check_leader_epoch",
]


_LEADER_EPOCH: Final = int(Row.LEADER_EPOCH)
_BASE_OFFSET: Final = int(Row.BASE_OFFSET)
_MAGIC: Final = int(Row.MAGIC)
_PRODUCER_ID: Final = int(Row.PRODUCER_ID)
_CLIENT: Final = Origin.CLIENT
#: The offset of a batch before a log assigns one.
UNSTAMPED: Final = bytes(8)
# What a named tuple's own function does, without that function.
_new: Final = tuple.__new__


class AppendResult(NamedTuple):
    """Where an append went. If ``is_duplicate``, it was stored before, at these offsets."""

    first_offset: int
    last_offset: int
    append_time: int
    log_start: int
    is_duplicate: bool = False

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1


def append_as_leader(
    state: LogState, data: Bytes, leader_epoch: int, origin: Origin, strict_markers: bool
) -> AppendResult:
    """Append batches as the leader, which assigns their offsets."""
    rules = state.settings.rules
    now_ms = state.clock.now_ms()
    plain = admit_plain(data, rules, now_ms) if origin is _CLIENT else None
    if plain is None:
        admitted = admit_checked(data, rules, now_ms, origin)
    else:
        if plain[1][_PRODUCER_ID] < 0:
            result = _append_plain(state, plain, leader_epoch)
            if result is not None:
                return result
        admitted = Admitted.of_plain(plain)
    check_leader_epoch(leader_epoch)
    segment_bytes = state.settings.segment_bytes
    if len(admitted.data) > segment_bytes:
        raise BatchTooLargeError(
            f"an append of {len(admitted.data)} bytes is above segment.bytes={segment_bytes}"
        )
    guard = state.guard
    with guard.lock:
        guard.check()
        try:
            result = _assign_and_append(state, admitted, leader_epoch, origin, strict_markers)
        except BaseException as error:
            admitted.take_back()
            if isinstance(error, StorageError):
                guard.fail_unless_full(error)
            raise
        if result.is_duplicate:
            admitted.take_back()
        return result


def check_leader_epoch(leader_epoch: int) -> None:
    """Raise UsageError for an epoch that no batch can carry. ``_append_plain`` and ``append_group`` need not
    ask: there it is the latest epoch of the log."""
    if not NO_LEADER_EPOCH <= leader_epoch <= INT32_MAX:
        raise UsageError(f"no leader epoch: {leader_epoch} (-1 is none, others have 31 bits)")


def _assign_and_append(
    state: LogState, admitted: Admitted, leader_epoch: int, origin: Origin, strict_markers: bool
) -> AppendResult:
    if admitted.append_time != NO_TIMESTAMP:
        _keep_time_order(state, admitted)
    end = state.view.log_end
    admitted.assign(end, leader_epoch)
    if admitted.last_offset - end > INT32_MAX:
        raise InvalidRecordError(
            f"an append of {admitted.last_offset - end + 1} offsets: a segment spans {INT32_MAX}"
        )
    return _append(state, admitted, origin, end, strict_markers)


def _keep_time_order(state: LogState, admitted: Admitted) -> None:
    """Read the append time again if it could be below that of an earlier append: it was read without the
    lock, and another append may have been faster. Kafka reads it for every append under its lock. An empty
    segment does not say which time the one before it ended with."""
    active = state.active
    if active.size_bytes == 0 or admitted.append_time < active.max_timestamp:
        now_ms = state.clock.now_ms()
        if now_ms != admitted.append_time:
            admitted.set_append_time(now_ms)


def _append_plain(state: LogState, plain: Plain, leader_epoch: int) -> AppendResult | None:
    """Append one batch without a producer id, in the latest leader epoch, to a segment that takes it. Return
    None if it is not such. Most appends are, and what ``_append`` would look up for each is known here."""
    guard = state.guard
    with guard.lock:
        if guard.failure is not None or guard.is_closed:
            guard.check()
        active, epochs, first = state.active, state.epochs, state.view.log_end
        if leader_epoch != epochs.latest_epoch or first < epochs.latest_start or leader_epoch < 0:
            return None
        settings = state.settings
        data, row = plain
        last = active.place_plain(
            data, row, settings.segment_bytes, settings.max_segment_ms, first, leader_epoch
        )
        if last < 0:
            return None
        _write_plain(state, data, row, 1, last + 1, (plain,))
        return _new(AppendResult, (first, last, NO_TIMESTAMP, state.view.log_start, False))


def append_group(state: LogState, group: Sequence[Plain], leader_epoch: int) -> list[AppendResult]:
    """Append as many batches of ``_append_plain``'s kind as the active segment takes, one after the other,
    with one write; return a result for each of these."""
    guard = state.guard
    with guard.lock:
        guard.check()
        active, epochs, first = state.active, state.epochs, state.view.log_end
        if leader_epoch != epochs.latest_epoch or first < epochs.latest_start or leader_epoch < 0:
            return []
        settings = state.settings
        ends, rows, data = active.place_group(
            group, settings.segment_bytes, settings.max_segment_ms, first, leader_epoch
        )
        if not ends:
            return []
        _write_plain(state, data, rows, len(ends), ends[-1] + 1, group)
        log_start = state.view.log_start
    starts = (first, *(last + 1 for last in ends))
    return [
        AppendResult(start, last, NO_TIMESTAMP, log_start)
        for start, last in zip(starts, ends, strict=False)
    ]


def _write_plain(
    state: LogState, data: Bytes, rows: array[int], count: int, end: int, group: Sequence[Plain]
) -> None:
    """Write batches that have their offsets, and show them up to ``end``. After an error, those of ``group``
    have none again, so that they may be passed once more."""
    active = state.active
    position = active.size_bytes
    try:
        active.append(data, rows, count)
        state.publish_append(end, False)
    except BaseException as error:
        for each, _ in group:
            each[:8] = UNSTAMPED
        _undo_write(state, position, error)
        raise


def append_as_follower(state: LogState, data: Bytes, epoch_max: int | None) -> AppendResult | None:
    """Append batches that have their offsets from a leader. Return None if there is nothing to append."""
    state.guard.check()
    admitted = admit_follower(data, epoch_max=epoch_max)
    if admitted is None:
        return None
    with state.guard.changing():
        end = state.view.log_end
        first = admitted.first_offset
        lowest = admitted.first_batch_last_offset if first is None else first
        if lowest < end:
            raise OffsetOrderError(
                f"the log ends at {end}: an append from offset {lowest} on does not follow it"
            )
        if admitted.last_offset - lowest > INT32_MAX:
            raise OffsetOrderError(
                f"an append from {lowest} to {admitted.last_offset}: a segment spans {INT32_MAX}"
            )
        return _append(state, admitted, Origin.REPLICATION, lowest, strict_markers=False)


def adopt(
    state: LogState, staged: StagedFile, leader_epoch: int, first: int
) -> AppendResult | None:
    """Append a file of finished batches, the first of which gets offset ``first``, as a segment of its own.
    Return None if it cannot be one."""
    state.guard.check_process()
    with state.flush_lock, state.guard.changing():
        end = state.view.log_end
        if end != first:
            raise OffsetOrderError(
                f"the log ends at {end}: a segment from {first} does not follow it"
            )
        found = staged.stamp(
            state.file_system,
            next_offset=first,
            leader_epoch=leader_epoch,
            limits=state.settings.limits,
        )
        if found is None:
            return None
        roll(state, first)
        if leader_epoch != state.epochs.latest_epoch:
            state.epochs.assign(leader_epoch, first)
        with state.guard.unbroken():
            empty = state.active
            adopted = staged.replace(state.file_system, state.clock, empty, found)
            # Its batches are shown by the next step, together with the new log end offset.
            state.replace_segments([empty], [adopted], end_position=0)
            state.publish_append(found.next_offset, False)
        return AppendResult(first, found.next_offset - 1, NO_TIMESTAMP, state.view.log_start)


def _append(
    state: LogState, admitted: Admitted, origin: Origin, first_offset: int, strict_markers: bool
) -> AppendResult:
    admission = None
    if admitted.has_producer:
        admission = _admit_producers(state, admitted, origin, strict_markers)
        duplicate = admission.duplicate
        if duplicate is not None:
            return AppendResult(
                duplicate.first_offset, duplicate.last_offset, duplicate.timestamp,
                state.view.log_start, is_duplicate=True,
            )  # fmt: skip
    last_offset = admitted.last_offset
    roll_if_needed(state, admitted, last_offset)
    _note_epochs(state, admitted)
    active = state.active
    position = active.size_bytes
    try:
        active.append(admitted.data, admitted.rows, admitted.count)
        if admission is not None:
            _apply_producers(state, admission)
        state.publish_append(last_offset + 1, admission is not None)
    except BaseException as error:
        _undo_write(state, position, error)
        raise
    return AppendResult(first_offset, last_offset, admitted.append_time, state.view.log_start)


def _admit_producers(
    state: LogState, admitted: Admitted, origin: Origin, strict_markers: bool
) -> Admission:
    headers = admitted.headers()
    markers = {}
    for header in headers:
        if header.is_control and header.record_count and header.producer_id >= 0:
            batch = memoryview(admitted.data)[header.position : header.end_position]
            marker = marker_in(batch)
            if marker is None:
                raise InvalidRecordError(
                    f"the control record at offset {header.base_offset} cannot be read"
                )
            markers[header.base_offset] = marker
    return state.producers.admit(headers, origin, markers, strict_markers=strict_markers)


def _apply_producers(state: LogState, admission: Admission) -> None:
    state.producers.apply(admission)
    for txn in admission.completed:
        aborted = state.producers.complete(txn)
        if aborted is not None:
            state.active.note_aborted(aborted)


def _note_epochs(state: LogState, admitted: Admitted) -> None:
    rows, epochs = admitted.rows, state.epochs
    for at in range(0, admitted.count * ROW_WIDTH, ROW_WIDTH):
        epoch, base_offset = rows[at + _LEADER_EPOCH], rows[at + _BASE_OFFSET]
        if admitted.is_legacy and rows[at + _MAGIC] < 2:
            epochs.clear()  # messages of the old formats carry none
        # An append with a gap may have been noted, and then refused for want of room.
        elif epoch >= 0 and (epoch != epochs.latest_epoch or base_offset < epochs.latest_start):
            epochs.assign(epoch, base_offset)


def _undo_write(state: LogState, position: int, error: BaseException) -> None:
    """Undo a write that was refused for lack of room, or that a signal interrupted. Any other error fails the
    log."""
    guard, active = state.guard, state.active
    is_interrupt = not isinstance(error, Exception) and active.size_bytes == position
    if is_interrupt or (isinstance(error, StorageError) and error.errno in NO_ROOM):
        try:
            active.log.truncate(position)
        except StorageError as second:
            guard.fail(second)
        return
    if isinstance(error, StorageError):
        guard.fail(error)
    else:
        guard.fail(StorageError(f"an append was interrupted: {error!r}", path=state.folder))
