"""The manifest of a rewrite: every segment before and after, and what was removed and why, as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from stratalog.errors import CorruptionError, UsageError
from stratalog.records import kernel
from stratalog.rewrite.header_tally import tally_file
from stratalog.storage.files.filesystem import FileSystem, ReadableFile, replace_file
from stratalog.storage.names import TEMPORARY_SUFFIX, FileKind, Stage, segment_file_name
from stratalog.storage.segment.log_file import LogFile
from stratalog.types import TopicPartition

__all__ = [
    "GroupEntry",
    "Manifest",
    "ManifestFile",
    "PartitionEntry",
    "SegmentEntry",
    "describe_all",
    "describe_file",
    "describe_segment",
    "file_crc",
    "new_rewrite_id",
    "overlap",
]

_VERSION: Final = 1
_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """A segment before or after a rewrite. ``records`` is None if it holds wrappers of magic 0 or 1, which do
    not say how many they hold; ``first_offset`` is then -1, and so are both offsets of an empty one."""

    name: str
    base_offset: int
    first_offset: int
    last_offset: int
    records: int | None
    size_bytes: int
    crc32c: str


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """Neighbouring segments that were rewritten together; ``end`` is where the segment after them starts.
    ``counts`` says what was removed and changed."""

    end: int
    reason: str
    before: tuple[SegmentEntry, ...]
    after: tuple[SegmentEntry, ...]
    counts: Mapping[str, int]

    @property
    def start(self) -> int:
        return self.before[0].base_offset

    def holds(self, base_offset: int) -> bool:
        """Return whether a segment with this base offset stands where the group's do."""
        return self.start <= base_offset < self.end


def overlap(one: GroupEntry, other: GroupEntry) -> bool:
    """Return whether two groups have offsets in common."""
    return one.start < other.end and other.start < one.end


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """The groups of one partition that were rewritten."""

    topic: str
    partition: int
    groups: tuple[GroupEntry, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A rewrite: its id, verb, time and options, and the partitions that it changed."""

    id: str
    verb: str
    time_ms: int
    options: Mapping[str, object]
    partitions: tuple[PartitionEntry, ...] = ()

    def with_partition(self, entry: PartitionEntry) -> Manifest:
        """Return the manifest with a partition added, or replaced if it is there already."""
        others = [each for each in self.partitions if each.topic_partition != entry.topic_partition]
        return replace(self, partitions=(*others, entry))

    def encode(self) -> bytes:
        """Return the manifest as JSON."""
        document = {"version": _VERSION, "time": _text_of(self.time_ms), **asdict(self)}
        return json.dumps(document, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes, path: str) -> Manifest:
        """Return the manifest that JSON says. CorruptionError if it does not say one."""
        try:
            document = json.loads(data)
            if document["version"] != _VERSION:
                raise ValueError(f"version {document['version']}")
            return cls(
                str(document["id"]),
                str(document["verb"]),
                int(document["time_ms"]),
                dict(document["options"]),
                tuple(map(_partition, document["partitions"])),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptionError(
                "manifest", f"not the manifest of a rewrite: {error!r}", path=path
            ) from None


class ManifestFile:
    """The file that a manifest is written to. It is created before the rewrite, so that a path that cannot be
    written to is an error before anything is changed."""

    def __init__(self, file_system: FileSystem, path: str) -> None:
        self._file_system = file_system
        self._path = path
        self._temporary = path + TEMPORARY_SUFFIX

    def check(self, roots: Sequence[str]) -> None:
        """Raise UsageError if the path is in one of these log directories, or is taken; StorageError if its
        folder is missing."""
        folder = os.path.realpath(os.path.dirname(self._path) or os.curdir)
        self._file_system.list_dir(folder)
        for root in roots:
            inside = os.path.realpath(root)
            if os.path.commonpath([folder, inside]) == inside:
                raise UsageError(
                    f"the manifest {self._path} would be in the log directory {root}: name a file elsewhere"
                )
        for path in (self._path, self._temporary):
            if self._file_system.stat(path) is not None:
                raise UsageError(
                    f"{path} exists, and is not overwritten: name a new file for the manifest"
                )

    def create(self, manifest: Manifest) -> None:
        """Create the file, with a manifest of which nothing is done yet."""
        file = self._file_system.open_writable(self._path, create=True)
        try:
            file.write_at(0, manifest.encode())
        finally:
            file.close()

    def write(self, manifest: Manifest) -> None:
        """Replace what was written before."""
        replace_file(self._file_system, self._path, self._temporary, manifest.encode())


def _text_of(time_ms: int) -> str:
    time = datetime.fromtimestamp(time_ms / 1000, UTC)
    return time.isoformat(timespec="milliseconds")


def _partition(fields: Mapping[str, Any]) -> PartitionEntry:
    groups = tuple(map(_group, fields["groups"]))
    return PartitionEntry(str(fields["topic"]), int(fields["partition"]), groups)


def _group(fields: Mapping[str, Any]) -> GroupEntry:
    return GroupEntry(
        int(fields["end"]),
        str(fields["reason"]),
        tuple(map(_segment, fields["before"])),
        tuple(map(_segment, fields["after"])),
        {str(name): int(count) for name, count in fields["counts"].items()},
    )


def _segment(fields: Mapping[str, Any]) -> SegmentEntry:
    entry = SegmentEntry(**fields)
    expected = segment_file_name(int(entry.base_offset), FileKind.LOG)
    if entry.name != expected or int(entry.size_bytes) < 0:
        raise ValueError(f"{entry.name!r} is not {expected!r}")
    return entry


def new_rewrite_id(verb: str, time_ms: int) -> str:
    """Return the id of a rewrite: its time and verb, so that ids sort by time."""
    time = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"{time:%Y%m%dT%H%M%S}{time_ms % 1000:03d}-{verb}"


def describe_segment(
    file_system: FileSystem, folder: str, base_offset: int, stage: Stage = Stage.LIVE
) -> SegmentEntry:
    """Read a segment, or one that is about to become one, for the manifest."""
    path = os.path.join(folder, segment_file_name(base_offset, FileKind.LOG, stage))
    return describe_file(file_system, path, base_offset)


def describe_file(file_system: FileSystem, path: str, base_offset: int) -> SegmentEntry:
    """Read a data file, which may have another name until it is a segment, for the manifest."""
    file = file_system.open_readable(path)
    try:
        size = file.size()
        tally = tally_file(LogFile(path, file, size, base_offset, is_v07=False))
        crc = file_crc(file, size)
    finally:
        file.close()
    return SegmentEntry(
        segment_file_name(base_offset, FileKind.LOG),
        base_offset,
        tally.first_offset,
        tally.last_offset,
        tally.records,
        size,
        crc,
    )


def describe_all(
    file_system: FileSystem, folder: str, bases: Sequence[int], stage: Stage = Stage.LIVE
) -> tuple[SegmentEntry, ...]:
    """Read several segments for the manifest."""
    return tuple(describe_segment(file_system, folder, base, stage) for base in bases)


def file_crc(file: ReadableFile, size: int) -> str:
    """Return the CRC-32C of the first ``size`` bytes of a file, in hexadecimal digits."""
    crc = position = 0
    buffer = memoryview(bytearray(min(_READ_BYTES, max(size, 1))))
    while position < size:
        part = buffer[: min(len(buffer), size - position)]
        read = file.read_into(position, part)
        if not read:
            break
        crc = kernel.crc32c(part[:read], crc)
        position += read
    return f"{crc:08x}"
