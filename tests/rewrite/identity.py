"""A transform that changes nothing: what comes in goes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stratalog.records.columns import WalkEnd
from stratalog.records.layout import Ending
from stratalog.rewrite.source import SourceSegment
from stratalog.storage.segment.log_file import Window
from stratalog.storage.segment.txn_index import AbortedTxn


class Identity:
    """Gives out every byte of the segments, and all of their aborted transactions."""

    def __init__(self) -> None:
        self._data = b""
        self._aborted: Sequence[AbortedTxn] = ()

    def begin(self, source: SourceSegment) -> None:
        self._aborted = source.segment.aborted

    def step(self, window: Window, at: int) -> WalkEnd:
        self._data += window.copy(at, window.length)
        return WalkEnd(window.length, Ending.END)

    def take(self) -> Any:
        taken, self._data = self._data, b""
        return taken

    def take_aborted(self) -> Sequence[AbortedTxn]:
        taken, self._aborted = self._aborted, ()
        return taken
