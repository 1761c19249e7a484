"""Find where reading can resume after a damaged batch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from stratalog.records import kernel
from stratalog.records.columns import RegionDecoder, Selection
from stratalog.records.layout import BATCH_HEADER_SIZE, INT32_MAX, INT64_MIN, Column, Ending
from stratalog.storage.files.filesystem import ReadableFile
from stratalog.storage.segment.tail_verdict import LimitError, sound_positions

__all__ = ["IntactBatch", "first_offset_at", "next_intact"]


class IntactBatch(NamedTuple):
    """Where an intact batch begins, and its first offset."""

    position: int
    first_offset: int


def next_intact(
    file: ReadableFile,
    position: int,
    size_bytes: int,
    *,
    base_offset: int,
    expected_offset: int,
    below: int | None = None,
) -> IntactBatch | None:
    """Find the first intact batch after the damaged one at ``position`` of a segment whose offsets lie at or
    above ``expected_offset`` and below ``below``; None: there is none.

    First where the damaged batch says that it ends, then byte by byte. A batch is intact where its CRC
    matches and its records can be decoded.
    """
    for each in _candidates(file, position, size_bytes, base_offset):
        first = _first_offset(file, each, size_bytes, max(expected_offset, base_offset), below)
        if first is not None:
            return IntactBatch(each, first)
    return None


def _candidates(
    file: ReadableFile, position: int, size_bytes: int, base_offset: int
) -> Iterator[int]:
    header = _header(file, position, size_bytes)
    likely = [] if header is None or header >= size_bytes else [header]
    try:
        yield from chain(likely, sound_positions(file, position, size_bytes, base_offset))
    except LimitError:
        return  # too much of what follows looks like a batch


def first_offset_at(file: ReadableFile, position: int, size_bytes: int) -> int | None:
    """Return the first offset of the batch at a position, by its header; None if it does not say."""
    data = file.read(position, min(size_bytes - position, BATCH_HEADER_SIZE))
    found, at, _, first, *_ = kernel.find_batch(data, 0, len(data), INT64_MIN, False)
    return None if found <= 0 or at or first < 0 else first


def _header(file: ReadableFile, position: int, size_bytes: int) -> int | None:
    """Where the batch at a position says that it ends; None where its header cannot be read."""
    data = file.read(position, min(size_bytes - position, BATCH_HEADER_SIZE))
    found, at, size, *_ = kernel.find_batch(data, 0, len(data), INT64_MIN, False)
    return None if found <= 0 or at else position + size


def _first_offset(
    file: ReadableFile, position: int, size_bytes: int, expected_offset: int, below: int | None
) -> int | None:
    """The first offset of the batch at a position; None where it is not intact, or out of order."""
    end = _header(file, position, size_bytes)
    if end is None or end > size_bytes:
        return None
    data = file.read(position, end - position)
    selection = Selection(columns=Column.BASE_OFFSET | Column.OFFSET, max_batch_bytes=INT32_MAX)
    decoder = RegionDecoder(selection)
    decoder.expect(expected_offset, below)
    if decoder.decode(data, 0, len(data)).ending not in (Ending.END, Ending.FULL):
        return None
    after = decoder.expected_offset
    taken = decoder.take()
    if not taken.rows:
        return after - 1  # a batch that compaction emptied, or of a marker
    base, first = (
        memoryview(taken.buffers[column][0]).cast("B").cast("q")[0]
        for column in (Column.BASE_OFFSET, Column.OFFSET)
    )
    return int(base if base >= 0 else first)
