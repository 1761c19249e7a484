"""The whole error tree. Every exception that Stratalog raises on purpose is in this file.

    StratalogError
    ├── UsageError            the caller asked for something that cannot be            (also a ValueError)
    │   └── UnknownPartitionError   there is no such topic or partition
    ├── InvalidRecordError    what we were asked to write is not a legal record        (also a ValueError)
    │   ├── BatchTooLargeError      it is above max.message.bytes or segment.bytes
    │   └── InvalidTimestampError   its time is outside what the topic accepts
    ├── OffsetOutOfRangeError    the log does not reach there; the error says how far it does
    ├── OffsetOrderError      an append that brings its own offsets brings ones that do not fit
    ├── ProducerError         an idempotent or transactional producer did what it may not
    │   ├── OutOfOrderSequenceError
    │   ├── FencedProducerError         a newer epoch of the same producer was seen
    │   ├── FencedCoordinatorError      a newer epoch of the transaction coordinator was seen
    │   └── TransactionStateError
    ├── CorruptionError       bytes that we read are not what they must be
    │   ├── LimitExceededError   they may be right, but believing them would pass a configured limit
    │   └── DamagedLogError      a partition that recovery must not mend by itself: it would cost records
    └── StorageError          the operating system refused                             (also an OSError)
        ├── LockedError       another process writes here
        ├── LogFailedError    an earlier write or sync failed: reopen before writing again
        └── SpillError        temporary files for what does not fit into memory cannot be written

Whose fault it is shows in the type. Errors carry data (path, position, reason), never wire codes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

__all__ = [
    "BatchTooLargeError",
    "CorruptionError",
    "DamagedLogError",
    "FencedCoordinatorError",
    "FencedProducerError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "LimitExceededError",
    "LockedError",
    "LogFailedError",
    "OffsetOrderError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "ProducerError",
    "SpillError",
    "StorageError",
    "StratalogError",
    "TransactionStateError",
    "UnknownPartitionError",
    "UsageError",
]


class StratalogError(Exception):
    """The root: ``except StratalogError`` catches everything this library raises on purpose."""


class UsageError(StratalogError, ValueError):
    """The caller asked for something that cannot be; the message says what would work."""


class UnknownPartitionError(UsageError):
    """There is no such topic or partition here."""


class InvalidRecordError(StratalogError, ValueError):
    """What we were asked to write is not a legal record or batch.

    ``record_errors`` names the records that are at fault, by their place in the batch, where the batch
    as a whole is not.
    """

    def __init__(self, detail: str, *, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.record_errors = tuple(record_errors)


class BatchTooLargeError(InvalidRecordError):
    """A batch is above ``max.message.bytes``, or an append above ``segment.bytes``."""


class InvalidTimestampError(InvalidRecordError):
    """A record's time lies outside what the topic accepts."""


class OffsetOutOfRangeError(StratalogError, LookupError):
    """The log does not hold this offset; ``start`` and ``end`` (not included) are what it holds."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is out of range: the log holds {start} up to {end}")
        self.offset = offset
        self.start = start
        self.end = end

    def __reduce__(self) -> tuple[Any, ...]:
        # What a task raises must reach the driver: by default only the sentence would be handed over.
        return type(self), (self.offset, self.start, self.end)


class OffsetOrderError(StratalogError, ValueError):
    """An append that brings its own offsets must bring higher ones, each above the one before."""


class ProducerError(StratalogError):
    """An idempotent or transactional producer did what it may not; nothing was appended."""


class OutOfOrderSequenceError(ProducerError):
    """A batch does not follow the last one of its producer: one in between was lost."""


class FencedProducerError(ProducerError):
    """A newer epoch of the same producer was seen: this one is a leftover."""


class FencedCoordinatorError(ProducerError):
    """A marker comes from a transaction coordinator that was replaced."""


class TransactionStateError(ProducerError):
    """What was asked does not fit the state of the producer's transaction."""


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


class DamagedLogError(CorruptionError):
    """A partition is damaged where recovery may not cut: it would lose what was stored safely."""


class StorageError(StratalogError, OSError):
    """The operating system refused: a file is missing, unreadable, not a regular file, or I/O failed."""

    def __init__(
        self, detail: str, *, path: str | os.PathLike[str], errno: int | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.path = os.fspath(path)
        self.errno = errno

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), self.detail, path=self.path, errno=self.errno), ()

    def __str__(self) -> str:
        return f"{self.path}: {self.detail}"


class LockedError(StorageError):
    """Another process has the log directory open for writing."""


class LogFailedError(StorageError):
    """A write or sync failed earlier: what is on the disk is unknown until the log is reopened."""


class SpillError(StorageError):
    """What does not fit into memory cannot be written to temporary files either."""
