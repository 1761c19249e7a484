"""aiokafka's own record classes, compiled and pure Python, as builders and parsers.

Record sets are cut into entries here and not by `MemoryRecords`: its compiled form reads the magic
of every entry from the first one, so it cannot walk a log that mixes magics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from aiokafka.record import _crecords
from aiokafka.record import default_records as pure_default
from aiokafka.record import legacy_records as pure_legacy

from tests.judges.peers.model import (
    CODEC_NUMBERS,
    Case,
    Codec,
    Magic,
    PeerError,
    PeerRecord,
    magic_of,
    peer_records,
    place_at,
    split_entries,
)

Implementation = Literal["compiled", "pure"]
IMPLEMENTATIONS: tuple[Implementation, ...] = ("compiled", "pure")

NAME = "aiokafka"
_UNLIMITED = 2**31 - 1

_BATCH: dict[str, Any] = {
    "compiled": _crecords.DefaultRecordBatch,
    "pure": pure_default._DefaultRecordBatchPy,
}
_MESSAGE_SET: dict[str, Any] = {
    "compiled": _crecords.LegacyRecordBatch,
    "pure": pure_legacy._LegacyRecordBatchPy,
}
_BATCH_BUILDER: dict[str, Any] = {
    "compiled": _crecords.DefaultRecordBatchBuilder,
    "pure": pure_default._DefaultRecordBatchBuilderPy,
}
_MESSAGE_SET_BUILDER: dict[str, Any] = {
    "compiled": _crecords.LegacyRecordBatchBuilder,
    "pure": pure_legacy._LegacyRecordBatchBuilderPy,
}


def cannot_build(case: Case, implementation: Implementation = "compiled") -> str | None:
    """Why this peer cannot write the case; None when it can."""
    if implementation == "compiled" and case.magic == 2 and case.records[0].timestamp == -1:
        return "-1 is its mark for 'no first timestamp yet': the base timestamp comes out wrong"
    return _cannot(case, implementation)


def cannot_parse(case: Case, implementation: Implementation = "compiled") -> str | None:
    """Why this peer cannot read the case, rightly written by another; None when it can."""
    has_none = any(record.timestamp == -1 for record in case.records)
    if implementation == "compiled" and case.magic == 1 and has_none:
        return "it takes timestamp -1 of magic 1 for 'none' and drops the type"
    return _cannot(case, implementation)


def _cannot(case: Case, implementation: Implementation) -> str | None:
    if case.magic == 0 and case.codec == "lz4":
        return "it refuses lz4 in magic 0"
    if case.magic < 2 and case.codec == "zstd":
        return "no zstd before magic 2"
    if case.has_wrapping_deltas and implementation == "pure":
        return "Python integers do not wrap"
    return None


def build(
    records: Sequence[PeerRecord],
    *,
    magic: Magic = 2,
    codec: Codec = "none",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    implementation: Implementation = "compiled",
) -> bytes:
    """One batch (or message set) with the records' own offsets; the first is the base offset."""
    base_offset = records[0].offset
    if magic == 2:
        builder = _BATCH_BUILDER[implementation](
            magic=2,
            compression_type=CODEC_NUMBERS[codec],
            is_transactional=int(transactional),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            batch_size=_UNLIMITED,
        )
        for record in records:
            delta = record.offset - base_offset
            builder.append(delta, record.timestamp, record.key, record.value, list(record.headers))
        return place_at(bytes(builder.build()), base_offset, len(records))
    builder = _MESSAGE_SET_BUILDER[implementation](magic, CODEC_NUMBERS[codec], _UNLIMITED)
    relative = base_offset if magic == 1 and codec != "none" else 0
    for record in records:
        builder.append(record.offset - relative, record.timestamp, record.key, record.value)
    built = bytes(builder.build())
    return built if codec == "none" else records[-1].offset.to_bytes(8, "big") + built[8:]


def build_case(case: Case, implementation: Implementation = "compiled") -> bytes:
    return build(
        case.records,
        magic=case.magic,
        codec=case.codec,
        producer_id=case.producer_id,
        producer_epoch=case.producer_epoch,
        base_sequence=case.base_sequence,
        transactional=case.transactional,
        implementation=implementation,
    )


def parse(record_set: bytes, implementation: Implementation = "compiled") -> list[PeerRecord]:
    """Every record of a record set of any magics, CRCs checked."""
    found: list[PeerRecord] = []
    for entry in split_entries(record_set):
        if magic_of(entry) == 2:
            batch = _BATCH[implementation](entry)
        else:
            batch = _MESSAGE_SET[implementation](entry, magic_of(entry))
        if not batch.validate_crc():
            raise PeerError(f"{NAME} ({implementation}): wrong CRC")
        found.extend(peer_records(batch))
    return found
