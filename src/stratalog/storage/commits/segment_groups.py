"""Groups of segments that a commit replaces: what the old ones were, and what tasks have staged for them.

A file is known by its size and the CRC-32C of its bytes: after a restart, a copy or a restore these still say
whether it is the one that was meant. Each group is swapped by itself, so that a log has the old or the new
segments of it at every moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

from stratalog.records.layout import INT64_MAX, INT64_MIN
from stratalog.storage.names import (
    SEGMENT_KINDS,
    FileKind,
    PieceName,
    PieceStage,
    parse_piece_name,
    piece_file_name,
)
from stratalog.types import TopicPartition

__all__ = [
    "FileContent",
    "OldSegment",
    "PartitionGroups",
    "SegmentGroup",
    "StagedSegment",
    "staged_file_name",
]

_CRC_MAX: Final = 0xFFFFFFFF
_STAGES: Final = {
    FileKind.LOG: PieceStage.STAGED,
    FileKind.OFFSET_INDEX: PieceStage.OFFSET_INDEX,
    FileKind.TIME_INDEX: PieceStage.TIME_INDEX,
    FileKind.TXN_INDEX: PieceStage.TXN_INDEX,
}


def staged_file_name(name: PieceName, kind: FileKind) -> str:
    """Return the name of one file of a staged segment in the root of its log directory."""
    return piece_file_name(name._replace(stage=_STAGES[kind]))


class FileContent(NamedTuple):
    """How many bytes a file has, and their CRC-32C."""

    size_bytes: int
    crc: int

    @classmethod
    def from_json(cls, fields: Any) -> FileContent:
        size_bytes, crc = fields
        return cls(_number(size_bytes), _number(crc, largest=_CRC_MAX))


class OldSegment(NamedTuple):
    """A live segment that is to be replaced, and its data file when the replacement was planned."""

    base_offset: int
    log: FileContent


@dataclass(frozen=True, slots=True)
class StagedSegment:
    """A finished segment that a task has staged. ``name`` is that of its data file; the indexes have the same
    with their suffixes."""

    base_offset: int
    name: str
    files: Mapping[FileKind, FileContent]

    def __post_init__(self) -> None:
        name = parse_piece_name(self.name)
        if name is None or name.stage is not PieceStage.STAGED:
            raise ValueError(f"{self.name!r} is not the name of a staged segment")
        if FileKind.LOG not in self.files or not set(SEGMENT_KINDS).issuperset(self.files):
            raise ValueError(f"{self.name} is staged with the files {sorted(self.files)}")

    @property
    def parsed_name(self) -> PieceName:
        name = parse_piece_name(self.name)
        assert name is not None
        return name

    def file_name(self, kind: FileKind) -> str:
        return staged_file_name(self.parsed_name, kind)

    def to_json(self) -> list[Any]:
        """Return the segment as a list that JSON can carry."""
        files = {kind.value: list(content) for kind, content in self.files.items()}
        return [self.base_offset, self.name, files]

    @classmethod
    def from_json(cls, fields: Any) -> StagedSegment:
        base_offset, name, files = fields
        return cls(
            _number(base_offset),
            name,
            {FileKind(kind): FileContent.from_json(each) for kind, each in files.items()},
        )


@dataclass(frozen=True, slots=True)
class SegmentGroup:
    """Neighbouring live segments, and the staged ones that take their place.

    All batches of both lie below offset ``end``. The new ones hold ``records``; None if wrappers of the old
    formats, which do not say how many they hold, are among them. Their files get the time of change
    ``modified_ms`` in the log.
    """

    old: tuple[OldSegment, ...]
    new: tuple[StagedSegment, ...]
    end: int
    records: int | None
    modified_ms: int

    def __post_init__(self) -> None:
        if not self.old or not self.new or self.new[0].base_offset != self.start:
            raise ValueError(f"the group up to {self.end} does not begin where the old segments do")
        for listed in (self.old, self.new):
            if not _rises([*(each.base_offset for each in listed), self.end]):
                raise ValueError(f"the segments of the group from {self.start} are not in order")

    @property
    def start(self) -> int:
        return self.old[0].base_offset

    def to_json(self) -> dict[str, Any]:
        """Return the group as a document that JSON can carry."""
        return {
            "end": self.end,
            "records": self.records,
            "modified": self.modified_ms,
            "old": [[each.base_offset, *each.log] for each in self.old],
            "new": [each.to_json() for each in self.new],
        }

    @classmethod
    def from_json(cls, document: Any) -> SegmentGroup:
        records, modified_ms = document["records"], document["modified"]
        if type(modified_ms) is not int or not INT64_MIN <= modified_ms <= INT64_MAX:
            raise ValueError(f"the time {modified_ms!r}")
        return cls(
            tuple(
                OldSegment(_number(base_offset), FileContent.from_json(log))
                for base_offset, *log in document["old"]
            ),
            tuple(map(StagedSegment.from_json, document["new"])),
            _number(document["end"]),
            None if records is None else _number(records),
            modified_ms,
        )


@dataclass(frozen=True, slots=True)
class PartitionGroups:
    """The groups of one partition, from the lowest offsets on. If ``cleaned_to`` is given, everything below
    it is compacted when all of them are replaced: it becomes the cleaner checkpoint."""

    topic_partition: TopicPartition
    groups: tuple[SegmentGroup, ...]
    cleaned_to: int | None = None

    def __post_init__(self) -> None:
        for one, next_one in pairwise(self.groups):
            if one.end > next_one.start:
                raise ValueError(
                    f"{self.topic_partition}: the groups from {one.start} and {next_one.start} overlap"
                )


def _rises(numbers: Sequence[int]) -> bool:
    return all(one < next_one for one, next_one in pairwise(numbers))


def _number(value: Any, largest: int = INT64_MAX) -> int:
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(f"{value!r} is not a number from 0 to {largest}")
    return value
