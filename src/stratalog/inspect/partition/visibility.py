"""How far the partitions of log directories are shown: up to where they ended when they were listed, and
nothing of a commit that was under way then.

Files are opened one after the other, long after they were listed. Without a bound, a commit that comes in
between would be read in one partition and not in another. So where a directory has a journal of commits, the
end of every partition is taken down with its listing, between two readings of the journal. Who reads one that
has none pays for a look whether it is there, and loads nothing of this.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from stratalog.errors import CorruptionError, StorageError
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import STRATALOG_COMMITS
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    from stratalog.inspect.partition.ends import EndsCache
    from stratalog.inspect.partition.sources import PartitionSource
    from stratalog.storage.commits.journal import JournalState

__all__ = ["Journals"]


class Journals:
    """The journals of the roots that are listed, as they were before the first of their partitions was."""

    def __init__(self, file_system: FileSystem, cache: EndsCache | None) -> None:
        self._file_system = file_system
        self._cache = cache
        #: By root; None where there is none.
        self._before: dict[str, JournalState | None] = {}
        self.warnings: list[str] = []

    def read(self, root: str) -> None:
        """Look at a root's journal, the first time that it is asked for."""
        if root not in self._before:
            self._before[root] = self._state(root)

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
        """A partition that was just listed, with its end as it is now, where that has to be known."""
        before = self._before[root]
        if before is None or not before.is_there:
            return source
        end = self._end_of(source)
        return source if end is None else replace(source, visible_end=end)

    def _end_of(self, source: PartitionSource) -> int | None:
        """None where it cannot be told: who reads there is told why."""
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
        # Torn is no harm.
        return tail.next_offset if tail.damage is None else None

    def hidden(self, roots: Iterable[str]) -> dict[str, dict[TopicPartition, int]] | None:
        """By root, the offset from which on a partition must not be shown. None where everything has to be
        listed again."""
        found: dict[str, dict[TopicPartition, int]] = {}
        for root in roots:
            before, after = self._before[root], self._state(root)
            if before is None or after is None:
                if before is not after:
                    return None  # the first commit of all has just begun
                found[root] = {}
                continue
            from stratalog.storage.commits.visibility import hidden_between

            hidden = hidden_between(before, after)
            if hidden is None:
                return None
            found[root] = hidden
        return found
