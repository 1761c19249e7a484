"""Header rows as walk() writes them, by name, and the index state of a new segment."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from stratalog.records.layout import INDEX_STATE_WIDTH, ROW_WIDTH, IndexState, Row

DEFAULTS = {
    Row.SIZE: 100,
    Row.MAGIC: 2,
    Row.MAX_TIMESTAMP: -1,
    Row.PRODUCER_ID: -1,
    Row.PRODUCER_EPOCH: -1,
    Row.BASE_SEQUENCE: -1,
}
DEFAULT_INDEX_BYTES = 10_485_760


def row(**fields: int) -> list[int]:
    """One header row: ``row(last_offset=5, position=61)``."""
    values = [0] * ROW_WIDTH
    for at, value in DEFAULTS.items():
        values[at] = value
    for name, value in fields.items():
        values[Row[name.upper()]] = value
    return values


def table(rows: Sequence[Sequence[int]]) -> array[int]:
    return array("q", [value for each in rows for value in each])


def new_segment(
    base_offset: int = 0,
    interval: int = 4096,
    index_bytes: int = DEFAULT_INDEX_BYTES,
    **fields: int,
) -> array[int]:
    """The state of a segment that nothing was appended to, with some fields set otherwise."""
    state = array("q", bytes(8 * INDEX_STATE_WIDTH))
    state[IndexState.BASE_OFFSET] = base_offset
    state[IndexState.INTERVAL] = interval
    state[IndexState.MAX_TIMESTAMP] = state[IndexState.MAX_TIMESTAMP_OFFSET] = -1
    state[IndexState.LAST_TIME] = -1
    state[IndexState.LAST_TIME_OFFSET] = base_offset
    state[IndexState.LAST_OFFSET] = base_offset - 1
    state[IndexState.OFFSET_SLOTS] = index_bytes // 8
    state[IndexState.TIME_SLOTS] = index_bytes // 12 - 1
    for name, value in fields.items():
        state[IndexState[name.upper()]] = value
    return state
