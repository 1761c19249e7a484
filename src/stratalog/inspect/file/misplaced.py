"""Find a batch in the middle of a segment whose offset was raised, so that it alone is left out.

No CRC covers the offset of a batch. A reader that skips damage would return the records of such a batch under
wrong offsets, and pass over everything below them that follows. The neighbours tell which batch is wrong:
if it began at the end of the batch before it, it would end exactly at the batch after it. In a compacted
segment there may be gaps. There the batches after it tell: they go on below it, and leave room for it.
"""

from __future__ import annotations

from typing import NamedTuple

from stratalog.inspect.file.header_walk import HeaderWalk
from stratalog.inspect.file.skipped_damage import SkippedDamage
from stratalog.records import kernel
from stratalog.records.layout import (
    BATCH_HEADER_SIZE,
    BATCH_SIZE_MAX_DEFAULT,
    INT64_MIN,
    Ending,
    Reason,
)
from stratalog.records.reasons import reason_name
from stratalog.storage.segment.batch_at import first_in_wrapper
from stratalog.storage.segment.log_file import LogFile
from stratalog.storage.segment.walk import walk_windows

__all__ = ["MisplacedBatch", "find_misplaced", "is_misplaced", "misplaced_at"]


class MisplacedBatch(NamedTuple):
    """A batch whose offsets are wrong: its own are those from ``expected`` up to but not including
    ``resume_offset``, where the next batch begins."""

    path: str
    position: int
    end_position: int
    first_offset: int
    expected: int
    resume_offset: int

    @property
    def skipped(self) -> SkippedDamage:
        return SkippedDamage(
            path=self.path,
            position=self.position,
            size_bytes=self.end_position - self.position,
            start_offset=self.expected,
            resume_offset=self.resume_offset,
            reason=reason_name(Reason.OFFSET_ORDER),
            detail=f"the batch says that it begins at offset {self.first_offset}, and lies between batches "
            f"that leave room for the offsets from {self.expected} up to {self.resume_offset}",
        )


def is_misplaced(
    expected: int, first: int, last: int, following: int, second: int | None = None
) -> bool:
    """Whether the offset of a batch contradicts both neighbours: it is above ``expected``, the end of the one
    before. If it began there, it would meet ``following``, the one after; or it would end below that, and
    ``following`` and ``second``, the one after that, are both below ``first``. If ``second`` is above it, the
    offset of ``following`` may just as well have been lowered. ``second`` is None if there is none."""
    if not first > expected >= 0:
        return False
    end = expected + last - first + 1
    if following == end:
        return True
    return end <= following < first and (second is None or second <= first)


def find_misplaced(
    log_file: LogFile, start: int, limit: int, expected: int, below: int | None = None
) -> MisplacedBatch | None:
    """Find the first such batch from ``start`` up to ``limit``, from headers. ``expected`` is the offset that
    is expected at ``start``; the next segment begins at ``below``."""
    if log_file.is_v07:
        return None
    walk = HeaderWalk(expected, last_position=-1)
    part = log_file.up_to(min(limit, log_file.size))
    *_, pause = walk_windows(part, walk.step, max_batch_bytes=BATCH_SIZE_MAX_DEFAULT, start=start)
    is_break = pause.ending == Ending.CORRUPT and pause.reason == Reason.OFFSET_ORDER
    if walk.last_position < 0 or not (is_break or pause.ending == Ending.END):
        return None
    return misplaced_at(log_file, walk.last_position, walk.last_expected, below)


def misplaced_at(
    log_file: LogFile, position: int, expected: int, below: int | None = None
) -> MisplacedBatch | None:
    """Compare the batch at a position with the offset that is expected there and with what follows it."""
    batch = _batch_at(log_file, position)
    if batch is None:
        return None
    end = position + batch.size_bytes
    following, after = _first_at(log_file, end, below)
    second, _ = (None, 0) if after is None else _first_at(log_file, after, below)
    first = batch.first_offset
    if following is None or not is_misplaced(expected, first, batch.last_offset, following, second):
        return None
    return MisplacedBatch(log_file.path, position, end, first, expected, following)


def _first_at(log_file: LogFile, position: int, below: int | None) -> tuple[int | None, int | None]:
    """Return the first offset of the batch at a position and where it ends. At the end of the file, the
    offset of the next segment; None if no batch is there."""
    if position >= log_file.size:
        return below, None
    found = _batch_at(log_file, position)
    return (None, None) if found is None else (found.first_offset, position + found.size_bytes)


class _Header(NamedTuple):
    size_bytes: int
    first_offset: int
    last_offset: int


def _batch_at(log_file: LogFile, position: int) -> _Header | None:
    """What a header says; of a wrapper (magic 0 and 1) the first offset stands only inside."""
    data = log_file.file.read(position, min(log_file.size - position, BATCH_HEADER_SIZE))
    found, at, size, first, last, _ = kernel.find_batch(data, 0, len(data), INT64_MIN, False)
    if found <= 0 or at or position + size > log_file.size:
        return None
    if first < 0:
        inside = first_in_wrapper(log_file.file.read(position, size))
        if inside is None:
            return None
        first = inside
    return _Header(size, first, last)
