"""The entries of a segment's indexes held against its batches."""

from __future__ import annotations

import struct
from typing import Any

from stratalog.records._reference.cursor import wrap64
from stratalog.records._reference.rows import numbers_in
from stratalog.records.layout import (
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    MATCH_STATE_WIDTH,
    ROW_WIDTH,
    MatchState,
    MatchStop,
    Row,
)

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


def match_entries(
    rows: Any, at: int, count: int, state: Any, offset_entries: Any, time_entries: Any
) -> tuple[int, int]:
    given = numbers_in(rows, count * ROW_WIDTH)
    held = numbers_in(state, MATCH_STATE_WIDTH, writable=True)
    numbers = held[:MATCH_STATE_WIDTH].tolist()
    if at < 0 or numbers[MatchState.OFFSET_SLOT] < 0 or numbers[MatchState.TIME_SLOT] < 0:
        raise ValueError("a row or an entry before the first")
    offsets, times = _whole(offset_entries, _OFFSET_ENTRY), _whole(time_entries, _TIME_ENTRY)
    stop = MatchStop.DONE
    while at < count and stop is MatchStop.DONE:
        row = given[at * ROW_WIDTH : (at + 1) * ROW_WIDTH].tolist()
        stop = _match(row, numbers, offsets, times)
        at += stop in (MatchStop.DONE, MatchStop.CONTROL)
    for slot, number in enumerate(numbers):
        held[slot] = number
    return at, stop


def _whole(entries: Any, entry: struct.Struct) -> list[tuple[int, ...]]:
    view = memoryview(entries).cast("B")
    return list(entry.iter_unpack(view[: len(view) // entry.size * entry.size]))


def _match(
    row: list[int],
    state: list[int],
    offsets: list[tuple[int, ...]],
    times: list[tuple[int, ...]],
) -> MatchStop:
    is_batch = row[Row.MAGIC] == 2
    epoch = row[Row.LEADER_EPOCH]
    if is_batch and 0 <= epoch != state[MatchState.LEADER_EPOCH]:
        return MatchStop.LEADER_EPOCH
    if not _offset_entry_fits(row, state, offsets):
        return MatchStop.OFFSET_ENTRY
    if not _time_entry_fits(row, state, times):
        return MatchStop.TIME_ENTRY
    if row[Row.MAGIC] == 0:
        state[MatchState.HAS_UNTIMED] = 1
    if is_batch and row[Row.ATTRIBUTES] & DELETE_HORIZON_MASK:
        state[MatchState.HAS_HORIZON] = 1
    state[MatchState.MAX_TIMESTAMP] = max(state[MatchState.MAX_TIMESTAMP], row[Row.MAX_TIMESTAMP])
    # Of a wrapper only the last offset is known: it begins after the batch before it.
    base_offset = row[Row.BASE_OFFSET]
    before = base_offset - 1 if base_offset >= 0 else state[MatchState.LAST_OFFSET]
    span = wrap64(row[Row.LAST_OFFSET] - before) if before >= -1 else 1
    state[MatchState.WIDEST] = max(state[MatchState.WIDEST], span)
    state[MatchState.LAST_OFFSET] = row[Row.LAST_OFFSET]
    if is_batch and row[Row.ATTRIBUTES] & CONTROL_MASK:
        return MatchStop.CONTROL
    return MatchStop.DONE


def _offset_entry_fits(row: list[int], state: list[int], offsets: list[tuple[int, ...]]) -> bool:
    position = wrap64(row[Row.POSITION] + state[MatchState.POSITION_BASE])
    slot = state[MatchState.OFFSET_SLOT]
    if slot >= len(offsets) or offsets[slot][1] > position:
        return True
    relative, pointed = offsets[slot]
    offset = wrap64(state[MatchState.BASE_OFFSET] + relative)
    before = state[MatchState.ENTRY_OFFSET]
    if pointed < position or offset < state[MatchState.BASE_OFFSET] or offset <= before:
        return False
    base_offset = row[Row.BASE_OFFSET]
    if base_offset < 0:  # a wrapper: only its last offset is known
        fits = offset > state[MatchState.LAST_OFFSET]
    else:
        fits = before < base_offset <= offset
    if fits:
        state[MatchState.ENTRY_OFFSET] = offset
        state[MatchState.OFFSET_SLOT] = slot + 1
    return fits


def _time_entry_fits(row: list[int], state: list[int], times: list[tuple[int, ...]]) -> bool:
    """The first entry whose offset reaches this batch must have its time, or a later one."""
    base_offset = state[MatchState.BASE_OFFSET]
    slot = state[MatchState.TIME_SLOT]
    while slot < len(times) and wrap64(base_offset + times[slot][1]) < row[Row.LAST_OFFSET]:
        slot += 1
        state[MatchState.TIME_SLOT] = slot
        if slot < len(times):
            (earlier, before), (timestamp, relative) = times[slot - 1], times[slot]
            if timestamp <= earlier or relative < before:
                return False
    return slot >= len(times) or row[Row.MAX_TIMESTAMP] <= times[slot][0]
