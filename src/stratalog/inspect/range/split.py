"""Planned ranges cut and packed for tasks: one hot partition becomes many, a thousand tiny ones become few.

A pure function of the plans. Cuts are at batches that the offset index names, where one is near; elsewhere at
an offset between, and the batch that holds it is then read by both sides, of which each takes its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Final

from stratalog.errors import UsageError
from stratalog.inspect.range.plan import LogRange, SegmentSlice
from stratalog.storage.names import V07_SUFFIX

__all__ = ["pack_ranges", "piece_bytes", "split_ranges"]

#: What opening another range costs, as bytes that could be read instead.
_OPEN_BYTES: Final = 1 << 20


def split_ranges(
    ranges: Iterable[LogRange],
    *,
    split_bytes: int,
    min_splits: int | None = None,
    max_records: int | None = None,
) -> list[tuple[LogRange, ...]]:
    """The ranges as groups of about ``split_bytes`` each, in their order; together they are the same offsets.

    At least ``min_splits`` groups, as far as there are offsets to divide; and none of more offsets than
    ``max_records``. Ranges that hold nothing are left out.
    """
    for name, number in (
        ("split_bytes", split_bytes), ("min_splits", min_splits), ("max_records", max_records)
    ):  # fmt: skip
        if number is not None and number < 1:
            raise UsageError(f"{name} is at least 1")
    wanted = [each for each in ranges if each.slices]
    split_bytes = _split_bytes(wanted, split_bytes, min_splits)
    pieces = [piece for each in wanted for piece in _pieces(each, split_bytes, max_records)]
    return _packed(pieces, split_bytes, max_records)


def pack_ranges(ranges: Iterable[LogRange], *, split_bytes: int) -> list[tuple[LogRange, ...]]:
    """The ranges, each of them whole, as groups of about ``split_bytes`` or of one that is larger."""
    return _packed([each for each in ranges if each.slices], split_bytes, None)


def piece_bytes(
    ranges: Iterable[LogRange],
    *,
    split_bytes: int,
    min_splits: int | None = None,
    max_records: int | None = None,
) -> int:
    """About how many bytes the smallest pieces have that :func:`split_ranges` makes of these."""
    wanted = [each for each in ranges if each.slices]
    size = _split_bytes(wanted, split_bytes, min_splits)
    if max_records is not None:
        offsets = max(sum(each.end - each.start for each in wanted), 1)
        total = sum(each.size_bytes for each in wanted)
        size = min(size, total * max_records // offsets)
    return max(size, 1)


def _split_bytes(wanted: Sequence[LogRange], split_bytes: int, min_splits: int | None) -> int:
    if min_splits is None:
        return split_bytes
    total = sum(each.size_bytes for each in wanted)
    return max(min(split_bytes, -(-total // min_splits)), 1)


def _pieces(each: LogRange, split_bytes: int, max_records: int | None) -> Iterator[LogRange]:
    if any(part.path.endswith(V07_SUFFIX) for part in each.slices):
        yield each  # its offsets are no numbers of records, and it is read from its first byte
        return
    count = min(-(-each.size_bytes // split_bytes), each.end - each.start)
    edges = [each.start, *_even_cuts(each, count), each.end]
    if max_records is not None:
        parts = [(start, *_even_offsets(start, end, max_records)) for start, end in pairwise(edges)]
        edges = [*chain.from_iterable(parts), each.end]
    # Slices follow one another, and so do pieces: what lies before a piece is not looked at again.
    starts, ends = [part.start for part in each.slices], [part.end for part in each.slices]
    for start, end in pairwise(edges):
        parts_within = each.slices[bisect_right(ends, start) : bisect_left(starts, end)]
        piece = _piece(each, start, end, parts_within)
        if piece.slices:
            yield piece


def _even_offsets(start: int, end: int, most: int) -> Iterator[int]:
    count = -(-(end - start) // most)
    for number in range(1, count):
        yield start + (end - start) * number // count


def _even_cuts(each: LogRange, count: int) -> Iterator[int]:
    """Offsets that cut a range into so many parts of about the same size; they rise."""
    size = each.size_bytes
    before = 0
    number = 1
    last = each.start
    for part in each.slices:
        while number < count and size * number // count < before + part.size_bytes:
            target = size * number // count - before
            offset = _offset_at(part, part.position + target, size // count // 4)
            if last < offset < each.end:
                yield offset
                last = offset
            number += 1
        before += part.size_bytes


def _offset_at(part: SegmentSlice, position: int, near: int) -> int:
    """An offset at about a position: that of a batch where one is known near it, else one between."""
    points = [
        (part.position, part.start),
        *((cut.position, cut.offset) for cut in part.cuts),
        (part.end_position, part.end),
    ]
    slot = bisect_right(points, (position, part.end)) - 1
    low, high = points[max(slot, 0)], points[min(slot + 1, len(points) - 1)]
    nearest = low if position - low[0] <= high[0] - position else high
    if abs(nearest[0] - position) <= near or high[0] <= low[0]:
        return nearest[1]
    return low[1] + (high[1] - low[1]) * (position - low[0]) // (high[0] - low[0])


def _piece(each: LogRange, start: int, end: int, within: Sequence[SegmentSlice]) -> LogRange:
    aborted = each.aborted
    if aborted is not None:
        aborted = tuple(t for t in aborted if t.first_offset < end and t.last_offset >= start)
    slices = (_slice(part, start, end) for part in within)
    return replace(
        each,
        start=start,
        end=end,
        slices=tuple(part for part in slices if part is not None),
        aborted=aborted,
    )


def _slice(part: SegmentSlice, start: int, end: int) -> SegmentSlice | None:
    """What of a slice lies between two offsets, with the positions that its cuts tell."""
    start, end = max(start, part.start), min(end, part.end)
    if start >= end:
        return None
    offsets = [cut.offset for cut in part.cuts]
    position, end_position = part.position, part.end_position
    before = bisect_right(offsets, start) - 1
    if start > part.start and before >= 0:
        position = part.cuts[before].position
    behind = bisect_left(offsets, end)
    if end < part.end and behind < len(offsets):
        end_position = part.cuts[behind].end_position
    return part._replace(
        start=start, end=end, position=position, end_position=end_position, cuts=()
    )


def _packed(
    pieces: Sequence[LogRange], split_bytes: int, max_records: int | None
) -> list[tuple[LogRange, ...]]:
    packed: list[list[LogRange]] = []
    weight = offsets = 0
    for piece in pieces:
        cost, span = piece.size_bytes + _OPEN_BYTES, piece.end - piece.start
        fits = weight + cost <= split_bytes and (
            max_records is None or offsets + span <= max_records
        )
        if not packed or not fits:
            packed.append([])
            weight = offsets = 0
        packed[-1].append(piece)
        weight += cost
        offsets += span
    return [tuple(group) for group in packed]
