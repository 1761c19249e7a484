"""Find the data files of a partition's folder: its segments, and what is left of interrupted work.

Segments that are being replaced are taken as a load would leave them. Everything else that holds batches,
``.cleaned``, ``.deleted``, and ``.swap`` without a decision, is a leftover: it may hold records that the
segments lack, and it may as well hold records that were meant to go.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stratalog.errors import CorruptionError, StorageError
from stratalog.rewrite.salvage.losses import SourceExtent
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import FileKind, PartitionFile, Stage, parse_partition_file
from stratalog.storage.replace.settle import read_settled

__all__ = ["Candidates", "SourceFile", "find_candidates"]

_DATA_KINDS: Final = (FileKind.LOG, FileKind.V07)
#: The order in which leftovers are looked at: what is newest comes first.
_STAGES: Final = (Stage.LIVE, Stage.SWAP, Stage.CLEANED, Stage.DELETED)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One data file that batches are taken from."""

    path: str
    base_offset: int
    size_bytes: int
    modified_ms: int
    is_v07: bool
    is_leftover: bool = False

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    @property
    def extent(self) -> SourceExtent:
        return SourceExtent(self.base_offset, self.size_bytes)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The data files of a folder. ``notes`` say what was odd about them."""

    live: tuple[SourceFile, ...]
    leftovers: tuple[SourceFile, ...]
    notes: tuple[str, ...] = ()


def find_candidates(file_system: FileSystem, folder: str) -> Candidates:
    """List the data files of a partition's folder. Raise StorageError if it cannot be listed, or if a data
    file in it is a link."""
    notes: list[str] = []
    names = _data_names(file_system, folder)
    try:
        settled = read_settled(file_system, folder)
        live = {
            settled.swapped.get(name, name)
            for name, file in settled.names.files.items()
            if file.kind in _DATA_KINDS and file.stage is Stage.LIVE
        }
    except CorruptionError as error:
        notes.append(f"a replacement of segments is damaged, and counts as a leftover: {error}")
        live = {name for name, file in names.items() if file.stage is Stage.LIVE}
    found = [
        _source(file_system, folder, name, file, is_leftover=name not in live)
        for name, file in names.items()
    ]
    found.sort(key=lambda each: (each.base_offset, each.name))
    leftovers = [each for each in found if each.is_leftover]
    leftovers.sort(key=lambda each: _STAGES.index(names[each.name].stage))
    return Candidates(
        tuple(each for each in found if not each.is_leftover), tuple(leftovers), tuple(notes)
    )


def _data_names(file_system: FileSystem, folder: str) -> dict[str, PartitionFile]:
    return dict(_data_files(file_system, folder))


def _data_files(file_system: FileSystem, folder: str) -> Iterator[tuple[str, PartitionFile]]:
    for entry in file_system.list_dir(folder):
        file = parse_partition_file(entry.name)
        if file is None or file.kind not in _DATA_KINDS:
            continue
        if not entry.is_file:
            raise StorageError(
                "not a regular file; a link is not followed: put the segment itself there",
                path=os.path.join(folder, entry.name),
            )
        yield entry.name, file


def _source(
    file_system: FileSystem, folder: str, name: str, file: PartitionFile, *, is_leftover: bool
) -> SourceFile:
    path = os.path.join(folder, name)
    found = file_system.stat(path)
    if found is None:
        raise StorageError(
            "deleted while the folder was listed: run salvage when nothing writes to the directory",
            path=path,
        )
    return SourceFile(
        path, file.offset, found.size, found.modified_ms, file.kind is FileKind.V07, is_leftover
    )
