"""Segments that were begun and given up, as readers find them before a writer has cleaned up.

The rule is ``storage.segment.abandoned``; this module decides for which segments of a listing it is worth
asking.

A roll for which there is no room is taken back, and the segment before it goes on. A power cut may bring the
name of the new one back: an empty file, whose name says that the log begins anew at an offset that the one
before it holds already. By names alone everything behind that offset would be missing, and the log end there.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from stratalog.errors import StorageError
from stratalog.inspect.file.span import segment_spans
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.names import parse_data_name

if TYPE_CHECKING:
    from stratalog.inspect.partition.sources import PartitionSource

__all__ = ["without_leftovers"]

_OFFSET_BYTES: Final = 8


def without_leftovers(source: PartitionSource, file_system: FileSystem) -> PartitionSource:
    """A partition without segments at its end that were given up. Those behind which the log went on with
    another segment are not looked for: many partitions are listed, and often."""
    try:
        count = _blank_at_end(source, file_system)
        if not count:
            return source
        kept = _kept(source, len(source.segments) - count, file_system)
    except StorageError:
        return source  # gone, or not to be read: who reads it is told, or lists anew
    return source if len(kept) == len(source.segments) else replace(source, segments=tuple(kept))


def _blank_at_end(source: PartitionSource, file_system: FileSystem) -> int:
    """How many segments at the end begin like empty ones."""
    for count, path in enumerate(reversed(source.segments)):
        name = parse_data_name(os.path.basename(path))
        if name is None or name.is_v07:
            return 0
        # The first one is no leftover, and the only one in which an offset may be zero.
        if count == len(source.segments) - 1 or not _begins_blank(path, file_system):
            return count
    return 0


def _begins_blank(path: str, file_system: FileSystem) -> bool:
    """Whether there is nothing where the first offset would be. Of files that are far away only the size is
    asked: nobody preallocates there, and a listing fetches no bytes."""
    found = file_system.stat(path)
    if found is None or found.size == 0 or not isinstance(file_system, OsFileSystem):
        return found is not None and found.size == 0
    file = file_system.open_readable(path)
    try:
        return not any(file.read(0, _OFFSET_BYTES))
    finally:
        file.close()


def _kept(source: PartitionSource, count: int, file_system: FileSystem) -> list[str]:
    """The paths of so many segments, and of those behind them that are no leftovers."""
    # Only now: nearly every segment holds something.
    from stratalog.inspect.partition.source_segments import sealed_segment
    from stratalog.storage.segment.abandoned import find_leftovers

    spans = list(segment_spans(source.segments))[count - 1 :]
    segments = []
    with ExitStack() as opened:
        for span in spans:
            segments.append(sealed_segment(source, span, file_system))
            opened.callback(segments[-1].close)
        gone = find_leftovers(segments)
    behind = [span.path for span, each in zip(spans, segments, strict=True) if each not in gone]
    return [*source.segments[: count - 1], *behind]
