"""Swap segments: put new ones in the place of others in steps, so that a crash leaves the old or the new.

The steps are Kafka's (``replaceSegments``); Kafka fsyncs the folder only after the last.

1. The new segments are complete and fsynced as ``.cleaned``, and so are their names.
2. ``Swap.stage``: they become ``.swap``, the lowest last, and the folder is fsynced before and after that. A
   ``.swap`` counts if nothing at or below it is still ``.cleaned``. So the last rename decides: before it, a
   load removes the new segments; after it, a load finishes the swap.
3. ``Swap.finish``: the old segments become ``.deleted``, then the new ones get their final names. The data
   file of a segment is always renamed before its indexes: while it is ``.swap``, a load, also Kafka's, takes
   every file with a final name in these offsets for one of the old segments, and removes it.

A load finds the old segments by the offsets that the ``.swap`` files cover. So these must reach into the last
old segment that has records, or replace it by an empty one: see ``plan_filler``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import SEGMENT_KINDS, Stage, segment_file_name

__all__ = ["Swap", "plan_filler", "rename_deleted", "swap_segments"]


def plan_filler(old: Sequence[tuple[int, int]], new: Sequence[int], next_offset: int) -> int | None:
    """Return the base offset of an empty segment that must be swapped in with ``new``; None if none must.

    ``old`` are the base offsets and sizes of the segments to be replaced, and ``next_offset`` is where the
    new segments end. If that is below the base offset of an old segment, a load that finishes the swap would
    keep the old one, and its records would return. An empty segment of the same name replaces it.
    """
    unreached = [base for base, size in old if size and base >= next_offset and base not in new]
    return unreached[-1] if unreached else None


class Swap(NamedTuple):
    """A swap of the live segments ``old`` for the segments ``new``, which are complete as ``.cleaned`` and
    fsynced. Segments are named by their base offsets, lowest first. ``sync_folder`` fsyncs the folder."""

    file_system: FileSystem
    folder: str
    old: Sequence[int]
    new: Sequence[int]
    sync_folder: Callable[[], None]

    def stage(self) -> None:
        """Rename the new segments to ``.swap``. From here on the swap will happen. After an error it may
        happen at the next load, unless ``unstage`` succeeds."""
        lowest, *others = self.new
        self.sync_folder()
        for base_offset in reversed(others):
            self._rename(base_offset, Stage.CLEANED, Stage.SWAP)
        if others:
            self.sync_folder()
        self._rename(lowest, Stage.CLEANED, Stage.SWAP)
        self.sync_folder()

    def unstage(self) -> None:
        """Undo ``stage``, however far it got. The lowest goes back first: without it the others do not count.
        If it was not renamed, there is nothing to fsync."""
        lowest, *others = self.new
        if self._rename(lowest, Stage.SWAP, Stage.CLEANED):
            self.sync_folder()
        for base_offset in others:
            self._rename(base_offset, Stage.SWAP, Stage.CLEANED)

    def finish(self) -> list[str]:
        """Rename the old segments to ``.deleted`` and give the new ones their final names; return the paths
        that the old files have now."""
        deleted = []
        for base_offset in self.old:
            deleted += self._rename(base_offset, Stage.LIVE, Stage.DELETED)
        # A new segment must not appear under its final name while an old one that it covers can come back.
        self.sync_folder()
        for base_offset in self.new:
            self._rename(base_offset, Stage.SWAP, Stage.LIVE)
        self.sync_folder()
        return deleted

    def _rename(self, base_offset: int, old: Stage, new: Stage) -> list[str]:
        return _rename(self.file_system, self.folder, base_offset, old, new)


def swap_segments(
    file_system: FileSystem, folder: str, new: Sequence[int], old: Sequence[int]
) -> list[str]:
    """Put the ``.cleaned`` segments ``new`` in the place of the live segments ``old``, at load time; return
    the paths that the old files have now."""
    swap = Swap(file_system, folder, old, new, lambda: file_system.sync_dir(folder))
    swap.stage()
    return swap.finish()


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
