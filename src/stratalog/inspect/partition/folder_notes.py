"""What lies in a folder and is not read: unknown files, and folders and files that are set aside."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from stratalog.storage.files.filesystem import DirEntry
from stratalog.storage.names import (
    DAMAGED_DIR,
    FAILED_SYNC,
    FOREIGN_ROOT_DIRS,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    ROOT_FILES,
    TEMPORARY_SUFFIX,
    Stage,
    is_marked_partition_dir,
    parse_partition_dir,
    parse_partition_file,
    parse_piece_name,
    parse_undo_dir,
)

__all__ = ["deletion_note", "partition_notes", "root_notes"]

_PARTITION_FILES: Final = frozenset({LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, FAILED_SYNC})
_NAMED_MAX: Final = 8


def root_notes(path: str, entries: Iterable[DirEntry]) -> Iterator[str]:
    """What is to be said of a log directory."""
    unknown, aside, staged = [], [], 0
    for entry in entries:
        if entry.is_dir and is_marked_partition_dir(entry.name):
            aside.append(entry.name)
        elif entry.is_dir:
            known = parse_partition_dir(entry.name) is not None or entry.name in FOREIGN_ROOT_DIRS
            unknown += [] if known else [entry.name]
        elif entry.is_file and parse_piece_name(entry.name) is not None:
            staged += 1
        elif not (entry.is_file and entry.name.removesuffix(TEMPORARY_SUFFIX) in ROOT_FILES):
            unknown.append(entry.name)
    if staged:
        yield f"{path}: staged pieces without a commit: {staged}"
    if aside:
        yield (
            f"{path}: renamed for deletion, or a future or stray replica, read only if named: "
            f"{_names(aside)}"
        )
    if unknown:
        yield f"{path}: unknown files, ignored: {_names(unknown)}"


def deletion_note(path: str, topics: Iterable[str]) -> str:
    """Return what is said of topics that are deleted, and whose folders are still in a log directory."""
    return (
        f"{path}: deleted topics, whose folders the next opening for writing removes, read only if named: "
        f"{_names(sorted(topics))}"
    )


def partition_notes(folder: str, entries: Iterable[DirEntry]) -> Iterator[str]:
    """What is to be said of a partition's folder."""
    if os.path.basename(os.path.abspath(folder)) in FOREIGN_ROOT_DIRS:
        return  # KRaft keeps more files there than we know
    unknown, swap, kept = [], [], []
    for entry in entries:
        rewrite_id = parse_undo_dir(entry.name) if entry.is_dir else None
        if rewrite_id is not None:
            kept.append(rewrite_id)
            continue
        file = parse_partition_file(entry.name) if entry.is_file else None
        if file is not None and file.stage == Stage.SWAP:
            swap.append(entry.name)
        elif entry.is_dir and entry.name == DAMAGED_DIR:
            continue
        elif file is None and not (
            entry.is_file and entry.name.removesuffix(TEMPORARY_SUFFIX) in _PARTITION_FILES
        ):
            unknown.append(entry.name)
    if swap:
        yield (
            f"{folder}: a replacement of segments was interrupted, and is read as a broker would "
            f"finish it: {_names(swap)}"
        )
    if kept:
        yield f"{folder}: originals kept to undo rewrites: {_names(kept)}"
    if unknown:
        yield f"{folder}: unknown files, ignored: {_names(unknown)}"


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(sorted(names)[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
