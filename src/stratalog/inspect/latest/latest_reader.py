"""Reads only the newest record of every key, in two passes: the first one finds their offsets, of keys alone,
the second one decodes the records that have them.

Nothing is written next to the log, and a log that is in use may change between the passes. What was appended
since is not looked at. What compaction or retention has removed since is counted as missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

from stratalog.errors import UsageError
from stratalog.inspect.latest.newest_offsets import NewestOffsets
from stratalog.records.columns import DecodedColumns, KeptRecords, Selection
from stratalog.records.layout import Column
from stratalog.storage.segment.log_file import LogFile

__all__ = [
    "MEMORY_BYTES_DEFAULT",
    "MEMORY_BYTES_MIN",
    "LatestPerKey",
    "LatestReader",
    "LeftOut",
    "keys_only",
]

MEMORY_BYTES_DEFAULT: Final = 256 << 20
MEMORY_BYTES_MIN: Final = 64 << 10
#: Rows of keys that are handed from the decoder to the table: few enough to stay in the cache.
_KEY_ROWS: Final = 16384

Source = TypeVar("Source", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestPerKey:
    """How the newest records are read: the memory for keys, the directory for what does not fit (None: the
    system's), and whether records without a value are shown."""

    memory_bytes: int = MEMORY_BYTES_DEFAULT
    tombstones: bool = False
    temp_dir: str | None = None

    def __post_init__(self) -> None:
        if self.memory_bytes < MEMORY_BYTES_MIN:
            raise UsageError(
                f"memory_bytes is at least {MEMORY_BYTES_MIN}, not {self.memory_bytes}"
            )


@dataclass(slots=True)
class LeftOut:
    """What a read of the newest records left out."""

    #: Records without a key, of which none can be the newest.
    keyless: int = 0
    #: Records without a value that are the newest of their key.
    tombstones: int = 0
    #: Newest records that were removed before they could be read, by compaction or retention.
    missing: int = 0


class _Reader(Protocol[Source]):
    """A reader of partitions or ranges."""

    @property
    def tombstones(self) -> int: ...

    def read(self, wanted: Source, /) -> Iterator[tuple[LogFile, DecodedColumns]]: ...

    def read_kept(
        self, wanted: Source, keep: KeptRecords, /
    ) -> Iterator[tuple[LogFile, DecodedColumns]]: ...


def keys_only(selection: Selection) -> Selection:
    """The selection of the first pass."""
    return replace(selection, columns=Column.OFFSET | Column.KEY, views=False, batch_rows=_KEY_ROWS)


class LatestReader(Generic[Source]):
    """Reads partitions or ranges with two readers: ``keys``, whose selection is :func:`keys_only`, and
    ``records``, with that of the caller."""

    def __init__(
        self, keys: _Reader[Source], records: _Reader[Source], wanted: LatestPerKey
    ) -> None:
        self._keys = keys
        self._records = records
        self._wanted = wanted
        self.left_out = LeftOut()

    def read(self, source: Source) -> Iterator[tuple[LogFile, DecodedColumns]]:
        """The newest records of one partition, in the order of their offsets. If it is damaged and damage
        is not skipped, nothing of it is read: what follows the damage may be newer."""
        offsets = self._newest_offsets(source)
        if not offsets:
            return
        keep = KeptRecords(offsets, self._wanted.tombstones)
        before, shown = self._records.tombstones, 0
        for log_file, taken in self._records.read_kept(source, keep):
            shown += taken.rows
            yield log_file, taken
        tombstones = self._records.tombstones - before
        self.left_out.tombstones += tombstones
        self.left_out.missing += max(len(offsets) - tombstones - shown, 0)

    def _newest_offsets(self, source: Source) -> memoryview:
        wanted = self._wanted
        with closing(NewestOffsets(wanted.memory_bytes, wanted.temp_dir)) as newest:
            for _, taken in self._keys.read(source):
                newest.note(taken)
            self.left_out.keyless += newest.keyless
            return newest.offsets()
