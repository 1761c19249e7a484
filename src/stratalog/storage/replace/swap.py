"""Swap segments: put new ones in the place of others in steps, so that a crash leaves the old or the new.

The steps are Kafka's. The new segments are complete and fsynced as ``.cleaned``. They become ``.swap``, the
last one first, and the folder is fsynced after each: a ``.swap`` is complete if nothing below it is still
``.cleaned``. After the last of these renames the swap will happen: the old segments become ``.deleted``, and
the new ones get their final names. If a crash interrupts this, the next load finishes or undoes it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import SEGMENT_KINDS, Stage, segment_file_name

__all__ = ["rename_deleted", "swap_segments"]


def swap_segments(
    file_system: FileSystem, folder: str, new: Sequence[int], old: Sequence[int]
) -> list[str]:
    """Put the ``.cleaned`` segments ``new`` in the place of the live segments ``old``; return the paths that
    the old files have now. Segments are named by their base offsets, lowest first, and the new ones lie
    within the offsets of the old. The files of the new segments must be fsynced."""
    file_system.sync_dir(folder)
    for base_offset in reversed(new):
        _rename(file_system, folder, base_offset, Stage.CLEANED, Stage.SWAP)
        file_system.sync_dir(folder)
    deleted = [path for each in old for path in rename_deleted(file_system, folder, each)]
    for base_offset in new:
        _rename(file_system, folder, base_offset, Stage.SWAP, Stage.LIVE)
    file_system.sync_dir(folder)
    return deleted


def rename_deleted(file_system: FileSystem, folder: str, base_offset: int) -> list[str]:
    """Give the files of a segment their ``.deleted`` names; return the new paths. The data file goes first:
    without it the others mean nothing."""
    return _rename(file_system, folder, base_offset, Stage.LIVE, Stage.DELETED)


def _rename(
    file_system: FileSystem, folder: str, base_offset: int, old: Stage, new: Stage
) -> list[str]:
    renamed = []
    for kind in SEGMENT_KINDS:
        path = os.path.join(folder, segment_file_name(base_offset, kind, old))
        if file_system.stat(path) is not None:
            target = os.path.join(folder, segment_file_name(base_offset, kind, new))
            file_system.rename(path, target)
            renamed.append(target)
    return renamed
