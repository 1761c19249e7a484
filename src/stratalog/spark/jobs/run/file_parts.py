"""Files cut into parts and packed for tasks: by bytes, whatever the files are like.

Parts begin at batches that the offset index names. An index may be wrong, so nobody believes it: who reads a
part must come out exactly where the next one begins, and where that is not so, the whole file is read in one
go. As the first part begins with the file, all of them begin with a batch if each ends where the next begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

from stratalog.inspect.file.search import SegmentSearch
from stratalog.inspect.file.span import SegmentSpan
from stratalog.storage.files.filesystem import FileSystem

__all__ = ["FilePart", "cut_file", "pack", "part_size"]

#: What opening a file costs, as bytes that could be read instead.
OPEN_BYTES: Final = 1 << 20
#: A task is worth this much work at least: below, its own cost shows.
PART_BYTES_MIN: Final = 16 << 20
#: And no more than this: what is lost when it is killed, and what progress goes by.
PART_BYTES_MAX: Final = 512 << 20

Packed = TypeVar("Packed")


class FilePart(NamedTuple):
    """Bytes of a file from ``start`` up to ``end``; None: to its end, as it is when it is opened."""

    path: str
    start: int
    end: int | None
    size_bytes: int

    @property
    def is_whole(self) -> bool:
        return self.start == 0 and self.end is None


def part_size(
    total_bytes: int, cores: int, tasks_per_core: int, bytes_max: int = PART_BYTES_MAX
) -> int:
    """How large parts should be so that all cores have their share."""
    even = -(-total_bytes // (cores * tasks_per_core))
    return max(PART_BYTES_MIN, min(even, bytes_max))


def cut_file(
    span: SegmentSpan, file_system: FileSystem, part_bytes: int, *, without_index: bool = False
) -> list[FilePart]:
    """A file as parts of about ``part_bytes``. One that has no offset index is a single part, unless
    ``without_index`` its headers may be read to find places to cut at."""
    with SegmentSearch(span, file_system) as search:
        size = search.size
        count = -(-size // part_bytes)
        starts = [0]
        if count > 1 and search.is_searchable and (without_index or search.offset_entries):
            step = -(-size // count)
            # A little less for the last: it must not become a part of its own.
            starts += [cut.end_position for cut in search.cuts(0, size - step // 2, step)]
    edges: list[int | None] = [*starts, None]
    return [
        FilePart(span.path, start or 0, end, (size if end is None else end) - (start or 0))
        for start, end in pairwise(edges)
    ]


def pack(
    items: Iterable[Packed], size_of: Callable[[Packed], int], task_bytes: int
) -> list[tuple[Packed, ...]]:
    """Items in groups of about ``task_bytes`` each, in their order: a thousand small ones make few tasks."""
    groups: list[list[Packed]] = []
    weight = 0
    for item in items:
        cost = size_of(item) + OPEN_BYTES
        # An item that passes the limit by less than half of itself is taken in: groups are even on average.
        if not groups or weight + cost // 2 > task_bytes + OPEN_BYTES:
            groups.append([])
            weight = 0
        groups[-1].append(item)
        weight += cost
    return [tuple(group) for group in groups]
