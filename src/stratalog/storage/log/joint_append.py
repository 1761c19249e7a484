"""Appends of several callers at once, as a loop has them that serves all who are ready.

Each is admitted by itself, gets its own offsets and its own answer. What lies between is done once for all:
the lock, the write, the indexes, the new view. An append that is not one of the common kind takes the usual
way when its turn comes, so that the log is what it would be had each been appended alone.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final, TypeAlias

from stratalog.errors import StratalogError
from stratalog.records.layout import Row
from stratalog.storage.admission.admit import admit_plain
from stratalog.storage.log.appending import (
    UNSTAMPED,
    AppendResult,
    append_as_leader,
    undo_write,
)
from stratalog.storage.log.state import LogState
from stratalog.storage.producers.states import Origin
from stratalog.types import NO_TIMESTAMP, Bytes

__all__ = ["Answer", "append_jointly"]

#: Where an append went, or why it did not.
Answer = AppendResult | StratalogError

_PRODUCER_ID: Final = int(Row.PRODUCER_ID)
_CLIENT: Final = Origin.CLIENT
#: Up to here, to copy bytes together is cheaper than to write each by itself.
_JOINT_BYTES: Final = 64 << 10
_GROUP_BYTES: Final = 1 << 20

_Plain: TypeAlias = "tuple[bytearray | memoryview, array[int]]"


def append_jointly(state: LogState, appends: Iterable[Bytes], leader_epoch: int) -> list[Answer]:
    """Append each as the leader, in this order; an answer for each. What one is refused for is no matter of
    the others."""
    answers: list[Answer] = []
    group: list[_Plain] = []
    size = 0
    rules = state.settings.rules
    now_ms = state.clock.now_ms()
    for data in appends:
        plain = None
        if len(data) <= _JOINT_BYTES and not rules.changes_batches:
            plain = admit_plain(data, rules, now_ms)
        is_plain = plain is not None and plain[1][_PRODUCER_ID] < 0
        if not is_plain or size + len(data) > _GROUP_BYTES:
            answers += _append_group(state, group, leader_epoch)
            group, size = [], 0
        if plain is not None and is_plain:
            group.append(plain)
            size += len(data)
        else:
            answers.append(_append_one(state, data, leader_epoch))
    return answers + _append_group(state, group, leader_epoch)


def _append_one(state: LogState, data: Bytes, leader_epoch: int) -> Answer:
    try:
        return append_as_leader(state, data, leader_epoch, _CLIENT, strict_markers=False)
    except StratalogError as error:
        return error


def _append_group(state: LogState, group: list[_Plain], leader_epoch: int) -> list[Answer]:
    """Those that the active segment takes, with one write; the rest one by one."""
    answers: list[Answer] = []
    if len(group) > 1:
        try:
            answers += _write_group(state, group, leader_epoch)
        except StratalogError as error:
            # Without room nothing of them is there. Alone, some may still find it.
            if state.guard.failure is not None or state.guard.is_closed:
                for data, _ in group:
                    data[:8] = UNSTAMPED
                return [error] * len(group)
    for data, _ in group[len(answers) :]:
        data[:8] = UNSTAMPED  # not the one that a place in the segment would have given it
        answers.append(_append_one(state, data, leader_epoch))
    return answers


def _write_group(state: LogState, group: list[_Plain], leader_epoch: int) -> list[Answer]:
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
        position = active.size_bytes
        try:
            active.append(data, rows, len(ends))
            state.publish_append(ends[-1] + 1, False)
        except BaseException as error:
            undo_write(state, position, error)
            raise
        log_start = state.view.log_start
    answers: list[Answer] = []
    for last_offset in ends:
        answers.append(AppendResult(first, last_offset, NO_TIMESTAMP, log_start))
        first = last_offset + 1
    return answers
