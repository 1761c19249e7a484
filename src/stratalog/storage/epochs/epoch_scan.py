"""Leader epochs as the batches themselves tell them, while recovery walks a segment."""

from __future__ import annotations

from collections.abc import Callable

from stratalog.records.layout import ROW_WIDTH, Row
from stratalog.storage.segment.log_file import Window
from stratalog.types import NO_LEADER_EPOCH

__all__ = ["EpochCheck", "EpochsFound"]


class EpochsFound:
    """Notes where a higher leader epoch begins than any before."""

    def __init__(self, found: list[tuple[int, int]], latest: int = NO_LEADER_EPOCH) -> None:
        self.found = found
        self._latest = found[-1][0] if found else latest

    def seen(self, rows: memoryview, count: int, _: Window) -> None:
        if max(rows[Row.LEADER_EPOCH : count * ROW_WIDTH : ROW_WIDTH]) <= self._latest:
            return
        for at in range(0, count * ROW_WIDTH, ROW_WIDTH):
            epoch = rows[at + Row.LEADER_EPOCH]
            if epoch > self._latest:
                self._latest = epoch
                self.found.append((epoch, rows[at + Row.BASE_OFFSET]))


class EpochCheck:
    """Finds the first batch that is of a lower leader epoch than the epochs say of its offset: epochs never
    fall, so that what they say from there on was never so, or is so no more."""

    def __init__(self, epoch_for_offset: Callable[[int], int | None]) -> None:
        self._epoch_for_offset = epoch_for_offset
        self.contradicted: int | None = None

    def seen(self, rows: memoryview, count: int) -> None:
        if self.contradicted is not None or not count:
            return
        end = count * ROW_WIDTH
        last = self._epoch_for_offset(rows[end - ROW_WIDTH + Row.BASE_OFFSET])
        if last is None or min(rows[Row.LEADER_EPOCH : end : ROW_WIDTH]) >= last:
            return  # as nearly always: what the epochs say of the last one is the most
        for at in range(0, end, ROW_WIDTH):
            epoch, offset = rows[at + Row.LEADER_EPOCH], rows[at + Row.BASE_OFFSET]
            if 0 <= epoch < (self._epoch_for_offset(offset) or 0):
                self.contradicted = offset
                return
