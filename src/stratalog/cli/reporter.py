"""Everything that goes to stderr, and the exit code that comes of it.

Exit codes: 0 all is well; 1 something is wrong with the bytes; 2 the command line is wrong; 3 the system
refused to read or write.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from stratalog.cli.option_words import with_options
from stratalog.cli.terminal import cut, printable, table_width
from stratalog.errors import (
    CorruptionError,
    OffsetOutOfRangeError,
    StorageError,
    StratalogError,
    UsageError,
)

if TYPE_CHECKING:
    from stratalog.inspect.file.skipped_damage import SkippedDamage
    from stratalog.inspect.partition.sources import Sources
    from stratalog.storage.segment.walk import FileEnd

__all__ = ["FINDINGS", "INTERRUPTED", "IO_REFUSED", "USAGE", "Reporter", "exit_code_of"]

FINDINGS: Final = 1
USAGE: Final = 2
IO_REFUSED: Final = 3
INTERRUPTED: Final = 130

_PROGRESS_AFTER_SECONDS: Final = 1.0
_PROGRESS_EVERY_SECONDS: Final = 0.2

Item = TypeVar("Item")


def exit_code_of(error: StratalogError) -> int:
    if isinstance(error, UsageError | OffsetOutOfRangeError):
        return USAGE
    return IO_REFUSED if isinstance(error, StorageError) else FINDINGS


class Reporter:
    """Says what went wrong, and how far the work is."""

    def __init__(self) -> None:
        self.exit_code = 0
        self.error: StratalogError | None = None
        self._shows_progress = sys.stderr.isatty()
        self._total_bytes = 0
        self._started = time.monotonic()
        self._next = self._started + _PROGRESS_AFTER_SECONDS
        self._line_shown = False

    def warn(self, text: str) -> None:
        """One line; the exit code stays."""
        self._say(f"stratalog: warning: {text}")

    def note(self, text: str) -> None:
        """One line on what is worth knowing and not wrong."""
        self._say(f"stratalog: note: {text}")

    def fail(self, error: StratalogError) -> None:
        """One line, and an exit code that says so."""
        self.error = error
        self.exit_code = max(self.exit_code, exit_code_of(error))
        self._say(f"stratalog: {error}")

    def found(self) -> None:
        """Something is wrong with the bytes, and the output tells of it."""
        self.exit_code = max(self.exit_code, FINDINGS)

    def left_out(
        self, skipped: SkippedDamage, *, is_skipping: bool, resume_with: str = "--skip-damaged"
    ) -> None:
        """Say what the output lacks because of damage, and which options read what follows it."""
        self.found()
        if is_skipping:
            self.note(f"left out: {skipped}")
            return
        folder = os.path.basename(os.path.dirname(os.path.abspath(skipped.path)))
        resume = skipped.resume_offset
        then = (
            "nothing intact follows"
            if resume is None
            else f"reading can resume at offset {resume}: {resume_with}"
        )
        self.note(f"left out: {folder} from offset {skipped.start_offset} on; {then}")

    def interrupted(self) -> None:
        """Ctrl-C, by a command that has something to show all the same."""
        self.exit_code = INTERRUPTED

    def until_failure(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items; where bytes or the system fail, that is reported and the items end."""
        try:
            yield from items
        except (CorruptionError, OffsetOutOfRangeError, StorageError) as error:
            self.fail(error)

    def warn_vanished(self, path: str) -> None:
        """A file that was listed and is gone: beside a broker that lives, that is no error."""
        self.warn(f"{path} was deleted before it could be read")

    def warn_torn(self, end: FileEnd) -> None:
        """A last batch that is cut off, where that is no error."""
        error = end.error()
        self.warn(
            f"{end.path} at byte {error.position}: {error.detail} ({error.reason}); "
            f"{end.unread_bytes} bytes not read"
        )

    def begin(self, sources: Sources) -> None:
        """Before anything is read: what 100 % is, and what was odd when it was looked for. What cannot
        be read is left to those who read it."""
        for warning in sources.warnings:
            self.warn(warning)
        if self._shows_progress:
            self._total_bytes = sum(map(_size_or_zero, sources.files))

    def start_work(self, total_bytes: int | None = None) -> None:
        """The work begins only now: what was before has no part in its rate. ``total_bytes``: what 100 % is,
        where that is not files as a whole."""
        self._started = time.monotonic()
        self._next = self._started + _PROGRESS_AFTER_SECONDS
        if total_bytes is not None:
            self._total_bytes = total_bytes

    def progress(self, done: int) -> None:
        """Show how far the work is, once it has taken a second."""
        if not self._shows_progress:
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _PROGRESS_EVERY_SECONDS
        line = _progress_line(done, self._total_bytes, now - self._started)
        sys.stderr.write(f"\r\x1b[K{cut(line, table_width(sys.stderr) - 1)}")
        sys.stderr.flush()
        self._line_shown = True

    def progress_behind(self, before: int) -> Callable[[int], None]:
        """Progress of one file, when the files before it had so many bytes."""
        return lambda position: self.progress(before + position)

    def erase_progress(self) -> None:
        if self._line_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._line_shown = False

    def _say(self, text: str) -> None:
        self.erase_progress()
        sys.stderr.write(printable(with_options(text)) + "\n")
        sys.stderr.flush()


def _size_or_zero(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _progress_line(done: int, total: int, seconds: float) -> str:
    rate = done / seconds
    parts = [f"{_size(done)} of {_size(total)}" if total else _size(done), f"{_size(rate)}/s"]
    if total and rate:
        left = int(max(total - done, 0) / rate)
        parts.insert(1, f"{100 * min(done, total) // total} %")
        parts.append(f"{left // 60}:{left % 60:02d} left")
    return "  ".join(parts)


def _size(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
