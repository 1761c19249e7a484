"""Batches that are in the log already, shown to the producers' state again, a window of headers at a time."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.records.columns import decode_records
from stratalog.records.control import ControlRecord, parse_control
from stratalog.records.layout import ROW_WIDTH, Check, Row
from stratalog.records.model import BatchHeader
from stratalog.storage.producers.snapshot_files import SnapshotFiles
from stratalog.storage.producers.states import ProducerStates
from stratalog.storage.segment.log_file import Window
from stratalog.storage.segment.scan import scan_segment
from stratalog.storage.segment.segment import Segment
from stratalog.storage.segment.txn_index import AbortedTxn
from stratalog.types import Bytes

__all__ = [
    "ProducerReplay",
    "Replayed",
    "aborted_by_segment",
    "marker_in",
    "producers_for_reader",
    "rebuild_producers",
]

_ROWS_AT_ONCE: Final = 1024
_NEVER_MS: Final = 2**62


def marker_in(batch: Bytes) -> ControlRecord | None:
    """The control record of a control batch; None where it is emptied, or cannot be read."""
    try:
        for record in decode_records(bytes(batch), check=Check.INCLUDE_CONTROL):
            return parse_control(record.key, record.value)
    except CorruptionError:
        return None
    return None


class Replayed(Protocol):
    """What batches are replayed to: the producers' states, or a trail of them."""

    def replay(
        self, headers: Iterable[BatchHeader], markers: Mapping[int, ControlRecord]
    ) -> Sequence[AbortedTxn]:
        """Take over batches that are in the log; return what they add to the transaction index."""
        ...


class ProducerReplay:
    """Takes the header rows of a walk over a segment and brings the producers' state up to date."""

    def __init__(
        self,
        states: Replayed,
        *,
        start: int = 0,
        end: int | None = None,
        aborted: Callable[[AbortedTxn], None] | None = None,
    ) -> None:
        self._states = states
        self._start = start
        self._end = end
        self._aborted = aborted
        self._keep = array("q", bytes(8 * _ROWS_AT_ONCE))

    def seen(self, rows: memoryview, count: int, window: Window) -> None:
        # Only what lies in range: which rows matter depends on the rows around them.
        first = bisect_left(range(count), self._start, key=lambda each: _last_offset(rows, each))
        if self._end is not None:
            count = bisect_left(range(count), self._end, key=lambda each: _last_offset(rows, each))
        rows = rows[first * ROW_WIDTH : count * ROW_WIDTH]
        kept = kernel.replay_rows(rows, count - first, self._keep) if first < count else 0
        for number in self._keep[:kept]:
            self._take(
                BatchHeader.from_row(rows[number * ROW_WIDTH : (number + 1) * ROW_WIDTH]), window
            )

    def _take(self, header: BatchHeader, window: Window) -> None:
        markers: dict[int, ControlRecord] = {}
        if header.is_control and header.record_count:
            start = header.position
            marker = marker_in(window.copy(start, start + header.size_bytes))
            if marker is None:
                return
            markers[header.base_offset] = marker
        for txn in self._states.replay((header,), markers):
            if self._aborted is not None:
                self._aborted(txn)


def rebuild_producers(
    states: ProducerStates,
    snapshots: SnapshotFiles,
    segments: Sequence[Segment],
    start: int,
    end: int,
    *,
    now_ms: int,
    ttl_ms: int,
    keep: bool = False,
) -> None:
    """The state before ``end``: from the newest snapshot that can be believed, and the log behind it.
    Damaged snapshots are deleted, unless ``keep`` says to change nothing."""
    replayed_from = snapshots.load(states, start, end, now_ms=now_ms, ttl_ms=ttl_ms, keep=keep)
    if replayed_from < end:
        _replay_segments(states, segments, max(replayed_from, start), end)
    states.map_end_offset = end


def producers_for_reader(
    states: ProducerStates,
    snapshots: SnapshotFiles,
    segments: Sequence[Segment],
    log_start: int,
    end: int,
) -> None:
    """Rebuild the state before ``end`` for a process that does not own the log: no producer expires, and
    nothing is deleted."""
    first = segments[0].base_offset if segments else end
    start = min(max(log_start, first), end)
    rebuild_producers(
        states, snapshots, segments, start, end, now_ms=0, ttl_ms=_NEVER_MS, keep=True
    )


def aborted_by_segment(segments: Sequence[Segment]) -> dict[int, tuple[AbortedTxn, ...]]:
    """The aborted transactions of whole segments, by the base offset of the one that has their markers: from
    the batches themselves, as a broker makes an index that is not there."""
    states = ProducerStates()
    found: dict[int, tuple[AbortedTxn, ...]] = {}
    for number, segment in enumerate(segments):
        aborted: list[AbortedTxn] = []
        follower = segments[number + 1].base_offset if number + 1 < len(segments) else None
        replay = ProducerReplay(states, start=segment.base_offset, aborted=aborted.append)
        _scan_headers(segment, replay, follower)
        found[segment.base_offset] = tuple(aborted)
    return found


def _scan_headers(segment: Segment, replay: ProducerReplay, follower: int | None) -> None:
    scan_segment(
        segment.log,
        segment.base_offset,
        segment.limits,
        segment.size_bytes,
        check=Check.NONE,
        seen=replay.seen,
        follower=follower,
    )


def _last_offset(rows: memoryview, number: int) -> int:
    offset: int = rows[number * ROW_WIDTH + Row.LAST_OFFSET]
    return offset


def _replay_segments(
    states: ProducerStates, segments: Sequence[Segment], start: int, end: int
) -> None:
    """Replay the batches from ``start`` up to ``end``. The state then holds up to ``end``."""
    for number, segment in enumerate(segments):
        follower = segments[number + 1].base_offset if number + 1 < len(segments) else None
        if (end if follower is None else follower) <= start or segment.base_offset >= end:
            continue
        replay = ProducerReplay(states, start=max(start, segment.base_offset), end=end)
        _scan_headers(segment, replay, follower)
    states.map_end_offset = end
