"""Reads a whole segment with its checks, to tell damage from a file that changed while it was read."""

from __future__ import annotations

from dataclasses import replace

from stratalog.inspect.file.decode import decode_file
from stratalog.inspect.file.span import SegmentSpan
from stratalog.records.columns import RegionDecoder, Selection, WalkEnd
from stratalog.records.layout import Check, Column, Ending
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.segment.log_file import open_log_file

__all__ = ["check_segment"]


def check_segment(span: SegmentSpan, file_system: FileSystem, selection: Selection) -> WalkEnd:
    """Return how a segment ends, by the checks of the selection; CORRUPT also if it goes on beyond the offset
    at which the next segment begins. Everything is decoded: only the contents of a wrapper tell its
    offsets."""
    decoder = RegionDecoder(
        replace(
            selection,
            columns=Column.OFFSET,
            start=None,
            end=None,
            start_time=None,
            end_time=None,
            aborted=(),
            check=selection.check & (Check.CRC | Check.ORDER),
        )
    )
    with open_log_file(span.path, file_system) as log_file:
        end = WalkEnd(0, Ending.END)
        for end in decode_file(log_file, decoder, below=span.next_offset):  # noqa: B007
            decoder.take()
        return end
