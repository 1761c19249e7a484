"""Find where the last segment of a partition ends: once from the index, later only from what is known.

Its owner may append to it, truncate it or replace it meanwhile. What was walked before is believed only if
the last batch is still at its position, with the same header.

``open_view`` (storage.views.read_only) finds the same end for a log that it is going to read. It walks the
whole segment with ``scan_segment``, because it needs an index of what it found; here the walk starts at the
last entry of the index, or where the last walk ended, and builds nothing. The rules for what the end is are
shared: ``classify_tail``, ``is_sound_at`` and ``clean_end``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from stratalog.errors import CorruptionError
from stratalog.inspect.file.header_walk import HeaderWalk
from stratalog.inspect.file.search import SegmentSearch
from stratalog.inspect.file.span import SegmentSpan
from stratalog.records.columns import WalkEnd
from stratalog.records.layout import (
    BATCH_HEADER_SIZE,
    BATCH_SIZE_MAX_DEFAULT,
    Ending,
    Reason,
)
from stratalog.records.reasons import corruption
from stratalog.storage.files.filesystem import FileStat, FileSystem
from stratalog.storage.segment.batch_at import is_sound_at
from stratalog.storage.segment.clean_end import CleanEnd, find_excess, is_still_clean, last_batch_at
from stratalog.storage.segment.log_file import LogFile, open_log_file
from stratalog.storage.segment.walk import FileEnd, HeadersSeen, walk_windows

# What only damage and 0.7 need is imported where it is used: the commands find a tail in every start.
if TYPE_CHECKING:
    from stratalog.inspect.file.skipped_damage import SkippedDamage

__all__ = [
    "SegmentTail",
    "find_tail",
    "tail_behind_damage",
    "tail_without_excess",
    "walk_tail",
    "without_damage",
]


@dataclass(frozen=True, slots=True)
class SegmentTail:
    """The end of a segment: the last whole batch ends at ``position``, the next offset is
    ``next_offset``. ``last_position`` and ``last_header`` are that batch, empty where there is none."""

    path: str
    position: int
    next_offset: int
    last_position: int = 0
    last_header: bytes = b""
    #: The offset that was expected where the last batch begins.
    last_expected: int = 0
    #: What the file was like then: as long as it is so, it ends here. None where that does not follow, for
    #: what is written into zeros that were set aside changes neither the size nor, within a moment, the time.
    stat: FileStat | None = None
    #: What the file goes on with from here, where that is neither its end nor what a writer is at.
    damage: CorruptionError | None = field(default=None, compare=False)
    #: What is left out after the end, if damage is skipped.
    skipped: SkippedDamage | None = field(default=None, compare=False)


def find_tail(span: SegmentSpan, file_system: FileSystem, *, check_crc: bool = True) -> SegmentTail:
    """Find the end of a segment, from the last batch that its offset index knows and the log has. The CRC of
    the last batch is checked, unless ``check_crc`` is False."""
    with SegmentSearch(span, file_system) as search:
        if not search.is_searchable:
            from stratalog.inspect.file.count import count_file

            counted = count_file(span.path, file_system=file_system)
            end = counted.end
            damage = end.error() if end.pause.ending == Ending.CORRUPT else None
            return SegmentTail(span.path, end.pause.position, counted.next_offset, damage=damage)
        known = SegmentTail(span.path, search.last_entry(), search.base_offset)
    found = walk_tail(known, file_system, check_crc=check_crc)
    assert found is not None, "there was no batch to be missed"
    return found


def walk_tail(
    known: SegmentTail,
    file_system: FileSystem,
    seen: HeadersSeen | None = None,
    *,
    check_crc: bool = True,
) -> SegmentTail | None:
    """Find the end of a segment, from an end that was known. None where that is there no more."""
    stat = file_system.stat(known.path)
    if stat is not None and stat == known.stat:
        return known
    with open_log_file(known.path, file_system) as log_file:
        if known.last_header:
            header = log_file.file.read(known.last_position, len(known.last_header))
            if header != known.last_header or log_file.size < known.position:
                return None
        last_expected = known.last_expected if known.last_header else None
        walk = HeaderWalk(known.next_offset, known.last_position, last_expected, seen)
        *_, pause = walk_windows(
            log_file, walk.step, max_batch_bytes=BATCH_SIZE_MAX_DEFAULT, start=known.position
        )
        if check_crc and not _ends_sound(log_file, walk, pause):
            damage = corruption(Reason.CRC_MISMATCH, walk.last_position).located(path=known.path)
            return SegmentTail(known.path, walk.last_position, walk.last_expected, damage=damage)
        return _ended(log_file, known, walk, pause, stat)


def _ends_sound(log_file: LogFile, walk: HeaderWalk, pause: WalkEnd) -> bool:
    """Whether the last batch is what its header says. Headers alone were read, and no CRC covers a size: one
    that is wrong passes for the end."""
    is_known = pause.ending == Ending.CORRUPT or walk.last_position >= pause.position
    return is_known or is_sound_at(log_file, walk.last_position)


def tail_behind_damage(known: SegmentTail, file_system: FileSystem) -> SegmentTail:
    """Find the end of a segment after damage, from the next intact batch on. Where there is none, it ends
    before the damage, and ``skipped`` is what is left out."""
    with open_log_file(known.path, file_system) as log_file:
        size_bytes = log_file.size
        start = _after_damage(log_file, known)
    if start is not None:
        behind = walk_tail(start, file_system)
        if behind is not None and behind.position > start.position:
            return behind
    return without_damage(known, size_bytes)


def _after_damage(log_file: LogFile, known: SegmentTail) -> SegmentTail | None:
    """Where the segment can be walked on from."""
    from stratalog.inspect.file.misplaced import misplaced_at
    from stratalog.storage.segment.next_intact import next_intact

    misplaced = None
    if known.last_header and known.damage is not None:
        misplaced = misplaced_at(log_file, known.last_position, known.last_expected)
    if misplaced is not None:
        return SegmentTail(known.path, misplaced.end_position, misplaced.resume_offset)
    found = next_intact(
        log_file.file,
        known.position,
        log_file.size,
        base_offset=log_file.base_offset or 0,
        expected_offset=known.next_offset,
    )
    return None if found is None else SegmentTail(known.path, found.position, found.first_offset)


def without_damage(known: SegmentTail, size_bytes: int) -> SegmentTail:
    """End a segment of this size before its damage, and say what is left out."""
    damage = known.damage
    if damage is None:
        return known
    from stratalog.inspect.file.skipped_damage import SkippedDamage

    skipped = SkippedDamage(
        path=known.path,
        position=known.position,
        size_bytes=size_bytes - known.position,
        start_offset=known.next_offset,
        resume_offset=None,
        reason=damage.reason,
        detail=damage.detail,
    )
    return replace(known, damage=None, skipped=skipped)


def tail_without_excess(
    tail: SegmentTail, clean_end: CleanEnd | None, file_system: FileSystem
) -> SegmentTail:
    """End a segment before its last batch if that lies beyond where a clean shutdown left the log: its
    offset, which no CRC covers, may be wrong."""
    if clean_end is None or tail.next_offset <= clean_end.offset:
        return tail
    if tail.damage is not None or not tail.last_header:
        return tail
    with open_log_file(tail.path, file_system) as log_file:
        last = last_batch_at(log_file, tail.last_position, tail.next_offset, tail.last_expected)
    damage = find_excess(tail.path, last, clean_end.offset)
    if damage is None or not is_still_clean(file_system, clean_end):
        return tail
    return SegmentTail(tail.path, tail.last_position, tail.last_expected, damage=damage)


def _ended(
    log_file: LogFile, known: SegmentTail, walk: HeaderWalk, pause: WalkEnd, stat: FileStat | None
) -> SegmentTail:
    header = known.last_header
    if walk.last_position != known.last_position or not header:
        size = min(BATCH_HEADER_SIZE, pause.position - walk.last_position)
        header = log_file.file.read(walk.last_position, size)
    is_read = stat is not None and stat.size == log_file.size
    stays = pause.ending == Ending.END or pause.reason == Reason.SHORT_TAIL
    return SegmentTail(
        known.path,
        pause.position,
        walk.next_offset,
        walk.last_position,
        header,
        walk.last_expected,
        stat if is_read and stays else None,
        _damage(log_file, walk, pause),
    )


def _damage(log_file: LogFile, walk: HeaderWalk, pause: WalkEnd) -> CorruptionError | None:
    """What is wrong at the end. A writer may have been just there: it is looked at once more."""
    if pause.ending != Ending.CORRUPT:
        return None
    if pause.reason != Reason.SHORT_TAIL:
        pauses = walk_windows(
            replace(log_file, size=log_file.file.size()),
            HeaderWalk(walk.next_offset).step,
            max_batch_bytes=BATCH_SIZE_MAX_DEFAULT,
            start=pause.position,
        )
        *_, again = pauses
        if again != pause:
            return None
    return FileEnd(log_file.path, log_file.size, pause).error()
