"""Refuse a rewrite that does not fit on the disk, before it begins."""

from __future__ import annotations

import errno
from typing import Final

from stratalog.errors import StorageError
from stratalog.storage.files.filesystem import FileSystem

__all__ = ["check_space"]

#: Indexes, journals and others need room, too.
_MARGIN_BYTES: Final = 16 << 20


def check_space(file_system: FileSystem, folder: str, needed_bytes: int) -> None:
    """Raise StorageError (ENOSPC) if the disk of a folder has no room for so many bytes more."""
    free = file_system.free_bytes(folder)
    if free is not None and free < needed_bytes + _MARGIN_BYTES:
        raise StorageError(
            f"the rewrite may need {needed_bytes} bytes and {_MARGIN_BYTES} (16 MiB) for indexes and other "
            f"files, and {free} are free: make room on this disk, or rewrite fewer segments at a time",
            path=folder,
            errno=errno.ENOSPC,
        )
