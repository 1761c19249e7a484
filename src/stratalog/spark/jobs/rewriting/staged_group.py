"""What a task of every rewrite does in the end: old segments through a transform into staged ones."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from stratalog.errors import StorageError
from stratalog.records.layout import INT32_MAX
from stratalog.rewrite.cleaned import SegmentSize
from stratalog.rewrite.manifest import GroupEntry, SegmentEntry, describe_all, describe_file
from stratalog.rewrite.operation import CountingTransform, RewrittenGroup
from stratalog.rewrite.plan import PlannedGroup
from stratalog.rewrite.remote import RemoteSegment, old_segments
from stratalog.rewrite.rewriter import GroupResult
from stratalog.rewrite.source import SourceSegment, transform_segment
from stratalog.rewrite.staged import StagedSegments
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.segment_groups import SegmentGroup
from stratalog.storage.files.filesystem import FileSystem, OsFileSystem
from stratalog.storage.names import FileKind
from stratalog.storage.segment.sparse_index import IndexLimits

__all__ = ["GroupDone", "Staging", "attempt_number", "stage_group"]


@dataclass(frozen=True, slots=True)
class Staging:
    """How all tasks of a rewrite stage what they write: where, for which commit, and whether old and new
    segments are described for a manifest."""

    root: str
    key: CommitKey
    describes: bool = False
    file_system: FileSystem = field(default_factory=OsFileSystem)


@dataclass(frozen=True, slots=True)
class GroupDone:
    """A group of segments that a task has rewritten: what a commit takes, and what is reported."""

    group: SegmentGroup
    rewritten: RewrittenGroup


def attempt_number() -> int:
    """Return a number that no other attempt of a task in this application has."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())


def stage_group(
    staging: Staging,
    task: int,
    planned: PlannedGroup,
    segments: Sequence[RemoteSegment],
    transform: CountingTransform,
    limits: IndexLimits,
    *,
    size_max: int = INT32_MAX,
) -> GroupDone:
    """Rewrite neighbouring segments into staged ones. StorageError if they are not those that were planned
    for, CorruptionError if one is damaged. After an error nothing stays."""
    files = staging.file_system
    sources = [each.source(files) for each in segments]
    staged = StagedSegments(
        files, staging.root, staging.key, sources[0].base_offset, limits,
        task=task, attempt=attempt_number(), size_max=size_max,
    )  # fmt: skip
    try:
        for source in sources:
            transform_segment(source, transform, staged.put, lambda _: None)
        group = staged.finish(
            old_segments(files, sources), segments[-1].next_base, sources[-1].modified_ms
        )
        entry = _entry(staging, planned, sources, group, transform.counted())
    except BaseException:
        with suppress(StorageError):
            staged.discard()
        raise
    finally:
        for source in sources:
            source.segment.close()
    return GroupDone(group, _rewritten(planned, group, transform.counted(), entry))


def _rewritten(
    planned: PlannedGroup,
    group: SegmentGroup,
    counts: Mapping[str, int],
    entry: GroupEntry | None,
) -> RewrittenGroup:
    result = GroupResult(
        tuple(SegmentSize(each.base_offset, each.log.size_bytes) for each in group.old),
        tuple(
            SegmentSize(each.base_offset, each.files[FileKind.LOG].size_bytes) for each in group.new
        ),
        group.records,
    )
    return RewrittenGroup(planned, result, dict(counts), entry)


def _entry(
    staging: Staging,
    planned: PlannedGroup,
    sources: Sequence[SourceSegment],
    group: SegmentGroup,
    counts: Mapping[str, int],
) -> GroupEntry | None:
    """Return the entry of the manifest, if there is to be one."""
    if not staging.describes:
        return None
    folder = sources[0].segment.folder
    bases = [source.base_offset for source in sources]
    return GroupEntry(
        group.end,
        planned.reason,
        describe_all(staging.file_system, folder, bases),
        tuple(_describe(staging, each.name, each.base_offset) for each in group.new),
        dict(counts),
    )


def _describe(staging: Staging, name: str, base_offset: int) -> SegmentEntry:
    path = os.path.join(staging.root, name)
    return describe_file(staging.file_system, path, base_offset)
