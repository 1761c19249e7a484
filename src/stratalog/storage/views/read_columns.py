"""Read the records of a log, from one offset to another, as columns: what a consumer does, without a broker.

Regions are read one after the other and decoded as they come. Under read_committed the batches of aborted
transactions are skipped, by the rule that consumers follow: a transaction is skipped from its first offset
up to its marker. ``inspect.file.decode`` decodes whole files; it says why the loops are two.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from heapq import heapify, heappop
from typing import Final, NamedTuple

from stratalog.errors import CorruptionError, StorageError
from stratalog.records import kernel
from stratalog.records.columns import DecodedColumns, RegionDecoder, Selection, WalkEnd
from stratalog.records.layout import (
    CONTROL_MASK,
    INT32_MAX,
    ROW_WIDTH,
    TRANSACTIONAL_MASK,
    Check,
    Ending,
    Reason,
    Row,
)
from stratalog.records.reasons import corruption
from stratalog.storage.segment.txn_index import AbortedTxn
from stratalog.storage.views.log_view import Isolation, LogRead, LogView
from stratalog.storage.views.neighbours import check_followed, expected_at
from stratalog.storage.views.refresh import ViewRefresher

__all__ = ["read_columns"]

_READ_BYTES: Final = 1 << 20
_HEADERS_AT_ONCE: Final = 256


def read_columns(
    view: LogView,
    selection: Selection,
    isolation: Isolation = Isolation.UNCOMMITTED,
    *,
    start: int | None = None,
    end: int | None = None,
    again: Callable[[], LogView] | None = None,
) -> Iterator[DecodedColumns]:
    """Columns of the records from ``start`` (the log's start) up to ``end`` (as far as the isolation
    lets see). CorruptionError at a damaged batch, after what stands before it. ``again`` looks anew,
    where segments may be replaced while they are read."""
    offset = view.log_start if start is None else start
    view.check_range(offset)
    bound = view.bound(isolation)
    bound = bound if end is None else min(bound, end)
    decoder = RegionDecoder(replace(selection, start=offset, end=bound))
    failure: CorruptionError | StorageError | None = None
    try:
        yield from _read_regions(view, decoder, isolation, offset, bound, again)
    except (CorruptionError, StorageError) as error:
        failure = error
    if decoder.rows:
        yield decoder.take()
    if failure is not None:
        raise failure


def _read_regions(
    view: LogView,
    decoder: RegionDecoder,
    isolation: Isolation,
    offset: int,
    bound: int,
    again: Callable[[], LogView] | None,
) -> Iterator[DecodedColumns]:
    """Columns whenever they are full; what is left stands in the decoder."""
    max_batch_bytes = decoder.selection.max_batch_bytes
    refresher = ViewRefresher(again)
    done: _ReadUpTo | None = None
    while offset < bound:
        try:
            expected = offset if done is not None else expected_at(view, offset)
            read = view.read(offset, _READ_BYTES, isolation, max_batch_bytes=max_batch_bytes)
        except StorageError as error:
            view, done = refresher.after(error, offset), None
            continue
        refresher.found()
        if read.region is None:
            break
        if done is not None:
            _check_next(view, done, read, offset)
        decoder.expect(expected, view.segments.next_base(read.number, view.log_end))
        reached, position = offset, read.region.position
        for taken, reached, position in _decode(read, decoder):  # noqa: B007
            if taken is not None:
                yield taken
        if reached <= offset:
            raise StorageError(
                f"the log was cut while it was read, at offset {offset}", path=read.region.file.path
            )
        offset, done = reached, _ReadUpTo(read.number, position)
    if done is not None:
        check_followed(view, *done, offset)


class _ReadUpTo(NamedTuple):
    """Up to where a segment was read: its number in the view, and a position where a batch ends."""

    number: int
    position: int


def _check_next(view: LogView, done: _ReadUpTo, read: LogRead, offset: int) -> None:
    """CorruptionError where a region does not begin where the one before it ended: a batch in between has an
    offset that led past it."""
    assert read.region is not None
    number, position = read.number, read.region.position
    if (number, position) == done:
        return
    check_followed(view, *done, offset)
    passed = range(done.number + 1, number)
    if number == done.number or position or any(view.limit(each) for each in passed):
        raise corruption(Reason.OFFSET_ORDER, position).located(path=read.region.file.path)


def _decode(
    read: LogRead, decoder: RegionDecoder
) -> Iterator[tuple[DecodedColumns | None, int, int]]:
    """Whole batches of one region into columns; with each step the offset and the position in the file
    after what is done."""
    region = read.region
    assert region is not None
    data = region.read()
    headers = memoryview(array("q", bytes(8 * ROW_WIDTH * _HEADERS_AT_ONCE)))
    skipped = _Skipped(read.aborted or ())
    at, expected = 0, decoder.expected_offset
    while True:
        held, reached, ending, reason, expected = kernel.walk(
            data, at, len(data), headers, Check.ORDER, expected, INT32_MAX
        )
        for start, stop, next_offset in skipped.runs(headers, held):
            if start < stop:
                try:
                    for taken in _decode_run(decoder, data, start, stop, region.position):
                        # Not done with the run yet: who stops here comes back to its beginning.
                        yield taken, -1, region.position
                except CorruptionError as error:
                    raise error.located(path=region.file.path) from None
            yield None, next_offset, region.position + stop
        if ending == Ending.CORRUPT:
            raise corruption(reason, region.position + reached).located(path=region.file.path)
        if ending != Ending.FULL:
            return  # the end of the region, which may lie inside a batch
        at = reached


def _decode_run(
    decoder: RegionDecoder, data: bytes, start: int, stop: int, position_base: int
) -> Iterator[DecodedColumns]:
    """Decode whole batches; columns whenever they are full."""
    while True:
        pause: WalkEnd = decoder.decode(data, start, stop, position_base=position_base)
        if pause.ending == Ending.FULL:
            yield decoder.take()
            start = pause.position
            continue
        if pause.ending != Ending.END:
            raise corruption(
                pause.reason or Reason.SHORT_TAIL,
                position_base + pause.position,
                detail=pause.detail,
            )
        return


class _Skipped:
    """Which batches belong to aborted transactions."""

    def __init__(self, aborted: tuple[AbortedTxn, ...]) -> None:
        self._coming = [(txn.first_offset, txn.producer_id) for txn in aborted]
        heapify(self._coming)
        self._active: set[int] = set()

    def runs(self, headers: memoryview, held: int) -> Iterator[tuple[int, int, int]]:
        """Neighbouring batches that are to be decoded, as start, stop and the offset behind them; an
        empty run where batches are left out."""
        if not held:
            return
        last_next = headers[(held - 1) * ROW_WIDTH + Row.LAST_OFFSET] + 1
        end = (
            headers[(held - 1) * ROW_WIDTH + Row.POSITION]
            + headers[(held - 1) * ROW_WIDTH + Row.SIZE]
        )
        start = headers[Row.POSITION]
        if self._coming or self._active:
            for at in range(0, held * ROW_WIDTH, ROW_WIDTH):
                position = headers[at + Row.POSITION]
                if self._skips(headers, at):
                    if start < position:
                        yield start, position, headers[at + Row.BASE_OFFSET]
                    start = position + headers[at + Row.SIZE]
        yield start, end, last_next

    def _skips(self, headers: memoryview, at: int) -> bool:
        while self._coming and self._coming[0][0] <= headers[at + Row.LAST_OFFSET]:
            self._active.add(heappop(self._coming)[1])
        producer_id, attributes = headers[at + Row.PRODUCER_ID], headers[at + Row.ATTRIBUTES]
        if not attributes & TRANSACTIONAL_MASK or producer_id not in self._active:
            return False
        if attributes & CONTROL_MASK:
            # Its end. A marker that aborts nothing cannot stand inside of an aborted transaction.
            self._active.discard(producer_id)
            return False
        return True
