"""The log end offset of a clean shutdown, and the one comparison of a log with it.

No CRC covers the base offset of a batch. If a flipped bit raises that of the very last batch, nothing follows
that could contradict it, and a gap before a batch is legal. After a clean shutdown the directory contradicts
it: while ``.kafka_cleanshutdown`` exists, ``recovery-point-offset-checkpoint`` has the log end offset of each
partition. A process that writes removes the marker before it opens a log, so the log of a running writer
is never compared.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from stratalog.errors import CorruptionError, StorageError
from stratalog.storage.files.filesystem import FileStat, FileSystem
from stratalog.storage.files.small_file import read_small_file
from stratalog.storage.formats.checkpoints import decode_offsets
from stratalog.storage.names import CLEAN_SHUTDOWN, RECOVERY_CHECKPOINT
from stratalog.storage.segment.batch_at import offsets_behind
from stratalog.storage.segment.log_file import LogFile
from stratalog.types import TopicPartition

__all__ = [
    "RESTORE_ADVICE",
    "STALE_POINT_ADVICE",
    "CleanEnd",
    "CleanEnds",
    "LastBatch",
    "find_excess",
    "is_still_clean",
    "last_batch_at",
]

#: What to do if the offset is wrong, and if it is the recovery point that is not of this log.
RESTORE_ADVICE: Final = (
    "compare the last batch with a replica or a backup, and restore the segment if it differs"
)
STALE_POINT_ADVICE: Final = (
    "or, if the folder was written or copied without its log directory, remove the line of the "
    f"partition from {RECOVERY_CHECKPOINT}, and lower the count in its second line by one"
)


class CleanEnd(NamedTuple):
    """The log end offset of a partition at the clean shutdown whose marker this is."""

    root: str
    topic_partition: TopicPartition
    offset: int
    marker: FileStat


class LastBatch(NamedTuple):
    """The last batch of a log, as its header has it. ``expected`` is the offset after the batch before it, or
    the base offset of its segment."""

    position: int
    first_offset: int
    next_offset: int
    expected: int


def last_batch_at(log_file: LogFile, position: int, next_offset: int, expected: int) -> LastBatch:
    """Read the first offset of a last batch whose other offsets are known."""
    first = offsets_behind(log_file, position, None).first
    return LastBatch(position, first, next_offset, expected)


def find_excess(path: str, last: LastBatch, recovery_point: int | None) -> CorruptionError | None:
    """Compare the last batch of a log with the recovery point of a clean shutdown: the error if its offset
    was raised. ``recovery_point`` is None where none is known.

    A raised offset leaves a gap before the batch. What another program appended after the shutdown lies
    beyond the recovery point without one, and is no damage. A log that ends below its recovery point has
    lost records, which is another finding (``verify``).
    """
    if recovery_point is None or last.next_offset <= recovery_point or recovery_point < 0:
        return None
    if last.first_offset <= last.expected:
        return None
    detail = (
        f"the last batch ends the log at offset {last.next_offset}, after a gap from {last.expected} on, and "
        f"the {RECOVERY_CHECKPOINT} of the clean shutdown says that the log ends at {recovery_point}: the "
        "offset of the batch, which no CRC covers, is wrong"
    )
    return CorruptionError(
        "end_beyond_recovery_point",
        detail,
        position=last.position,
        path=path,
        advice=f"{RESTORE_ADVICE}; {STALE_POINT_ADVICE}",
    )


class CleanEnds:
    """The clean shutdowns of the log directories that are asked about, each read once."""

    def __init__(self, file_system: FileSystem) -> None:
        self._file_system = file_system
        self._known: dict[str, tuple[FileStat, dict[TopicPartition, int]] | None] = {}

    def of(self, root: str, topic_partition: TopicPartition) -> CleanEnd | None:
        """Return where a clean shutdown left a partition. None if there was none, if a process writes to the
        directory, or if the checkpoint does not name the partition or cannot be read."""
        if root not in self._known:
            self._known[root] = self._load(root)
        known = self._known[root]
        offset = None if known is None else known[1].get(topic_partition)
        if known is None or offset is None or offset < 0:
            return None
        return CleanEnd(root, topic_partition, offset, known[0])

    def _load(self, root: str) -> tuple[FileStat, dict[TopicPartition, int]] | None:
        path = os.path.join(root, CLEAN_SHUTDOWN)
        try:
            marker = self._file_system.stat(path)
            if marker is None:
                return None
            data = read_small_file(self._file_system, os.path.join(root, RECOVERY_CHECKPOINT))
            offsets = {} if data is None else decode_offsets(data)
            # Otherwise a writer was at work meanwhile, and the checkpoint may be from its run.
            return (marker, offsets) if self._file_system.stat(path) == marker else None
        except (CorruptionError, StorageError):
            return None  # ``verify`` reports the checkpoint; no reader depends on it


def is_still_clean(file_system: FileSystem, known: CleanEnd) -> bool:
    """Whether no process has written to the directory since ``known`` was read. Ask before reporting a log
    that goes on beyond it: a writer may have appended to it meanwhile."""
    return CleanEnds(file_system).of(known.root, known.topic_partition) == known
