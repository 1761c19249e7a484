"""The whole error tree. Every exception that Stratalog raises on purpose is in this file.

    StratalogError
    ├── UsageError            the caller asked for something that cannot be            (also a ValueError)
    ├── InvalidRecordError    what we were asked to write is not a legal record        (also a ValueError)
    ├── CorruptionError       bytes that we read are not what they must be
    │   └── LimitExceededError   they may be right, but believing them would pass a configured limit
    └── StorageError          the operating system refused                             (also an OSError)

Whose fault it is shows in the type. Errors carry data (path, position, reason), never wire codes.
"""

from __future__ import annotations

import os

__all__ = [
    "CorruptionError",
    "InvalidRecordError",
    "LimitExceededError",
    "StorageError",
    "StratalogError",
    "UsageError",
]


class StratalogError(Exception):
    """The root: ``except StratalogError`` catches everything this library raises on purpose."""


class UsageError(StratalogError, ValueError):
    """The caller asked for something that cannot be; the message says what would work."""


class InvalidRecordError(StratalogError, ValueError):
    """What we were asked to write is not a legal record or batch."""


class CorruptionError(StratalogError):
    """Bytes that were read are not what the format says they must be.

    ``position`` is the byte position of the batch (or 0.7 entry) that is wrong, counted from the
    start of the file or buffer; ``reason`` is a short stable name for programs, ``detail`` the
    sentence for people, ``advice`` what to do next. Layers that know more (which file) add it
    with :meth:`located`, so that one exception tells the whole story.
    """

    def __init__(
        self,
        reason: str,
        detail: str,
        *,
        position: int | None = None,
        path: str | os.PathLike[str] | None = None,
        advice: str | None = None,
    ) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail
        self.position = position
        self.path = None if path is None else os.fspath(path)
        self.advice = advice

    def located(
        self, *, position: int | None = None, path: str | os.PathLike[str] | None = None
    ) -> CorruptionError:
        """The same error, knowing also where it happened. What is known already is kept."""
        return type(self)(
            self.reason,
            self.detail,
            position=self.position if self.position is not None else position,
            path=self.path if self.path is not None else path,
            advice=self.advice,
        )

    def __str__(self) -> str:
        place = [] if self.path is None else [self.path]
        if self.position is not None:
            place.append(f"at byte {self.position}")
        where = " ".join(place)
        text = f"{where}: {self.detail}" if where else self.detail
        return f"{text} ({self.reason})" + ("" if self.advice is None else f"; {self.advice}")


class LimitExceededError(CorruptionError):
    """Believing these bytes would pass a configured limit (a decompression bomb, or a small limit)."""


class StorageError(StratalogError, OSError):
    """The operating system refused: a file is missing, unreadable, not a regular file, or I/O failed."""

    def __init__(
        self, detail: str, *, path: str | os.PathLike[str], errno: int | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.path = os.fspath(path)
        self.errno = errno

    def __str__(self) -> str:
        return f"{self.path}: {self.detail}"
