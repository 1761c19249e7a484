"""Step over the headers of a segment, and remember the last batch."""

from __future__ import annotations

from array import array
from typing import Final

from stratalog.records import kernel
from stratalog.records.columns import WalkEnd
from stratalog.records.layout import INT32_MAX, ROW_WIDTH, Check, Ending, Reason, Row
from stratalog.storage.segment.log_file import Window
from stratalog.storage.segment.walk import HeadersSeen

__all__ = ["HeaderWalk"]

_HEADERS_AT_ONCE: Final = 1024


class HeaderWalk:
    """Steps over headers in order, and remembers the last."""

    def __init__(
        self,
        next_offset: int,
        last_position: int = 0,
        last_expected: int | None = None,
        seen: HeadersSeen | None = None,
    ) -> None:
        self.next_offset = next_offset
        self.last_position = last_position
        #: The offset that was expected where the last batch begins.
        self.last_expected = next_offset if last_expected is None else last_expected
        self._expected = next_offset
        self._seen = seen
        self._headers = memoryview(array("q", bytes(8 * ROW_WIDTH * _HEADERS_AT_ONCE)))

    def step(self, window: Window, at: int) -> WalkEnd:
        headers = self._headers
        while True:
            try:
                held, reached, ending, reason, expected = kernel.walk(
                    window.data, at, window.length, headers,
                    Check.ORDER, self._expected, INT32_MAX, guarded=window.guarded,
                )  # fmt: skip
                if held and self._seen is not None:
                    self._seen(headers, held, window)
            except BufferError:
                return WalkEnd(at, Ending.LOST)
            if held:
                self.last_expected = (
                    self._expected
                    if held == 1
                    else headers[(held - 2) * ROW_WIDTH + Row.LAST_OFFSET] + 1
                )
                self._expected = self.next_offset = expected
                last: int = headers[(held - 1) * ROW_WIDTH + Row.POSITION]
                self.last_position = window.position + last
            if ending != Ending.FULL:
                return WalkEnd(reached, Ending(ending), Reason(reason))
            at = reached
