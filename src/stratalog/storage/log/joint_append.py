"""Append for several callers at once, as a loop does that serves all connections that are ready.

Each append is admitted by itself and gets its own offsets and its own answer. The lock, the write, the
indexes and the new view are shared. An append that is not of the common kind is made alone when its turn
comes, so that the log is the same as if each had been appended alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from stratalog.errors import StratalogError
from stratalog.records.layout import Row
from stratalog.storage.admission.admit import Plain, admit_plain
from stratalog.storage.log.appending import (
    UNSTAMPED,
    AppendResult,
    append_as_leader,
    append_group,
)
from stratalog.storage.log.state import LogState
from stratalog.storage.producers.states import Origin
from stratalog.types import Bytes

__all__ = ["Answer", "append_jointly"]

#: Where an append went, or why it was refused.
Answer = AppendResult | StratalogError

_PRODUCER_ID: Final = int(Row.PRODUCER_ID)
_CLIENT: Final = Origin.CLIENT
#: Up to this size, copying appends together is cheaper than writing each by itself.
_JOINT_BYTES: Final = 64 << 10
_GROUP_BYTES: Final = 1 << 20


def append_jointly(state: LogState, appends: Iterable[Bytes], leader_epoch: int) -> list[Answer]:
    """Append each as the leader, in this order; return an answer for each. One that is refused does not
    affect the others."""
    answers: list[Answer] = []
    group: list[Plain] = []
    size = 0
    rules = state.settings.rules
    now_ms = state.clock.now_ms()
    for data in appends:
        plain = admit_plain(data, rules, now_ms) if len(data) <= _JOINT_BYTES else None
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


def _append_group(state: LogState, group: list[Plain], leader_epoch: int) -> list[Answer]:
    """Append with one write what the active segment takes, and the rest one by one."""
    answers: list[Answer] = []
    if len(group) > 1:
        try:
            answers += append_group(state, group, leader_epoch)
        except StratalogError as error:
            # Without room nothing of them is there. Alone, some may still find it.
            if state.guard.failure is not None or state.guard.is_closed:
                return [error] * len(group)
    for data, _ in group[len(answers) :]:
        data[:8] = UNSTAMPED  # not the one that a place in the segment would have given it
        answers.append(_append_one(state, data, leader_epoch))
    return answers
