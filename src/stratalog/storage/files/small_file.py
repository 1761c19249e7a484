"""Read a small file of a log directory as a whole."""

from __future__ import annotations

from typing import Final

from stratalog.errors import CorruptionError
from stratalog.storage.files.filesystem import FileSystem

__all__ = ["read_small_file"]

_SIZE_MAX: Final = 64 << 20


def read_small_file(file_system: FileSystem, path: str) -> bytes | None:
    """Read a file as a whole; None where there is none."""
    found = file_system.stat(path)
    if found is None:
        return None
    if found.size > _SIZE_MAX:
        raise CorruptionError("file_size", f"{found.size} bytes are too many for it", path=path)
    file = file_system.open_readable(path)
    try:
        data = bytearray(found.size)
        return bytes(data[: file.read_into(0, memoryview(data))])
    finally:
        file.close()
