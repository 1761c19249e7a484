"""Find a batch in a data file by reading headers forward from a position that an index gave.

An index lands at most one interval before the batch, so a small read and one kernel call find it. A batch
that is larger than the read is passed by its header alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.records.layout import BATCH_HEADER_SIZE, INT64_MIN, Reason
from stratalog.records.reasons import corruption
from stratalog.storage.files.filesystem import ReadableFile

__all__ = [
    "READ_SIZE",
    "BatchPlace",
    "batch_at",
    "find_offset",
    "find_time",
    "is_largest_time",
    "places_from",
]

# What a named tuple's own function does, without that function: every read makes one.
_new: Final = tuple.__new__
#: What a look-up reads at once: as much as two index entries are apart, and a header.
READ_SIZE: Final = 4096 + BATCH_HEADER_SIZE


class BatchPlace(NamedTuple):
    """Where a batch lies, and what is needed to skip or to take it. The first offset of a wrapper (magic 0
    and 1) is only in its contents: ``base_offset`` is -1."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int

    @property
    def end_position(self) -> int:
        return self.position + self.size_bytes

    @property
    def first_offset(self) -> int:
        """What the header tells of the first offset; of a wrapper, that it is not above its last."""
        return self.base_offset if self.base_offset >= 0 else self.last_offset


def find_offset(file: ReadableFile, position: int, limit: int, offset: int) -> BatchPlace | None:
    """The first batch from ``position`` up to ``limit`` that reaches ``offset``; None: there is none."""
    while position < limit:
        room = limit - position
        data = file.read(position, min(room, READ_SIZE))
        found, at, size, base_offset, last_offset, max_timestamp = kernel.find_batch(
            data, 0, len(data), offset, False
        )
        if found > 0 and at + size <= room:
            place = (position + at, size, base_offset, last_offset, max_timestamp)
            return _new(BatchPlace, place)
        if found < 0:
            raise corruption(size, position + at)
        if found > 0 or at == 0 or at > room:
            # Not even a header is left, or the last batch goes on behind the end.
            raise corruption(Reason.SHORT_TAIL, position + (at if found else 0))
        position += at
    return None


def batch_at(file: ReadableFile, position: int, limit: int, offset: int) -> BatchPlace | None:
    """The batch at ``position`` if it holds ``offset``, from its header; None where another one may."""
    room = limit - position
    if position < 0 or room <= 0:
        return None
    data = file.read(position, BATCH_HEADER_SIZE)
    found, at, size, base_offset, last_offset, max_timestamp = kernel.find_batch(
        data, 0, len(data), offset, False
    )
    if found <= 0 or at or not 0 <= base_offset <= offset or size > room:
        return None
    return _new(BatchPlace, (position, size, base_offset, last_offset, max_timestamp))


def find_time(
    file: ReadableFile,
    position: int,
    limit: int,
    timestamp: int,
    entry: tuple[int, int] | None = None,
) -> Iterator[BatchPlace]:
    """The batches from ``position`` up to ``limit`` whose largest timestamp reaches ``timestamp``.

    ``entry`` is what a time index says: a timestamp that no batch before has passed, and the last
    offset of the first batch that has it. CorruptionError where there is no such batch. ``position`` is what
    the offset index says for that offset: the batches from there on are looked at, too. A raised offset may
    name another batch of the same time, and pass over later times in between.
    """
    if entry is not None:
        first = find_offset(file, position, limit, entry[1])
        if first is None or (first.max_timestamp, first.last_offset) != entry:
            raise corruption(
                Reason.OFFSET_ORDER, position, detail="the time index is of another log"
            )
    return _find(file, position, limit, timestamp, by_time=True)


def is_largest_time(file: ReadableFile, position: int, limit: int, entry: tuple[int, int]) -> bool:
    """Whether the log bears out an entry of a time index: the batch of its offset has its timestamp, and none
    from ``position`` on, which the offset index says for that offset, up to that batch has a later one."""
    timestamp, offset = entry
    try:
        place = find_offset(file, position, limit, offset)
        if place is None or place.base_offset > offset or place.max_timestamp != timestamp:
            return False
        later = _find(file, position, place.end_position, timestamp + 1, by_time=True)
        return next(later, None) is None
    except CorruptionError:
        return False


def places_from(file: ReadableFile, position: int, limit: int) -> Iterator[BatchPlace]:
    """Every batch from ``position`` up to ``limit``."""
    return _find(file, position, limit, INT64_MIN, by_time=True)


def _find(
    file: ReadableFile, position: int, limit: int, target: int, *, by_time: bool
) -> Iterator[BatchPlace]:
    """The batches whose last offset or largest timestamp reaches ``target``."""
    while position < limit:
        data = file.read(position, min(limit - position, READ_SIZE))
        at = 0
        while True:
            found, at, size, base_offset, last_offset, max_timestamp = kernel.find_batch(
                data, at, len(data), target, by_time
            )
            if found <= 0:
                break
            if position + at + size > limit:
                raise corruption(Reason.SHORT_TAIL, position + at)
            yield BatchPlace(position + at, size, base_offset, last_offset, max_timestamp)
            at += size
            if at >= len(data):
                break
        if found < 0:
            raise corruption(size, position + at)
        if at == 0 or position + at > limit:
            # Not even a header is left, or the last batch goes on behind the end.
            raise corruption(Reason.SHORT_TAIL, position)
        position += at
