"""Metadata records and control records as values, by Kafka's field tables.

A metadata record is the value of a record with a null key: frame version 1, the number of its type, its
version, its fields. A control record says in its key what it is. Field names are Kafka's own.

A record of a type that is not known here is kept as bytes. A newer version of a known type cannot be read
halfway: its fields may mean something else.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any, Final

from stratalog.errors import CorruptionError, UsageError
from stratalog.metadata.fields import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    OPTIONAL_TEXT,
    TEXT,
    UINT16,
    UUID,
    Field,
    FieldType,
    array_of,
    optional_array_of,
    read_uvarint,
    structure_of,
    write_uvarint,
)
from stratalog.records.control import ControlType, parse_control

__all__ = [
    "KRaftRecord",
    "MetadataRecord",
    "RecordType",
    "UnknownRecord",
    "UnsupportedMetadataError",
    "decode_control",
    "decode_metadata",
    "encode_control",
    "encode_metadata",
    "newest_version",
]

_FRAME_VERSION: Final = 1
_CONTROL_KEY: Final = struct.Struct(">hh")


class RecordType(IntEnum):
    """The types of metadata records that Kafka 4.3 knows."""

    REGISTER_BROKER = 0
    UNREGISTER_BROKER = 1
    TOPIC = 2
    PARTITION = 3
    CONFIG = 4
    PARTITION_CHANGE = 5
    FENCE_BROKER = 7
    UNFENCE_BROKER = 8
    REMOVE_TOPIC = 9
    DELEGATION_TOKEN = 10
    USER_SCRAM_CREDENTIAL = 11
    FEATURE_LEVEL = 12
    CLIENT_QUOTA = 14
    PRODUCER_IDS = 15
    BROKER_REGISTRATION_CHANGE = 17
    ACCESS_CONTROL_ENTRY = 18
    REMOVE_ACCESS_CONTROL_ENTRY = 19
    NO_OP = 20
    ZK_MIGRATION_STATE = 21
    REMOVE_USER_SCRAM_CREDENTIAL = 22
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25
    REMOVE_DELEGATION_TOKEN = 26
    REGISTER_CONTROLLER = 27
    CLEAR_ELR = 28


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """One metadata record. ``values`` has its fields by Kafka's names."""

    type: RecordType
    version: int
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


@dataclass(frozen=True, slots=True)
class UnknownRecord:
    """A metadata record of a type that is not known here, as it was stored."""

    type_id: int
    version: int
    data: bytes


@dataclass(frozen=True, slots=True)
class KRaftRecord:
    """One control record of the metadata log or a snapshot."""

    type: ControlType
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


class UnsupportedMetadataError(UsageError):
    """The metadata holds what this version of Stratalog does not understand."""


def _ids(name: str, since: int = 0) -> Field:
    return Field(name, array_of(INT32), since, default=())


def _changed_ids(name: str, tag: int, since: int = 0) -> Field:
    return Field(name, optional_array_of(INT32), since, tag)


_ENDPOINT: Final = structure_of(
    [
        Field("name", TEXT),
        Field("host", TEXT),
        Field("port", UINT16),
        Field("securityProtocol", INT16),
    ]
)
_FEATURE: Final = structure_of(
    [
        Field("name", TEXT),
        Field("minSupportedVersion", INT16),
        Field("maxSupportedVersion", INT16),
    ]
)
_QUOTA_ENTITY: Final = structure_of([Field("entityType", TEXT), Field("entityName", OPTIONAL_TEXT)])

_T = RecordType
#: The newest version of each type, and its fields.
_TABLES: Final[dict[RecordType, tuple[int, tuple[Field, ...]]]] = {
    _T.REGISTER_BROKER: (
        4,
        (
            Field("brokerId", INT32),
            Field("isMigratingZkBroker", BOOL, 2, default=False),
            Field("incarnationId", UUID),
            Field("brokerEpoch", INT64),
            Field("endPoints", array_of(_ENDPOINT), default=()),
            Field("features", array_of(_FEATURE), default=()),
            Field("rack", OPTIONAL_TEXT),
            Field("fenced", BOOL, default=True),
            Field("inControlledShutdown", BOOL, 1, default=False),
            Field("logDirs", array_of(UUID), 3, 0, []),
            Field("cordonedLogDirs", optional_array_of(UUID), 4, 1),
        ),
    ),
    _T.UNREGISTER_BROKER: (0, (Field("brokerId", INT32), Field("brokerEpoch", INT64))),
    _T.TOPIC: (0, (Field("name", TEXT), Field("topicId", UUID))),
    _T.PARTITION: (
        2,
        (
            Field("partitionId", INT32),
            Field("topicId", UUID),
            _ids("replicas"),
            _ids("isr"),
            _ids("removingReplicas"),
            _ids("addingReplicas"),
            Field("leader", INT32),
            Field("leaderRecoveryState", INT8, 0, 0, 0),
            Field("leaderEpoch", INT32),
            Field("partitionEpoch", INT32),
            Field("directories", array_of(UUID), 1, default=()),
            _changed_ids("eligibleLeaderReplicas", 1, 2),
            _changed_ids("lastKnownElr", 2, 2),
        ),
    ),
    _T.CONFIG: (
        0,
        (
            Field("resourceType", INT8),
            Field("resourceName", TEXT),
            Field("name", TEXT),
            Field("value", OPTIONAL_TEXT),
        ),
    ),
    _T.PARTITION_CHANGE: (
        2,
        (
            Field("partitionId", INT32),
            Field("topicId", UUID),
            _changed_ids("isr", 0),
            Field("leader", INT32, 0, 1, -2),
            _changed_ids("replicas", 2),
            _changed_ids("removingReplicas", 3),
            _changed_ids("addingReplicas", 4),
            Field("leaderRecoveryState", INT8, 0, 5, -1),
            _changed_ids("eligibleLeaderReplicas", 6, 2),
            _changed_ids("lastKnownElr", 7, 2),
            Field("directories", optional_array_of(UUID), 1, 8),
        ),
    ),
    _T.FENCE_BROKER: (0, (Field("id", INT32), Field("epoch", INT64))),
    _T.UNFENCE_BROKER: (0, (Field("id", INT32), Field("epoch", INT64))),
    _T.REMOVE_TOPIC: (0, (Field("topicId", UUID),)),
    _T.DELEGATION_TOKEN: (
        0,
        (
            Field("owner", TEXT),
            Field("requester", TEXT),
            Field("renewers", array_of(TEXT), default=()),
            Field("issueTimestamp", INT64),
            Field("maxTimestamp", INT64),
            Field("expirationTimestamp", INT64),
            Field("tokenId", TEXT),
        ),
    ),
    _T.USER_SCRAM_CREDENTIAL: (
        0,
        (
            Field("name", TEXT),
            Field("mechanism", INT8),
            Field("salt", BYTES),
            Field("storedKey", BYTES),
            Field("serverKey", BYTES),
            Field("iterations", INT32),
        ),
    ),
    _T.FEATURE_LEVEL: (0, (Field("name", TEXT), Field("featureLevel", INT16))),
    _T.CLIENT_QUOTA: (
        0,
        (
            Field("entity", array_of(_QUOTA_ENTITY), default=()),
            Field("key", TEXT),
            Field("value", FLOAT64),
            Field("remove", BOOL, default=False),
        ),
    ),
    _T.PRODUCER_IDS: (
        0,
        (Field("brokerId", INT32), Field("brokerEpoch", INT64), Field("nextProducerId", INT64)),
    ),
    _T.BROKER_REGISTRATION_CHANGE: (
        3,
        (
            Field("brokerId", INT32),
            Field("brokerEpoch", INT64),
            Field("fenced", INT8, 0, 0, 0),
            Field("inControlledShutdown", INT8, 1, 1, 0),
            Field("logDirs", array_of(UUID), 2, 2, []),
            Field("cordonedLogDirs", optional_array_of(UUID), 3, 3),
        ),
    ),
    _T.ACCESS_CONTROL_ENTRY: (
        0,
        (
            Field("id", UUID),
            Field("resourceType", INT8),
            Field("resourceName", TEXT),
            Field("patternType", INT8),
            Field("principal", TEXT),
            Field("host", TEXT),
            Field("operation", INT8),
            Field("permissionType", INT8),
        ),
    ),
    _T.REMOVE_ACCESS_CONTROL_ENTRY: (0, (Field("id", UUID),)),
    _T.NO_OP: (0, ()),
    _T.ZK_MIGRATION_STATE: (0, (Field("zkMigrationState", INT8),)),
    _T.REMOVE_USER_SCRAM_CREDENTIAL: (0, (Field("name", TEXT), Field("mechanism", INT8))),
    _T.BEGIN_TRANSACTION: (0, (Field("name", OPTIONAL_TEXT, 0, 0),)),
    _T.END_TRANSACTION: (0, ()),
    _T.ABORT_TRANSACTION: (0, (Field("reason", OPTIONAL_TEXT, 0, 0),)),
    _T.REMOVE_DELEGATION_TOKEN: (0, (Field("tokenId", TEXT),)),
    _T.REGISTER_CONTROLLER: (
        0,
        (
            Field("controllerId", INT32),
            Field("incarnationId", UUID),
            Field("zkMigrationReady", BOOL, default=False),
            Field("endPoints", array_of(_ENDPOINT), default=()),
            Field("features", array_of(_FEATURE), default=()),
        ),
    ),
    _T.CLEAR_ELR: (0, (Field("topicName", TEXT),)),
}
_TYPES: Final = {int(each): each for each in RecordType}

_VOTER: Final = structure_of([Field("voterId", INT32)])
_QUORUM_VOTER: Final = structure_of(
    [
        Field("voterId", INT32),
        Field("voterDirectoryId", UUID),
        Field(
            "endpoints",
            array_of(
                structure_of([Field("name", TEXT), Field("host", TEXT), Field("port", UINT16)])
            ),
            default=(),
        ),
        Field(
            "kRaftVersionFeature",
            structure_of(
                [Field("minSupportedVersion", INT16), Field("maxSupportedVersion", INT16)]
            ),
        ),
    ]
)
#: Their fields start with a version of their own. That of LEADER_CHANGE is always read as 0, as Kafka does.
_CONTROL: Final[dict[ControlType, FieldType]] = {
    ControlType.LEADER_CHANGE: structure_of(
        [
            Field("version", INT16, default=0),
            Field("leaderId", INT32),
            Field("voters", array_of(_VOTER), default=()),
            Field("grantingVoters", array_of(_VOTER), default=()),
        ]
    ),
    ControlType.SNAPSHOT_HEADER: structure_of(
        [Field("version", INT16, default=0), Field("lastContainedLogTimestamp", INT64, default=0)]
    ),
    ControlType.SNAPSHOT_FOOTER: structure_of([Field("version", INT16, default=0)]),
    ControlType.KRAFT_VERSION: structure_of(
        [Field("version", INT16, default=0), Field("kRaftVersion", INT16)]
    ),
    ControlType.KRAFT_VOTERS: structure_of(
        [Field("version", INT16, default=0), Field("voters", array_of(_QUORUM_VOTER), default=())]
    ),
}


def newest_version(kind: RecordType) -> int:
    """Return the newest version of a type that is known here."""
    return _TABLES[kind][0]


@cache
def _structure(kind: RecordType, version: int) -> FieldType:
    return structure_of(_TABLES[kind][1], version)


def encode_metadata(record: MetadataRecord | UnknownRecord) -> bytes:
    """Return the value of a metadata record."""
    out = bytearray()
    write_uvarint(out, _FRAME_VERSION)
    if isinstance(record, UnknownRecord):
        write_uvarint(out, record.type_id)
        write_uvarint(out, record.version)
        return bytes(out + record.data)
    write_uvarint(out, record.type)
    write_uvarint(out, record.version)
    _structure(record.type, record.version).write(out, record.values)
    return bytes(out)


def decode_metadata(value: bytes | None) -> MetadataRecord | UnknownRecord:
    """Read the value of a metadata record. CorruptionError if it is not one; UnsupportedMetadataError if its
    frame or version is newer than what is known here."""
    if value is None:
        raise CorruptionError("metadata_record", "a metadata record without a value")
    frame, at = read_uvarint(value, 0)
    if frame != _FRAME_VERSION:
        raise UnsupportedMetadataError(
            f"a metadata record of frame version {frame}: only {_FRAME_VERSION} is known; use a version of "
            "Stratalog that knows it"
        )
    type_id, at = read_uvarint(value, at)
    version, at = read_uvarint(value, at)
    kind = _TYPES.get(type_id)
    if kind is None:
        return UnknownRecord(type_id, version, value[at:])
    if version > _TABLES[kind][0]:
        raise UnsupportedMetadataError(
            f"a metadata record {kind.name} of version {version}: versions up to {_TABLES[kind][0]} are "
            "known; use a version of Stratalog that knows it"
        )
    values, end = _structure(kind, version).read(value, at)
    if end != len(value):
        raise CorruptionError(
            "metadata_record", f"{kind.name}: {len(value) - end} bytes follow the last field"
        )
    return MetadataRecord(kind, version, values)


def encode_control(record: KRaftRecord) -> tuple[bytes, bytes]:
    """Return key and value of a control record."""
    out = bytearray()
    _CONTROL[record.type].write(out, record.values)
    return _CONTROL_KEY.pack(0, record.type), bytes(out)


def decode_control(key: bytes | None, value: bytes | None) -> KRaftRecord | None:
    """Read a control record; None if it is of a type that the metadata log does not use."""
    parsed = parse_control(key, value)
    kind = parsed.type
    if kind is None or kind not in _CONTROL:
        return None
    if value is None:
        raise CorruptionError("metadata_record", f"a control record {kind.name} without a value")
    values, end = _CONTROL[kind].read(value, 0)
    if end != len(value) and values["version"] == 0:
        raise CorruptionError(
            "metadata_record", f"{kind.name}: {len(value) - end} bytes follow the last field"
        )
    return KRaftRecord(kind, values)
