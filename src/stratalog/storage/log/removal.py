"""Remove segments from a folder in two steps: a rename now, and the removal later.

Readers of a segment can finish meanwhile. A load removes every ``.deleted`` file.
"""

from __future__ import annotations

from collections.abc import Sequence

from stratalog.clock import Clock
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.log.guard import LogGuard
from stratalog.storage.producers.snapshot_files import SnapshotFiles
from stratalog.storage.replace.swap import rename_deleted
from stratalog.storage.segment.segment import Segment

__all__ = ["Removals"]


class Removals:
    """The files of one log that were set aside, and when they may be removed."""

    def __init__(
        self,
        folder: str,
        file_system: FileSystem,
        clock: Clock,
        guard: LogGuard,
        snapshots: SnapshotFiles,
    ) -> None:
        self._folder = folder
        self._file_system = file_system
        self._clock = clock
        self._guard = guard
        self._snapshots = snapshots
        self._waiting: list[tuple[int, list[str]]] = []

    def remove(self, segments: Sequence[Segment], delay_ms: int) -> None:
        """Set segments aside, in this order. Readers that have them open can finish."""
        paths: list[str] = []
        try:
            for segment in segments:
                paths += rename_deleted(self._file_system, self._folder, segment.base_offset)
                snapshot = self._snapshots.rename_deleted(segment.base_offset)
                if snapshot is not None:
                    paths.append(snapshot)
            self._guard.synced(lambda: self._file_system.sync_dir(self._folder))
        finally:
            self.set_aside(paths, delay_ms)

    def set_aside(self, paths: list[str], delay_ms: int) -> None:
        """Remember files that have their ``.deleted`` names already."""
        if paths:
            self._waiting.append((self._clock.monotonic_ms() + delay_ms, paths))

    def remove_due(self, *, all_of_them: bool) -> int:
        """Remove the files that were set aside for long enough; return how many."""
        now = self._clock.monotonic_ms()
        with self._guard.lock:
            due = [paths for at, paths in self._waiting if all_of_them or at <= now]
            self._waiting = [each for each in self._waiting if not all_of_them and each[0] > now]
        for paths in due:
            for path in paths:
                self._file_system.unlink(path)
        return sum(map(len, due))
