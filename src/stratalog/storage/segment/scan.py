"""Read a segment's batches from end to end and make anew what can be told from them.

One walk over mapped windows serves recovery (every CRC) and the rebuilding of indexes (headers only). The
kernel does the walking and the indexing, a window at a time; Python sees rows only where a batch says
something about producers or leader epochs.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import islice
from typing import Final

from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.records.columns import WalkEnd
from stratalog.records.layout import INT32_MAX, INT64_MAX, ROW_WIDTH, Check, Ending, Reason, Row
from stratalog.storage.files.filesystem import ReadableFile
from stratalog.storage.segment.find import places_from
from stratalog.storage.segment.log_file import LogFile, Window
from stratalog.storage.segment.sparse_index import IndexLimits, SparseIndex
from stratalog.storage.segment.walk import HeadersSeen, walk_windows

__all__ = ["SegmentScan", "rebuild_index", "scan_segment"]

_HEADERS_AT_ONCE: Final = 1024


@dataclass(frozen=True, slots=True)
class SegmentScan:
    """What a walk over a segment found."""

    index: SparseIndex
    valid_bytes: int
    next_offset: int
    first_timestamp: int | None
    #: How the walk ended, and where: at the end of the file, or at what is no batch.
    pause: WalkEnd
    #: Whether there are batches further above the segment's first offset than its indexes can say. They
    #: have no entries there.
    overflows: bool
    #: Where the last batch begins, and the offset that was expected there.
    last_position: int
    last_expected: int

    @property
    def is_whole(self) -> bool:
        return self.pause.ending == Ending.END


def scan_segment(
    file: ReadableFile,
    base_offset: int,
    limits: IndexLimits,
    size_bytes: int,
    *,
    check: Check,
    expected_offset: int | None = None,
    seen: HeadersSeen | None = None,
    follower: int | None = None,
) -> SegmentScan:
    """Walk the batches of a segment from its start up to ``size_bytes``. Damage is not an error here: the
    walk ends before it, and the result says so. ``follower`` is where the next segment starts. The end is not
    classified: recovery searches the tail by rules of its own (``tail_verdict``)."""
    log_file = LogFile(file.path, file, size_bytes, base_offset, is_v07=False)
    walker = _Walker(base_offset, limits, check, expected_offset, seen)

    def walk(start: int) -> WalkEnd:
        *_, pause = walk_windows(
            log_file,
            walker.step,
            max_batch_bytes=INT32_MAX,
            reads_all=bool(check & Check.CRC),
            start=start,
            classifies=False,
        )
        return pause

    pause = walk(0)
    if walker.meets_overflow and _is_overflow(file, pause.position, size_bytes, follower):
        walker.pass_overflow()
        pause = walk(pause.position)
    return SegmentScan(
        walker.index, pause.position, walker.next_offset, walker.first_timestamp, pause,
        walker.passes_overflow, walker.last_position, walker.last_expected,
    )  # fmt: skip


def _is_overflow(file: ReadableFile, position: int, size_bytes: int, follower: int | None) -> bool:
    """Whether a batch that lies too far above the segment's first offset to be indexed is where it says.

    Brokers before 1.1 could merge segments into one that is too wide. But no CRC covers an offset, and one
    bit that flipped in it looks the same. So another must bear it out: the segment that follows starts
    above it, or the next batch lies above it, too.
    """
    try:
        places = list(islice(places_from(file, position, size_bytes), 2))
    except CorruptionError:
        return False
    if follower is not None:
        return places[0].last_offset < follower
    return len(places) > 1 and places[1].last_offset > places[0].last_offset


def rebuild_index(
    file: ReadableFile, base_offset: int, limits: IndexLimits, size_bytes: int
) -> SparseIndex:
    """The index of a segment from its headers alone, up to where they can be read."""
    return scan_segment(
        file, base_offset, limits, size_bytes, check=Check.NONE, expected_offset=None
    ).index


class _Walker:
    def __init__(
        self,
        base_offset: int,
        limits: IndexLimits,
        check: Check,
        expected_offset: int | None,
        seen: HeadersSeen | None,
    ) -> None:
        self.index = SparseIndex(base_offset, limits)
        self.next_offset = base_offset
        self.first_timestamp: int | None = None
        self.last_position = 0
        self.last_expected = base_offset
        #: Whether the walk ended at a batch that is too far above the first to be indexed.
        self.meets_overflow = False
        self.passes_overflow = False
        self._check = check
        self._expected = -1 if expected_offset is None else expected_offset
        self._seen = seen
        self._headers = memoryview(array("q", bytes(8 * ROW_WIDTH * _HEADERS_AT_ONCE)))

    def step(self, window: Window, at: int) -> WalkEnd:
        headers = self._headers
        while True:
            try:
                held, reached, ending, reason, self._expected = kernel.walk(
                    window.data, at, window.length, headers,
                    self._check, self._expected, INT32_MAX, guarded=window.guarded,
                )  # fmt: skip
            except BufferError:
                return WalkEnd(at, Ending.LOST)
            if held:
                refused = self._take(headers, held, window)
                if refused is not None:
                    return refused
            if ending != Ending.FULL:
                return WalkEnd(reached, Ending(ending), Reason(reason))
            at = reached

    def _take(self, headers: memoryview, held: int, window: Window) -> WalkEnd | None:
        if headers[(held - 1) * ROW_WIDTH + Row.LAST_OFFSET] == INT64_MAX:
            at = (held - 1) * ROW_WIDTH
            refused = None if held == 1 else self._take(headers, held - 1, window)
            # A log behind it would end at an offset that no file can hold.
            return refused or WalkEnd(
                headers[at + Row.POSITION], Ending.CORRUPT, Reason.OFFSET_RANGE
            )
        if self.first_timestamp is None:
            self.first_timestamp = headers[Row.MAX_TIMESTAMP]
        taken, reason = held, int(Reason.NONE)
        if self.passes_overflow:
            self._note_times(headers, held)
        else:
            taken, reason = self.index.note(headers, held, window.position)
        if taken:
            self.last_position = window.position + headers[(taken - 1) * ROW_WIDTH + Row.POSITION]
            self.last_expected = (
                self.next_offset
                if taken == 1
                else headers[(taken - 2) * ROW_WIDTH + Row.LAST_OFFSET] + 1
            )
            self.next_offset = headers[(taken - 1) * ROW_WIDTH + Row.LAST_OFFSET] + 1
            if self._seen is not None:
                self._seen(headers, taken, window)
        if taken < held:
            at = taken * ROW_WIDTH
            distance = headers[at + Row.LAST_OFFSET] - self.index.base_offset
            self.meets_overflow = distance > INT32_MAX
            detail = f"an offset is {distance} above the segment's" if self.meets_overflow else None
            return WalkEnd(headers[at + Row.POSITION], Ending.CORRUPT, Reason(reason), detail)
        return None

    def pass_overflow(self) -> None:
        """Go on from where the walk has ended, without entries."""
        self.passes_overflow = True
        self._expected = self.next_offset

    def _note_times(self, headers: memoryview, held: int) -> None:
        for at in range(0, held * ROW_WIDTH, ROW_WIDTH):
            self.index.note_times(headers[at + Row.MAX_TIMESTAMP], headers[at + Row.LAST_OFFSET])
