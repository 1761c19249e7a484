"""Walks a whole segment with its checks, to tell damage from a file that changed while it was read."""

from __future__ import annotations

from array import array
from typing import Final

from stratalog.inspect.segment_order import SegmentSpan
from stratalog.records import kernel
from stratalog.records.columns import Pause, Selection
from stratalog.records.layout import ROW_WIDTH, Check, Ending, Reason
from stratalog.storage.filesystem import FileSystem
from stratalog.storage.hidden_batches import judged
from stratalog.storage.log_file import Window, open_log_file
from stratalog.storage.walk_file import walk_windows

__all__ = ["check_segment"]

_ROWS_AT_ONCE: Final = 1024


def check_segment(span: SegmentSpan, file_system: FileSystem, selection: Selection) -> Pause:
    """How a segment ends, by the checks of the selection; CORRUPT also where it goes on behind the offset at
    which the next segment begins."""
    rows = memoryview(array("q", bytes(8 * ROW_WIDTH * _ROWS_AT_ONCE)))
    check = selection.check & (Check.CRC | Check.ORDER)
    expected = -1 if span.base_offset is None else span.base_offset

    def step(window: Window, at: int) -> Pause:
        nonlocal expected
        while True:
            try:
                _, reached, ending, reason, expected = kernel.walk(
                    window.data, at, window.length, rows,
                    check, expected, selection.max_batch_bytes, guarded=window.guarded,
                )  # fmt: skip
            except BufferError:
                return Pause(at, Ending.LOST)
            if ending != Ending.FULL:
                return Pause(reached, Ending(ending), Reason(reason))
            at = reached

    with open_log_file(span.path, file_system) as log_file:
        *_, end = walk_windows(log_file, step, max_batch_bytes=selection.max_batch_bytes)
        end = judged(log_file, end)
    if end.ending == Ending.END and span.next_offset is not None and expected > span.next_offset:
        return Pause(end.position, Ending.CORRUPT, Reason.OFFSET_ORDER)
    return end
