"""Control records: transaction markers, and the others that only carry themselves through.

A control batch holds records whose key says what they are: int16 version, int16 type. The two that a log
acts on are ABORT and COMMIT.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from stratalog.errors import CorruptionError
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.model import Record

__all__ = ["ControlRecord", "ControlType", "build_marker", "parse_control"]

_KEY: Final = struct.Struct(">hh")
_END_TXN_VALUE: Final = struct.Struct(">hi")


class ControlType(IntEnum):
    """The types that Kafka has given numbers to; others are legal and are carried through."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_KNOWN: Final = frozenset(map(int, ControlType))


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """What a control record says. ``type_id`` is the number as stored: it may be one we do not know."""

    version: int
    type_id: int
    coordinator_epoch: int | None  # of a marker
    value: bytes | None

    @property
    def type(self) -> ControlType | None:
        """The known type, None for one that came after us."""
        return ControlType(self.type_id) if self.type_id in _KNOWN else None

    @property
    def is_marker(self) -> bool:
        return self.type_id in (ControlType.ABORT, ControlType.COMMIT)


def parse_control(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Read a control record. Versions above ours are read as far as we know them."""
    if key is None or len(key) < _KEY.size:
        raise CorruptionError("control_key", "a control record's key holds no version and type")
    version, type_id = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptionError("control_key", f"a control record of version {version}")
    epoch = None
    if type_id in (ControlType.ABORT, ControlType.COMMIT):
        if value is None or len(value) < _END_TXN_VALUE.size:
            raise CorruptionError(
                "control_value", "a transaction marker holds no coordinator epoch"
            )
        value_version, epoch = _END_TXN_VALUE.unpack_from(value)
        if value_version < 0:
            raise CorruptionError("control_value", f"a marker of version {value_version}")
    return ControlRecord(version, type_id, epoch, value)


def build_marker(
    kind: ControlType,
    *,
    offset: int,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    leader_epoch: int = -1,
) -> bytes:
    """The control batch that ends a transaction."""
    record = Record(
        key=_KEY.pack(0, kind),
        value=_END_TXN_VALUE.pack(0, coordinator_epoch),
        timestamp=timestamp,
    )
    options = BatchOptions(
        is_control=True,
        is_transactional=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
    )
    return build_batch([record], options, base_offset=offset)
