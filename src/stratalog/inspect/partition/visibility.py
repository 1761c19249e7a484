"""How far the partitions of log directories are shown: up to where they ended when they were listed, and
nothing of a commit that was in progress then.

Files are opened one after the other, long after they were listed. Without a bound, a commit that comes in
between would be read in one partition and not in another. So if a directory has a journal of commits, the
end of every partition is recorded with its listing, between two readings of the journal. A directory without
a journal costs one system call, and loads nothing of this.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from stratalog.errors import CorruptionError, StorageError
from stratalog.storage.commits.visibility import JournalReadings
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import STRATALOG_COMMITS

if TYPE_CHECKING:
    from stratalog.inspect.partition.ends import EndsCache
    from stratalog.inspect.partition.sources import PartitionSource
    from stratalog.storage.commits.journal import JournalState

__all__ = ["Journals"]


class Journals(JournalReadings):
    """The journals of the roots that are listed, first read before the first of their partitions is."""

    def __init__(self, file_system: FileSystem, cache: EndsCache | None) -> None:
        super().__init__(self._state)
        self._file_system = file_system
        self._cache = cache
        self.warnings: list[str] = []

    def _state(self, root: str) -> JournalState | None:
        if self._file_system.stat(os.path.join(root, STRATALOG_COMMITS)) is None:
            return None
        from stratalog.storage.commits.journal import JournalState, read_journal

        try:
            return read_journal(self._file_system, root)
        except CorruptionError as error:
            self.warnings = [f"{error}; parts of a commit may be shown"]
            return JournalState()

    def ended(self, root: str, source: PartitionSource) -> PartitionSource:
        """Return a partition that was just listed with its present end, if readers must know it."""
        before = self.before(root)
        if before is None or not before.is_there:
            return source
        end = self._end_of(source)
        return source if end is None else replace(source, visible_end=end)

    def _end_of(self, source: PartitionSource) -> int | None:
        """Return the end of a partition; None if it cannot be found: reading the partition says why."""
        from stratalog.inspect.partition.ends import EndsCache

        if not source.segments:
            return source.log_start
        if self._cache is None:
            self._cache = EndsCache(self._file_system)
        try:
            tail = self._cache.tail(source)
        except (StorageError, CorruptionError):
            return None
        if tail is None:
            return source.log_start
        # A torn tail does no harm.
        return tail.next_offset if tail.damage is None else None
