"""The peers' cases in our own writing, for those who read them elsewhere."""

from __future__ import annotations

from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.layout import INT32_MAX, Codec, TimestampType
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record, RecordHeader
from tests.judges.peers.model import CODEC_NUMBERS, Case, PeerRecord


def as_record(record: PeerRecord) -> Record:
    return Record(
        offset=record.offset,
        timestamp=record.timestamp,
        timestamp_type=TimestampType(record.timestamp_type),
        key=record.key,
        value=record.value,
        headers=tuple(RecordHeader(key, value) for key, value in record.headers),
    )


def write_case(case: Case) -> bytes:
    """The case in our writing: one batch, one wrapper, or plain messages."""
    records = [as_record(record) for record in case.records]
    codec = Codec(CODEC_NUMBERS[case.codec])
    if case.magic < 2:
        options = MessageOptions(magic=case.magic, codec=codec, wrapper_bytes=INT32_MAX)
        return build_messages(records, options)
    return build_batch(
        records,
        BatchOptions(
            codec=codec,
            producer_id=case.producer_id,
            producer_epoch=case.producer_epoch,
            base_sequence=case.base_sequence,
            is_transactional=case.transactional,
        ),
    )
