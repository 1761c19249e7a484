"""Keep the originals of a rewrite, group by group, before the new segments take their place.

The folder is complete as far as its manifest says. A group is in the manifest before it is swapped in: after
a crash the log may have the old segments of the last group, and undoing finds that there is nothing to do.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from stratalog.errors import StorageError
from stratalog.rewrite.manifest import GroupEntry, Manifest, PartitionEntry
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
    """The originals of one rewrite in one partition."""

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
        self._entry = PartitionEntry(*topic_partition)
        self._is_made = False

    def keep(self, bases: Sequence[int], group: GroupEntry) -> None:
        """Keep the segments with these base offsets, which are about to be replaced."""
        if not self._is_made:
            self._file_system.make_dir(self.folder)
            self._file_system.sync_dir(self._partition_folder)
            self._is_made = True
        for base in bases:
            self._link(base)
        self._file_system.sync_dir(self.folder)
        self._entry = replace(self._entry, groups=(*self._entry.groups, group))
        self._write()

    def _link(self, base_offset: int) -> None:
        for kind in SEGMENT_KINDS:
            name = segment_file_name(base_offset, kind)
            path = os.path.join(self._partition_folder, name)
            if self._file_system.stat(path) is not None:
                self._file_system.link(path, os.path.join(self.folder, name))

    def _write(self) -> None:
        path = os.path.join(self.folder, UNDO_MANIFEST)
        data = self._manifest.with_partition(self._entry).encode()
        replace_file(self._file_system, path, path + TEMPORARY_SUFFIX, data)

    def drop_last(self, bases: Sequence[int]) -> None:
        """Forget a group that was not replaced after all. If that fails, undoing finds the old segments."""
        with suppress(StorageError):
            if not self._is_made:
                return
            if self._entry.groups and self._entry.groups[-1].before[0].base_offset == bases[0]:
                self._entry = replace(self._entry, groups=self._entry.groups[:-1])
                if self._entry.groups:
                    self._write()
            if not self._entry.groups:
                self._file_system.unlink(os.path.join(self.folder, UNDO_MANIFEST))
            for base in bases:
                for kind in SEGMENT_KINDS:
                    name = segment_file_name(base, kind)
                    self._file_system.unlink(os.path.join(self.folder, name))
            if not self._entry.groups:
                path = os.path.join(self.folder, UNDO_MANIFEST + TEMPORARY_SUFFIX)
                self._file_system.unlink(path)
                self._file_system.remove_dir(self.folder)
                self._is_made = False
