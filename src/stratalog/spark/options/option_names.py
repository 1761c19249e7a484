"""The names of all options, by what they are for."""

from __future__ import annotations

from typing import Final

__all__ = ["IDLE_OPTIONS", "KAFKA_OPTIONS", "OWN_OPTIONS", "SINK_OPTIONS", "is_topic_config"]

#: Those of Spark's Kafka source that mean the same here.
KAFKA_OPTIONS: Final = (
    "subscribe", "subscribePattern", "assign",
    "startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp",
    "endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "includeHeaders",
)  # fmt: skip
#: Ours.
OWN_OPTIONS: Final = (
    "path", "paths", "columns", "isolationLevel", "maxBytesPerTrigger", "splitBytes", "checkCrc",
    "includeControl", "includeInternal", "maxBatchBytes", "onDamage", "latestPerKey",
    "latestPerKeyMemory", "tombstones",
)  # fmt: skip
#: What a consumer needs, and a reader of files does not.
IDLE_OPTIONS: Final = (
    "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "partition.metadata.cache.ttl.ms",
)  # fmt: skip
#: Of a write.
SINK_OPTIONS: Final = (
    "path", "topic", "partitions", "partitioner", "compression", "compressionLevel", "batchSize",
    "txnAppId", "txnVersion", "lockTimeout", "includeHeaders", "checkpointLocation", "queryName",
    "stageBytes",
)  # fmt: skip
_PREFIXES: Final = ("kafka.", "option.", "view.", "spark.", "fs.")


def is_topic_config(name: str) -> bool:
    """Whether it is Kafka's name of a topic's config: those have dots in them."""
    return "." in name and not name.startswith(_PREFIXES) and name not in _IDLE_NAMES


_IDLE_NAMES: Final = frozenset(name.lower() for name in (*IDLE_OPTIONS, "serialization.format"))
