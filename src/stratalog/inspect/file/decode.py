"""Decode a log file window by window: the step that scan, and a count within bounds, take.

``storage.views.read_columns`` decodes the regions of a log that is open. It cannot share this loop: a view
tells for each region which transactions were aborted, so it walks the headers of a region before it decodes
what is left of it, and it never maps a file that its own process may truncate. Both drive one
``RegionDecoder``.
"""

from __future__ import annotations

from collections.abc import Iterator

from stratalog.records.columns import RegionDecoder, WalkEnd
from stratalog.storage.segment.log_file import LogFile, Window
from stratalog.storage.segment.walk import walk_windows
from stratalog.types import Progress

__all__ = ["decode_file"]


def decode_file(
    log_file: LogFile,
    decoder: RegionDecoder,
    progress: Progress | None = None,
    *,
    start: int = 0,
    expected_offset: int | None = None,
    below: int | None = None,
    classifies: bool = True,
) -> Iterator[WalkEnd]:
    """Decode a file from the batch at ``start`` on; the caller takes the columns at every stop. The last one
    is the end of the file, classified as in ``walk_windows``. All offsets lie at or above ``expected_offset``
    (default: the base offset in the file's name) and below ``below``, where the next segment begins."""

    def step(window: Window, at: int) -> WalkEnd:
        if log_file.is_v07:
            base_offset = (log_file.base_offset or 0) + window.position
            return decoder.decode_v07(window.data, at, window.length, base_offset=base_offset)
        return decoder.decode(
            window.data, at, window.length, position_base=window.position, guarded=window.guarded
        )

    if expected_offset is None:
        expected_offset = -1 if log_file.base_offset is None else log_file.base_offset
    decoder.expect(expected_offset, below)
    return walk_windows(
        log_file,
        step,
        max_batch_bytes=decoder.selection.max_batch_bytes,
        progress=progress,
        start=start,
        classifies=classifies,
    )
