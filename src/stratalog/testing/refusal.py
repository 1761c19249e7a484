"""The errors of the operating system, raised without it: word for word what OsFileSystem raises."""

from __future__ import annotations

import os

from stratalog.errors import StorageError

__all__ = ["map_too_long", "not_regular", "refusal"]


def refusal(number: int, path: str) -> StorageError:
    """What OsFileSystem raises where a call fails with this errno."""
    return StorageError(os.strerror(number).lower(), path=path, errno=number)


def not_regular(path: str) -> StorageError:
    """What OsFileSystem raises for a folder where a file was meant."""
    return StorageError("not a regular file", path=path)


def map_too_long(path: str) -> StorageError:
    """What OsFileSystem raises for a map that would go past the end of the file."""
    return StorageError("mmap length is greater than file size", path=path)
