"""What stands in the place of a file that its log let go of.

A descriptor is never closed while somebody may be reading it: the system would give its number to the next
file that is opened, and the reader would get that one's bytes. So a log that is closed only forgets its
files. Who holds a region goes on reading, and with the last of them the file is closed; who comes later finds
this.
"""

from __future__ import annotations

import errno
from typing import NoReturn

from stratalog.errors import StorageError
from stratalog.storage.files.filesystem import FileIdentity

__all__ = ["ClosedFile"]


class ClosedFile:
    """A file that was let go of: every call says so."""

    __slots__ = ("identity", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.identity: FileIdentity | None = None

    def refuse(self) -> NoReturn:
        raise StorageError(
            "the log was closed: open it again to read it", path=self.path, errno=errno.EBADF
        )

    def _refuse_any(self, *_: object, **__: object) -> NoReturn:
        self.refuse()

    size = read_into = read = map = fileno = write_at = truncate = sync = _refuse_any

    def read_ahead(self, position: int, size: int) -> None:
        """Never an error."""

    forget = begin_sync = reserve = read_ahead

    def release(self) -> None:
        """Never an error."""

    def close(self) -> None:
        pass
