"""Decide from the names in a partition's folder what must be settled before it can be loaded.

A process may have died while it replaced segments (``.cleaned``, ``.swap``) or deleted them (``.deleted``).
The names alone say how far it came, so the plan is a pure function of them. It may be carried out twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from stratalog.storage.names import (
    FAILED_SYNC,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    TEMPORARY_SUFFIX,
    FileKind,
    PartitionFile,
    Stage,
    parse_partition_file,
    segment_file_name,
)

__all__ = ["FolderNames", "SettlePlan", "plan_orphans", "plan_swaps", "plan_unfinished"]

_KNOWN = frozenset(
    {
        FAILED_SYNC,
        LEADER_EPOCH_CHECKPOINT,
        PARTITION_METADATA,
        LEADER_EPOCH_CHECKPOINT + TEMPORARY_SUFFIX,
        PARTITION_METADATA + TEMPORARY_SUFFIX,
    }
)


class FolderNames(NamedTuple):
    """The names of a folder, sorted by what they are. Unknown ones are reported and never touched."""

    files: Mapping[str, PartitionFile]
    unknown: tuple[str, ...]

    @classmethod
    def of(cls, names: Iterable[str]) -> FolderNames:
        files, unknown = {}, []
        for name in sorted(names):
            file = parse_partition_file(name)
            if file is not None:
                files[name] = file
            elif name not in _KNOWN:
                unknown.append(name)
        return cls(files, tuple(unknown))

    def bases(self, kind: FileKind = FileKind.LOG, stage: Stage = Stage.LIVE) -> list[int]:
        """The offsets of all files of one kind and stage."""
        files = self.files.values()
        return sorted([file[0] for file in files if file[1] is kind and file[2] is stage])

    @property
    def has_unfinished(self) -> bool:
        """Whether any file is not live: on its way in or out."""
        live = Stage.LIVE
        return any(file[2] is not live for file in self.files.values())

    def without(self, plan: SettlePlan) -> FolderNames:
        """The names after a plan was carried out."""
        files = {name: file for name, file in self.files.items() if name not in plan.delete}
        for old, new in plan.rename:
            files.pop(old)
            renamed = parse_partition_file(new)
            assert renamed is not None
            files[new] = renamed
        return FolderNames(files, self.unknown)


class SettlePlan(NamedTuple):
    """Files to delete, then files to rename. Empty where nothing is to be done."""

    delete: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.delete or self.rename)


def plan_unfinished(folder: FolderNames) -> SettlePlan:
    """Plan the removal of deleted files, and of segments whose swap was not decided.

    New segments become ``.swap`` from the highest to the lowest, after all of them were ``.cleaned``. So a
    ``.swap`` at or above the lowest ``.cleaned`` belongs to a swap that was not decided, and the old segments
    are all there. If they are not, the ``.cleaned`` is what another rewrite left, and the ``.swap`` has the
    only copy of its records. Kafka does not look, and removes it in that case, too.
    """
    if not folder.has_unfinished:
        return SettlePlan()
    cleaned = [file.offset for file in folder.files.values() if file.stage == Stage.CLEANED]
    lowest = None if _is_decided(folder) else min(cleaned, default=None)

    def goes(file: PartitionFile) -> bool:
        if file.stage == Stage.SWAP:
            return lowest is not None and file.offset >= lowest
        return file.stage in (Stage.DELETED, Stage.CLEANED)

    names = [name for name, file in folder.files.items() if goes(file)]
    names.sort(key=lambda name: _removal_rank(folder.files[name]))
    return SettlePlan(delete=tuple(names))


def _is_decided(folder: FolderNames) -> bool:
    """Whether old segments gave up their names for new ones: there is a ``.swap`` of a segment with a
    ``.log.deleted``, and its data file is either still ``.swap`` or has its final name already."""
    found = {(file.offset, file.kind, file.stage) for file in folder.files.values()}
    swapped = {file.offset for file in folder.files.values() if file.stage is Stage.SWAP}
    return any(
        (base, FileKind.LOG, Stage.DELETED) in found
        and (base, FileKind.LOG, Stage.CLEANED) not in found
        and ((base, FileKind.LOG, Stage.SWAP) in found)
        != ((base, FileKind.LOG, Stage.LIVE) in found)
        for base in swapped
    )


def _removal_rank(file: PartitionFile) -> tuple[int, bool]:
    """Return the place of a file in the order of removal, in which an interruption leaves names that lead to
    the same plan: every ``.swap`` before any ``.cleaned``, its data file last, ``.deleted`` at the end."""
    stages = (Stage.SWAP, Stage.CLEANED, Stage.DELETED)
    return stages.index(file.stage), file.kind is FileKind.LOG


def plan_swaps(folder: FolderNames, start: int, end: int) -> SettlePlan:
    """Complete a replacement whose data covers the offsets from ``start`` up to ``end``: what it
    replaces goes, then every ``.swap`` gets its final name."""
    if not folder.has_unfinished:
        return SettlePlan()
    delete = tuple(
        name
        for name, file in folder.files.items()
        if file.stage == Stage.LIVE and start <= file.offset < end
    )
    rename = tuple(
        (name, segment_file_name(file.offset, file.kind))
        for name, file in folder.files.items()
        if file.stage == Stage.SWAP
    )
    return SettlePlan(delete, rename)


def plan_orphans(folder: FolderNames) -> SettlePlan:
    """Index files without their data file: nothing is in them that the log does not say."""
    bases = set(folder.bases())
    indexes = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)
    return SettlePlan(
        delete=tuple(
            name
            for name, file in folder.files.items()
            if file.stage == Stage.LIVE and file.kind in indexes and file.offset not in bases
        )
    )
