"""Loads the index files of a segment, so that they can be held against its batches.

A broker preallocates the indexes of its active segment with zeros and trims them when it rolls or stops.
Entries are taken without those zeros; whether zeros may be there, the report decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stratalog.errors import CorruptionError, LimitExceededError, StorageError
from stratalog.inspect.check.report import CheckedKind
from stratalog.records.layout import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.names import FileKind, sidecar_path
from stratalog.storage.segment.txn_index import ENTRY_SIZE as TXN_ENTRY_SIZE
from stratalog.storage.segment.txn_index import AbortedTxn, decode_entries

__all__ = [
    "ENTRY_SIZES",
    "KINDS",
    "NO_INDEXES",
    "IndexFile",
    "SegmentIndexes",
    "load_index",
    "load_indexes",
]

ENTRY_SIZES: Final = {
    CheckedKind.OFFSET_INDEX: OFFSET_ENTRY_SIZE,
    CheckedKind.TIME_INDEX: TIME_ENTRY_SIZE,
    CheckedKind.TXN_INDEX: TXN_ENTRY_SIZE,
}
KINDS: Final = {
    CheckedKind.OFFSET_INDEX: FileKind.OFFSET_INDEX,
    CheckedKind.TIME_INDEX: FileKind.TIME_INDEX,
    CheckedKind.TXN_INDEX: FileKind.TXN_INDEX,
}
#: 32 million offset entries. Kafka's default is 10 MiB; larger files are not read.
_SIZE_MAX: Final = 256 << 20
_TRIES: Final = 8


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One index file as it was read: its whole entries, without zeros that it was preallocated with."""

    path: str
    kind: CheckedKind
    size_bytes: int
    entries: bytes = b""
    has_zero_tail: bool = False
    damage: CorruptionError | None = None
    refused: StorageError | None = None

    @property
    def count(self) -> int:
        return len(self.entries) // ENTRY_SIZES[self.kind]


@dataclass(frozen=True, slots=True)
class SegmentIndexes:
    """The index files that a segment has. A file that is missing is None."""

    offsets: IndexFile | None = None
    times: IndexFile | None = None
    txns: IndexFile | None = None
    aborted: tuple[AbortedTxn, ...] = ()

    @property
    def files(self) -> tuple[IndexFile, ...]:
        return tuple(each for each in (self.offsets, self.times, self.txns) if each is not None)


NO_INDEXES: Final = SegmentIndexes()


def load_indexes(
    file_system: FileSystem, data_path: str, base_offset: int | None
) -> SegmentIndexes:
    """Read the index files that lie next to a data file. What is wrong with one is part of the answer."""
    if base_offset is None:
        return NO_INDEXES
    offsets, times, txns = (_load_sidecar(file_system, data_path, kind) for kind in KINDS)
    aborted: tuple[AbortedTxn, ...] = ()
    if txns is not None and txns.damage is None and txns.refused is None:
        txns, aborted = _decoded(txns, base_offset)
    return SegmentIndexes(offsets, times, txns, aborted)


def _load_sidecar(file_system: FileSystem, data_path: str, kind: CheckedKind) -> IndexFile | None:
    path = sidecar_path(data_path, KINDS[kind])
    return None if path is None else load_index(file_system, path, kind)


def load_index(file_system: FileSystem, path: str, kind: CheckedKind) -> IndexFile | None:
    """Read one index file; None if it does not exist."""
    for _ in range(_TRIES):
        index = _load_once(file_system, path, kind)
        if index is None or index.damage is None or index.size_bytes == _size_of(file_system, path):
            return index
    return index  # its size changes faster than it can be read


def _size_of(file_system: FileSystem, path: str) -> int | None:
    try:
        found = file_system.stat(path)
    except StorageError:
        return None
    return None if found is None else found.size


def _load_once(file_system: FileSystem, path: str, kind: CheckedKind) -> IndexFile | None:
    """Read one index file. A writer trims it when it rolls: it may become shorter while it is read."""
    size = 0
    try:
        found = file_system.stat(path)
        if found is None:
            return None
        size = found.size
        data = read_small_file(file_system, path, size_max=_SIZE_MAX)
    except StorageError as error:
        return IndexFile(path, kind, size, refused=error)
    except LimitExceededError as error:
        return IndexFile(path, kind, size, damage=error)
    return None if data is None else _index_of(path, kind, data)


def _index_of(path: str, kind: CheckedKind, data: bytes) -> IndexFile:
    entry_size = ENTRY_SIZES[kind]
    whole = len(data) - len(data) % entry_size
    if kind is CheckedKind.TXN_INDEX:  # never preallocated, and its decoder checks the size
        return IndexFile(path, kind, len(data), data)
    if whole < len(data):
        detail = f"{len(data)} bytes are not whole entries of {entry_size}"
        damage = CorruptionError("index_size", detail, position=whole)
        return IndexFile(path, kind, len(data), damage=damage)
    used = -(-len(data.rstrip(b"\0")) // entry_size) * entry_size
    return IndexFile(path, kind, len(data), data[:used], has_zero_tail=used < len(data))


def _decoded(txns: IndexFile, base_offset: int) -> tuple[IndexFile, tuple[AbortedTxn, ...]]:
    try:
        return txns, tuple(decode_entries(txns.entries, base_offset))
    except CorruptionError as error:
        return IndexFile(txns.path, txns.kind, txns.size_bytes, damage=error), ()
