"""Keep the originals of a rewrite, group by group, before the new segments take their place.

The folder is complete as far as its manifest says. A group is in the manifest before it is swapped in: after
a crash the log may have the old segments of the last group, and undoing finds that there is nothing to do.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from stratalog.errors import StorageError
from stratalog.rewrite.manifest import GroupEntry, Manifest, PartitionEntry, overlap
from stratalog.storage.files.filesystem import FileSystem, replace_file
from stratalog.storage.names import (
    SEGMENT_KINDS,
    TEMPORARY_SUFFIX,
    UNDO_MANIFEST,
    segment_file_name,
    undo_dir_name,
)
from stratalog.types import TopicPartition

__all__ = ["UndoKeeper"]


class UndoKeeper:
    """The originals of one rewrite in one partition.

    A rewrite in rounds replaces segments that it made itself. What is kept then are the originals from before
    the first round, and the groups of both rounds become one.
    """

    def __init__(
        self,
        file_system: FileSystem,
        folder: str,
        topic_partition: TopicPartition,
        manifest: Manifest,
    ) -> None:
        """``manifest`` names the rewrite; it has no partitions yet."""
        self._file_system = file_system
        self._partition_folder = folder
        self.folder = os.path.join(folder, undo_dir_name(manifest.id))
        self._manifest = manifest
        self._topic_partition = topic_partition
        #: What was replaced, in groups that do not overlap; and the same with the last group.
        self._groups: tuple[GroupEntry, ...] = ()
        self._next: tuple[GroupEntry, ...] = ()
        #: The files that were kept for the last group.
        self._linked: list[str] = []

    def keep(self, bases: Sequence[int], group: GroupEntry) -> None:
        """Keep the segments with these base offsets, which are about to be replaced."""
        self._groups, self._linked = self._next, []
        if not self._groups:
            self._file_system.make_dir(self.folder)
            self._file_system.sync_dir(self._partition_folder)
        for base in bases:
            if not any(each.holds(base) for each in self._groups):
                self._link(base)
        self._file_system.sync_dir(self.folder)
        overlapped = [each for each in self._groups if overlap(each, group)]
        merged = _merged(overlapped, group)
        # Until the swap is complete, the log may be as the overlapped groups say.
        self._write((*self._groups, merged))
        self._next = (*(each for each in self._groups if each not in overlapped), merged)

    def _link(self, base_offset: int) -> None:
        for kind in SEGMENT_KINDS:
            name = segment_file_name(base_offset, kind)
            path = os.path.join(self._partition_folder, name)
            if self._file_system.stat(path) is not None:
                kept = os.path.join(self.folder, name)
                self._file_system.link(path, kept)
                self._linked.append(kept)

    def _write(self, groups: tuple[GroupEntry, ...]) -> None:
        path = os.path.join(self.folder, UNDO_MANIFEST)
        entry = PartitionEntry(*self._topic_partition, groups)
        data = self._manifest.with_partition(entry).encode()
        replace_file(self._file_system, path, path + TEMPORARY_SUFFIX, data)

    def drop_last(self) -> None:
        """Forget the last group, which was not replaced after all. If that fails, undoing finds the old
        segments."""
        self._next = self._groups
        with suppress(StorageError):
            if self._groups:
                self._write(self._groups)
            else:
                self._file_system.unlink(os.path.join(self.folder, UNDO_MANIFEST))
            for path in self._linked:
                self._file_system.unlink(path)
            if not self._groups:
                path = os.path.join(self.folder, UNDO_MANIFEST + TEMPORARY_SUFFIX)
                self._file_system.unlink(path)
                self._file_system.remove_dir(self.folder)


def _merged(earlier: Sequence[GroupEntry], group: GroupEntry) -> GroupEntry:
    """Return what became of the originals of earlier groups when ``group`` replaced some of their new
    segments, and perhaps further originals."""
    if not earlier:
        return group
    replaced = {each.base_offset for each in group.before}
    before = [each for one in earlier for each in one.before]
    before += [
        each for each in group.before if not any(one.holds(each.base_offset) for one in earlier)
    ]
    after = [each for one in earlier for each in one.after if each.base_offset not in replaced]
    counts: Counter[str] = Counter()
    for each in (*earlier, group):
        counts.update(each.counts)
    return GroupEntry(
        max(each.end for each in (*earlier, group)),
        group.reason,
        tuple(sorted(before, key=lambda each: each.base_offset)),
        tuple(sorted([*after, *group.after], key=lambda each: each.base_offset)),
        dict(counts),
    )
