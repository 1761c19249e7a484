"""Log start offsets: what a checkpoint says was deleted, although its bytes may still be there.

A log directory that is open has the same in ``manager.root.directory.Checkpoint``, which also writes it. Here
any number of directories are asked about, most of them not ours.
"""

from __future__ import annotations

import os

from stratalog.errors import CorruptionError, StorageError
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.formats.checkpoints import decode_offsets
from stratalog.storage.names import LOG_START_CHECKPOINT
from stratalog.types import TopicPartition

__all__ = ["LogStarts"]


class LogStarts:
    """The log start checkpoints of log directories, each read once.

    A damaged checkpoint counts as empty, as it does for a broker that starts, and ``warnings`` says so.
    """

    def __init__(self, file_system: FileSystem) -> None:
        self._file_system = file_system
        self._known: dict[str, dict[TopicPartition, int]] = {}
        self.warnings: list[str] = []

    def of(self, root: str, topic_partition: TopicPartition) -> int:
        """Return the first offset of a partition of this log directory that is not deleted."""
        if root not in self._known:
            self._known[root] = self._load(os.path.join(root, LOG_START_CHECKPOINT))
        return max(self._known[root].get(topic_partition, 0), 0)

    def _load(self, path: str) -> dict[TopicPartition, int]:
        try:
            data = read_small_file(self._file_system, path)
            return {} if data is None else decode_offsets(data)
        except StorageError as error:
            self.warnings.append(f"{error}; deleted records may be shown")
        except CorruptionError as error:
            self.warnings.append(f"{error.located(path=path)}; deleted records may be shown")
        return {}
