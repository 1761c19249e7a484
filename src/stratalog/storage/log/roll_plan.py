"""When the active segment is full, and where the next one starts. Numbers in, a reason out."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from stratalog.records.layout import INT32_MAX
from stratalog.storage.log_config import LogConfig

if TYPE_CHECKING:
    from random import Random

__all__ = ["RollReason", "draw_jitter", "max_segment_ms", "new_base_offset", "plan_roll"]


class RollReason(StrEnum):
    """Why a segment was rolled, in the order that the reasons are looked at."""

    SIZE = "size"
    AGE = "age"
    OFFSET_INDEX_FULL = "offset index full"
    TIME_INDEX_FULL = "time index full"
    OFFSET_SPAN = "offset span"


def plan_roll(
    size: int,
    segment_bytes: int,
    append_bytes: int,
    max_timestamp: int,
    first_batch_timestamp: int,
    now_ms: int,
    created_ms: int,
    max_segment_ms: int,
    jitter_ms: int,
    offset_index_full: bool,
    time_index_full: bool,
    base_offset: int,
    max_offset: int,
) -> RollReason | None:
    """Why the segment must be rolled before ``append_bytes`` go in, up to ``max_offset``; None if not.

    Every append asks: plain numbers, no objects, not even the names of arguments. All limits may be
    reached, none passed.
    """
    if size > segment_bytes - append_bytes:
        return RollReason.SIZE
    if size > 0:
        # By the records' clock if they have one: a log without appends does not roll, and one
        # record from the future does it at once.
        if first_batch_timestamp >= 0:
            waited_ms = max_timestamp - first_batch_timestamp
        else:
            waited_ms = now_ms - created_ms
        if waited_ms > max_segment_ms - jitter_ms:
            return RollReason.AGE
    if offset_index_full:
        return RollReason.OFFSET_INDEX_FULL
    if time_index_full:
        return RollReason.TIME_INDEX_FULL
    if not 0 <= max_offset - base_offset <= INT32_MAX:
        return RollReason.OFFSET_SPAN
    return None


def max_segment_ms(config: LogConfig) -> int:
    """How long a segment may be written to. What is to be compacted soon must leave the active one."""
    if config.compacts:
        return min(config.segment_ms, config.max_compaction_lag_ms)
    return config.segment_ms


def draw_jitter(config: LogConfig, source: Random) -> int:
    """How much earlier one segment rolls, drawn when it is opened: many partitions that were created
    together shall not all roll together."""
    widest = min(config.segment_jitter_ms, config.segment_ms)
    return source.randrange(widest) if widest else 0


def new_base_offset(first_offset: int | None, max_offset: int, end_offset: int) -> int:
    """The base offset of the next segment, before an append of ``first_offset`` up to ``max_offset``.

    A follower's messages of the old formats do not tell their first offset without decompressing: then
    it is the lowest from which ``max_offset`` can be reached.
    """
    lowest = max_offset - INT32_MAX if first_offset is None else first_offset
    return max(lowest, end_offset)
