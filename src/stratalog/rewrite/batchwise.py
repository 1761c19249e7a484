"""Transform a log batch by batch: the walk over headers that merging, recompressing and upgrading share.

The kernel checks every CRC and every offset of what it walks over, so that nothing damaged is copied. A
transform then takes as many of the batches as its output has room for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence
from typing import Any, Final

from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.records.columns import WalkEnd
from stratalog.records.layout import INT32_MAX, ROW_WIDTH, Check, Ending, Reason, Row
from stratalog.rewrite.source import SourceSegment
from stratalog.storage.segment.log_file import Window
from stratalog.storage.segment.txn_index import AbortedTxn

__all__ = ["OUTPUT_BYTES", "AbortedEntries", "BatchwiseTransform", "reason_of"]

#: What is gathered before it is written.
OUTPUT_BYTES: Final = 4 << 20
_HEADERS_AT_ONCE: Final = 1024
_CHECK: Final = Check.CRC | Check.ORDER

_POSITION: Final = int(Row.POSITION)
_SIZE: Final = int(Row.SIZE)
_LAST_OFFSET: Final = int(Row.LAST_OFFSET)


class AbortedEntries:
    """The entries of the transaction indexes of a rewrite that keeps every marker: all of them stay."""

    def __init__(self) -> None:
        self._coming: list[AbortedTxn] = []

    def begin(self, source: SourceSegment) -> None:
        """Add the entries of the next segment."""
        self._coming += source.segment.aborted

    def take(self, next_offset: int) -> list[AbortedTxn]:
        """Hand over the entries whose markers lie below ``next_offset``."""
        taken = [each for each in self._coming if each.last_offset < next_offset]
        self._coming = self._coming[len(taken) :]
        return taken


class BatchwiseTransform(ABC):
    """A transform that takes batches by their headers. Subclasses say what becomes of them."""

    def __init__(self) -> None:
        self._headers = memoryview(array("q", bytes(8 * ROW_WIDTH * _HEADERS_AT_ONCE)))
        self._aborted = AbortedEntries()
        self._expected = -1
        self._below = -1
        #: Of the header rows, those from ``_row`` up to ``_held`` are not taken yet, and begin here.
        self._walked_to = -1
        self._row = 0
        self._held = 0
        self.out = bytearray()

    @abstractmethod
    def take_batches(self, window: Window, rows: memoryview, count: int) -> int:
        """Put the batches of the first header rows into ``out`` until that holds ``OUTPUT_BYTES``; return how
        many were taken, at least one. BufferError if the window's mapping is lost: ``out`` is then restored
        by the caller."""

    def begin(self, source: SourceSegment) -> None:
        self._expected, self._below = source.base_offset, source.next_base
        self._walked_to = -1
        self._aborted.begin(source)

    def step(self, window: Window, at: int) -> WalkEnd:
        while len(self.out) < OUTPUT_BYTES:
            before = len(self.out)
            try:
                end = self._walk(window, at) if at != self._walked_to else None
                if end is not None:
                    return end
                at = self._take(window)
            except BufferError:
                del self.out[before:]
                self._walked_to = -1
                return WalkEnd(at, Ending.LOST)
            except CorruptionError as error:
                return WalkEnd(error.position or at, Ending.CORRUPT, reason_of(error), error.detail)
        return WalkEnd(at, Ending.FULL)

    def _walk(self, window: Window, at: int) -> WalkEnd | None:
        """Fill the header rows from ``at`` on; return the end of the walk if there is no batch."""
        held, reached, ending, reason, _ = kernel.walk(
            window.data, at, window.length, self._headers,
            _CHECK, self._expected, INT32_MAX, guarded=window.guarded,
        )  # fmt: skip
        if not held:
            return WalkEnd(reached, Ending(ending), Reason(reason))
        last = (held - 1) * ROW_WIDTH
        if self._headers[last + _LAST_OFFSET] >= self._below:
            raise CorruptionError(
                Reason.OFFSET_ORDER.name.lower(),
                f"a batch reaches offset {self._below}, at which the next segment starts",
                position=self._headers[last + _POSITION],
            )
        self._row, self._held = 0, held
        return None

    def _take(self, window: Window) -> int:
        """Take batches whose headers were walked over; return the position after them."""
        rows = self._headers[self._row * ROW_WIDTH : self._held * ROW_WIDTH]
        taken = self.take_batches(window, rows, self._held - self._row)
        last = (taken - 1) * ROW_WIDTH
        self._row += taken
        self._expected = rows[last + _LAST_OFFSET] + 1
        reached: int = rows[last + _POSITION] + rows[last + _SIZE]
        # Headers that are left are those of the batches from here on, as long as the window is the same.
        self._walked_to = reached if self._row < self._held else -1
        return reached

    def take(self) -> Any:
        taken, self.out = self.out, bytearray()
        return taken

    def take_aborted(self) -> Sequence[AbortedTxn]:
        return self._aborted.take(self._expected)


def reason_of(error: CorruptionError) -> Reason:
    """Return the reason of an error that a walk is to end with."""
    try:
        return Reason[error.reason.upper()]
    except KeyError:
        return Reason.FIELD_LENGTH
