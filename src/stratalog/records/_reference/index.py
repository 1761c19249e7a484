"""What batches leave behind: index entries, and the producers that a replay follows."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from stratalog.records._reference.cursor import Wrong, wrap64
from stratalog.records._reference.rows import numbers_in
from stratalog.records.layout import (
    CONTROL_MASK,
    INDEX_STATE_WIDTH,
    INT32_MAX,
    REMEMBERED_BATCHES,
    REPLAY_PRODUCERS_MAX,
    ROW_WIDTH,
    TRANSACTIONAL_MASK,
    IndexState,
    Reason,
    Row,
)


def note_batches(
    rows: Any, count: int, state: Any, offset_out: bytearray, time_out: bytearray
) -> tuple[int, int]:
    given = numbers_in(rows, count * ROW_WIDTH)
    held = numbers_in(state, INDEX_STATE_WIDTH, writable=True)
    numbers = held[:INDEX_STATE_WIDTH].tolist()
    offsets, times = bytearray(), bytearray()
    done, reason = 0, Reason.NONE
    try:
        while done < count:
            row = given[done * ROW_WIDTH : (done + 1) * ROW_WIDTH].tolist()
            numbers = _note_batch(row, numbers, offsets, times)
            done += 1
    except Wrong as wrong:
        reason = wrong.reason
    offset_out += offsets
    time_out += times
    for at, number in enumerate(numbers):
        held[at] = number
    return done, reason


def _note_batch(
    row: list[int], before: list[int], offsets: bytearray, times: bytearray
) -> list[int]:
    """The state behind one batch, and the entries that it calls for. Wrong where an index cannot hold
    them: then there are none."""
    state = list(before)
    base_offset = state[IndexState.BASE_OFFSET]
    last_offset = row[Row.LAST_OFFSET]
    position = row[Row.POSITION] + state[IndexState.POSITION_BASE]
    if row[Row.MAX_TIMESTAMP] > state[IndexState.MAX_TIMESTAMP]:
        state[IndexState.MAX_TIMESTAMP] = row[Row.MAX_TIMESTAMP]
        state[IndexState.MAX_TIMESTAMP_OFFSET] = last_offset
    if not 0 <= last_offset - base_offset <= INT32_MAX:
        raise Wrong(Reason.OFFSET_RANGE)
    if not 0 <= position <= INT32_MAX:
        raise Wrong(Reason.SIZE_TOO_LARGE)
    offset_entry = time_entry = b""
    # Strictly more, and not counting this batch: the first of a segment never has an entry.
    if state[IndexState.BYTES_SINCE] > state[IndexState.INTERVAL]:
        if state[IndexState.OFFSET_SLOTS] > 0:
            if last_offset <= state[IndexState.LAST_OFFSET]:
                raise Wrong(Reason.OFFSET_ORDER)
            offset_entry = struct.pack(">ii", last_offset - base_offset, position)
            state[IndexState.LAST_OFFSET] = last_offset
            state[IndexState.OFFSET_SLOTS] -= 1
        timestamp = state[IndexState.MAX_TIMESTAMP]
        offset = state[IndexState.MAX_TIMESTAMP_OFFSET]
        if timestamp > state[IndexState.LAST_TIME] and state[IndexState.TIME_SLOTS] > 0:
            if not 0 <= offset - base_offset <= INT32_MAX:
                raise Wrong(Reason.OFFSET_RANGE)
            if offset < state[IndexState.LAST_TIME_OFFSET]:
                raise Wrong(Reason.OFFSET_ORDER)
            time_entry = struct.pack(">qi", timestamp, offset - base_offset)
            state[IndexState.LAST_TIME] = timestamp
            state[IndexState.LAST_TIME_OFFSET] = offset
            state[IndexState.TIME_SLOTS] -= 1
        state[IndexState.BYTES_SINCE] = 0
    state[IndexState.BYTES_SINCE] = wrap64(state[IndexState.BYTES_SINCE] + row[Row.SIZE])
    offsets += offset_entry
    times += time_entry
    return state


@dataclass(slots=True)
class _Run:
    """Rows of one producer that follow each other with one epoch and one transactional bit."""

    kind: tuple[int, bool]
    rows: list[int] = field(default_factory=list)


def replay_rows(rows: Any, count: int, keep: Any) -> int:
    given = numbers_in(rows, count * ROW_WIDTH)
    kept = numbers_in(keep, count, writable=True)
    open_runs: dict[int, _Run | None] = {}  # None: a marker has ended it
    runs: list[_Run] = []
    always: list[int] = []
    for row in range(count):
        fields = given[row * ROW_WIDTH : (row + 1) * ROW_WIDTH].tolist()
        producer_id = fields[Row.PRODUCER_ID]
        attributes = fields[Row.ATTRIBUTES] if fields[Row.MAGIC] == 2 else 0
        if attributes & CONTROL_MASK:
            always.append(row)
            if open_runs.get(producer_id):
                open_runs[producer_id] = None
            continue
        if producer_id < 0:
            continue
        if producer_id not in open_runs and len(open_runs) == REPLAY_PRODUCERS_MAX:
            always.append(row)  # keeping more than is needed is always right
            continue
        kind = (fields[Row.PRODUCER_EPOCH], bool(attributes & TRANSACTIONAL_MASK))
        run = open_runs.get(producer_id)
        if run is None or run.kind != kind:
            run = open_runs[producer_id] = _Run(kind)
            runs.append(run)
        run.rows.append(row)
    wanted = set(always)
    for run in runs:
        wanted |= {run.rows[0], *run.rows[-REMEMBERED_BATCHES:]}
    for at, row in enumerate(sorted(wanted)):
        kept[at] = row
    return len(wanted)
