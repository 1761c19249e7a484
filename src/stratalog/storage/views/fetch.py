"""Many partitions read as one: a budget of bytes for all of them together, and at least one batch.

Partitions are served in the order in which they are asked for, so that whoever asks again puts those that got
nothing first. The first that has anything gives its first batch whole, however large; all others only what
fits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from stratalog.errors import CorruptionError, OffsetOutOfRangeError, StorageError
from stratalog.storage.views.log_view import Isolation, LogRead, LogView

__all__ = ["FetchRequest", "Fetched", "fetch"]

#: What a partition answers: its region, or why there is none. One that fails does not fail the others.
Fetched = LogRead | OffsetOutOfRangeError | CorruptionError | StorageError


class FetchRequest(NamedTuple):
    """From where on a partition is read, and how much of it at most."""

    view: LogView
    offset: int
    max_bytes: int = 1 << 20


def fetch(
    requests: Iterable[FetchRequest],
    *,
    max_bytes: int = 50 << 20,
    isolation: Isolation = Isolation.UNCOMMITTED,
    max_batch_bytes: int = 256 << 20,
) -> list[Fetched]:
    """One answer for each request, in their order."""
    answers: list[Fetched] = []
    left = max_bytes
    is_first = True
    for request in requests:
        try:
            read = request.view.read(
                request.offset,
                min(left, request.max_bytes),
                isolation,
                at_least_one=is_first,
                max_batch_bytes=max_batch_bytes,
            )
        except (OffsetOutOfRangeError, CorruptionError, StorageError) as error:
            answers.append(error)
            continue
        answers.append(read)
        if read.size_bytes:
            is_first = False
            left = max(0, left - read.size_bytes)
    return answers
