"""What to append to the metadata for a change: pure functions from an image to records.

All records of one change go into one batch, which is there as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from stratalog.metadata.image import (
    METADATA_VERSION,
    TOPIC_RESOURCE,
    MetadataImage,
    PartitionImage,
    partition_version,
)
from stratalog.metadata.records import MetadataRecord, RecordType

__all__ = [
    "NEW_METADATA_VERSION",
    "UNASSIGNED_DIRECTORY",
    "changed_configs",
    "config_records",
    "initial_image",
    "new_partition",
    "partition_records",
    "producer_ids_record",
    "removal_record",
    "set_voter",
    "topic_records",
]

#: 3.9-IV0: the newest that Kafka 3.9 starts on, and all of 4.x. Kafka's own tool raises it.
NEW_METADATA_VERSION: Final = 21
#: Where the controller of a single node listens, unless its ``server.properties`` says otherwise: Kafka
#: replaces it when it starts.
_LISTENER: Final = {"name": "CONTROLLER", "host": "localhost", "port": 9093}
#: The id of a log directory that is not known yet.
UNASSIGNED_DIRECTORY: Final = (1).to_bytes(16, "big")


def initial_image(node_id: int, directory_id: bytes | None) -> MetadataImage:
    """Return the metadata of a new cluster of one node, the only voter. Kafka starts on it with a static and
    with a dynamic quorum; without a directory id, only with a static one."""
    image = MetadataImage(features={METADATA_VERSION: NEW_METADATA_VERSION})
    if directory_id is not None:
        set_voter(image, node_id, directory_id)
    return image


def set_voter(image: MetadataImage, node_id: int, directory_id: bytes) -> None:
    """Make a node the only voter of a dynamic quorum."""
    voter: dict[str, Any] = {
        "voterId": node_id,
        "voterDirectoryId": directory_id,
        "endpoints": [_LISTENER],
        "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
    }
    image.kraft_version, image.voters = 1, [voter]


def topic_records(
    image: MetadataImage,
    name: str,
    topic_id: bytes,
    configs: Mapping[str, str],
    partitions: Mapping[int, PartitionImage],
) -> list[MetadataRecord]:
    """Return the records of a new topic. Configs that a deleted topic of this name has left in the metadata
    are removed: the new topic would inherit them."""
    left = {each: None for each in image.topic_configs(name) if each not in configs}
    topic = MetadataRecord(RecordType.TOPIC, 0, {"name": name, "topicId": topic_id})
    return [
        topic,
        *config_records(name, {**left, **configs}),
        *partition_records(image, topic_id, partitions),
    ]


def partition_records(
    image: MetadataImage, topic_id: bytes, partitions: Mapping[int, PartitionImage]
) -> list[MetadataRecord]:
    """Return the records of partitions that are new, or that get new values."""
    version = partition_version(image.metadata_version or 0)
    return [each.record(topic_id, number, version) for number, each in sorted(partitions.items())]


def new_partition(node_id: int, directory_id: bytes | None, leader_epoch: int) -> PartitionImage:
    """Return a partition with one replica, which leads it."""
    return PartitionImage(
        replicas=[node_id],
        isr=[node_id],
        removing_replicas=[],
        adding_replicas=[],
        leader=node_id,
        leader_recovery_state=0,
        leader_epoch=max(leader_epoch, 0),
        partition_epoch=0,
        directories=[UNASSIGNED_DIRECTORY if directory_id is None else directory_id],
    )


def config_records(topic: str, configs: Mapping[str, str | None]) -> list[MetadataRecord]:
    """Return the records that set configs of a topic; None removes one."""
    return [
        MetadataRecord(
            RecordType.CONFIG,
            0,
            {
                "resourceType": TOPIC_RESOURCE,
                "resourceName": topic,
                "name": name,
                "value": value,
            },
        )
        for name, value in configs.items()
    ]


def changed_configs(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str | None]:
    """Return what must be set, or removed (None), to get from some configs to others."""
    gone: Iterable[str] = old.keys() - new.keys()
    return {
        **dict.fromkeys(sorted(gone)),
        **{name: value for name, value in sorted(new.items()) if old.get(name) != value},
    }


def removal_record(topic_id: bytes) -> MetadataRecord:
    """Return the record that removes a topic, its partitions and its configs."""
    return MetadataRecord(RecordType.REMOVE_TOPIC, 0, {"topicId": topic_id})


def producer_ids_record(
    image: MetadataImage, node_id: int, next_producer_id: int
) -> MetadataRecord:
    """Return the record that says which producer id is the first that is in no block."""
    broker = image.brokers.get(node_id)
    return MetadataRecord(
        RecordType.PRODUCER_IDS,
        0,
        {
            "brokerId": node_id,
            "brokerEpoch": -1 if broker is None else broker["brokerEpoch"],
            "nextProducerId": next_producer_id,
        },
    )
