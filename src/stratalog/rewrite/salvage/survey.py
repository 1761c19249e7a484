"""Survey a data file: which of its bytes are intact batches, and which are not.

The file is read once, a window at a time. After a damaged batch, the next intact one is searched for. The
header of the damaged one says where that begins, but no CRC covers a size: what lies before it is searched as
well. Memory depends on the number of damaged places, not on the size of the file.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Final

from stratalog.errors import StorageError
from stratalog.records import kernel
from stratalog.records.columns import WalkEnd
from stratalog.records.layout import (
    LOG_OVERHEAD,
    PREFIX_SIZE,
    ROW_WIDTH,
    SIZE_AT,
    Check,
    Ending,
    Reason,
)
from stratalog.records.reasons import describe, reason_name
from stratalog.rewrite.salvage.kept_batches import BatchesSeen
from stratalog.rewrite.salvage.runs import Damage, FileSurvey
from stratalog.rewrite.salvage.steps import (
    DEFAULT_LIMITS,
    BatchSteps,
    EntrySteps,
    Steps,
    SurveyLimits,
)
from stratalog.storage.files.holes import next_data
from stratalog.storage.segment.log_file import LogFile, Window
from stratalog.storage.segment.walk import entry_size
from stratalog.types import Progress

__all__ = ["SEARCH_LIMIT", "survey_file"]

#: The reason of damage after which nothing was searched any more.
SEARCH_LIMIT: Final = "search_limit"
#: How many bytes may be checked for each one that is searched: bytes can be made in which every position
#: looks like the beginning of a large batch.
_CHECKED_FACTOR: Final = 16
_CHECKED_LEAST: Final = 1 << 32
#: Sizes that damage of this kind leaves believable.
_SIZE_UNKNOWN: Final = (Reason.SIZE_TOO_SMALL, Reason.SIZE_TOO_LARGE, Reason.UNKNOWN_MAGIC)
#: A batch may begin so many bytes before the first byte that is not zero: that may be the last of its size.
_ZEROS_OF_A_HEAD: Final = LOG_OVERHEAD - 1
_ROWS_AT_ONCE: Final = 64


def survey_file(
    log_file: LogFile,
    source: int = 0,
    limits: SurveyLimits = DEFAULT_LIMITS,
    note_read: Progress = lambda _: None,
    seen: BatchesSeen | None = None,
) -> FileSurvey:
    """Find the intact batches of a file. ``note_read`` is called with the bytes read since the last call,
    ``seen`` with the headers of batches as they are found. Damage is not an error; StorageError if the file
    cannot be read."""
    steps: Steps = (
        EntrySteps(log_file, limits) if log_file.is_v07 else BatchSteps(log_file, limits, seen)
    )
    return _Surveyor(log_file, FileSurvey(source), steps, limits, note_read).run()


class _Surveyor:
    def __init__(
        self,
        log_file: LogFile,
        survey: FileSurvey,
        steps: Steps,
        limits: SurveyLimits,
        note_read: Progress,
    ) -> None:
        self._log_file = log_file
        self._size = log_file.size
        self._survey = survey
        self._steps = steps
        self._limits = limits
        self._note_read = note_read
        self._noted = 0
        self._window = Window(log_file, reads_all=True)
        self._rows = memoryview(array("q", bytes(8 * ROW_WIDTH * _ROWS_AT_ONCE)))
        self._checked_left = max(_CHECKED_LEAST, _CHECKED_FACTOR * self._size)

    def run(self) -> FileSurvey:
        position = 0
        while position < self._size:
            end = self._take(position)
            position = end.position
            if position < self._size:
                position = self._pass(end)
            self._note(position)
        self._survey.has_shown_all = self._steps.has_shown_all
        return self._survey

    def _note(self, position: int) -> None:
        if position > self._noted:
            self._note_read(position - self._noted)
            self._noted = position

    # Windows.

    def _load(self, position: int, size: int = 1) -> int:
        """Have at least ``size`` bytes from ``position`` on in the window; where in it they are."""
        window = self._window
        if not self._holds(position, size):
            window.load(position, size)
            if window.length < min(size, self._size - position):
                self._refuse()
        return position - window.position

    def _holds(self, position: int, size: int = 1) -> bool:
        window = self._window
        return window.position <= position <= position + size <= window.position + window.length

    def _refuse(self) -> None:
        raise StorageError(
            "the file became shorter while it was read: run salvage when nothing writes to the directory",
            path=self._log_file.path,
        )

    @property
    def _rest(self) -> int:
        return self._size - self._window.position - self._window.length

    # Intact batches.

    def _take(self, position: int) -> WalkEnd:
        """Add intact batches from ``position`` on. The end is the file's, or damage."""
        wanted = 1
        while position < self._size:
            at = self._load(position, wanted)
            end = self._steps.take(self._window, at, self._survey)
            position = self._window.position + end.position
            self._note(position)
            wanted = 1
            if end.ending == Ending.LOST:
                self._window.read_from(position)
            elif end.ending != Ending.END:
                wanted = 0 if end.ending == Ending.CORRUPT else self._missing(position)
                if wanted == 0:
                    return replace(end, position=position)
        return WalkEnd(position, Ending.END)

    def _missing(self, position: int) -> int:
        """Return how many bytes the window must hold for the batch that it ended in; 0 if it held all of
        it, or if the batch does not end in the file."""
        held = self._window.position + self._window.length - position
        size = self._size_at(position)
        if size is None or size > min(self._size - position, self._limits.batch_bytes):
            return 0
        return size if size > held else 0

    def _size_at(self, position: int) -> int | None:
        """Return the size that the entry at a position says it has; None if the file ends before that says
        anything, or if it cannot be one."""
        while True:
            at = self._load(position, min(LOG_OVERHEAD, self._size - position))
            try:
                size = entry_size(self._window, at, self._log_file.is_v07)
            except BufferError:
                self._window.read_from(position)
                continue
            return None if size is None or size <= 0 else size

    # Damage.

    def _pass(self, end: WalkEnd) -> int:
        """Note the damage at a position; return where the next intact batch begins, or the file ends."""
        start = end.position
        reason, detail = reason_name(end.reason), end.detail or describe(end.reason)
        zeros_end = self._zeros_end(start)
        if zeros_end == self._size:
            reason, detail = reason_name(Reason.ZERO_TAIL), describe(Reason.ZERO_TAIL)
            resume = self._size
        else:
            if zeros_end - start >= PREFIX_SIZE:
                reason, detail = "zeros", f"{zeros_end - start} zeros where a batch was to begin"
            resume_or_none = self._resume(end, max(start + 1, zeros_end - _ZEROS_OF_A_HEAD))
            if resume_or_none is None:
                reason = SEARCH_LIMIT
                detail += "; too much of what follows looks like a batch to search it"
            resume = self._size if resume_or_none is None else resume_or_none
        self._survey.add_damage(Damage(self._survey.source, start, resume, reason, detail))
        return resume

    def _zeros_end(self, position: int) -> int:
        """Return where the zeros end that begin at a position."""
        while position < self._size:
            at = self._load(position)
            window = self._window
            try:
                reached = kernel.zero_run(window.data, at, window.length, guarded=window.guarded)
            except BufferError:
                window.read_from(position)
                continue
            position = window.position + reached
            if reached < window.length:
                break
            position = next_data(self._log_file.file, position, self._size)
        return position

    def _resume(self, end: WalkEnd, search_from: int) -> int | None:
        """Return where the next intact batch begins; the size of the file if there is none; None if the
        search was given up."""
        if search_from <= self._survey.inside_until:
            claimed_end: int | None = self._survey.inside_until
        else:
            claimed_end = self._claimed_end(end)
            self._survey.inside_until = 0
        while True:
            found = self._find(search_from)
            if claimed_end is None or found is None or found >= claimed_end:
                break
            size = self._size_at(found) or 0
            if found + size <= claimed_end:
                is_hidden = self._is_hidden(found, claimed_end, end.position)
                self._survey.inside_until = 0 if is_hidden else claimed_end
                return found
            search_from = found + 1
        if claimed_end is not None and (found is None or found > claimed_end):
            return claimed_end
        return found

    def _claimed_end(self, end: WalkEnd) -> int | None:
        """Return where the damaged batch says that it ends, if an intact one, or the end of the file, is
        there."""
        if end.ending != Ending.CORRUPT or end.reason in _SIZE_UNKNOWN:
            return None
        size = self._size_at(end.position)
        claimed = end.position + (size or 0)
        if size is None or claimed > self._size:
            return None
        is_there = claimed == self._size or self._is_intact_at(claimed)
        return claimed if is_there else None

    def _is_intact_at(self, position: int) -> bool:
        size = self._size_at(position)
        if size is None or size > min(self._size - position, self._limits.batch_bytes):
            return False
        offset = self._offset_at(position)
        is_possible = offset is None or self._steps.is_possible(offset)
        return is_possible and self._reaches(position, position + size)

    def _is_hidden(self, position: int, claimed_end: int, damaged_at: int) -> bool:
        """Whether a batch that lies inside what a damaged one claims is one of the log: its offsets fit
        between those around it, or other batches follow it up to that very end."""
        offset, after = self._offset_at(position), self._offset_at(claimed_end)
        if self._log_file.is_v07:
            return True  # whatever lies there has the offset of its position
        if offset is not None and after is not None:
            expected = self._survey.next_offset_at(damaged_at)
            if expected <= offset < after:
                return True
        return self._reaches(position, claimed_end)

    def _reaches(self, position: int, end: int) -> bool:
        """Whether intact batches follow each other from a position up to another."""
        data = self._log_file.file.read(position, end - position)
        walk = kernel.walk_v07 if self._log_file.is_v07 else kernel.walk
        at, ending = 0, int(Ending.FULL)
        while ending == Ending.FULL:
            _, at, ending, *_ = walk(data, at, len(data), self._rows, Check.CRC)
        return ending == Ending.END

    def _offset_at(self, position: int) -> int | None:
        """Return the offset in the header of an intact batch; None if its format has none there."""
        if self._log_file.is_v07 or position >= self._size:
            return None
        return int.from_bytes(self._log_file.file.read(position, SIZE_AT), "big")

    # The search.

    def _find(self, position: int) -> int | None:
        """Return the first position from ``position`` on where a batch matches its CRC; the size of the file
        if there is none, None if the search was given up."""
        wanted = 1
        while position < self._size:
            if not self._holds(position):
                data_at = next_data(self._log_file.file, position, self._size)
                position = max(position, data_at - _ZEROS_OF_A_HEAD)
            at = self._load(position, min(wanted, self._size - position))
            found = self._search(at, position)
            if found is None:
                wanted = 1
                continue
            outcome, reached, size, checked = found
            self._checked_left -= checked
            reached += self._window.position
            self._note(reached)
            if outcome == 1:
                return reached
            if outcome == -2 or self._checked_left < 0:
                return None
            wanted = size if outcome == -1 else 1
            if outcome == 0 and reached == position and self._rest > 0:
                wanted = self._window.position + self._window.length - position + 1
            position = reached
        return self._size

    def _search(self, at: int, position: int) -> tuple[int, int, int, int] | None:
        try:
            return self._steps.find(self._window, at, self._rest, self._checked_left)
        except BufferError:
            self._window.read_from(position)
            return None
