"""Read a file that is kept small as a whole: a checkpoint, an index, a journal.

The size is checked before anything is read: a damaged or foreign file of that name may have any size.
"""

from __future__ import annotations

import errno
from typing import Final

from stratalog.errors import LimitExceededError, StorageError
from stratalog.storage.files.filesystem import FileSystem

__all__ = ["SMALL_FILE_MAX", "read_small_file"]

#: A checkpoint line takes a topic's name and two numbers: more than two hundred thousand of the longest fit.
SMALL_FILE_MAX: Final = 64 << 20


def read_small_file(
    file_system: FileSystem, path: str, *, size_max: int = SMALL_FILE_MAX
) -> bytes | None:
    """Return the content of a file, None if it does not exist. Raise LimitExceededError if it is larger than
    ``size_max``.

    The size is that of the opened file: a file that replaces it meanwhile is not mixed with it. A file that
    becomes shorter while it is read is returned as far as it goes.
    """
    try:
        file = file_system.open_readable(path)
    except StorageError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    try:
        size = file.size()
        if size > size_max:
            raise LimitExceededError(
                "file_size", f"{size} bytes, and at most {size_max} are read", path=path
            )
        return file.read(0, size)
    finally:
        file.close()
