"""Batches of metadata: encoded records in the form that Kafka's metadata log and snapshots have.

Magic 2, not compressed, without a producer. Metadata records have null keys; control records are in batches
of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from stratalog.errors import CorruptionError
from stratalog.metadata.records import (
    KRaftRecord,
    MetadataRecord,
    UnknownRecord,
    UnsupportedMetadataError,
    decode_control,
    decode_metadata,
    encode_control,
    encode_metadata,
)
from stratalog.records.builder import BatchBuilder, BatchOptions, build_batch, rows_of_records
from stratalog.records.columns import DecodedColumns, RegionDecoder, Selection, binary_values
from stratalog.records.layout import INT32_MAX, Check, Column, Ending
from stratalog.records.model import Record
from stratalog.records.scan import ScanEnd, scan_batches

__all__ = ["AnyRecord", "DecodedRegion", "control_batch", "decode_region", "metadata_batches"]

#: Kafka's own batches of metadata stay below 8 MiB.
_BATCH_BYTES: Final = 1 << 20
_CHECKS: Final = Check.CRC | Check.ORDER | Check.COUNTS
_COLUMNS: Final = Column.OFFSET | Column.KEY | Column.VALUE | Column.IS_CONTROL


AnyRecord = MetadataRecord | UnknownRecord | KRaftRecord


class DecodedRegion(NamedTuple):
    """The batches of a metadata log or snapshot, decoded. Control records that the metadata log does not use
    are left out."""

    records: list[AnyRecord]
    #: Where the last whole batch ends, and why the walk stopped there.
    end: ScanEnd
    #: The offset after the last batch, and its epoch; None if there is no batch.
    next_offset: int | None
    epoch: int | None


def metadata_batches(
    records: Iterable[MetadataRecord], *, base_offset: int, epoch: int, timestamp: int, one: bool
) -> bytes:
    """Return metadata records as batches; as one, if they must be there together or not at all."""
    rows = [Record(value=encode_metadata(each), timestamp=timestamp) for each in records]
    options = BatchOptions(leader_epoch=epoch, batch_bytes=_BATCH_BYTES)
    if one:
        return build_batch(rows, options, base_offset=base_offset)
    builder = BatchBuilder(options, next_offset=base_offset)
    builder.append(rows_of_records(rows))
    return bytes(builder.out)


def control_batch(
    records: Sequence[KRaftRecord], *, base_offset: int, epoch: int, timestamp: int
) -> bytes:
    """Return control records as one batch."""
    rows = []
    for each in records:
        key, value = encode_control(each)
        rows.append(Record(key=key, value=value, timestamp=timestamp))
    options = BatchOptions(leader_epoch=epoch, is_control=True)
    return build_batch(rows, options, base_offset=base_offset)


def decode_region(data: bytes, *, base_offset: int, start: int = 0) -> DecodedRegion:
    """Decode batches whose offsets follow each other, from ``base_offset`` on. Records below ``start`` are
    passed over. The end may be any: the caller decides whether it is acceptable.

    CorruptionError or UnsupportedMetadataError, with the offset, if a record cannot be read, or if offsets
    are missing between batches.
    """
    scan = scan_batches(data, check=_CHECKS)
    next_offset: int | None = None
    epoch: int | None = None
    first = None
    for header in scan:
        expected = base_offset if next_offset is None else next_offset
        if header.base_offset != expected:
            raise CorruptionError(
                "metadata_gap", f"a batch at offset {header.base_offset}, where {expected} is expected",
                position=header.position,
            )  # fmt: skip
        next_offset, epoch = header.next_offset, header.leader_epoch
        if first is None and header.last_offset >= start:
            first = header.position
    end = scan.end
    records: list[AnyRecord] = []
    if first is not None:
        records = list(_records(memoryview(data)[first : end.position], start))
    return DecodedRegion(records, end, next_offset, epoch)


def _records(region: memoryview, start: int) -> Iterator[AnyRecord]:
    """Decode the records of whole batches, whose CRCs were checked."""
    decoder = RegionDecoder(
        Selection(
            columns=_COLUMNS, check=Check.INCLUDE_CONTROL, start=start, max_batch_bytes=INT32_MAX
        )
    )
    position = 0
    while True:
        pause = decoder.decode(region, position, region.nbytes)
        yield from _decoded(decoder.take())
        if pause.ending == Ending.END:
            return
        if pause.ending != Ending.FULL:
            raise pause.error()
        position = pause.position


def _decoded(taken: DecodedColumns) -> Iterator[AnyRecord]:
    buffers = taken.buffers
    offsets = memoryview(buffers[Column.OFFSET][0]).cast("q")
    controls = memoryview(buffers[Column.IS_CONTROL][0])
    keys = binary_values(taken.rows, *buffers[Column.KEY])
    values = binary_values(taken.rows, *buffers[Column.VALUE])
    for row in range(taken.rows):
        try:
            if not controls[row >> 3] >> (row & 7) & 1:
                yield decode_metadata(values[row])
                continue
            control = decode_control(keys[row], values[row])
        except CorruptionError as error:
            raise CorruptionError(error.reason, f"offset {offsets[row]}: {error.detail}") from None
        except UnsupportedMetadataError as error:
            raise UnsupportedMetadataError(f"offset {offsets[row]}: {error}") from None
        if control is not None:
            yield control
