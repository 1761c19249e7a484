"""Which records of a partition are the newest of their keys, found in one pass within a limit of memory.

A table in the kernel has a digest and an offset for each key. When it is full, its entries go to 32 temporary
files by their digests, so that a key always goes to the same one, and the table starts again. At the end each
file is reduced by itself; what does not fit even then is divided again, by the next bits.

A digest is SipHash-1-3 with 128 bits of output, under a key that is drawn at random for each partition. Two
record keys with the same digest would cost a record. For a billion record keys the probability of that is
below 10⁻²⁰, and since a producer does not know the random key, it cannot raise it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any, Final

from stratalog.inspect.latest.offset_runs import OffsetRuns
from stratalog.inspect.latest.scratch import ScratchFiles, spilling
from stratalog.records import kernel
from stratalog.records.columns import DecodedColumns
from stratalog.records.layout import Column, Reason

__all__ = ["NewestOffsets"]

_ENTRY_SIZE: Final = 24
_CHUNK_SIZE: Final = 2048 * _ENTRY_SIZE
_PARTS: Final = 32


class NewestOffsets:
    """The newest offset of every key of one partition. Closing it removes what was spilled."""

    def __init__(self, memory_bytes: int, folder: str | None = None) -> None:
        self._keys = kernel.LatestKeys(os.urandom(16), memory_bytes)
        self._memory_bytes = memory_bytes
        self._folder = folder
        self._files = ScratchFiles(folder)
        self._spilled: _SpilledParts | None = None

    def close(self) -> None:
        self._files.close()

    @property
    def keyless(self) -> int:
        """Records without a key that were met."""
        return self._keys.keyless

    @property
    def is_spilled(self) -> bool:
        """Whether there were more keys than fit into memory."""
        return self._spilled is not None

    def note(self, taken: DecodedColumns) -> None:
        """Take in records, of which there are offset and key."""
        rows = kernel.Rows(
            taken.rows,
            offsets=(taken.buffers[Column.OFFSET][0], 0),
            key=(*taken.buffers[Column.KEY], 0),
        )
        row = 0
        while True:
            row, reason = self._keys.note(rows, row)
            assert reason == Reason.NONE  # what was decoded is within its buffers
            if row == rows.count:
                return
            with spilling(self._folder):
                self._spilled = self._spill_to(self._spilled, 0)

    def offsets(self) -> memoryview:
        """Return the newest offsets of all keys, in order."""
        if self._spilled is None:
            return memoryview(self._keys.take_offsets()).cast("q")
        with spilling(self._folder):
            runs = OffsetRuns(self._files, self._memory_bytes)
            self._reduce(self._spill_to(self._spilled, 0), 0, runs)
            return runs.merged()

    def _spill_to(self, parts: _SpilledParts | None, level: int) -> _SpilledParts:
        parts = parts or _SpilledParts(self._files.open)
        parts.write(*self._keys.spill(level))
        return parts

    def _reduce(self, parts: _SpilledParts, level: int, runs: OffsetRuns) -> None:
        """Add the newest offsets of each part, as a run of its own."""
        for chunks in parts.take():
            divided = None
            for entries in chunks:
                entry = 0
                while (entry := self._keys.load(entries, entry)) * _ENTRY_SIZE < len(entries):
                    divided = self._spill_to(divided, level + 1)
            if divided is None:
                runs.add(self._keys.take_offsets())
            else:
                self._reduce(self._spill_to(divided, level + 1), level + 1, runs)


class _SpilledParts:
    """Entries of a table in temporary files, one for each part of the digests."""

    def __init__(self, open_file: Callable[[], IO[bytes]]) -> None:
        self._open_file = open_file
        self._files: list[IO[bytes] | None] = [None] * _PARTS

    def write(self, entries: Any, starts: list[int]) -> None:
        view = memoryview(entries)
        for part in range(_PARTS):
            some = view[starts[part] * _ENTRY_SIZE : starts[part + 1] * _ENTRY_SIZE]
            if not some:
                continue
            file = self._files[part]
            if file is None:
                file = self._files[part] = self._open_file()
            file.write(some)

    def take(self) -> Iterator[Iterator[bytes]]:
        """Each part as chunks of whole entries; its file is closed after it."""
        for file in self._files:
            if file is not None:
                file.seek(0)
                yield iter(partial(file.read, _CHUNK_SIZE), b"")
                file.close()
