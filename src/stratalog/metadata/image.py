"""What the metadata records together say: topics, partitions, configs, and all else of a cluster.

``apply`` follows Kafka's rules for each type of record. ``records`` returns the records of a snapshot, in
Kafka's order, from which the same image results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stratalog.errors import CorruptionError
from stratalog.metadata.records import (
    KRaftRecord,
    MetadataRecord,
    RecordType,
    UnknownRecord,
)
from stratalog.records.control import ControlType
from stratalog.storage.formats.kafka_uuid import format_uuid

__all__ = [
    "BROKER_RESOURCE",
    "METADATA_VERSION",
    "TOPIC_RESOURCE",
    "MetadataImage",
    "PartitionImage",
    "TopicImage",
    "partition_version",
]

#: The feature whose level decides which versions of records Kafka writes.
METADATA_VERSION: Final = "metadata.version"
#: What a config belongs to.
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4

_UNCHANGED: Final = -2  # of a leader, in a change of a partition
_T = RecordType
_CHANGEABLE: Final = (
    ("isr", "isr"),
    ("replicas", "replicas"),
    ("removingReplicas", "removing_replicas"),
    ("addingReplicas", "adding_replicas"),
    ("directories", "directories"),
    ("eligibleLeaderReplicas", "eligible_leader_replicas"),
    ("lastKnownElr", "last_known_elr"),
)


@dataclass(slots=True)
class PartitionImage:
    """One partition. ``directories`` are the ids of the log directories of its replicas."""

    replicas: list[int]
    isr: list[int]
    removing_replicas: list[int]
    adding_replicas: list[int]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int
    directories: list[bytes]
    eligible_leader_replicas: list[int] | None = None
    last_known_elr: list[int] | None = None

    @classmethod
    def of(cls, record: MetadataRecord) -> PartitionImage:
        """Return the partition that a record describes."""
        values = record.values
        return cls(
            values["replicas"],
            values["isr"],
            values["removingReplicas"],
            values["addingReplicas"],
            values["leader"],
            values["leaderRecoveryState"],
            values["leaderEpoch"],
            values["partitionEpoch"],
            values.get("directories", []),
            values.get("eligibleLeaderReplicas"),
            values.get("lastKnownElr"),
        )

    def record(self, topic_id: bytes, partition: int, version: int) -> MetadataRecord:
        """Return the record that describes the partition."""
        return MetadataRecord(
            _T.PARTITION,
            version,
            {
                "partitionId": partition,
                "topicId": topic_id,
                "replicas": self.replicas,
                "isr": self.isr,
                "removingReplicas": self.removing_replicas,
                "addingReplicas": self.adding_replicas,
                "leader": self.leader,
                "leaderRecoveryState": self.leader_recovery_state,
                "leaderEpoch": self.leader_epoch,
                "partitionEpoch": self.partition_epoch,
                "directories": self.directories,
                "eligibleLeaderReplicas": self.eligible_leader_replicas or None,
                "lastKnownElr": self.last_known_elr or None,
            },
        )

    def change(self, record: MetadataRecord) -> None:
        """Apply a change. The leader epoch grows with every leader that is named, also with the same one."""
        for name, attribute in _CHANGEABLE:
            changed = record.values.get(name)
            if changed is not None:
                setattr(self, attribute, changed)
        if record["leader"] != _UNCHANGED:
            self.leader = record["leader"]
            self.leader_epoch += 1
        if record["leaderRecoveryState"] != -1:
            self.leader_recovery_state = record["leaderRecoveryState"]
        self.partition_epoch += 1


@dataclass(slots=True)
class TopicImage:
    """One topic and its partitions, by number."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionImage] = field(default_factory=dict)


def partition_version(metadata_version: int) -> int:
    """Return the version of partition records that Kafka writes at a metadata version."""
    return 2 if metadata_version >= 23 else 1 if metadata_version >= 17 else 0


def _broker_version(metadata_version: int) -> int:
    if metadata_version >= 30:
        return 4
    return 3 if metadata_version >= 17 else 2 if metadata_version >= 8 else 1


@dataclass(slots=True)
class MetadataImage:
    """The state of a cluster. Everything that is not acted on here is kept as its records have it."""

    features: dict[str, int] = field(default_factory=dict)
    topics: dict[str, TopicImage] = field(default_factory=dict)
    topics_by_id: dict[bytes, TopicImage] = field(default_factory=dict)
    #: By type of resource and its name. Kafka's snapshots may hold some of topics that are gone.
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    brokers: dict[int, dict[str, Any]] = field(default_factory=dict)
    controllers: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    scram: dict[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict)
    acls: dict[bytes, Mapping[str, Any]] = field(default_factory=dict)
    quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = field(default_factory=dict)
    tokens: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    producer_ids: Mapping[str, Any] | None = None
    zk_migration_state: int | None = None
    kraft_version: int = 0
    voters: list[dict[str, Any]] | None = None
    #: Topics that the log says were removed. Folders of theirs may still be there.
    removed_topic_ids: set[bytes] = field(default_factory=set)
    #: Records of types that are not known here. An image that has some is not written as a snapshot.
    unknown: list[UnknownRecord] = field(default_factory=list)

    # What it says.

    @property
    def metadata_version(self) -> int | None:
        return self.features.get(METADATA_VERSION)

    @property
    def next_producer_id(self) -> int:
        """The first producer id that is in no block yet."""
        return 0 if self.producer_ids is None else int(self.producer_ids["nextProducerId"])

    def topic_configs(self, name: str) -> dict[str, str]:
        """Return the configs that a topic has of its own."""
        return dict(self.configs.get((TOPIC_RESOURCE, name), {}))

    def leftover_configs(self) -> dict[str, dict[str, str]]:
        """Return the configs of topics that are not there."""
        return {
            name: dict(values)
            for (kind, name), values in self.configs.items()
            if kind == TOPIC_RESOURCE and name not in self.topics
        }

    @property
    def voter_ids(self) -> set[int]:
        """The ids of the voters, as far as they are stored: those of a static quorum are not."""
        return {each["voterId"] for each in self.voters or ()}

    # How records change it.

    def apply(self, record: MetadataRecord | UnknownRecord | KRaftRecord) -> None:
        """Apply one record. CorruptionError if it does not fit what came before."""
        if isinstance(record, UnknownRecord):
            self.unknown.append(record)
        elif isinstance(record, KRaftRecord):
            self._apply_control(record)
        else:
            change = _CHANGES.get(record.type)
            if change is not None:
                change(self, record)

    def _apply_control(self, record: KRaftRecord) -> None:
        if record.type == ControlType.KRAFT_VERSION:
            self.kraft_version = record["kRaftVersion"]
        elif record.type == ControlType.KRAFT_VOTERS:
            self.voters = record["voters"]

    # As a snapshot.

    def control_records(self) -> list[KRaftRecord]:
        """Return the control records of a snapshot, but for header and footer."""
        if self.voters is None:
            return []
        return [
            KRaftRecord(ControlType.KRAFT_VERSION, {"kRaftVersion": self.kraft_version}),
            KRaftRecord(ControlType.KRAFT_VOTERS, {"voters": self.voters}),
        ]

    def records(self) -> Iterator[MetadataRecord]:
        """Return the records of a snapshot, in the order in which Kafka writes them."""
        version = self.metadata_version or 0
        levels = sorted(self.features.items(), key=lambda each: each[0] != METADATA_VERSION)
        for name, level in levels:
            yield MetadataRecord(_T.FEATURE_LEVEL, 0, {"name": name, "featureLevel": level})
        for values in self.controllers.values():
            yield MetadataRecord(_T.REGISTER_CONTROLLER, 0, values)
        for values in self.brokers.values():
            yield MetadataRecord(_T.REGISTER_BROKER, _broker_version(version), values)
        for topic in self.topics.values():
            yield MetadataRecord(_T.TOPIC, 0, {"name": topic.name, "topicId": topic.topic_id})
            for number, partition in topic.partitions.items():
                yield partition.record(topic.topic_id, number, partition_version(version))
        for (kind, name), configs in self.configs.items():
            for config, value in configs.items():
                yield MetadataRecord(
                    _T.CONFIG,
                    0,
                    {"resourceType": kind, "resourceName": name, "name": config, "value": value},
                )
        for entity, limits in self.quotas.items():
            named = [{"entityType": kind, "entityName": name} for kind, name in entity]
            for key, limit in limits.items():
                yield MetadataRecord(
                    _T.CLIENT_QUOTA, 0, {"entity": named, "key": key, "value": limit}
                )
        if self.producer_ids is not None:
            yield MetadataRecord(_T.PRODUCER_IDS, 0, self.producer_ids)
        for values in self.acls.values():
            yield MetadataRecord(_T.ACCESS_CONTROL_ENTRY, 0, values)
        for values in self.scram.values():
            yield MetadataRecord(_T.USER_SCRAM_CREDENTIAL, 0, values)
        for values in self.tokens.values():
            yield MetadataRecord(_T.DELEGATION_TOKEN, 0, values)
        if self.zk_migration_state is not None:
            yield MetadataRecord(
                _T.ZK_MIGRATION_STATE, 0, {"zkMigrationState": self.zk_migration_state}
            )


# How each type of record changes an image.


def _feature(image: MetadataImage, record: MetadataRecord) -> None:
    if record["featureLevel"]:
        image.features[record["name"]] = record["featureLevel"]
    else:
        image.features.pop(record["name"], None)


def _topic(image: MetadataImage, record: MetadataRecord) -> None:
    name, topic_id = record["name"], record["topicId"]
    if name in image.topics or topic_id in image.topics_by_id:
        raise _wrong(f"topic {name!r} ({format_uuid(topic_id)}) is created twice")
    topic = TopicImage(name, topic_id)
    image.topics[name] = image.topics_by_id[topic_id] = topic


def _partition(image: MetadataImage, record: MetadataRecord) -> None:
    topic = _topic_of(image, record)
    if record["partitionId"] < 0:
        raise _wrong(f"partition {record['partitionId']} of topic {topic.name!r}")
    topic.partitions[record["partitionId"]] = PartitionImage.of(record)


def _partition_change(image: MetadataImage, record: MetadataRecord) -> None:
    topic = _topic_of(image, record)
    partition = topic.partitions.get(record["partitionId"])
    if partition is None:
        raise _wrong(
            f"a change of partition {record['partitionId']} of topic {topic.name!r}, which does not exist"
        )
    partition.change(record)


def _topic_of(image: MetadataImage, record: MetadataRecord) -> TopicImage:
    topic = image.topics_by_id.get(record["topicId"])
    if topic is None:
        raise _wrong(
            f"{record.type.name} names topic {format_uuid(record['topicId'])}, which does not exist"
        )
    return topic


def _remove_topic(image: MetadataImage, record: MetadataRecord) -> None:
    topic = _topic_of(image, record)
    del image.topics[topic.name], image.topics_by_id[topic.topic_id]
    image.configs.pop((TOPIC_RESOURCE, topic.name), None)
    image.removed_topic_ids.add(topic.topic_id)


def _config(image: MetadataImage, record: MetadataRecord) -> None:
    key = record["resourceType"], record["resourceName"]
    if record["value"] is not None:
        image.configs.setdefault(key, {})[record["name"]] = record["value"]
        return
    values = image.configs.get(key, {})
    values.pop(record["name"], None)
    if not values:
        image.configs.pop(key, None)


def _register_broker(image: MetadataImage, record: MetadataRecord) -> None:
    image.brokers[record["brokerId"]] = dict(record.values)


def _unregister_broker(image: MetadataImage, record: MetadataRecord) -> None:
    image.brokers.pop(record["brokerId"], None)


def _broker(image: MetadataImage, broker_id: int) -> dict[str, Any]:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise _wrong(f"a change of broker {broker_id}, which is not registered")
    return broker


def _broker_change(image: MetadataImage, record: MetadataRecord) -> None:
    broker = _broker(image, record["brokerId"])
    values = record.values
    if values["fenced"]:
        broker["fenced"] = values["fenced"] == 1
    if values.get("inControlledShutdown"):
        broker["inControlledShutdown"] = True
    if values.get("logDirs"):
        broker["logDirs"] = values["logDirs"]
    if values.get("cordonedLogDirs") is not None:
        broker["cordonedLogDirs"] = values["cordonedLogDirs"]


def _fence(image: MetadataImage, record: MetadataRecord) -> None:
    _broker(image, record["id"])["fenced"] = record.type == _T.FENCE_BROKER


def _register_controller(image: MetadataImage, record: MetadataRecord) -> None:
    image.controllers[record["controllerId"]] = record.values


def _scram(image: MetadataImage, record: MetadataRecord) -> None:
    image.scram[record["name"], record["mechanism"]] = record.values


def _remove_scram(image: MetadataImage, record: MetadataRecord) -> None:
    image.scram.pop((record["name"], record["mechanism"]), None)


def _acl(image: MetadataImage, record: MetadataRecord) -> None:
    image.acls[record["id"]] = record.values


def _remove_acl(image: MetadataImage, record: MetadataRecord) -> None:
    image.acls.pop(record["id"], None)


def _quota(image: MetadataImage, record: MetadataRecord) -> None:
    entity = tuple((each["entityType"], each["entityName"]) for each in record["entity"])
    key = tuple(sorted(entity, key=lambda each: each[0]))
    if not record["remove"]:
        image.quotas.setdefault(key, {})[record["key"]] = record["value"]
        return
    values = image.quotas.get(key, {})
    values.pop(record["key"], None)
    if not values:
        image.quotas.pop(key, None)


def _set_producer_ids(image: MetadataImage, record: MetadataRecord) -> None:
    image.producer_ids = record.values


def _token(image: MetadataImage, record: MetadataRecord) -> None:
    image.tokens[record["tokenId"]] = record.values


def _remove_token(image: MetadataImage, record: MetadataRecord) -> None:
    image.tokens.pop(record["tokenId"], None)


def _zk_migration(image: MetadataImage, record: MetadataRecord) -> None:
    image.zk_migration_state = record["zkMigrationState"]


def _clear_elr(image: MetadataImage, record: MetadataRecord) -> None:
    name = record["topicName"]
    topics = [image.topics[name]] if name in image.topics else []
    for topic in topics if name else image.topics.values():
        for partition in topic.partitions.values():
            partition.eligible_leader_replicas = partition.last_known_elr = None


def _wrong(detail: str) -> CorruptionError:
    return CorruptionError("metadata_image", detail)


#: What each type of record does. Those that are not listed change nothing.
_CHANGES: Final[dict[RecordType, Callable[[MetadataImage, MetadataRecord], None]]] = {
    _T.FEATURE_LEVEL: _feature,
    _T.TOPIC: _topic,
    _T.PARTITION: _partition,
    _T.PARTITION_CHANGE: _partition_change,
    _T.REMOVE_TOPIC: _remove_topic,
    _T.CONFIG: _config,
    _T.REGISTER_BROKER: _register_broker,
    _T.UNREGISTER_BROKER: _unregister_broker,
    _T.BROKER_REGISTRATION_CHANGE: _broker_change,
    _T.FENCE_BROKER: _fence,
    _T.UNFENCE_BROKER: _fence,
    _T.REGISTER_CONTROLLER: _register_controller,
    _T.USER_SCRAM_CREDENTIAL: _scram,
    _T.REMOVE_USER_SCRAM_CREDENTIAL: _remove_scram,
    _T.ACCESS_CONTROL_ENTRY: _acl,
    _T.REMOVE_ACCESS_CONTROL_ENTRY: _remove_acl,
    _T.CLIENT_QUOTA: _quota,
    _T.PRODUCER_IDS: _set_producer_ids,
    _T.DELEGATION_TOKEN: _token,
    _T.REMOVE_DELEGATION_TOKEN: _remove_token,
    _T.ZK_MIGRATION_STATE: _zk_migration,
    _T.CLEAR_ELR: _clear_elr,
}
