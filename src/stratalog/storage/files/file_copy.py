"""Bytes of one file into another, some at a time."""

from __future__ import annotations

from typing import Final

from stratalog.errors import StorageError
from stratalog.storage.files.filesystem import ReadableFile, WritableFile

__all__ = ["copy_range"]

_COPY_BYTES: Final = 1 << 20


def copy_range(source: ReadableFile, start: int, end: int, target: WritableFile) -> None:
    """Copy bytes to the beginning of another file. StorageError where they are not all there any more."""
    buffer = memoryview(bytearray(min(end - start, _COPY_BYTES)))
    for at in range(start, end, _COPY_BYTES):
        part = buffer[: end - at]
        if source.read_into(at, part) < len(part):
            raise StorageError("cut short while it was copied", path=source.path)
        target.write_at(at - start, part)
