"""Compare index entries with the batches of a log. An index may be sparser or denser than ours, and true."""

from __future__ import annotations

from itertools import pairwise

from stratalog.records.layout import (
    OFFSET_ENTRY_SIZE,
    ROW_WIDTH,
    TIME_ENTRY_SIZE,
    Check,
    Row,
)
from stratalog.storage.segment.index_entries import (
    OffsetEntry,
    TimeEntry,
    offset_entry_at,
    time_entry_at,
)
from stratalog.storage.segment.log_file import Window
from stratalog.storage.segment.scan import scan_segment
from stratalog.storage.segment.segment import Segment
from stratalog.storage.segment.walk import HeadersSeen

__all__ = ["find_false_offset", "find_false_time"]


def find_false_offset(segment: Segment, data: bytes) -> str | None:
    """Return what is wrong with an offset index; None if every entry names a batch of the segment that holds
    its offset, or one after which the offset follows."""
    if len(data) % OFFSET_ENTRY_SIZE:
        return f"{len(data)} bytes are not whole entries of {OFFSET_ENTRY_SIZE}"
    count = len(data) // OFFSET_ENTRY_SIZE
    view = memoryview(data)
    entries = [offset_entry_at(view, slot, segment.base_offset) for slot in range(count)]
    for before, after in pairwise(entries):
        if after.offset <= before.offset or after.position <= before.position:
            return f"the entry of offset {after.offset} follows that of {before.offset}"
    return _check_positions(segment, entries)


def _check_positions(segment: Segment, entries: list[OffsetEntry]) -> str | None:
    wanted = {entry.position: entry for entry in entries}

    def seen(rows: memoryview, count: int, window: Window) -> None:
        end = count * ROW_WIDTH
        positions = rows[Row.POSITION : end : ROW_WIDTH].tolist()
        bases = rows[Row.BASE_OFFSET : end : ROW_WIDTH].tolist()
        for position, base in zip(positions, bases, strict=True):
            entry = wanted.get(window.position + position)
            if entry is not None and base <= entry.offset:
                del wanted[entry.position]

    _scan(segment, seen)
    if not wanted:
        return None
    entry = wanted[min(wanted)]
    return f"no batch with offset {entry.offset} begins at byte {entry.position}"


def find_false_time(segment: Segment, data: bytes) -> str | None:
    """Return what is wrong with a time index; None if every entry is the largest timestamp up to its offset,
    and the last one that of the segment. A broker that converted messages to magic 0 has noted times that
    its log lacks: up to messages without a time, an entry may be later."""
    if len(data) % TIME_ENTRY_SIZE:
        return f"{len(data)} bytes are not whole entries of {TIME_ENTRY_SIZE}"
    count = len(data) // TIME_ENTRY_SIZE
    view = memoryview(data)
    entries = [time_entry_at(view, slot, segment.base_offset) for slot in range(count)]
    for before, after in pairwise(entries):
        if after.timestamp <= before.timestamp or after.offset < before.offset:
            return f"the entry of time {after.timestamp} follows that of {before.timestamp}"
    return _check_times(segment, entries)


def _check_times(segment: Segment, entries: list[TimeEntry]) -> str | None:
    largest, slot, has_untimed = -1, 0, False
    problem: str | None = None

    def close(upto: int) -> None:
        """Judge the entries whose offsets lie below ``upto``."""
        nonlocal slot, problem
        while slot < len(entries) and entries[slot].offset < upto:
            timestamp = entries[slot].timestamp
            is_right = timestamp >= largest if has_untimed else timestamp == largest
            if problem is None and not is_right:
                problem = (
                    f"the largest timestamp up to offset {entries[slot].offset} is {largest}, not "
                    f"{entries[slot].timestamp}"
                )
            slot += 1

    def seen(rows: memoryview, count: int, _: Window) -> None:
        nonlocal largest, has_untimed
        end = count * ROW_WIDTH
        times = rows[Row.MAX_TIMESTAMP : end : ROW_WIDTH].tolist()
        lasts = rows[Row.LAST_OFFSET : end : ROW_WIDTH].tolist()
        for time, last in zip(times, lasts, strict=True):
            largest = max(largest, time)
            has_untimed = has_untimed or time < 0
            close(last + 1)

    _scan(segment, seen)
    if problem is None and slot < len(entries):
        return f"the entry of offset {entries[slot].offset} lies after the end of the segment"
    if problem is None and largest >= 0 and (not entries or entries[-1].timestamp < largest):
        return f"the largest timestamp of the segment, {largest}, has no entry"
    return problem


def _scan(segment: Segment, seen: HeadersSeen) -> None:
    scan_segment(
        segment.log,
        segment.base_offset,
        segment.limits,
        segment.size_bytes,
        check=Check.NONE,
        seen=seen,
    )
