"""Find the data of a sparse file without reading its holes."""

from __future__ import annotations

import errno
import os

from stratalog.storage.files.filesystem import ReadableFile

__all__ = ["next_data"]


def next_data(file: ReadableFile, position: int, size_bytes: int) -> int:
    """Return where data begins at or after ``position``: everything before it is zeros that take no room on
    the disk. ``size_bytes`` if only a hole follows; ``position`` itself if the file system does not say."""
    descriptor = file.fileno()
    if descriptor < 0 or not hasattr(os, "SEEK_DATA") or position >= size_bytes:
        return position
    try:
        # Nothing reads from where this moves the descriptor: every read names its position.
        return min(os.lseek(descriptor, position, os.SEEK_DATA), size_bytes)
    except OSError as error:
        return size_bytes if error.errno == errno.ENXIO else position
