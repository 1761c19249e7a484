"""Read the keys of a segment for a shuffle: digests and offsets as columns, and what happens to transactions.

The newest offset of each key can then be found on many machines. What a map in one memory would note is what
is read here: the same records are passed over.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from stratalog.errors import CorruptionError
from stratalog.records import kernel
from stratalog.records.columns import WalkEnd
from stratalog.records.control import ControlType
from stratalog.records.layout import Check, Ending, Reason
from stratalog.rewrite.batch import BatchReader
from stratalog.rewrite.compact.compaction import control_record
from stratalog.rewrite.compact.offset_map import aborted_fields
from stratalog.rewrite.compact.transactions import CleanedTransactions
from stratalog.rewrite.source import SourceSegment, check_end, walk_source
from stratalog.storage.segment.log_file import Window
from stratalog.storage.segment.txn_index import AbortedTxn
from stratalog.types import Progress

__all__ = ["EventKind", "KeyColumns", "TransactionEvent", "follow", "scan_keys"]

_CHECK = Check.CRC | Check.ORDER


class EventKind(IntEnum):
    """What happens to the transaction of a producer. ``DAMAGE`` says that the rest of the segment cannot be
    read: it belongs to no producer."""

    COMMITTED_DATA = 0
    ABORTED_DATA = 1
    COMMIT = 2
    ABORT = 3
    DAMAGE = 4


class TransactionEvent(NamedTuple):
    """Batches of a transaction, or its marker. Of batches only the first after a marker is an event."""

    offset: int
    producer_id: int
    kind: EventKind


class KeyColumns(NamedTuple):
    """Columns of 64-bit integers: both halves of the MD5 of each key, and the offset of its record."""

    rows: int
    first: Any
    second: Any
    offsets: Any


def scan_keys(
    source: SourceSegment,
    aborted: Sequence[AbortedTxn],
    events: list[TransactionEvent],
    note_read: Progress,
) -> Iterator[KeyColumns]:
    """Yield the keys of a segment, some ten thousand at a time, without those of aborted transactions; add
    what happens to transactions to ``events``. CorruptionError if the segment is damaged."""
    scan = _KeyScan(source.base_offset, aborted_fields(aborted), events)
    for pause in walk_source(source, scan.step, note_read):
        check_end(source, pause)
        scan.drain()
        if len(scan.digests):
            yield KeyColumns(len(scan.digests), *scan.digests.take())


def follow(
    transactions: CleanedTransactions,
    aborted: Sequence[AbortedTxn],
    events: Sequence[TransactionEvent],
) -> None:
    """Take the transactions of a cleaning over one more segment, which is not damaged."""
    transactions.add(aborted)
    for event in events:
        if event.kind in (EventKind.COMMITTED_DATA, EventKind.ABORTED_DATA):
            is_aborted = event.kind is EventKind.ABORTED_DATA
            transactions.note_batches(event.offset, [(event.producer_id, is_aborted)])
        else:
            transactions.pass_marker(
                event.producer_id, event.offset, is_abort=event.kind is EventKind.ABORT
            )


class _KeyScan:
    def __init__(self, expected: int, aborted: array[int], events: list[TransactionEvent]) -> None:
        self.digests = kernel.KeyDigests()
        self._batches = BatchReader()
        self._expected = expected
        self._aborted = aborted
        self._events = events
        self._last: dict[int, EventKind] = {}

    def step(self, window: Window, at: int) -> WalkEnd:
        while True:
            try:
                at, ending, reason, self._expected = self.digests.note(
                    window.data, at, window.length,
                    flags=_CHECK, expected=self._expected, aborted=self._aborted,
                    guarded=window.guarded,
                )  # fmt: skip
                if ending in (Ending.COMPRESSED, Ending.CONTROL):
                    at, ending, reason = self._take_batch(window, at)
            except BufferError:
                return WalkEnd(at, Ending.LOST)
            except CorruptionError as error:
                return WalkEnd(at, Ending.CORRUPT, Reason.FIELD_LENGTH, error.detail)
            if ending != Ending.COMPRESSED:
                return WalkEnd(at, Ending(ending), Reason(reason))

    def _take_batch(self, window: Window, at: int) -> tuple[int, int, int]:
        """Take a batch that the kernel does not take by itself. COMPRESSED: it was taken; go on."""
        batch = self._batches.read(window, at)
        header = batch.header
        if header.is_control:
            self.drain()
            self._note_marker(header.producer_id, control_record(batch), header.last_offset)
            self._expected = header.last_offset + 1
            return at + len(batch.data), Ending.COMPRESSED, Reason.NONE
        size, ending, reason, expected = self.digests.note_batch(
            batch.data, 0, len(batch.data), batch.payload, flags=_CHECK, expected=self._expected
        )
        if ending != Ending.END:
            return at, ending, reason
        self._expected = expected
        return at + size, Ending.COMPRESSED, Reason.NONE

    def drain(self) -> None:
        """Take note of the batches of transactions that were read since the last call."""
        for offset, producer_id, is_aborted in self.digests.take_events():
            kind = EventKind.ABORTED_DATA if is_aborted else EventKind.COMMITTED_DATA
            if self._last.get(producer_id) is not kind:
                self._last[producer_id] = kind
                self._events.append(TransactionEvent(offset, producer_id, kind))

    def _note_marker(self, producer_id: int, marker: Any, offset: int) -> None:
        kinds = {ControlType.COMMIT: EventKind.COMMIT, ControlType.ABORT: EventKind.ABORT}
        kind = None if marker is None else kinds.get(marker.type)
        if kind is not None:
            self._last.pop(producer_id, None)
            self._events.append(TransactionEvent(offset, producer_id, kind))
