"""Producer snapshots on the disk: which there are, writing one, reading the newest that can be believed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import Final

from stratalog.errors import CorruptionError, StorageError
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.names import FileKind, PartitionFile, Stage, segment_file_name
from stratalog.storage.producers.snapshot import decode_snapshot, encode_snapshot
from stratalog.storage.producers.states import ProducerEntry, ProducerStates

__all__ = ["SnapshotFiles"]

#: A snapshot of two million producers; more is no snapshot.
_SIZE_MAX: Final = 100 << 20


class SnapshotFiles:
    """The snapshots of one partition's folder, by the offset that each was taken at."""

    def __init__(
        self, file_system: FileSystem, folder: str, files: Iterable[PartitionFile]
    ) -> None:
        self._file_system = file_system
        self._folder = folder
        self._offsets: set[int] = {
            file.offset
            for file in files
            if file.kind is FileKind.SNAPSHOT and file.stage is Stage.LIVE
        }
        #: Written and not yet known to be on the disk.
        self._unsynced: set[int] = set()

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(sorted(self._offsets))

    def path(self, offset: int, stage: Stage = Stage.LIVE) -> str:
        return os.path.join(self._folder, segment_file_name(offset, FileKind.SNAPSHOT, stage))

    def write(self, states: ProducerStates, offset: int) -> None:
        """Write the state before ``offset``. It is on the disk after ``sync``; a crash before leaves a
        file whose CRC tells that it is none."""
        path = self.path(offset)
        self._file_system.unlink(path)
        file = self._file_system.open_writable(path, create=True)
        try:
            file.write_at(0, encode_snapshot(states.snapshot_entries()))
        finally:
            file.close()
        self._offsets.add(offset)
        self._unsynced.add(offset)
        states.snapshot_offset = offset

    def sync(self) -> bool:
        """Wait until what was written is on the disk; whether there was anything. Others may delete
        snapshots meanwhile."""
        unsynced = sorted(self._unsynced)
        for offset in unsynced:
            try:
                file = self._file_system.open_writable(self.path(offset))
            except StorageError as error:
                if error.errno != errno.ENOENT or offset in self._offsets:
                    raise
                continue
            try:
                file.sync()
            finally:
                file.close()
            self._unsynced.discard(offset)
        return bool(unsynced)

    def load(
        self, states: ProducerStates, start: int, end: int, *, now_ms: int, ttl_ms: int, keep: bool
    ) -> int:
        """The newest snapshot between ``start`` and ``end`` that can be believed becomes the state;
        without one it is empty. Answers the offset from which on the log is to be replayed. Damaged
        ones are deleted, unless ``keep`` says to change nothing. What the system refuses to read may
        well be sound: an error, for without it a producer that sends again would not be known."""
        for offset in sorted(self._offsets, reverse=True):
            if not start <= offset <= end:
                continue
            try:
                states.load(self._read(offset), offset, now_ms=now_ms, ttl_ms=ttl_ms)
            except CorruptionError:
                if not keep:
                    self.delete(offset)
            else:
                return offset
        states.clear()
        states.map_end_offset = start
        return start

    def _read(self, offset: int) -> list[ProducerEntry]:
        path = self.path(offset)
        data = read_small_file(self._file_system, path, size_max=_SIZE_MAX)
        if data is None:
            raise StorageError("no such file", path=path, errno=errno.ENOENT)
        return decode_snapshot(data)

    def delete(self, offset: int) -> None:
        self._forget(offset)
        self._file_system.unlink(self.path(offset))

    def _forget(self, offset: int) -> None:
        """Before its file goes: a sync that does not find it shall know why."""
        self._offsets.discard(offset)
        self._unsynced.discard(offset)

    def rename_deleted(self, offset: int) -> str | None:
        """Set a snapshot aside, to be removed with its segment; the new path, None: there is none."""
        if offset not in self._offsets:
            return None
        path = self.path(offset, Stage.DELETED)
        self._forget(offset)
        self._file_system.rename(self.path(offset), path)
        return path

    def strays(self, bases: Iterable[int]) -> list[int]:
        """Those that belong to no segment; the newest one stays where it lies above all of them: it is
        what an orderly stop leaves."""
        known = set(bases)
        stray = sorted(self._offsets - known)
        if stray and known and stray[-1] > max(known):
            stray.pop()
        return stray
