"""Batches without the records that a rewrite removes, by the rules of Kafka's cleaner."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from stratalog.records._reference import crc
from stratalog.records._reference.cursor import Buffer, Cursor, Wrong, wrap64
from stratalog.records._reference.encode import encode_number, write_batch_header
from stratalog.records._reference.headers import (
    Header,
    Stop,
    check_place,
    crc_matches,
    parse_header,
    region_of,
)
from stratalog.records._reference.keyed import KeyedRecord, payload_of, read_keyed
from stratalog.records._reference.offset_map import OffsetMap
from stratalog.records._reference.transactions import AbortedTransactions, is_transactional
from stratalog.records.layout import (
    APPEND_TIME_MASK,
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    FILTER_COUNTS,
    FILTER_EVENTS_MAX,
    INT32_MAX,
    OFFSET_AT,
    TRANSACTIONAL_MASK,
    Check,
    Codec,
    Ending,
    FilterCount,
    Reason,
)

_NO_RECORDS: Final = (None, None)

#: Base offset, last offset, base timestamp, largest timestamp, record count and attributes.
NewHeader = tuple[int, int, int, int, int, int]
#: The records of a compressed batch that lost some, and its new header.
Rebuilt = tuple[bytes, NewHeader] | tuple[None, None]


class BatchFilter:
    """See ``_kernel.BatchFilter``: begin_segment, filter, filter_batch and put, take and take_events."""

    def __init__(
        self,
        newest: OffsetMap | None = None,
        *,
        drop: Iterable[int] | None = None,
        erases: bool = False,
        latest_offset: int | None = None,
        now: int = 0,
        delete_retention: int = 0,
        flags: int = 0,
        size_max: int = INT32_MAX,
        round_end: int | None = None,
        last_batches: Iterable[int] | None = None,
        bytes_max: int = 4 << 20,
    ) -> None:
        self._newest = newest
        self._drop = frozenset(() if drop is None else drop)
        self._erases = erases
        self._latest = -1 if newest is None else newest.latest_offset
        if latest_offset is not None:
            self._latest = latest_offset
        self._now = now
        self._delete_retention = delete_retention
        self._flags = flags
        self._size_max = size_max
        self._round_end = -1 if round_end is None else round_end
        numbers = iter(() if last_batches is None else last_batches)
        self._last_batches = frozenset(zip(numbers, numbers, strict=False))
        self._bytes_max = max(bytes_max, 1)
        self._out = bytearray()
        self._events: list[tuple[int, bool]] = []
        self.counts = [0] * FILTER_COUNTS
        self.begin_segment(-1)

    def begin_segment(
        self,
        expected: int,
        below: int | None = None,
        *,
        aborted: Iterable[int] | None = None,
        keeps_legacy_deletes: bool = True,
    ) -> None:
        self.expected = expected
        self._below = -1 if below is None else below
        self._aborted = AbortedTransactions(aborted)
        self._keeps_legacy_deletes = keeps_legacy_deletes

    @property
    def used(self) -> int:
        return len(self._out)

    def put(self, data: Buffer) -> None:
        self._out += data

    def take(self) -> bytes:
        taken, self._out = bytes(self._out), bytearray()
        return taken

    def take_events(self) -> list[tuple[int, bool]]:
        taken, self._events = self._events, []
        return taken

    def filter(
        self, data: Buffer, position: int, limit: int, *, guarded: bool = False
    ) -> tuple[int, int, int]:
        view = region_of(data, position, limit)
        try:
            while True:
                if self.used >= self._bytes_max or len(self._events) == FILTER_EVENTS_MAX:
                    raise Stop(Ending.FULL)
                header = parse_header(view, position, limit, self._size_max)
                check_place(header, self._flags, self.expected)
                if self._flags & Check.CRC and not crc_matches(view, header):
                    raise Wrong(Reason.CRC_MISMATCH)
                self._check_below(header)
                if header.is_control and not self._erases:
                    raise Stop(Ending.CONTROL)
                discards = not self._erases and header in self._aborted
                if not discards and header.codec and header.payload[0] < header.payload[1]:
                    raise Stop(Ending.COMPRESSED)
                self._filter(view, header, payload_of(view, header), discards, False, False)
                position += header.size
        except Wrong as wrong:
            return position, Ending.CORRUPT, wrong.reason
        except Stop as stop:
            return position, stop.ending, stop.reason

    def filter_batch(
        self,
        data: Buffer,
        position: int,
        limit: int,
        payload: Buffer,
        *,
        discards: bool = False,
        keeps_header: bool = False,
        is_marker_of_none: bool = False,
    ) -> tuple[int, int, int, bytes | None, NewHeader | None]:
        view = region_of(data, position, limit)
        inside = memoryview(payload).cast("B")
        if len(self._events) == FILTER_EVENTS_MAX:
            raise ValueError("no room for what this batch may add: take_events() first")
        try:
            header = parse_header(view, position, limit, self._size_max)
            check_place(header, self._flags, self.expected)
            self._check_below(header)
            cursor = Cursor(inside, 0, len(inside))
            rebuilt = self._filter(view, header, cursor, discards, keeps_header, is_marker_of_none)
        except Wrong as wrong:
            return position, Ending.CORRUPT, wrong.reason, None, None
        except Stop as stop:
            return position, stop.ending, stop.reason, None, None
        return position + header.size, Ending.END, Reason.NONE, *rebuilt

    def _check_below(self, header: Header) -> None:
        if self._flags & Check.ORDER and 0 <= self._below <= header.last_offset:
            raise Wrong(Reason.OFFSET_ORDER)

    def _filter(
        self,
        view: memoryview,
        header: Header,
        payload: Cursor,
        discards: bool,
        keeps_header: bool,
        is_marker_of_none: bool,
    ) -> Rebuilt:
        """Put a batch into the output, or leave it out: all of it, or Wrong and nothing happened."""
        records: list[KeyedRecord] = []
        if not discards:
            records = list(read_keyed(view, header, payload, self._flags, self.expected))
        rebuilt: Rebuilt = _NO_RECORDS
        self._note_event(header, discards)
        if discards:
            self._discard(header, keeps_header)
        else:
            kept = [record for record in records if self._keeps(header, record)]
            self._count(FilterCount.RECORDS, len(records))
            if kept or (self._erases and not records):  # an erasure keeps what compaction emptied
                whole = view[header.position : header.position + header.size]
                horizon = self._new_horizon(header, kept, is_marker_of_none)
                rebuilt = self._put_kept(header, whole, records, kept, horizon)
            else:
                self._put_nothing(header, keeps_header)
        self._count(FilterCount.BATCHES)
        self.expected = header.after
        return rebuilt

    def _note_event(self, header: Header, discards: bool) -> None:
        if self._erases or header.is_control or not is_transactional(header):
            return
        event = (header.producer_id, discards)
        if self._events[-1:] != [event]:
            self._events.append(event)

    def _discard(self, header: Header, keeps_header: bool) -> None:
        """Remove all records of a batch without looking at them. How many a wrapper holds is not known."""
        removed = FilterCount.MARKERS if header.is_control else FilterCount.ABORTED
        self._count(FilterCount.RECORDS, max(header.count, 0))
        self._count(removed, max(header.count, 0))
        self._put_nothing(header, keeps_header)

    def _keeps(self, header: Header, record: KeyedRecord) -> bool:
        verdict = FilterCount.KEPT if header.is_control else self._judge(header, record)
        self._count(verdict)
        return verdict == FilterCount.KEPT

    def _judge(self, header: Header, record: KeyedRecord) -> FilterCount:
        """What becomes of a record, as the count that it adds to."""
        is_dropped = record.offset in self._drop
        newest = -1
        if record.key is not None and self._newest is not None:
            newest = self._newest.get(record.key)
        if self._erases:
            return FilterCount.ERASED if is_dropped or newest >= 0 else FilterCount.KEPT
        if is_dropped:
            return FilterCount.SUPERSEDED
        if record.offset > self._latest:
            return FilterCount.KEPT
        if record.key is None:
            return FilterCount.NULL_KEYS
        if record.offset < newest:
            return FilterCount.SUPERSEDED
        if record.is_tombstone and not self._keeps_deletes(header):
            return FilterCount.EXPIRED
        return FilterCount.KEPT

    def _keeps_deletes(self, header: Header) -> bool:
        """Whether tombstones of this batch may not be removed yet."""
        if header.magic < 2:
            return self._keeps_legacy_deletes
        return not _has_horizon(header) or self._now < header.base_timestamp

    def _new_horizon(
        self, header: Header, kept: list[KeyedRecord], is_marker_of_none: bool
    ) -> int | None:
        """The delete horizon that a batch gets. One that does not fit 64 bits is none, as in Kafka: such
        tombstones stay."""
        if self._erases or header.magic < 2 or _has_horizon(header):
            return None
        if not is_marker_of_none and not any(record.is_tombstone for record in kept):
            return None
        horizon = wrap64(self._now + self._delete_retention)
        return horizon if horizon >= 0 else None

    def _put_kept(
        self,
        header: Header,
        whole: memoryview,
        records: list[KeyedRecord],
        kept: list[KeyedRecord],
        horizon: int | None,
    ) -> Rebuilt:
        # Older brokers put messages into wrappers of another magic (KAFKA-4298): compaction mends that.
        is_sound = self._erases or all(record.magic == header.magic for record in kept)
        if len(kept) == len(records) and horizon is None and is_sound:
            self._count(FilterCount.COPIED)
            self.put(whole)
            return _NO_RECORDS
        self._count(FilterCount.REBUILT)
        if header.magic < 2:
            return _rebuild_wrapper(header, kept)
        encoded, new = _rebuild_records(header, kept, horizon)
        if header.codec != Codec.NONE:
            return encoded, new
        self._put_batch(header, new, encoded)
        return _NO_RECORDS

    def _put_nothing(self, header: Header, keeps_header: bool) -> None:
        """Leave a batch out, but for its header where that says something that must not be lost."""
        is_last = (header.last_offset, header.producer_id) in self._last_batches
        ends_round = self._round_end >= 0 and header.after == self._round_end
        if header.magic < 2 or not (
            keeps_header or (is_last and header.producer_id >= 0) or ends_round
        ):
            self._count(FilterCount.REMOVED)
            return
        self._count(FilterCount.EMPTIED)
        attributes = header.attributes & (APPEND_TIME_MASK | TRANSACTIONAL_MASK | CONTROL_MASK)
        new = (header.base_offset, header.last_offset, -1, header.max_timestamp, 0, attributes)
        self._put_batch(header, new, b"")

    def _put_batch(self, old: Header, new: NewHeader, records: bytes) -> None:
        base_offset, last_offset, base_timestamp, max_timestamp, count, attributes = new
        at = len(self._out)
        self._out += bytes(BATCH_HEADER_SIZE) + records
        write_batch_header(
            self._out, at, base_offset, old.leader_epoch, attributes, last_offset - base_offset,
            base_timestamp, max_timestamp, old.producer_id, old.producer_epoch, old.base_sequence, count,
        )  # fmt: skip

    def _count(self, what: FilterCount, count: int = 1) -> None:
        self.counts[what] += count


def _has_horizon(header: Header) -> bool:
    return bool(header.attributes & DELETE_HORIZON_MASK)


def _max_timestamp(header: Header, kept: list[KeyedRecord]) -> int:
    if header.is_append_time:
        return header.max_timestamp
    return max([-1, *(record.timestamp for record in kept)])


def _rebuild_records(
    header: Header, kept: list[KeyedRecord], horizon: int | None
) -> tuple[bytes, NewHeader]:
    """The records of a batch that are kept, and the batch's new header."""
    attributes = header.attributes & (
        CODEC_MASK | APPEND_TIME_MASK | TRANSACTIONAL_MASK | CONTROL_MASK
    )
    base_timestamp = kept[0].timestamp
    if horizon is None and _has_horizon(header) and header.base_timestamp >= 0:
        horizon = header.base_timestamp
    if horizon is not None:
        base_timestamp = horizon
        attributes |= DELETE_HORIZON_MASK
    encoded = b"".join(_encode_record(header, record, base_timestamp) for record in kept)
    return encoded, (
        header.base_offset,
        header.last_offset,
        base_timestamp,
        _max_timestamp(header, kept),
        len(kept),
        attributes,
    )


def _encode_record(header: Header, record: KeyedRecord, base_timestamp: int) -> bytes:
    if base_timestamp == header.base_timestamp and not header.is_append_time:
        return record.whole
    body = bytes(1)  # attributes
    body += encode_number(wrap64(record.timestamp - base_timestamp))
    body += encode_number(record.offset - header.base_offset)
    body += record.rest
    return encode_number(len(body)) + body


def _rebuild_wrapper(header: Header, kept: list[KeyedRecord]) -> tuple[bytes, NewHeader]:
    """The messages of a wrapper that are kept, and its new header. Magic 1 counts from the first."""
    first = kept[0].offset
    messages = bytearray()
    for record in kept:
        at = len(messages)
        messages += _encode_message(header.magic, record)
        shown = record.offset - first if header.magic == 1 else record.offset
        struct.pack_into(">q", messages, at + OFFSET_AT, shown)
    is_append_time = header.magic == 1 and header.is_append_time
    return bytes(messages), (
        first,
        kept[-1].offset,
        header.base_timestamp,
        _max_timestamp(header, kept),
        len(kept),
        header.codec | (APPEND_TIME_MASK if is_append_time else 0),
    )


def _encode_message(magic: int, record: KeyedRecord) -> bytes:
    """A message, its offset to be written later."""
    if record.magic == magic:
        return record.whole
    body = struct.pack(">bB", magic, 0)
    if magic == 1:
        body += struct.pack(">q", record.timestamp)
    body += record.rest
    return struct.pack(">qiI", 0, 4 + len(body), crc.crc32(body)) + body
