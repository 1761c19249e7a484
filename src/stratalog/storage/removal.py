"""Take segments out of a folder in two steps: a rename, which is done at once, and a removal later.

Who reads a segment meanwhile still has it. After a restart whatever carries ``.deleted`` is removed.
"""

from __future__ import annotations

import os

from stratalog.storage.filesystem import FileSystem
from stratalog.storage.names import Stage, segment_file_name
from stratalog.storage.segment import SEGMENT_KINDS

__all__ = ["rename_deleted"]


def rename_deleted(file_system: FileSystem, folder: str, base_offset: int) -> list[str]:
    """Give the files of a segment their ``.deleted`` names; the new paths. The data file goes first:
    without it the others mean nothing."""
    renamed = []
    for kind in SEGMENT_KINDS:
        path = os.path.join(folder, segment_file_name(base_offset, kind))
        if file_system.stat(path) is not None:
            new = os.path.join(folder, segment_file_name(base_offset, kind, Stage.DELETED))
            file_system.rename(path, new)
            renamed.append(new)
    return renamed
