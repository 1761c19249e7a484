"""List the originals that are kept in a partition's folder, and drop them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from stratalog.errors import CorruptionError, StorageError, UsageError
from stratalog.rewrite.manifest import Manifest
from stratalog.storage.files.filesystem import DirEntry, FileSystem
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.names import (
    SEGMENT_KINDS,
    TEMPORARY_SUFFIX,
    UNDO_MANIFEST,
    Stage,
    parse_partition_file,
    parse_undo_dir,
    undo_dir_name,
)

__all__ = ["KeptOriginals", "find_kept", "forget_kept", "read_kept"]

_MANIFEST_BYTES_MAX: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class KeptOriginals:
    """What a folder keeps. ``manifest`` is None if the folder was not completed, or is being removed: then
    ``problem`` says so, and it can only be dropped."""

    id: str
    folder: str
    manifest: Manifest | None
    segments: int
    size_bytes: int
    problem: str | None = None


def find_kept(file_system: FileSystem, partition_folder: str) -> list[KeptOriginals]:
    """Return what is kept in a partition's folder, oldest first."""
    names = sorted(entry.name for entry in file_system.list_dir(partition_folder) if entry.is_dir)
    ids = [found for found in map(parse_undo_dir, names) if found is not None]
    return [read_kept(file_system, partition_folder, each) for each in ids]


def read_kept(file_system: FileSystem, partition_folder: str, rewrite_id: str) -> KeptOriginals:
    """Return what is kept of one rewrite; UsageError if there is nothing."""
    folder = os.path.join(partition_folder, undo_dir_name(rewrite_id))
    listed = {entry.name for entry in file_system.list_dir(partition_folder) if entry.is_dir}
    if os.path.basename(folder) not in listed:
        raise UsageError(f"nothing is kept of a rewrite {rewrite_id!r} in {partition_folder}")
    manifest, problem = None, None
    path = os.path.join(folder, UNDO_MANIFEST)
    try:
        data = read_small_file(file_system, path, size_max=_MANIFEST_BYTES_MAX)
        if data is None:
            problem = "it has no manifest: no segment was replaced, or it was being dropped"
        else:
            manifest = Manifest.decode(data, path)
    except CorruptionError as error:
        problem = str(error)
    names = [entry.name for entry in file_system.list_dir(folder) if entry.is_file]
    sizes = [_size(file_system, os.path.join(folder, name)) for name in names if _is_data(name)]
    return KeptOriginals(rewrite_id, folder, manifest, len(sizes), sum(sizes), problem)


def forget_kept(file_system: FileSystem, kept: KeptOriginals) -> None:
    """Drop what is kept, for good. The manifest goes first: without it the rest means nothing. StorageError
    if the folder holds files that are not ours, which stay."""
    file_system.unlink(os.path.join(kept.folder, UNDO_MANIFEST))
    file_system.sync_dir(kept.folder)
    foreign = []
    for entry in file_system.list_dir(kept.folder):
        if _is_ours(entry):
            file_system.unlink(os.path.join(kept.folder, entry.name))
        else:
            foreign.append(entry.name)
    if foreign:
        raise StorageError(
            f"{foreign[0]!r} is not a file of ours: move it elsewhere, and drop the folder again",
            path=kept.folder,
        )
    file_system.remove_dir(kept.folder)
    file_system.sync_dir(os.path.dirname(kept.folder))


def _is_ours(entry: DirEntry) -> bool:
    if not entry.is_file:
        return False
    if entry.name.removesuffix(TEMPORARY_SUFFIX) == UNDO_MANIFEST:
        return True
    file = parse_partition_file(entry.name)
    return file is not None and file.kind in SEGMENT_KINDS and file.stage is Stage.LIVE


def _is_data(name: str) -> bool:
    return name.endswith(".log") and parse_partition_file(name) is not None


def _size(file_system: FileSystem, path: str) -> int:
    found = file_system.stat(path)
    return 0 if found is None else found.size
