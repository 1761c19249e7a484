"""kafka-python's own record classes as a builder and a parser.

Its compressed codecs need packages that it does not ask for: `python-snappy` (snappy), `lz4` (lz4),
`zstandard` (zstd), `xxhash` (lz4 in magic 0), and `crc32c` to be less slow.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

with warnings.catch_warnings():
    # It loads its message tables in a way that newer Pythons warn of.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import codec as kafka_codec
    from kafka.record.default_records import DefaultRecordBatchBuilder
    from kafka.record.legacy_records import LegacyRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecords

from tests.judges.peers.model import (
    CODEC_NUMBERS,
    Case,
    Codec,
    Magic,
    PeerError,
    PeerRecord,
    peer_records,
    place_at,
)

NAME = "kafka-python"
_UNLIMITED = 2**31 - 1


def cannot_build(case: Case) -> str | None:
    """Why this peer cannot write the case; None when it can."""
    if case.has_wrapping_deltas:
        return "Python integers do not wrap: it writes a varint of more than 64 bits"
    return missing_codec(case.magic, case.codec)


def cannot_parse(case: Case) -> str | None:
    """Why this peer cannot read the case, rightly written by another; None when it can."""
    if case.has_wrapping_deltas:
        return "Python integers do not wrap: timestamps come out 2^64 off"
    return missing_codec(case.magic, case.codec)


def missing_codec(magic: Magic, codec: Codec) -> str | None:
    have = {
        "none": True,
        "gzip": kafka_codec.has_gzip(),
        "snappy": kafka_codec.has_snappy(),
        "lz4": kafka_codec.has_lz4() and (magic > 0 or kafka_codec.xxhash is not None),
        "zstd": magic == 2 and kafka_codec.has_zstd(),
    }
    return None if have[codec] else f"no {codec} for magic {magic} (see the module's docstring)"


def build(
    records: Sequence[PeerRecord],
    *,
    magic: Magic = 2,
    codec: Codec = "none",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """One batch (or message set) with the records' own offsets; the first is the base offset."""
    base_offset = records[0].offset
    if magic == 2:
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=CODEC_NUMBERS[codec],
            is_transactional=transactional,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            batch_size=_UNLIMITED,
        )
        for record in records:
            delta = record.offset - base_offset
            builder.append(delta, record.timestamp, record.key, record.value, list(record.headers))
        return place_at(bytes(builder.build()), base_offset, len(records))
    builder = LegacyRecordBatchBuilder(magic, CODEC_NUMBERS[codec], _UNLIMITED)
    # A client numbers from 0 and the broker does the rest; here the builder writes what the broker
    # would have, except for the offset of the wrapper itself.
    relative = base_offset if magic == 1 and codec != "none" else 0
    for record in records:
        builder.append(record.offset - relative, record.timestamp, record.key, record.value)
    built = bytes(builder.build())
    return built if codec == "none" else records[-1].offset.to_bytes(8, "big") + built[8:]


def build_case(case: Case) -> bytes:
    return build(
        case.records,
        magic=case.magic,
        codec=case.codec,
        producer_id=case.producer_id,
        producer_epoch=case.producer_epoch,
        base_sequence=case.base_sequence,
        transactional=case.transactional,
    )


def parse(record_set: bytes) -> list[PeerRecord]:
    """Every record of a record set of any magics, CRCs checked."""
    region = MemoryRecords(record_set)
    found: list[PeerRecord] = []
    while (batch := region.next_batch()) is not None:
        if not batch.validate_crc():
            raise PeerError(f"{NAME}: wrong CRC in the batch at offset {batch.base_offset}")
        found.extend(peer_records(batch))
    if region.valid_bytes() != len(record_set):
        raise PeerError(f"{NAME}: {len(record_set) - region.valid_bytes()} bytes left over")
    return found
