"""Read many partitions with one budget of bytes: what a fetch request of Kafka's protocol asks for.

The broker will call it; nothing in the library does yet. Partitions are served in the order of the requests,
so that a consumer can put those first that returned nothing last time. The first partition that has data
returns its first batch whole, however large; the others return only what fits the budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from stratalog.errors import CorruptionError, OffsetOutOfRangeError, StorageError
from stratalog.records.layout import BATCH_SIZE_MAX_DEFAULT
from stratalog.storage.views.log_view import Isolation, LogRead, LogView

__all__ = ["FetchRequest", "Fetched", "fetch"]

#: The region of a partition, or why there is none. A partition that fails does not fail the others.
Fetched = LogRead | OffsetOutOfRangeError | CorruptionError | StorageError


class FetchRequest(NamedTuple):
    """The offset at which to start reading a partition, and how many bytes to return at most."""

    view: LogView
    offset: int
    max_bytes: int = 1 << 20


def fetch(
    requests: Iterable[FetchRequest],
    *,
    max_bytes: int = 50 << 20,
    isolation: Isolation = Isolation.UNCOMMITTED,
    max_batch_bytes: int = BATCH_SIZE_MAX_DEFAULT,
) -> list[Fetched]:
    """Return one answer for each request, in their order. This is for the broker: the library itself reads
    one partition at a time, through ``LogView``."""
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
