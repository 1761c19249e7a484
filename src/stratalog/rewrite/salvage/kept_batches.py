"""Walk the batches of runs that are kept, in the order of their offsets.

The survey has checked them. They are checked again, CRC included, where they are copied: the file may have
changed meanwhile.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from stratalog.errors import StorageError
from stratalog.records import kernel
from stratalog.records.columns import decode_records
from stratalog.records.layout import (
    CONTROL_MASK,
    INT32_MAX,
    ROW_WIDTH,
    Check,
    Ending,
    Magic,
    Row,
)
from stratalog.rewrite.salvage.candidates import SourceFile
from stratalog.rewrite.salvage.runs import Run
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.segment.log_file import LogFile, Window, open_log_file

__all__ = ["BatchesSeen", "KeptBatches", "Sources", "single_batches", "walk_kept"]


class KeptBatches(NamedTuple):
    """Some batches of a source that follow each other: their header rows, how many there are, the window that
    they are of, and where in it they begin and end. Valid until the next ones are read."""

    source: int
    rows: memoryview
    held: int
    window: Window
    start: int
    end: int

    @property
    def data(self) -> memoryview:
        return memoryview(self.window.data)[self.start : self.end]


BatchesSeen = Callable[[KeptBatches], None]
#: Data files by the numbers that runs have for them: all of a partition, or those that are needed.
Sources = Sequence[SourceFile] | Mapping[int, SourceFile]

_ROWS_AT_ONCE: Final = 1024


def walk_kept(
    file_system: FileSystem,
    sources: Sources,
    runs: Iterable[Run],
    seen: BatchesSeen,
    *,
    check: Check = Check.NONE,
) -> None:
    """Call ``seen`` with the batches of runs, as many as a window holds at a time. Raise StorageError if they
    are not what they were."""
    rows = memoryview(array("q", bytes(8 * ROW_WIDTH * _ROWS_AT_ONCE)))
    opened: int | None = None
    walker: _Walker | None = None
    for run in runs:
        if walker is None or run.source != opened:
            if walker is not None:
                walker.close()
            walker, opened = _Walker(file_system, sources[run.source], rows, check), run.source
        try:
            walker.walk(run, seen)
        except BaseException:
            walker.close()
            raise
    if walker is not None:
        walker.close()


class _Walker:
    """Walks runs of one file."""

    def __init__(
        self, file_system: FileSystem, source: SourceFile, rows: memoryview, check: Check
    ) -> None:
        self._file = file_system.open_readable(source.path)
        self._rows = rows
        self._check = check
        self._is_v07 = source.is_v07
        log_file = LogFile(
            source.path, self._file, source.size_bytes, source.base_offset, source.is_v07
        )
        self._log_file = log_file
        self._window = Window(log_file, reads_all=bool(check & Check.CRC))

    def close(self) -> None:
        self._file.close()

    def walk(self, run: Run, seen: BatchesSeen) -> None:
        position, wanted = run.start, 1
        while position < run.end:
            window = self._load(position, wanted)
            at = position - window.position
            limit = min(window.length, run.end - window.position)
            try:
                held, reached, ending = self._step(at, limit)
            except BufferError:
                window.read_from(position)
                continue
            if held:
                seen(KeptBatches(run.source, self._rows, held, window, at, reached))
            elif ending != Ending.INCOMPLETE or limit == run.end - window.position:
                raise self._changed()
            # A batch that the window cuts off: twice as much will hold it, sooner or later.
            wanted = 1 if held else 2 * (limit - at) + 1
            position = window.position + reached

    def _load(self, position: int, wanted: int) -> Window:
        window = self._window
        if not window.position <= position <= position + wanted <= window.position + window.length:
            window.load(position, min(wanted, self._log_file.size - position))
            if window.length == 0:
                raise self._changed()
        return window

    def _step(self, at: int, limit: int) -> tuple[int, int, int]:
        window, rows, check = self._window, self._rows, self._check
        if self._is_v07:
            held, reached, ending, *_ = kernel.walk_v07(window.data, at, limit, rows, check)
        else:
            held, reached, ending, *_ = kernel.walk(
                window.data, at, limit, rows, check, -1, INT32_MAX, guarded=window.guarded
            )
        return held, reached, ending

    def _changed(self) -> StorageError:
        return StorageError(
            "changed while it was salvaged: run salvage when nothing writes to the directory",
            path=self._log_file.path,
        )


def single_batches(file_system: FileSystem, source: SourceFile, run: Run) -> Iterator[Run]:
    """Return the batches of a run, each as a run of its own."""
    found: list[Run] = []

    def seen(batches: KeptBatches) -> None:
        for at in range(0, batches.held * ROW_WIDTH, ROW_WIDTH):
            row = batches.rows[at : at + ROW_WIDTH]
            found.append(_single(row, source, run.source, batches.window.position))

    walk_kept(file_system, {run.source: source}, (run,), seen)
    with open_log_file(source.path, file_system) as log_file:
        for each in found:
            yield each if each.first >= 0 else _opened(log_file, each)


def _single(row: memoryview, source: SourceFile, number: int, window_position: int) -> Run:
    """One batch; of a wrapper, whose first offset only its contents say, with -1 for it."""
    start = window_position + row[Row.POSITION]
    end = start + row[Row.SIZE]
    first, following, records = (
        row[Row.BASE_OFFSET],
        row[Row.LAST_OFFSET] + 1,
        row[Row.RECORD_COUNT],
    )
    if source.is_v07:
        first, following = source.base_offset + start, source.base_offset + end
        return Run(number, start, end, first, following, 1, max(records, 1))
    is_control = row[Row.MAGIC] == Magic.V2 and row[Row.ATTRIBUTES] & CONTROL_MASK
    control = records if is_control else 0
    return Run(number, start, end, first, following, 1, records - control, control)


def _opened(log_file: LogFile, wrapper: Run) -> Run:
    data = log_file.file.read(wrapper.start, wrapper.size_bytes)
    offsets = [record.offset for record in decode_records(data, check=Check.CRC)]
    return wrapper._replace(first=offsets[0], next=offsets[-1] + 1, records=len(offsets))
