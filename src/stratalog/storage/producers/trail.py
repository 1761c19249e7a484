"""Keep the headers that producers' states depend on, to replay them later, or in another process.

A process that reads one segment of many cannot know the producers' states where the segment begins. It keeps
a trail; the process that has the trails of all segments replays them in order.
"""

from __future__ import annotations

import pickle
import zlib
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Final

from stratalog.records import kernel
from stratalog.records.control import ControlRecord
from stratalog.records.layout import ROW_WIDTH
from stratalog.records.model import BatchHeader
from stratalog.storage.producers.states import ProducerStates
from stratalog.storage.segment.txn_index import AbortedTxn

__all__ = ["ProducerTrail"]

_ROW_OF: Final = attrgetter(*(field.name for field in fields(BatchHeader)))
#: Rows are as regular as columns: more effort makes them little smaller.
_LEVEL: Final = 1

_Contents = tuple["array[int]", dict[int, ControlRecord]]


class ProducerTrail:
    """Takes the place of :class:`ProducerStates` in a replay. Once it is pickled, it is small, and stays so
    until it is replayed: a driver may hold those of all segments of a log."""

    def __init__(self) -> None:
        self._rows = array("q")
        self._markers: dict[int, ControlRecord] = {}
        self._packed = b""

    def __len__(self) -> int:
        return len(self._contents()[0]) // ROW_WIDTH

    def replay(
        self, headers: Iterable[BatchHeader], markers: Mapping[int, ControlRecord]
    ) -> list[AbortedTxn]:
        """Keep headers, and the control records among them by their offsets. Which transactions were aborted
        is known when the trail is replayed."""
        for header in headers:
            self._rows.extend(_ROW_OF(header))
        self._markers.update(markers)
        return []

    def replay_to(self, states: ProducerStates) -> list[AbortedTxn]:
        """Bring the states of producers up to date; return what that adds to the transaction index."""
        rows, markers = self._contents()
        headers = (
            BatchHeader.from_row(rows[at : at + ROW_WIDTH]) for at in range(0, len(rows), ROW_WIDTH)
        )
        return states.replay(headers, markers)

    def _contents(self) -> _Contents:
        if not self._packed:
            return self._rows, self._markers
        contents: _Contents = pickle.loads(zlib.decompress(self._packed))  # noqa: S301  # our own
        return contents

    def __getstate__(self) -> bytes:
        rows, markers = self._contents()
        return zlib.compress(pickle.dumps((_thinned(rows), markers)), _LEVEL)

    def __setstate__(self, packed: bytes) -> None:
        self._packed = packed


def _thinned(rows: array[int]) -> array[int]:
    """Return the rows that matter: of a long walk fewer than of the windows that it consists of."""
    count = len(rows) // ROW_WIDTH
    keep = array("q", bytes(8 * count))
    kept = kernel.replay_rows(memoryview(rows), count, keep) if count else 0
    thinned = array("q")
    for number in keep[:kept]:
        thinned.extend(rows[number * ROW_WIDTH : (number + 1) * ROW_WIDTH])
    return thinned
