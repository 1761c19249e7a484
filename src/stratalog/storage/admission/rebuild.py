"""Batches that cannot be kept as they came: of an old format, of another codec, or with gaps."""

from __future__ import annotations

from typing import Final

from stratalog.errors import BatchTooLargeError, InvalidRecordError
from stratalog.records import kernel
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.columns import decode_records
from stratalog.records.compression import compress
from stratalog.records.layout import (
    APPEND_TIME_MASK,
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    ROW_WIDTH,
    Check,
    Codec,
    Row,
)
from stratalog.records.model import BatchHeader, Record
from stratalog.records.restamp import set_codec
from stratalog.storage.admission.checks import says_append_time
from stratalog.storage.admission.headers import payload_of, records_of, walk_rows
from stratalog.storage.admission.rules import AppendRules
from stratalog.types import Bytes

__all__ = ["convert_messages", "rebuild_batches"]

_SIZE: Final = int(Row.SIZE)
_MAGIC: Final = int(Row.MAGIC)
_ATTRIBUTES: Final = int(Row.ATTRIBUTES)


def convert_messages(data: Bytes, rules: AppendRules) -> bytearray:
    """Messages of the old formats as one batch of magic 2, as a broker of today stores them."""
    rows, count = walk_rows(data)
    magics = {rows[at + _MAGIC] for at in range(0, count * ROW_WIDTH, ROW_WIDTH)}
    if len(magics) > 1:
        raise InvalidRecordError("one append holds messages of different formats")
    codec = Codec.NONE
    for at in range(0, count * ROW_WIDTH, ROW_WIDTH):
        codec = Codec(rows[at + _ATTRIBUTES] & CODEC_MASK) or codec
        if rows[at + _SIZE] > rules.max_message_bytes:
            raise BatchTooLargeError(
                f"a message of {rows[at + _SIZE]} bytes is above "
                f"max.message.bytes={rules.max_message_bytes}"
            )
        if rules.append_time and rows[at + _MAGIC] and rows[at + _ATTRIBUTES] & APPEND_TIME_MASK:
            raise says_append_time(count)
    if codec and count > 1:
        raise InvalidRecordError("a compressed message comes alone")
    # Their offsets mean nothing yet: some clients send only zeros.
    records = list(decode_records(bytes(data), check=Check.CRC))
    return _built(
        records,
        BatchOptions(codec=rules.codec if rules.codec is not None else codec, level=rules.level),
    )


def rebuild_batches(data: Bytes, rows: memoryview, count: int, rules: AppendRules) -> bytearray:
    """Every batch with the codec that the topic asks for, and records numbered 0, 1, 2…"""
    out = bytearray()
    for at in range(0, count * ROW_WIDTH, ROW_WIDTH):
        header = BatchHeader.from_row(rows[at : at + ROW_WIDTH])
        wanted = header.codec if rules.codec is None or header.is_control else rules.codec
        payload = payload_of(data, rows, at)
        gap_row = kernel.check_records(
            payload, 0, len(payload), header.record_count, header.base_timestamp
        )[5]
        # Where the header tells the time of all records, they get it as their own.
        if gap_row < 0 and not header.attributes & APPEND_TIME_MASK:
            # The records stay byte for byte: only what they are packed in changes.
            start = len(out)
            out += memoryview(data)[header.position : header.position + BATCH_HEADER_SIZE]
            out += payload if not wanted else compress(wanted, payload, level=rules.level)
            set_codec(out, start, wanted)
            continue
        options = BatchOptions(
            codec=wanted,
            level=rules.level,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
        )
        out += _built(list(records_of(data, rows, at)), options)
    return out


def _built(records: list[Record], options: BatchOptions) -> bytearray:
    return bytearray(
        build_batch(
            [Record(each.value, each.key, each.timestamp, each.headers) for each in records],
            options,
        )
    )
