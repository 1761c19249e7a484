"""Undo a rewrite: put the originals back by the same swap that put the new segments in.

Each group of segments is restored, or not, as a whole, and the log is sound between any two. A rewrite can be
undone only if the partition still has just the segments that the rewrite made, byte for byte.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from stratalog.errors import StorageError, UsageError
from stratalog.rewrite.limits import RewriteLimits
from stratalog.rewrite.manifest import GroupEntry, SegmentEntry, file_crc, overlap
from stratalog.rewrite.undo.kept import KeptOriginals
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.names import SEGMENT_KINDS, FileKind, Stage, segment_file_name
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.segment.segment import Segment
from stratalog.storage.views.log_view import LogView

__all__ = ["UndoPlan", "check_undo", "plan_undo", "restore_group"]


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """What undoing a rewrite does in one partition: the groups to be restored, and how many have their
    originals already. ``refusal`` says why the rewrite cannot be undone."""

    groups: tuple[GroupEntry, ...]
    restored: int = 0
    refusal: str | None = None

    @property
    def size_bytes(self) -> int:
        """How many bytes come back."""
        return sum(each.size_bytes for group in self.groups for each in group.before)


def plan_undo(file_system: FileSystem, view: LogView, kept: KeptOriginals) -> UndoPlan:
    """Compare a log with the manifest of a rewrite, by sizes and CRCs of whole files."""
    if kept.manifest is None:
        return UndoPlan((), refusal=kept.problem)
    due: list[GroupEntry] = []
    restored: list[GroupEntry] = []
    for partition in kept.manifest.partitions:
        groups = list(partition.groups)
        while groups:
            group = groups.pop()
            if any(overlap(group, each) for each in (*due, *restored)):
                continue  # a later group has replaced what this one made
            segments = _between(view, group)
            if _is_same(segments, group.before):
                restored.append(group)
                continue
            refusal = _difference(segments, group) or _missing(file_system, kept.folder, group)
            if refusal is None:
                due.append(group)
            elif not any(overlap(group, each) for each in groups):
                return UndoPlan((), refusal=refusal)
            # Otherwise the rewrite may have ended before this group replaced what earlier ones made.
    return UndoPlan(tuple(reversed(due)), len(restored))


def check_undo(plan: UndoPlan, kept: KeptOriginals) -> None:
    """Raise UsageError if a rewrite cannot be undone."""
    if plan.refusal is not None:
        raise UsageError(f"the rewrite {kept.id} cannot be undone: {plan.refusal}")


def restore_group(
    log: PartitionLog, kept: KeptOriginals, group: GroupEntry, limits: RewriteLimits
) -> None:
    """Put the originals of one group back. UsageError if the log changed meanwhile; then it stays as it
    is."""
    limits.check()
    segments = _between(log.view, group)
    bases = [each.base_offset for each in group.before]
    try:
        for base in bases:
            _link_cleaned(log, kept.folder, base)
        if not segments or not log.replace_segments(segments, bases):
            raise UsageError(f"the segments from {bases[0]} on changed while they were restored")
    except BaseException:
        with suppress(StorageError):
            for base in bases:
                _unlink_cleaned(log, base)
        raise
    limits.note(sum(each.size_bytes for each in group.before))


def _between(view: LogView, group: GroupEntry) -> list[Segment]:
    """Return the sealed segments of a log that stand where the group's do."""
    return [each for each in view.segments.segments[:-1] if group.holds(each.base_offset)]


def _difference(segments: Sequence[Segment], group: GroupEntry) -> str | None:
    """Return how segments differ from those that the rewrite made; None if they do not. An empty segment that
    the swap has added counts as nothing."""
    start = group.start
    found = {each.base_offset: each for each in segments}
    made = {each.base_offset for each in group.after}
    gone = sorted(made - found.keys())
    if gone:
        return (
            f"the segment at {gone[0]}, which it made, is gone: retention, a truncation or another "
            "rewrite has removed it"
        )
    for entry in group.after:
        if not _is_same_file(found[entry.base_offset], entry):
            return f"the segment at {entry.base_offset}, which it made, was rewritten since"
    others = [base for base, each in found.items() if base not in made and each.size_bytes]
    if others or start not in found:
        return f"there is a segment at {(others or [start])[0]} that it did not make"
    return None


def _is_same(segments: Sequence[Segment], entries: Sequence[SegmentEntry]) -> bool:
    bases = [each.base_offset for each in segments]
    return bases == [each.base_offset for each in entries] and all(
        map(_is_same_file, segments, entries)
    )


def _is_same_file(segment: Segment, entry: SegmentEntry) -> bool:
    return segment.size_bytes == entry.size_bytes and (
        file_crc(segment.log, segment.size_bytes) == entry.crc32c
    )


def _missing(file_system: FileSystem, folder: str, group: GroupEntry) -> str | None:
    """Return what is wrong with the originals that are kept; None if nothing is."""
    for entry in group.before:
        path = os.path.join(folder, segment_file_name(entry.base_offset, FileKind.LOG))
        found = file_system.stat(path)
        if found is None:
            return f"{path} is gone"
        if found.size != entry.size_bytes:
            return f"{path} has {found.size} bytes, and the original had {entry.size_bytes}"
        file = file_system.open_readable(path)
        try:
            if file_crc(file, found.size) != entry.crc32c:
                return f"{path} is not the original: its CRC-32C is another"
        finally:
            file.close()
    return None


def _link_cleaned(log: PartitionLog, folder: str, base_offset: int) -> None:
    _unlink_cleaned(log, base_offset)
    for kind in SEGMENT_KINDS:
        path = os.path.join(folder, segment_file_name(base_offset, kind))
        if log.file_system.stat(path) is not None:
            log.file_system.link(path, _cleaned(log, base_offset, kind))


def _unlink_cleaned(log: PartitionLog, base_offset: int) -> None:
    for kind in SEGMENT_KINDS:
        log.file_system.unlink(_cleaned(log, base_offset, kind))


def _cleaned(log: PartitionLog, base_offset: int, kind: FileKind) -> str:
    return os.path.join(log.folder, segment_file_name(base_offset, kind, Stage.CLEANED))
