"""Names of files and folders, made and parsed here and nowhere else.

A partition's folder is ``<topic>-<partition>``; a segment's files are named by the first offset it may
hold, in twenty digits. Names that mean nothing parse to None: unknown files are reported, never guessed.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from stratalog.types import Offset, TopicPartition

__all__ = [
    "LOG_SUFFIX",
    "V07_SUFFIX",
    "SegmentName",
    "log_file_name",
    "parse_partition_dir",
    "parse_segment_name",
]

LOG_SUFFIX: Final = ".log"
V07_SUFFIX: Final = ".kafka"

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_SEGMENT: Final = re.compile(r"([0-9]{20})(\.log|\.kafka)")
_PARTITION: Final = re.compile(r"[0-9]{1,10}")
# A partition that is being deleted, moved or was found stray: <topic>-<partition>.<32 hex>-<what>.
_MARKED: Final = re.compile(r"(\S+-[0-9]+)\.[0-9a-f]{32}-(?:delete|future|stray)")


class SegmentName(NamedTuple):
    """What the name of a segment's data file says."""

    base_offset: Offset
    is_v07: bool


def parse_partition_dir(name: str) -> TopicPartition | None:
    """The partition that a folder of this name holds; None where it is not a partition's."""
    marked = _MARKED.fullmatch(name)
    topic, _, partition = (marked[1] if marked else name).rpartition("-")
    if not _TOPIC.fullmatch(topic) or topic in (".", "..") or not _PARTITION.fullmatch(partition):
        return None
    return TopicPartition(topic, int(partition))


def parse_segment_name(name: str) -> SegmentName | None:
    """The base offset, and whether it is a 0.7 file; None where it is not a segment's data file."""
    match = _SEGMENT.fullmatch(name)
    if match is None or int(match[1]) >= 2**63:
        return None
    return SegmentName(Offset(int(match[1])), match[2] == V07_SUFFIX)


def log_file_name(base_offset: int, *, is_v07: bool = False) -> str:
    """The name of the data file of the segment that starts at ``base_offset``."""
    return f"{base_offset:020d}{V07_SUFFIX if is_v07 else LOG_SUFFIX}"
