"""Keep the headers that producers' states depend on, to replay them later, or in another process.

A process that reads one segment of many cannot know the producers' states where the segment begins. It keeps
a trail; the process that has the trails of all segments replays them in order.
"""

from __future__ import annotations

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

_State = tuple[bytes, dict[int, ControlRecord]]


class ProducerTrail:
    """Takes the place of :class:`ProducerStates` in a replay. Small if pickled."""

    def __init__(self) -> None:
        self._rows = array("q")
        self._markers: dict[int, ControlRecord] = {}

    def __len__(self) -> int:
        return len(self._rows) // ROW_WIDTH

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
        headers = (
            BatchHeader.from_row(self._rows[at : at + ROW_WIDTH])
            for at in range(0, len(self._rows), ROW_WIDTH)
        )
        return states.replay(headers, self._markers)

    def __getstate__(self) -> _State:
        return zlib.compress(self._thinned().tobytes(), _LEVEL), self._markers

    def __setstate__(self, state: _State) -> None:
        packed, self._markers = state
        self._rows = array("q", zlib.decompress(packed))

    def _thinned(self) -> array[int]:
        """Return the rows that matter: of a long walk fewer than of the windows that it consists of."""
        keep = array("q", bytes(8 * len(self)))
        kept = kernel.replay_rows(memoryview(self._rows), len(self), keep) if len(self) else 0
        thinned = array("q")
        for number in keep[:kept]:
            thinned.extend(self._rows[number * ROW_WIDTH : (number + 1) * ROW_WIDTH])
        return thinned
