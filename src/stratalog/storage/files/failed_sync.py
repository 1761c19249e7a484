"""A sync that failed outlives its process: what never reached the disk looks clean from then on.

The system shows the bytes that it could not write for as long as it keeps them in memory, and takes them for
written: a later sync succeeds and does nothing for them. So whoever opens the log next on the same machine
must write them once more. A note in the folder says so. It need not be on the disk: it is in the same memory
as what it warns of, and a power cut takes both.
"""

from __future__ import annotations

import os
from contextlib import suppress

from stratalog.errors import StorageError
from stratalog.storage.files.file_copy import copy_range
from stratalog.storage.files.filesystem import FileSystem, WritableFile
from stratalog.storage.names import FAILED_SYNC

__all__ = ["note_failed_sync", "rewrite"]


def note_failed_sync(file_system: FileSystem, index_path: str) -> None:
    """Leave the note. On a disk that takes no new name, an index becomes the note: recovery makes that
    anew. Where neither can be done, only the machine's restart helps."""
    note = os.path.join(os.path.dirname(index_path), FAILED_SYNC)
    with suppress(StorageError):
        if file_system.stat(note) is not None:
            return
        try:
            file_system.open_writable(note, create=True).close()
        except StorageError:
            file_system.rename(index_path, note)


def rewrite(log: WritableFile, size_bytes: int) -> None:
    """Write a file's own bytes in their place again, and set its size again, so that the next sync is
    one for all of it."""
    log.truncate(size_bytes + 1)
    log.truncate(size_bytes)
    copy_range(log, 0, size_bytes, log)
