"""Sorted runs of offsets in temporary files, merged into one within a limit of memory."""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, Final, NamedTuple

from stratalog.inspect.latest.scratch import ScratchFiles
from stratalog.records import kernel

__all__ = ["OffsetRuns"]

_WIDTH: Final = 8
#: Of each run that is merged, so many offsets are read at once, at least.
_READ_MIN: Final = 512
_NOTHING: Final = memoryview(array("q"))


class _Run(NamedTuple):
    """Sorted offsets in a file, from the ``start``-th up to the ``end``-th."""

    file: IO[bytes]
    start: int
    end: int


class OffsetRuns:
    """Runs of offsets, each in order, that are read as one."""

    def __init__(self, files: ScratchFiles, memory_bytes: int) -> None:
        self._files = files
        # A quarter of the memory for what was read, one for what is merged of it, two for sorting that.
        self._held_max = max(memory_bytes // 4 // _WIDTH, 2 * _READ_MIN)
        self._file: IO[bytes] | None = None
        self._written = 0
        self._runs: list[_Run] = []

    def add(self, offsets: Any) -> None:
        """Add a run: a buffer of 64-bit integers in order."""
        self._write([memoryview(offsets).cast("B").cast("q")])

    def merged(self) -> memoryview:
        """Return all offsets in order, mapped from a file."""
        while len(self._runs) > 1:
            self._merge_all(self._held_max // _READ_MIN)
        if not self._runs:
            return _NOTHING
        (run,) = self._runs
        run.file.flush()
        mapped = mmap.mmap(run.file.fileno(), run.end * _WIDTH, access=mmap.ACCESS_READ)
        return memoryview(mapped).cast("q")

    def _merge_all(self, fan_in: int) -> None:
        """Merge the runs into fewer, in a new file."""
        runs, file = self._runs, self._file
        self._runs, self._file, self._written = [], None, 0
        for first in range(0, len(runs), fan_in):
            group = runs[first : first + fan_in]
            self._write(_merge(group, self._held_max // len(group)))
        if file is not None:
            file.close()

    def _write(self, parts: Iterable[Any]) -> None:
        if self._file is None:
            self._file = self._files.open()
        start = self._written
        for part in parts:
            self._file.write(part)
            self._written += len(part)
        if self._written > start:
            self._runs.append(_Run(self._file, start, self._written))


def _merge(runs: Sequence[_Run], held_max: int) -> Iterator[memoryview]:
    """The offsets of some runs in order; of each, at most ``held_max`` are held at a time."""
    readers = [_RunReader(run, held_max) for run in runs]
    while readers := [reader for reader in readers if reader.fill()]:
        limits = [reader.limit for reader in readers]
        limit = min((each for each in limits if each is not None), default=None)
        part = array("q")
        for reader in readers:
            part.frombytes(reader.take(limit).cast("B"))
        kernel.sort_offsets(memoryview(part))
        yield memoryview(part)


class _RunReader:
    """A run on its way through a merge: some of it is held, and more is read when that is taken."""

    def __init__(self, run: _Run, held_max: int) -> None:
        self._file, self._next, self._end = run
        self._held_max = held_max
        self._held = _NOTHING

    def fill(self) -> bool:
        """Hold some offsets; False if there are none left."""
        if not self._held and self._next < self._end:
            count = min(self._held_max, self._end - self._next)
            self._file.seek(self._next * _WIDTH)
            self._held = memoryview(self._file.read(count * _WIDTH)).cast("q")
            self._next += count
        return len(self._held) > 0

    @property
    def limit(self) -> int | None:
        """The offset up to which everything is held; None: up to the end."""
        return None if self._next == self._end else self._held[-1]

    def take(self, limit: int | None) -> memoryview:
        """Hand out what is held up to and including an offset."""
        count = len(self._held) if limit is None else bisect_right(self._held, limit)
        taken, self._held = self._held[:count], self._held[count:]
        return taken
