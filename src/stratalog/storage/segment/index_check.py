"""Whether index files can be what a writer left: believed only if so, made anew from the log otherwise."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from itertools import islice
from operator import le, lt

from stratalog.records import kernel
from stratalog.records.layout import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE

__all__ = ["index_is_sane"]


def index_is_sane(offsets: memoryview, times: memoryview, log_size: int) -> bool:
    """Whole entries, in order, none behind the end of the log. BufferError where a mapping is lost.

    A file that was preallocated and never trimmed ends in zeros, so its entries fall: not sane.
    """
    if len(offsets) % OFFSET_ENTRY_SIZE or len(times) % TIME_ENTRY_SIZE:
        return False
    if _ends_in_zeros(offsets, OFFSET_ENTRY_SIZE) or _ends_in_zeros(times, TIME_ENTRY_SIZE):
        return False
    return _offsets_are_sane(_integers(offsets, "i"), log_size) and _times_are_sane(
        _integers(times, "i")
    )


def _ends_in_zeros(entries: memoryview, size: int) -> bool:
    """Whether the last entry is none: so much is seen at once, however large the file is."""
    if not len(entries):
        return False
    last = kernel.copy(entries, len(entries) - size, len(entries), guarded=True)
    return not any(last)


def _integers(entries: memoryview, kind: str) -> array[int]:
    """Return all entries of ``index_entries`` at once, as fields of 32 bits: an index may have a million, and
    decoding one by one takes eight times as long."""
    numbers = array(kind, kernel.copy(entries, 0, len(entries), guarded=True))
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def _offsets_are_sane(fields: array[int], log_size: int) -> bool:
    relative, positions = fields[0::2], fields[1::2]
    return not fields or (
        relative[0] >= 0
        and positions[0] > 0
        and positions[-1] < log_size
        and _rises(relative, lt)
        and _rises(positions, lt)
    )


def _times_are_sane(fields: array[int]) -> bool:
    # A timestamp is two fields of 32 bits, the upper one signed; none below zero is ever indexed.
    high, low, relative = fields[0::3], fields[1::3], fields[2::3]
    times = [(upper << 32) | (lower & 0xFFFFFFFF) for upper, lower in zip(high, low, strict=True)]
    return not fields or (
        times[0] >= 0 and relative[0] >= 0 and _rises(times, lt) and _rises(relative, le)
    )


def _rises(numbers: Sequence[int], in_order: Callable[[int, int], bool]) -> bool:
    return all(map(in_order, numbers, islice(numbers, 1, None)))
