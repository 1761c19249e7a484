"""Decide whether retention may have something to do in a partition that is not open.

Opening a log reads its end and may recover it. The names and sizes of its files, and the last entry of one
time index, nearly always show that there is nothing to delete.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from stratalog.errors import StorageError
from stratalog.records.layout import INT64_MAX, TIME_ENTRY_SIZE
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.log.retention import (
    RetentionPolicy,
    SegmentFacts,
    SizeLimit,
    plan_retention,
)
from stratalog.storage.names import FileKind, parse_segment_name, segment_file_name
from stratalog.storage.segment.index_entries import time_entry_at

__all__ = ["may_retain"]

#: A time that is not known: older than any limit.
_UNKNOWN: Final = -INT64_MAX


def may_retain(
    file_system: FileSystem, folder: str, policies: Sequence[RetentionPolicy], now_ms: int
) -> bool:
    """Return whether retention may delete a segment of a partition. False is certain unless an index is
    damaged; True means that only opening the log tells."""
    needs_sizes = any(isinstance(policy, SizeLimit) for policy in policies)
    facts = _facts(file_system, folder, now_ms, needs_sizes=needs_sizes)
    return bool(plan_retention(facts, policies, high_watermark=INT64_MAX).deletions)


def _facts(
    file_system: FileSystem, folder: str, now_ms: int, *, needs_sizes: bool
) -> list[SegmentFacts]:
    """Return the segments of a folder. Policies begin with the oldest: only its time is looked up."""
    bases = _base_offsets(file_system, folder)
    facts = []
    for base, after in zip(bases, [*bases, INT64_MAX][1:], strict=True):
        is_first, is_active = base == bases[0], after == INT64_MAX
        time_ms = _last_time(file_system, folder, base, now_ms) if is_first else _UNKNOWN
        # Without a limit of size, only an active segment that is empty makes a difference.
        size = _size(file_system, folder, base) if needs_sizes or is_active else 1
        facts.append(SegmentFacts(base, after, size, time_ms, is_active))
    return facts


def _base_offsets(file_system: FileSystem, folder: str) -> list[int]:
    names = (
        parse_segment_name(entry.name) for entry in file_system.list_dir(folder) if entry.is_file
    )
    return sorted(name.base_offset for name in names if name is not None and not name.is_v07)


def _size(file_system: FileSystem, folder: str, base: int) -> int:
    found = file_system.stat(os.path.join(folder, segment_file_name(base, FileKind.LOG)))
    return 0 if found is None else found.size


def _last_time(file_system: FileSystem, folder: str, base: int, now_ms: int) -> int:
    """Return the last time in the time index of a segment: its largest timestamp is not below. A time in the
    future counts as unknown, because a damaged entry may have one."""
    path = os.path.join(folder, segment_file_name(base, FileKind.TIME_INDEX))
    try:
        entry = _last_entry(file_system, path)
    except StorageError:  # opening the log rebuilds it
        return _UNKNOWN
    if len(entry) < TIME_ENTRY_SIZE:
        return _UNKNOWN
    timestamp = time_entry_at(entry, 0, base).timestamp
    return timestamp if 0 < timestamp <= now_ms else _UNKNOWN


def _last_entry(file_system: FileSystem, path: str) -> bytes:
    file = file_system.open_readable(path)
    try:
        last = file.size() // TIME_ENTRY_SIZE - 1
        return file.read(last * TIME_ENTRY_SIZE, TIME_ENTRY_SIZE) if last >= 0 else b""
    finally:
        file.close()
