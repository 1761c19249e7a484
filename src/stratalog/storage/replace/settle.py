"""List a partition's folder as a load would leave it, for readers that must not change it.

Segments are replaced in steps: new files are complete as ``.swap``, the old ones go, the new ones get their
names. A listing between two steps, while a broker is at work or after it died, would miss records that are
neither gone nor replaced. So readers take every file as what it will be, where it lies now.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Mapping
from time import sleep
from typing import Final, NamedTuple

from stratalog.errors import StorageError
from stratalog.records.layout import Check, Ending
from stratalog.storage.files.filesystem import DirEntry, FileSystem
from stratalog.storage.names import (
    SEGMENT_KINDS,
    FileKind,
    Stage,
    parse_partition_file,
    segment_file_name,
)
from stratalog.storage.replace.folder import FolderNames, plan_swaps, plan_unfinished

__all__ = [
    "LISTINGS_MAX",
    "SettledFolder",
    "check_segment_files",
    "read_settled",
    "swapped_kinds",
    "swapped_span",
]

#: How often one after the other a folder is listed because files are gone that were in it just now.
LISTINGS_MAX: Final = 16
#: How long to wait before each time, a second in all: a replacement is a burst of renames.
_PAUSES_S: Final = tuple(min(0.001 * 2**n, 0.1) for n in range(LISTINGS_MAX))


class SettledFolder(NamedTuple):
    """``names`` are those that the files will have; ``swapped`` tells of some how they are called now."""

    entries: list[DirEntry]
    names: FolderNames
    swapped: Mapping[str, str]


def swapped_kinds(base_offset: int, swapped: Collection[str]) -> tuple[FileKind, ...]:
    """Which files of a segment do not have their final names yet, as these do not."""
    if not swapped:
        return ()
    return tuple(kind for kind in FileKind if segment_file_name(base_offset, kind) in swapped)


def read_settled(file_system: FileSystem, folder: str) -> SettledFolder:
    """List the folder, again if it is being changed meanwhile."""
    for pause_s in _PAUSES_S:
        entries = file_system.list_dir(folder)
        names = _names_of(entries)
        if not names.has_unfinished:
            return SettledFolder(entries, names, {})
        # A file that is renamed while a folder is listed may appear under neither name.
        before, entries = names, file_system.list_dir(folder)
        names = _names_of(entries)
        if _taking_part(before) != _taking_part(names):
            sleep(pause_s)
            continue
        try:
            swept = names.without(plan_unfinished(names))
            plan = plan_swaps(swept, *swapped_span(file_system, folder, swept))
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            continue
        return SettledFolder(entries, swept.without(plan), {new: old for old, new in plan.rename})
    raise StorageError("the folder changes faster than it can be listed: try again", path=folder)


def _taking_part(names: FolderNames) -> list[str]:
    """The files that a replacement may be about. Others come and go: what was replaced is removed one file
    after the other, for as long as a broker has nothing better to do."""
    return [
        name
        for name, file in names.files.items()
        if file.stage is not Stage.DELETED and file.kind in SEGMENT_KINDS
    ]


def _names_of(entries: list[DirEntry]) -> FolderNames:
    return FolderNames.of(entry.name for entry in entries if entry.is_file)


def check_segment_files(folder: str, entries: list[DirEntry]) -> None:
    """StorageError where what has the name of a data file is none: a log without it would end too early,
    and its offsets would be given out again."""
    for entry in entries:
        file = None if entry.is_file else parse_partition_file(entry.name)
        if file is not None and file.kind is FileKind.LOG and file.stage is not Stage.DELETED:
            raise StorageError(
                "not a regular file; a link is not followed: put the segment itself there",
                path=os.path.join(folder, entry.name),
            )


def swapped_span(
    file_system: FileSystem, folder: str, names: FolderNames, *, check: Check = Check.ORDER
) -> tuple[int, int]:
    """The offsets that a replacement covers; none where its data files have their names already.
    CorruptionError where one of them is damaged: it must not take the place of sound ones."""
    bases = names.bases(stage=Stage.SWAP)
    if not bases:
        return 0, 0
    # Imported only if there is one: counting a folder must not wait for it.
    from stratalog.storage.segment.scan import scan_segment
    from stratalog.storage.segment.sparse_index import IndexLimits

    ends = []
    for base in bases:
        path = os.path.join(folder, segment_file_name(base, FileKind.LOG, Stage.SWAP))
        file = file_system.open_readable(path)
        try:
            found = scan_segment(file, base, IndexLimits(), file.size(), check=check)
        finally:
            file.close()
        if found.pause.ending == Ending.LOST:
            raise StorageError("changed while it was read", path=path, errno=errno.ENOENT)
        if not found.is_whole:
            raise found.pause.error().located(path=path)
        ends.append(found.next_offset)
    return min(bases), max(ends)
