"""The checkpoint files of a root: recovery points, log start offsets and high watermarks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from stratalog.manager.root.directory import LogDirectory
from stratalog.storage.partition_log import PartitionLog
from stratalog.types import TopicPartition

__all__ = ["ALL_FILES", "Checkpoints", "plan_checkpoints", "write_checkpoints"]

Offsets = Mapping[TopicPartition, int]


class Checkpoints(NamedTuple):
    """The three files of a root."""

    log_starts: Offsets
    recovery_points: Offsets
    high_watermarks: Offsets


#: The files by name, in the order in which they are written.
ALL_FILES: Final = Checkpoints._fields


def plan_checkpoints(
    old: Checkpoints,
    open_logs: Mapping[TopicPartition, PartitionLog],
    directory_of: Offsets,
    number: int,
) -> Checkpoints:
    """Return the new contents of root ``number``. ``open_logs`` are its open logs; the lines of other
    partitions stay, unless ``directory_of`` has them in another root."""

    def merged(said: Offsets, new: Offsets) -> dict[TopicPartition, int]:
        kept = {
            topic_partition: offset
            for topic_partition, offset in said.items()
            if topic_partition not in open_logs
            and directory_of.get(topic_partition, number) == number
        }
        return dict(sorted({**kept, **new}.items()))

    starts = {
        topic_partition: log.log_start
        for topic_partition, log in open_logs.items()
        if log.log_start > log.segments[0].base_offset
    }
    recovery = {topic_partition: log.recovery_point for topic_partition, log in open_logs.items()}
    marks = {topic_partition: log.high_watermark for topic_partition, log in open_logs.items()}
    return Checkpoints(
        merged(old.log_starts, starts),
        merged(old.recovery_points, recovery),
        merged(old.high_watermarks, marks),
    )


def write_checkpoints(
    directory: LogDirectory,
    open_logs: Mapping[TopicPartition, PartitionLog],
    directory_of: Offsets,
    number: int,
    names: Collection[str] = ALL_FILES,
) -> None:
    """Write the checkpoint files of a root, or only those that are named."""
    files = (directory.log_starts, directory.recovery_points, directory.high_watermarks)
    planned = plan_checkpoints(
        Checkpoints(*(each.offsets for each in files)), open_logs, directory_of, number
    )
    for name, file, offsets in zip(ALL_FILES, files, planned, strict=True):
        if name in names:
            file.write(offsets)
