"""Where logs begin: what a checkpoint says was deleted, though its bytes may still be there."""

from __future__ import annotations

import errno
import os
from typing import Final

from stratalog.errors import CorruptionError, StorageError
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.formats.checkpoints import decode_offsets
from stratalog.storage.names import LOG_START_CHECKPOINT
from stratalog.types import TopicPartition

__all__ = ["LogStarts"]

#: A line takes a topic's name and two numbers: these are more than two hundred thousand of the longest.
_SIZE_MAX: Final = 64 << 20


class LogStarts:
    """The checkpoints of the log directories that are asked about, each read once.

    One that is damaged counts as empty, as it does to Kafka when it starts, and ``warnings`` says so.
    """

    def __init__(self, file_system: FileSystem) -> None:
        self._file_system = file_system
        self._known: dict[str, dict[TopicPartition, int]] = {}
        self.warnings: list[str] = []

    def of(self, root: str, place: TopicPartition) -> int:
        """The first offset of a partition of this log directory that is not deleted."""
        if root not in self._known:
            self._known[root] = self._load(os.path.join(root, LOG_START_CHECKPOINT))
        return max(self._known[root].get(place, 0), 0)

    def _load(self, path: str) -> dict[TopicPartition, int]:
        try:
            return decode_offsets(self._read(path))
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return {}
            self.warnings.append(f"{error}; deleted records may be shown")
        except CorruptionError as error:
            self.warnings.append(f"{error.located(path=path)}; deleted records may be shown")
        return {}

    def _read(self, path: str) -> bytes:
        file = self._file_system.open_readable(path)
        try:
            data = bytearray(min(file.size(), _SIZE_MAX))
            with memoryview(data) as whole:
                size = file.read_into(0, whole)
        finally:
            file.close()
        return bytes(data[:size])
