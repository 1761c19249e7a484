"""The nouns of the record formats as values: a record, its headers, and what a batch header says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.records.layout import (
    APPEND_TIME_MASK,
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    INT32_MAX,
    TRANSACTIONAL_MASK,
    Codec,
    Row,
    TimestampType,
)
from stratalog.types import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
)

__all__ = ["BatchHeader", "Record", "RecordHeader", "next_sequence"]


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """One header of a record: a text key, and a value that may be null. Keys may repeat."""

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Record:
    """One key, value, headers, timestamp and offset."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int = NO_TIMESTAMP
    headers: tuple[RecordHeader, ...] = ()
    offset: int = -1
    timestamp_type: TimestampType = TimestampType.CREATE_TIME


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """What the header of one batch, message or wrapper says; nothing in it was decompressed.

    Of a compressed message (magic 0 and 1) the first offset and the record count stand only inside:
    they are -1 here.
    """

    position: int
    size_bytes: int
    magic: int
    attributes: int
    base_offset: int
    last_offset: int
    base_timestamp: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP
    record_count: int = 0
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    leader_epoch: int = NO_LEADER_EPOCH
    crc: int = 0
    payload_position: int = 0
    payload_size_bytes: int = 0

    @classmethod
    def from_row(cls, row: Sequence[int]) -> BatchHeader:
        """From a header row as the kernel's walk writes it (see ``layout.Row``)."""
        return cls(*row)

    @property
    def codec(self) -> Codec:
        return Codec(self.attributes & CODEC_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NONE
        if self.attributes & APPEND_TIME_MASK:
            return TimestampType.APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.magic == 2 and bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return self.magic == 2 and bool(self.attributes & CONTROL_MASK)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones of this batch may go; the base timestamp then holds it."""
        if self.magic == 2 and self.attributes & DELETE_HORIZON_MASK:
            return self.base_timestamp
        return None

    @property
    def is_wrapper(self) -> bool:
        return self.magic < 2 and bool(self.attributes & CODEC_MASK)

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return next_sequence(self.base_sequence, self.last_offset - self.base_offset)

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def end_position(self) -> int:
        return self.position + self.size_bytes


def next_sequence(sequence: int, records: int) -> int:
    """The sequence number ``records`` further on; sequences wrap to 0 behind 2**31 - 1."""
    return (sequence + records) & INT32_MAX


assert len(BatchHeader.__dataclass_fields__) == len(Row)
