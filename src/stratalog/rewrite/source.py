"""Read the batches of a sealed segment through a transform, a window at a time.

A transform takes batches in and gives batches out. It sees every batch once, in the order of the log, and its
output is taken whenever it has enough: memory does not depend on the size of a segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

from stratalog.records.columns import WalkEnd
from stratalog.records.layout import INT32_MAX, Ending
from stratalog.storage.names import FileKind
from stratalog.storage.segment.log_file import LogFile, Window
from stratalog.storage.segment.segment import Segment
from stratalog.storage.segment.txn_index import AbortedTxn
from stratalog.storage.segment.walk import Step, walk_windows
from stratalog.types import Progress

__all__ = ["SourceSegment", "Transform", "check_end", "transform_segment", "walk_source"]

#: Mapping a large window, and bringing its pages in at once, would hold the interpreter's lock for a
#: millisecond, and with it the appends of other threads. Small windows whose pages come in as they are read
#: are as fast.
_MAPPED_SIZE: Final = 8 << 20


class SourceSegment(NamedTuple):
    """A segment that is rewritten, and the offset below which its batches lie."""

    segment: Segment
    next_base: int
    modified_ms: int

    @property
    def base_offset(self) -> int:
        return self.segment.base_offset

    @property
    def size_bytes(self) -> int:
        return self.segment.size_bytes

    def log_file(self) -> LogFile:
        log = self.segment.log
        return LogFile(
            self.segment.path(FileKind.LOG), log, self.size_bytes, self.base_offset, is_v07=False
        )


class Transform(Protocol):
    """Turns batches into the batches that take their place."""

    def begin(self, source: SourceSegment) -> None:
        """Prepare for the batches of the next segment."""
        ...

    def step(self, window: Window, at: int) -> WalkEnd:
        """Take the batches of a window from ``at`` on; see ``walk_windows``. FULL: take the output."""
        ...

    def take(self) -> Any:
        """Hand over the output, as a buffer of whole batches, and begin a new one."""
        ...

    def take_aborted(self) -> Sequence[AbortedTxn]:
        """Hand over the aborted transactions whose markers were given out since the last call."""
        ...


def transform_segment(
    source: SourceSegment,
    transform: Transform,
    put: Callable[[Any, Sequence[AbortedTxn]], None],
    note_read: Progress,
) -> None:
    """Take a whole segment through a transform, call ``put`` with each part of the output and ``note_read``
    with the bytes read since the last call. Raise CorruptionError if the segment is damaged: nothing may be
    copied, or left out, unseen."""
    transform.begin(source)
    for pause in walk_source(source, transform.step, note_read):
        put(transform.take(), transform.take_aborted())
        check_end(source, pause)


def walk_source(source: SourceSegment, step: Step, note_read: Progress) -> Iterator[WalkEnd]:
    """Take ``step`` over a whole segment, as ``walk_windows`` does; call ``note_read`` with the bytes read
    since the last call."""
    done = 0

    def note(position: int) -> None:
        nonlocal done
        moved, done = position - done, position
        note_read(moved)

    for pause in walk_windows(
        source.log_file(),
        step,
        max_batch_bytes=INT32_MAX,
        progress=note,
        mapped_size=_MAPPED_SIZE,
    ):
        note(pause.position)
        yield pause


def check_end(source: SourceSegment, pause: WalkEnd) -> None:
    """Raise CorruptionError if a walk has ended at something that is not a sound batch."""
    if pause.ending not in (Ending.END, Ending.FULL):
        raise pause.error().located(path=source.segment.path(FileKind.LOG))
