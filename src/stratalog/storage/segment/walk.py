"""Walk a log file window by window: the part that scan, count and verify share.

Each of them steps over a window with a kernel call of its own; this module loads the windows, makes them
larger for a batch that does not fit, and tells a torn tail at the end of the file from one at the end of a
window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stratalog.errors import CorruptionError
from stratalog.records.columns import Pause
from stratalog.records.layout import LOG_OVERHEAD, SIZE_AT, V07_LENGTH_SIZE, Ending, Reason
from stratalog.storage.segment.log_file import LogFile, Window
from stratalog.types import Progress

__all__ = ["FileEnd", "Hop", "Step", "entry_size", "walk_windows"]

#: Goes over a window from a position in it and says where it stopped and why. Where the window is lost,
#: LOST and the position up to which everything was taken in: it goes on from there, and nothing comes twice.
Step = Callable[[Window, int], Pause]

#: Goes on from a position of the file without a window as far as it can, and says how far it came.
Hop = Callable[[int], int]


@dataclass(frozen=True, slots=True)
class FileEnd:
    """How a file ended: where, and what lies behind that place unread."""

    path: str
    size: int
    pause: Pause

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
    start: int = 0,
) -> Iterator[Pause]:
    """Take ``step`` over the file from ``start`` on. Yields every pause that is FULL, so that the caller
    may empty what it fills, and last the pause that ends the file; positions are the file's.

    Before each window but the first, ``hop`` may go on by itself. ``reads_all``: the steps look at
    every byte, and leave nothing out by its header.
    """
    window = Window(log_file, reads_all=reads_all)
    window.load(start)
    at = 0
    while True:
        pause = step(window, at)
        position = window.position + pause.position
        if pause.ending == Ending.LOST:
            # Cut short, or failing, under the mapping: reading says which, and how far it still goes.
            window.read_from(position)
            at = 0
            continue
        if pause.ending == Ending.FULL:
            yield _in_file(pause, window)
            at = pause.position
            continue
        if window.is_last or pause.ending == Ending.CORRUPT:
            yield _in_file(pause, window)
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
            yield Pause(
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


def _in_file(pause: Pause, window: Window) -> Pause:
    return Pause(window.position + pause.position, pause.ending, pause.reason, pause.detail)


def entry_size(window: Window, at: int, is_v07: bool) -> int | None:
    """The size that the entry at ``at`` says it has; None where the window does not show it."""
    size_at, overhead = (0, V07_LENGTH_SIZE) if is_v07 else (SIZE_AT, LOG_OVERHEAD)
    if at + overhead > window.length:
        return None
    field = window.copy(at + size_at, at + size_at + 4)
    return int.from_bytes(field, "big", signed=True) + overhead


def _zero_tail(log_file: LogFile, position: int) -> Pause:
    """Zeros to the end of a window: a tail only if they go on to the end of the file."""
    window = Window(log_file)
    at = position
    while True:
        window.read_from(at)
        if _any_set(window):
            return Pause(position, Ending.CORRUPT, Reason.SIZE_TOO_SMALL)
        if window.is_last:
            return Pause(position, Ending.INCOMPLETE, Reason.ZERO_TAIL)
        at += window.length


def _any_set(window: Window) -> bool:
    return window.copy(0, window.length).count(0) != window.length
