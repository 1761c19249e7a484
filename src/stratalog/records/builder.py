"""Records into batches: sized, stamped, compressed, sealed with their CRC.

The rows come as :class:`kernel.Rows`, made from Arrow columns (``arrow.rows_of``) or from Python
records (:func:`rows_of_records`); the kernel encodes a batch of them at a time, and only the header
is put together here.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from stratalog.errors import InvalidRecordError
from stratalog.records import kernel
from stratalog.records.compression import compress
from stratalog.records.layout import (
    APPEND_TIME_MASK,
    BATCH_HEADER_SIZE,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    INT32_MAX,
    INT64_MAX,
    TRANSACTIONAL_MASK,
    Codec,
    Reason,
)
from stratalog.records.model import BatchHeader, Record, next_sequence
from stratalog.records.reasons import describe
from stratalog.types import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
)

__all__ = [
    "BATCH_BYTES",
    "BatchBuilder",
    "BatchOptions",
    "build_batch",
    "compress_in_place",
    "empty_batch",
    "record_size_max",
    "refuse_row",
    "rows_of_records",
]


#: What a write puts into one batch before compression, unless it asks for another size.
BATCH_BYTES: Final = 128 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """What every batch of one write has in common."""

    codec: Codec = Codec.NONE
    level: int | None = None
    batch_bytes: int = 16384  # of records before compression; one record may pass it
    append_time: int | None = None  # LogAppendTime: what readers see in place of the records' own
    leader_epoch: int = NO_LEADER_EPOCH
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False
    is_control: bool = False
    delete_horizon_ms: int | None = None

    def attributes(self) -> int:
        return (
            self.codec
            | (APPEND_TIME_MASK if self.append_time is not None else 0)
            | (TRANSACTIONAL_MASK if self.is_transactional else 0)
            | (CONTROL_MASK if self.is_control else 0)
            | (DELETE_HORIZON_MASK if self.delete_horizon_ms is not None else 0)
        )


class BatchBuilder:
    """Appends batches to a buffer, carrying offsets and sequence numbers from one to the next."""

    def __init__(
        self,
        options: BatchOptions | None = None,
        *,
        next_offset: int = 0,
        out: bytearray | None = None,
    ) -> None:
        self.options = options or BatchOptions()
        self.out = bytearray() if out is None else out
        self.next_offset = next_offset
        self.next_sequence = self.options.base_sequence
        self._attributes = self.options.attributes()

    def append(self, rows: kernel.Rows, *, row: int = 0, out_bytes_max: int | None = None) -> int:
        """``rows`` from ``row`` on, in as many batches as their size asks for. Answers the row
        reached: all of them, unless ``out`` came to hold ``out_bytes_max``. Then write ``out`` away,
        clear it and go on from there; a long write so stays in a little warm memory.

        Offsets count from ``next_offset``, unless the rows bring their own: those are kept, and
        must lie above it. Where a row is refused, the batches before its own stay in ``out``.
        """
        while row < rows.count:
            row = self._append_batch(rows, row)
            if out_bytes_max is not None and len(self.out) >= out_bytes_max:
                break
        return row

    def _append_batch(self, rows: kernel.Rows, row: int) -> int:
        options = self.options
        at = len(self.out)
        self.out += bytes(BATCH_HEADER_SIZE)
        row_end, base_offset, last_delta, base_timestamp, max_timestamp, reason = (
            kernel.encode_records(
                self.out, rows, row, rows.count, options.batch_bytes, options.delete_horizon_ms
            )
        )
        if not rows.has_offsets:
            base_offset = self.next_offset
        elif not reason and base_offset < self.next_offset:
            row_end, reason = row, Reason.OFFSET_ORDER
        if not reason and not 0 <= base_offset <= INT64_MAX - last_delta - 1:
            row_end, reason = row, Reason.OFFSET_RANGE
        if reason:
            del self.out[at:]
            raise refuse_row(row_end, reason)
        if options.codec:
            compress_in_place(self.out, at + BATCH_HEADER_SIZE, options)
        kernel.write_batch_header(
            self.out,
            at,
            base_offset,
            options.leader_epoch,
            self._attributes,
            last_delta,
            base_timestamp,
            max_timestamp if options.append_time is None else options.append_time,
            options.producer_id,
            options.producer_epoch,
            self.next_sequence,
            row_end - row,
        )
        self.next_offset = base_offset + last_delta + 1
        if self.next_sequence != NO_SEQUENCE:
            self.next_sequence = next_sequence(self.next_sequence, last_delta + 1)
        return row_end


def refuse_row(row: int, reason: int) -> InvalidRecordError:
    return InvalidRecordError(f"row {row} cannot be written: {describe(reason)}")


def compress_in_place(out: bytearray, start: int, options: BatchOptions) -> None:
    """Replace what stands in ``out`` from ``start`` on by its compressed form."""
    with memoryview(out) as whole, whole[start:] as records:
        compressed = compress(options.codec, records, level=options.level)
    out[start:] = compressed


def empty_batch(header: BatchHeader) -> bytes:
    """What compaction leaves of a batch whose records are all gone but whose place and producer
    must be remembered: a header with no records, no codec, no horizon and no base timestamp."""
    out = bytearray(BATCH_HEADER_SIZE)
    kernel.write_batch_header(
        out,
        0,
        header.base_offset,
        header.leader_epoch,
        header.attributes & (APPEND_TIME_MASK | TRANSACTIONAL_MASK | CONTROL_MASK),
        header.last_offset - header.base_offset,
        NO_TIMESTAMP,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        0,
    )
    return bytes(out)


def build_batch(
    records: Sequence[Record], options: BatchOptions | None = None, *, base_offset: int = 0
) -> bytes:
    """One batch of all ``records``. Their own offsets are kept where every one has one (>= 0)."""
    if not records:
        raise InvalidRecordError("a batch to be written holds at least one record")
    builder = BatchBuilder(
        replace(options or BatchOptions(), batch_bytes=INT32_MAX), next_offset=base_offset
    )
    builder.append(rows_of_records(records))
    return bytes(builder.out)


def rows_of_records(records: Sequence[Record]) -> kernel.Rows:
    """Python records as rows for the builder. Offsets go along where every record has one."""
    headers = [header for record in records for header in record.headers]
    has_offsets = bool(records) and all(record.offset >= 0 for record in records)
    ends = array("i", [0])
    for record in records:
        ends.append(ends[-1] + len(record.headers))
    return kernel.Rows(
        len(records),
        timestamps=(None, _int64([record.timestamp for record in records]), 0),
        offsets=(_int64([record.offset for record in records]), 0) if has_offsets else None,
        key=_binary([record.key for record in records]),
        value=_binary([record.value for record in records]),
        headers=None
        if not headers
        else (
            None,
            ends,
            0,
            _binary([header.key.encode("utf-8") for header in headers]),
            _binary([header.value for header in headers]),
        ),
    )


def _int64(values: Sequence[int]) -> array[int]:
    try:
        return array("q", values)
    except OverflowError:
        raise InvalidRecordError("a timestamp or offset does not fit 64 bits") from None


def _binary(parts: Sequence[bytes | None]) -> tuple[bytes | None, array[int], bytes, int]:
    """Arrow's layout of a binary column: validity, offsets, bytes, first row."""
    ends = array("i", [0])
    valid = bytearray((len(parts) + 7) // 8)
    total = 0
    for i, part in enumerate(parts):
        if part is not None:
            valid[i >> 3] |= 1 << (i & 7)
            total += len(part)
        if total > INT32_MAX:
            raise InvalidRecordError(
                "the keys or values of one call pass 2 GiB: write them in parts"
            )
        ends.append(total)
    return bytes(valid), ends, b"".join(part for part in parts if part is not None), 0


#: What a record and a header take besides their bytes, at most: lengths, deltas, attributes, a count.
_RECORD_OVERHEAD_MAX: Final = 36
_HEADER_OVERHEAD_MAX: Final = 10
_UTF8_BYTES_MAX: Final = 4


def record_size_max(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> int:
    """Return a size that the record does not exceed in a batch, without encoding it."""
    size = _RECORD_OVERHEAD_MAX + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += _HEADER_OVERHEAD_MAX + _UTF8_BYTES_MAX * len(name) + len(content or b"")
    return size
