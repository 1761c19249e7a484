"""Segments staged for a replacement, as the tasks of a rewrite do it: a few lines each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stratalog.clock import Clock
from stratalog.manager.commit_segments import commit_segments
from stratalog.manager.commits.commits import ReplaceResult
from stratalog.manager.logs import open_logs
from stratalog.records.model import BatchHeader
from stratalog.rewrite.staged import StagedSegments
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.segment_groups import OldSegment, PartitionGroups, SegmentGroup
from stratalog.storage.commits.staged_segment import file_content
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import FileKind, Stage, parse_partition_file, segment_file_name
from stratalog.storage.segment.sparse_index import IndexLimits
from stratalog.types import TopicPartition
from tests.storage.logs import headers

Keep = Callable[[BatchHeader], bool]
LIMITS = IndexLimits(100, 120)


def live_bases(file_system: FileSystem, folder: str) -> list[int]:
    """The base offsets of the live segments of a folder, the active one last."""
    files = (parse_partition_file(entry.name) for entry in file_system.list_dir(folder))
    return sorted(
        file.offset
        for file in files
        if file is not None and file.kind is FileKind.LOG and file.stage is Stage.LIVE
    )


def stage_group(
    file_system: FileSystem,
    root: str,
    key: CommitKey,
    place: tuple[str, int],
    bases: Sequence[int],
    end: int,
    keep: Keep,
    *,
    task: int = 0,
    attempt: int = 0,
    size_max: int = 1 << 30,
) -> SegmentGroup:
    """Stage the batches of some segments that are kept, as the task of a rewrite does."""
    folder = f"{root}/{place[0]}-{place[1]}"
    staged = StagedSegments(
        file_system, root, key, bases[0], LIMITS, task=task, attempt=attempt, size_max=size_max
    )
    old = []
    modified_ms = 0
    for base in bases:
        path = f"{folder}/{segment_file_name(base, FileKind.LOG)}"
        content = file_content(file_system, path)
        old.append(OldSegment(base, content))
        found = file_system.stat(path)
        assert found is not None
        modified_ms = found.modified_ms
        file = file_system.open_readable(path)
        data = file.read(0, content.size_bytes)
        file.close()
        for header in headers(data):
            if keep(header):
                staged.put(data[header.position : header.end_position], ())
    return staged.finish(old, end, modified_ms)


class Replacing:
    """A log directory on some file system, whose segments are replaced."""

    def __init__(self, file_system: FileSystem, root: str, clock: Clock) -> None:
        self.file_system = file_system
        self.root = root
        self.clock = clock

    def plan(
        self,
        key: CommitKey,
        place: tuple[str, int],
        keep: Keep,
        *,
        size: int = 2,
        attempt: int = 0,
        cleaned_to: int | None = None,
        first_task: int = 0,
    ) -> PartitionGroups:
        """Stage all sealed segments of a partition in groups of ``size``."""
        bases = live_bases(self.file_system, f"{self.root}/{place[0]}-{place[1]}")
        starts = range(0, len(bases) - 1, size)
        groups = []
        for number, at in enumerate(starts):
            group = bases[at : min(at + size, len(bases) - 1)]
            groups.append(
                stage_group(
                    self.file_system, self.root, key, place, group, bases[at + len(group)], keep,
                    task=first_task + number, attempt=attempt,
                )
            )  # fmt: skip
        return PartitionGroups(TopicPartition(*place), tuple(groups), cleaned_to)

    def commit(
        self, key: CommitKey, *partitions: PartitionGroups, threads: int = 1
    ) -> ReplaceResult:
        return commit_segments(
            self.root, key, partitions, file_system=self.file_system, clock=self.clock,
            lock_timeout_s=0, threads=threads,
        )  # fmt: skip

    def values(self, topic: str, partition: int) -> list[str]:
        with open_logs(
            self.root, read_only=True, file_system=self.file_system, clock=self.clock
        ) as logs:
            return [
                (record.value or b"").decode() for record in logs.read(topic, partition).records()
            ]
