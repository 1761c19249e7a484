"""The names of broker configs: which ones are defaults of topic configs, and which ones have no effect here.

Names and their order are Kafka 4.3's, as its ``DescribeConfigs`` lists them.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from stratalog.records.layout import INT64_MAX
from stratalog.storage.config_kinds import ConfigKind, int32, int64
from stratalog.storage.log_config import LogConfig

__all__ = ["SYNONYMS", "Synonym", "is_carried", "known_names"]

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS


class Synonym(NamedTuple):
    """A broker config that is the default of a topic config. ``default`` is None if the next synonym counts
    as long as this one is not set."""

    name: str
    kind: ConfigKind
    default: Any
    #: What its value is multiplied by.
    unit_ms: int | None = None


#: Topic configs with one synonym of the same type, limits and default.
_ALIKE: Final = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}

_ANY_INT32: Final = int32(-(2**31))

#: The broker configs that are defaults of a topic config, the first that is set counts.
SYNONYMS: Final[dict[str, tuple[Synonym, ...]]] = {
    topic: (Synonym(name, LogConfig.kind_of(topic), getattr(LogConfig(), topic.replace(".", "_"))),)
    for topic, name in _ALIKE.items()
} | {
    "flush.ms": (
        Synonym("log.flush.interval.ms", int64(), None),
        Synonym("log.flush.scheduler.interval.ms", int64(), INT64_MAX),
    ),
    "retention.ms": (
        Synonym("log.retention.ms", int64(), None),
        Synonym("log.retention.minutes", _ANY_INT32, None, _MINUTE_MS),
        Synonym("log.retention.hours", _ANY_INT32, 168, _HOUR_MS),
    ),
    "segment.jitter.ms": (
        Synonym("log.roll.jitter.ms", int64(), None),
        Synonym("log.roll.jitter.hours", int32(0), 0, _HOUR_MS),
    ),
    "segment.ms": (
        Synonym("log.roll.ms", int64(), None),
        Synonym("log.roll.hours", int32(1), 168, _HOUR_MS),
    ),
}

#: Other names that a server.properties may have, of Kafka 0.8 to 4.3.
_CARRIED: Final = frozenset({
    "add.partitions.to.txn.retry.backoff.max.ms", "add.partitions.to.txn.retry.backoff.ms",
    "auto.create.topics.enable", "auto.leader.rebalance.enable", "background.threads",
    "config.providers", "connection.failed.authentication.delay.ms", "cordoned.log.dirs",
    "create.topic.policy.class.name", "default.replication.factor",
    "delete.records.purgatory.purge.interval.requests", "delete.topic.enable", "early.start.listeners",
    "enable.zookeeper", "fetch.max.bytes", "fetch.purgatory.purge.interval.requests",
    "follower.fetch.last.tiered.offset.enable", "host.name", "initial.broker.registration.timeout.ms",
    "listeners", "log.dir.failure.timeout.ms", "log.message.downconversion.enable",
    "log.message.format.version", "log.message.timestamp.difference.max.ms",
    "max.incremental.fetch.session.cache.slots", "max.request.partition.size.limit", "node.id",
    "num.io.threads", "num.network.threads", "num.recovery.threads.per.data.dir",
    "num.replica.alter.log.dirs.threads", "num.replica.fetchers", "offset.metadata.max.bytes", "port",
    "process.roles", "producer.purgatory.purge.interval.requests", "request.timeout.ms",
    "reserved.broker.max.id", "unclean.leader.election.interval.ms",
    # Known by their beginnings, too: they are here because a misspelled name may be near to one.
    "advertised.listeners", "broker.id", "controller.listener.names",
    "controller.quorum.bootstrap.servers", "controller.quorum.voters",
    "group.initial.rebalance.delay.ms", "inter.broker.listener.name", "inter.broker.protocol.version",
    "listener.security.protocol.map", "offsets.topic.num.partitions", "offsets.topic.replication.factor",
    "replica.fetch.max.bytes", "replica.lag.time.max.ms", "security.inter.broker.protocol",
    "socket.receive.buffer.bytes", "socket.request.max.bytes", "socket.send.buffer.bytes",
    "transaction.state.log.min.isr", "transaction.state.log.replication.factor", "zookeeper.connect",
    "zookeeper.connection.timeout.ms",
})  # fmt: skip
#: Beginnings of such names. Everything below them is accepted: listeners and plug-ins have their own names.
_CARRIED_BEGINNINGS: Final = (
    "advertised.", "alter.", "authorizer.", "broker.", "client.", "config.providers.", "confluent.",
    "connections.", "controlled.", "controller.", "cruise.control.", "delegation.", "eligible.",
    "group.", "inter.", "internal.metadata.", "kafka.", "leader.", "listener.", "max.connection.",
    "max.connections", "metadata.", "metric.", "metrics.", "offsets.", "password.", "principal.",
    "queued.", "quota.", "remote.", "replica.", "replication.", "rlmm.", "rsm.", "sasl.", "security.",
    "server.", "share.", "socket.", "ssl.", "telemetry.", "transaction.", "transactional.", "unstable.",
    "zookeeper.",
)  # fmt: skip


def is_carried(name: str) -> bool:
    """Return whether a name is one of Kafka's that has no effect here."""
    return name in _CARRIED or name.startswith(_CARRIED_BEGINNINGS)


def known_names() -> set[str]:
    """Return the broker configs that are defaults of topic configs, and names without effect."""
    return {each.name for some in SYNONYMS.values() for each in some} | _CARRIED
