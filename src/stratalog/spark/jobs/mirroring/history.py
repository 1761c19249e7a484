"""Whether what a mirror is to append to is a copy at all, by the last batch that is there.

The source may have been compacted since the copy was made: then it has fewer records in the same place, or
none. Compaction leaves those records alone that it leaves, and since version 2 the ends of their batch, too.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.records.columns import decode_records
from stratalog.records.layout import INT32_MAX, ROW_WIDTH, Check, Row
from stratalog.storage.views.log_view import LogView

__all__ = ["is_another_history"]

_ENDS: Final = (Row.BASE_OFFSET, Row.LAST_OFFSET)


class _Batch(NamedTuple):
    header: array[int]
    data: bytes


def is_another_history(copy: LogView, source: LogView, last: int) -> bool:
    """Whether the source proves that the batch at offset ``last``, the last of the copy, is not its own."""
    if last < source.log_start:
        return False
    ours, theirs = _batch_at(copy, last), _batch_at(source, last)
    if ours is None or theirs is None or theirs.header[Row.BASE_OFFSET] > last:
        return False  # it was compacted away, and the next one has nothing to say
    are_ends_same = all(ours.header[each] == theirs.header[each] for each in _ENDS)
    if are_ends_same and ours.header[Row.CRC] == theirs.header[Row.CRC]:
        return False
    if not are_ends_same and ours.header[Row.MAGIC] == theirs.header[Row.MAGIC] == 2:
        return True
    # With all its records a batch may have another CRC: that of its tombstones notes when they may go.
    return _has_other_records(ours.data, theirs.data)


def _has_other_records(ours: bytes, theirs: bytes) -> bool:
    """Whether two batches have different records at the same offset."""
    try:
        found = {each.offset: each for each in decode_records(ours, check=Check.INCLUDE_CONTROL)}
        return any(
            found.get(each.offset, each) != each
            for each in decode_records(theirs, check=Check.INCLUDE_CONTROL)
        )
    except CorruptionError:
        return False  # what cannot be read proves nothing


def _batch_at(view: LogView, offset: int) -> _Batch | None:
    """The batch that reaches an offset; None where there is none."""
    found = view.find(offset)
    if found is None:
        return None
    number, place = found
    data = view.segments[number].log.read(place.position, place.size_bytes)
    row = array("q", bytes(8 * ROW_WIDTH))
    held, *_ = kernel.walk(data, 0, len(data), memoryview(row), 0, -1, INT32_MAX)
    return _Batch(row, data) if held else None
