"""Compressed batches that lost records, put together from what ``kernel.BatchFilter`` left of them.

The kernel filters the decompressed records; compressing them again and writing the header is done here.
What the filter does not change (producer, sequence, leader epoch) comes from the old header.
"""

from __future__ import annotations

from stratalog.records import kernel
from stratalog.records.compression import compress
from stratalog.records.layout import BATCH_HEADER_SIZE, CODEC_MASK, Codec
from stratalog.records.legacy import write_wrapper
from stratalog.records.model import BatchHeader
from stratalog.types import Bytes

__all__ = ["NewHeader", "rebuild_batch"]

#: Base offset, last offset, base timestamp, largest timestamp, record count and attributes.
NewHeader = tuple[int, int, int, int, int, int]


def rebuild_batch(
    header: BatchHeader, records: Bytes, new: NewHeader, *, level: int | None = None
) -> bytes:
    """Return the finished batch, or wrapper, that takes the place of the one with this ``header``.

    ``records`` and ``new`` are what ``BatchFilter.filter_batch`` returned. The codec is the one in the new
    attributes; ``level`` is its own, by default Kafka's.
    """
    base_offset, last_offset, base_timestamp, max_timestamp, count, attributes = new
    if header.magic < 2:
        out = bytearray()
        write_wrapper(
            out,
            records,
            magic=header.magic,
            attributes=attributes,
            last_offset=last_offset,
            timestamp=max_timestamp,
            level=level,
        )
        return bytes(out)
    out = bytearray(BATCH_HEADER_SIZE)
    out += compress(Codec(attributes & CODEC_MASK), records, level=level)
    kernel.write_batch_header(
        out,
        0,
        base_offset,
        header.leader_epoch,
        attributes,
        last_offset - base_offset,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    return bytes(out)
