"""Walk a log file window by window: the part that scan, count and verify share.

Each of them steps over a window with a kernel call of its own; this module loads the windows, makes them
larger for a batch that does not fit, distinguishes a torn tail at the end of the file from one at the end of
a window, and a torn tail from a wrong size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stratalog.errors import CorruptionError
from stratalog.records.columns import WalkEnd
from stratalog.records.layout import LOG_OVERHEAD, SIZE_AT, V07_LENGTH_SIZE, Ending, Reason
from stratalog.storage.segment.log_file import LogFile, Window
from stratalog.types import Progress

__all__ = [
    "FileEnd",
    "HeadersSeen",
    "Hop",
    "Step",
    "classified_end",
    "entry_size",
    "walk_windows",
]

#: Walks a window from a position in it, and returns where it stopped and why. If the mapping is lost: LOST,
#: and the position up to which everything was taken in; the walk goes on from there, and nothing comes twice.
Step = Callable[[Window, int], WalkEnd]

#: Goes on from a position of the file without a window as far as it can, and returns how far it came.
Hop = Callable[[int], int]

#: Called with headers of batches as rows of the kernel, how many there are, and the window that they are of.
HeadersSeen = Callable[[memoryview, int, Window], None]


@dataclass(frozen=True, slots=True)
class FileEnd:
    """How a file ended: where, and how much of it was not read."""

    path: str
    size: int
    pause: WalkEnd

    @property
    def is_clean(self) -> bool:
        return self.pause.ending == Ending.END

    @property
    def unread_bytes(self) -> int:
        return self.size - self.pause.position

    def error(self) -> CorruptionError:
        return self.pause.error().located(path=self.path)


def walk_windows(
    log_file: LogFile,
    step: Step,
    *,
    max_batch_bytes: int,
    hop: Hop | None = None,
    progress: Progress | None = None,
    reads_all: bool = False,
    mapped_size: int | None = None,
    start: int = 0,
    classifies: bool = True,
) -> Iterator[WalkEnd]:
    """Take ``step`` over the file from ``start`` on. Yield every stop that is FULL, so that the caller may
    empty what it fills, and last the end of the file; positions are the file's.

    Before each window but the first, ``hop`` may go on by itself. ``reads_all``: the steps look at every
    byte, and skip nothing by its header. ``mapped_size`` is how much is mapped at a time. The end is CORRUPT
    if a batch that seems cut off hides intact ones (``classify_tail``); without ``classifies`` it is
    INCOMPLETE, and the caller decides.
    """
    window = Window(log_file, reads_all=reads_all, mapped_size=mapped_size)
    window.load(start)
    at = 0
    while True:
        pause = step(window, at)
        position = window.position + pause.position
        if pause.ending == Ending.LOST:
            # Truncated, or failing, under the mapping: reading tells which, and how far it still goes.
            window.read_from(position)
            at = 0
            continue
        if pause.ending == Ending.FULL:
            yield _in_file(pause, window)
            at = pause.position
            continue
        if window.is_last or pause.ending == Ending.CORRUPT:
            end = _in_file(pause, window)
            yield classified_end(log_file.whole, end) if classifies else end
            return
        try:
            wanted = entry_size(window, pause.position, log_file.is_v07)
        except BufferError:
            window.read_from(position)
            at = 0
            continue
        # Less than a size field shows nothing: an offset, too, begins with zeros.
        if wanted is not None and pause.reason == Reason.ZERO_TAIL:
            yield _zero_tail(log_file, position)
            return
        if wanted is not None and wanted > max_batch_bytes:
            yield WalkEnd(
                position, Ending.CORRUPT, Reason.SIZE_TOO_LARGE,
                f"a batch of {wanted} bytes is above max_batch_bytes={max_batch_bytes}",
            )  # fmt: skip
            return
        if progress is not None:
            progress(position)
        if hop is not None and (beyond := hop(position)) != position:
            position, wanted = beyond, None
        window.load(position, wanted)
        at = 0


def classified_end(log_file: LogFile, end: WalkEnd) -> WalkEnd:
    """Return how a file ends, as ``classify_tail`` does; it is imported if the tail may be torn."""
    if end.reason != Reason.SHORT_TAIL:
        return end
    from stratalog.storage.segment.torn_tail import classify_tail

    return classify_tail(log_file, end)


def _in_file(pause: WalkEnd, window: Window) -> WalkEnd:
    return WalkEnd(window.position + pause.position, pause.ending, pause.reason, pause.detail)


def entry_size(window: Window, at: int, is_v07: bool) -> int | None:
    """Return the size that the entry at ``at`` says it has; None if the window ends before it."""
    size_at, overhead = (0, V07_LENGTH_SIZE) if is_v07 else (SIZE_AT, LOG_OVERHEAD)
    if at + overhead > window.length:
        return None
    field = window.copy(at + size_at, at + size_at + 4)
    return int.from_bytes(field, "big", signed=True) + overhead


def _zero_tail(log_file: LogFile, position: int) -> WalkEnd:
    """Zeros to the end of a window: a tail only if they go on to the end of the file."""
    window = Window(log_file)
    at = position
    while True:
        window.read_from(at)
        if _any_set(window):
            return WalkEnd(position, Ending.CORRUPT, Reason.SIZE_TOO_SMALL)
        if window.is_last:
            return WalkEnd(position, Ending.INCOMPLETE, Reason.ZERO_TAIL)
        at += window.length


def _any_set(window: Window) -> bool:
    return window.copy(0, window.length).count(0) != window.length
