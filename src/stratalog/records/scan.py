"""Walk a region batch by batch from headers alone. How it ends is a value: the caller decides.

``END`` is the clean end, ``INCOMPLETE`` a torn tail (a batch cut off, or zeros that were set aside),
``CORRUPT`` a place that no writer leaves behind. Only the caller knows which of them is harmless where:
a torn tail is one only at the end of the last segment.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.records.layout import INT32_MAX, ROW_WIDTH, Check, Ending, Reason
from stratalog.records.model import BatchHeader
from stratalog.records.reasons import corruption

__all__ = ["STRICT", "BatchScan", "ScanEnd", "scan_batches", "scan_v07"]

#: Everything that can be checked without decompressing. CONTIGUOUS is left to the caller: a
#: compacted log has gaps.
STRICT: Final = Check.CRC | Check.ORDER | Check.COUNTS

_ROWS_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True)
class ScanEnd:
    """How a region came to its end, where, and why."""

    ending: Ending
    position: int
    reason: Reason = Reason.NONE

    @property
    def error(self) -> CorruptionError | None:
        """The error to raise where this ending is not acceptable; None at a clean end."""
        if self.ending == Ending.END:
            return None
        return corruption(self.reason, self.position)


class BatchScan(Iterator[BatchHeader]):
    """Iterates the headers of a region; then ``end`` tells how it ended."""

    def __init__(
        self,
        region: Any,
        position: int = 0,
        limit: int | None = None,
        *,
        check: Check = Check.NONE,
        expected_offset: int = -1,
        size_max: int = INT32_MAX,
        v07_base_offset: int | None = None,
    ) -> None:
        self._region = region
        self._position = position
        self._limit = memoryview(region).nbytes if limit is None else limit
        self._check = check
        self._expected = expected_offset
        self._size_max = size_max
        self._v07_base_offset = v07_base_offset
        self._rows = array("q", bytes(8 * ROW_WIDTH * _ROWS_AT_ONCE))
        self._next = 0
        self._held = 0
        self._end: ScanEnd | None = None

    def __next__(self) -> BatchHeader:
        while self._next == self._held:
            if self._end is not None:
                raise StopIteration
            self._walk()
        at = self._next * ROW_WIDTH
        self._next += 1
        return BatchHeader.from_row(self._rows[at : at + ROW_WIDTH])

    def _walk(self) -> None:
        rows = memoryview(self._rows)
        if self._v07_base_offset is None:
            held, position, ending, reason, self._expected = kernel.walk(
                self._region, self._position, self._limit, rows,
                self._check, self._expected, self._size_max,
            )  # fmt: skip
        else:
            held, position, ending, reason, _ = kernel.walk_v07(
                self._region, self._position, self._limit, rows, self._check, self._v07_base_offset
            )
        self._position = position
        self._next, self._held = 0, held
        if ending != Ending.FULL:
            self._end = ScanEnd(Ending(ending), position, Reason(reason))

    @property
    def end(self) -> ScanEnd:
        """How the region ended. Runs the rest of the scan where it is not done yet."""
        while self._end is None:
            self._walk()
        return self._end


def scan_batches(
    region: Any,
    position: int = 0,
    limit: int | None = None,
    *,
    check: Check = Check.NONE,
    expected_offset: int = -1,
    size_max: int = INT32_MAX,
) -> BatchScan:
    """Walk a region of 0.8 and later: record batches and messages, mixed as they come."""
    return BatchScan(
        region, position, limit, check=check, expected_offset=expected_offset, size_max=size_max
    )


def scan_v07(
    region: Any,
    position: int = 0,
    limit: int | None = None,
    *,
    check: Check = Check.NONE,
    base_offset: int = 0,
) -> BatchScan:
    """Walk a region of a 0.7 file, where an entry's offset is ``base_offset`` plus its position."""
    return BatchScan(region, position, limit, check=check, v07_base_offset=base_offset)
