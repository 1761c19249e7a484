"""A broker's configs are Kafka 4.3.1's: its own listing stands below, and its own answers to odd values."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.errors import UsageError
from stratalog.storage.broker_config import BrokerConfig, ConfigSynonym, describe_topic
from stratalog.storage.broker_names import SYNONYMS
from stratalog.storage.log_config import LogConfig

# What KafkaConfig.configDef() of Kafka 4.3.1's own jar says of the configs that have an effect here.
KAFKA_4_3_1 = """\
compression.gzip.level | INT | -1 | [1,...,9] or -1
compression.lz4.level | INT | 9 | [1,...,17]
compression.type | STRING | producer | [uncompressed, zstd, lz4, snappy, gzip, producer]
compression.zstd.level | INT | 3 | [-131072,...,22]
log.cleaner.backoff.ms | LONG | 15000 | [0,...]
log.cleaner.dedupe.buffer.size | LONG | 134217728 | null
log.cleaner.delete.retention.ms | LONG | 86400000 | [0,...]
log.cleaner.enable | BOOLEAN | true | null
log.cleaner.io.buffer.load.factor | DOUBLE | 0.9 | null
log.cleaner.io.buffer.size | INT | 524288 | [0,...]
log.cleaner.io.max.bytes.per.second | DOUBLE | 1.7976931348623157E308 | null
log.cleaner.max.compaction.lag.ms | LONG | 9223372036854775807 | [1,...]
log.cleaner.min.cleanable.ratio | DOUBLE | 0.5 | [0,...,1]
log.cleaner.min.compaction.lag.ms | LONG | 0 | [0,...]
log.cleaner.threads | INT | 1 | [0,...]
log.cleanup.policy | LIST | [delete] | [compact, delete]
log.dir | LIST | [/tmp/kafka-logs] | non-empty
log.dirs | LIST | null | non-empty
log.flush.interval.messages | LONG | 9223372036854775807 | [1,...]
log.flush.interval.ms | LONG | null | null
log.flush.offset.checkpoint.interval.ms | INT | 60000 | [0,...]
log.flush.scheduler.interval.ms | LONG | 9223372036854775807 | null
log.flush.start.offset.checkpoint.interval.ms | INT | 60000 | [0,...]
log.index.interval.bytes | INT | 4096 | [0,...]
log.index.size.max.bytes | INT | 10485760 | [4,...]
log.initial.task.delay.ms | LONG | 30000 | [0,...]
log.local.retention.bytes | LONG | -2 | [-2,...]
log.local.retention.ms | LONG | -2 | [-2,...]
log.message.timestamp.after.max.ms | LONG | 3600000 | [0,...]
log.message.timestamp.before.max.ms | LONG | 9223372036854775807 | [0,...]
log.message.timestamp.type | STRING | CreateTime | [CreateTime, LogAppendTime]
log.preallocate | BOOLEAN | false | null
log.retention.bytes | LONG | -1 | null
log.retention.check.interval.ms | LONG | 300000 | [1,...]
log.retention.hours | INT | 168 | null
log.retention.minutes | INT | null | null
log.retention.ms | LONG | null | null
log.roll.hours | INT | 168 | [1,...]
log.roll.jitter.hours | INT | 0 | [0,...]
log.roll.jitter.ms | LONG | null | null
log.roll.ms | LONG | null | null
log.segment.bytes | INT | 1073741824 | [1048576,...]
log.segment.delete.delay.ms | LONG | 60000 | [0,...]
message.max.bytes | INT | 1048588 | [0,...]
min.insync.replicas | INT | 1 | [1,...]
num.partitions | INT | 1 | [1,...]
producer.id.expiration.check.interval.ms | INT | 600000 | [1,...]
producer.id.expiration.ms | INT | 86400000 | [1,...]
unclean.leader.election.enable | BOOLEAN | false | null
"""
LISTED = [tuple(part.strip() for part in line.split(" | ")) for line in KAFKA_4_3_1.splitlines()]
ROWS = {row.name: row for row in BrokerConfig.describe()}

# ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS of the same jar.
KAFKAS_SYNONYMS = """\
cleanup.policy log.cleanup.policy
compression.gzip.level compression.gzip.level
compression.lz4.level compression.lz4.level
compression.type compression.type
compression.zstd.level compression.zstd.level
delete.retention.ms log.cleaner.delete.retention.ms
file.delete.delay.ms log.segment.delete.delay.ms
flush.messages log.flush.interval.messages
flush.ms log.flush.interval.ms log.flush.scheduler.interval.ms
index.interval.bytes log.index.interval.bytes
local.retention.bytes log.local.retention.bytes
local.retention.ms log.local.retention.ms
max.compaction.lag.ms log.cleaner.max.compaction.lag.ms
max.message.bytes message.max.bytes
message.timestamp.after.max.ms log.message.timestamp.after.max.ms
message.timestamp.before.max.ms log.message.timestamp.before.max.ms
message.timestamp.type log.message.timestamp.type
min.cleanable.dirty.ratio log.cleaner.min.cleanable.ratio
min.compaction.lag.ms log.cleaner.min.compaction.lag.ms
min.insync.replicas min.insync.replicas
preallocate log.preallocate
retention.bytes log.retention.bytes
retention.ms log.retention.ms log.retention.minutes log.retention.hours
segment.bytes log.segment.bytes
segment.index.bytes log.index.size.max.bytes
segment.jitter.ms log.roll.jitter.ms log.roll.jitter.hours
segment.ms log.roll.ms log.roll.hours
unclean.leader.election.enable unclean.leader.election.enable
"""
# Stricter than Kafka's listing: Kafka fails later, or cleans nothing.
STRICTER = {"log.cleaner.threads", "log.cleaner.dedupe.buffer.size"}
# Checked by Kafka only where they count.
CHECKED_LATER = {
    name
    for line in KAFKAS_SYNONYMS.splitlines()
    if len(line.split()) > 2
    for name in line.split()[1:]
}


def accepts(name: str, value: object) -> bool:
    try:
        BrokerConfig.of({name: value})
    except UsageError:
        return False
    return True


def test_names_types_and_defaults_are_kafkas():
    ours = {(row.name, row.type.upper(), row.default) for row in ROWS.values()}
    kafkas = {
        (name, kind, default.strip("[]").replace("null", "").replace("E308", "e+308"))
        for name, kind, default, _ in LISTED
        if name != "log.dir"
    }
    assert ours - {("log.dir", "LIST", "")} == kafkas  # nothing is written to /tmp unasked
    assert list(ROWS) == sorted(ROWS)


@pytest.mark.parametrize(("name", "kind", "valid"), [(n, k, v) for n, k, _, v in LISTED])
def test_limits_are_kafkas(name, kind, valid):
    if kind not in ("INT", "LONG") or name in STRICTER | CHECKED_LATER:
        return
    bits = 31 if kind == "INT" else 63
    limits = valid.split("]")[0].strip("[").split(",...") if valid != "null" else ["", ""]
    smallest = int(limits[0]) if limits[0] else -(2**bits)
    largest = int(limits[1].strip(",")) if limits[1] else 2**bits - 1
    extra = {-1} if valid.endswith("or -1") else set()
    for value in {smallest - 1, smallest, largest, largest + 1, -1, 0} | extra:
        if name == "log.cleaner.min.compaction.lag.ms" and value == 2**63:
            continue
        expected = smallest <= value <= largest or value in extra
        assert accepts(name, value) is expected, (name, value)
        assert accepts(name, str(value)) is expected, (name, value)


def test_synonyms_and_their_order_are_kafkas():
    ours = [
        " ".join((topic, *(each.name for each in SYNONYMS[topic]))) for topic in sorted(SYNONYMS)
    ]
    assert ours == KAFKAS_SYNONYMS.splitlines()


def test_defaults_are_those_of_a_topic():
    assert BrokerConfig.of() == BrokerConfig.of({}) == BrokerConfig()
    assert BrokerConfig().log_config() == LogConfig()
    for topic, synonyms in SYNONYMS.items():
        broker = BrokerConfig.of({synonyms[-1].name: synonyms[-1].default})
        assert broker.log_config().text(topic) == LogConfig().text(topic)


# What KafkaConfig.extractLogConfigMap() of Kafka 4.3.1 has for these, where it differs from its defaults.
@pytest.mark.parametrize(
    ("configs", "topic", "value"),
    [
        ("log.retention.hours=-5", "retention.ms", -1),
        ("log.retention.minutes=-7", "retention.ms", -1),
        ("log.retention.ms=-1", "retention.ms", -1),
        ("log.retention.ms=-2", "retention.ms", -1),
        ("log.retention.ms=5;log.retention.minutes=7;log.retention.hours=9", "retention.ms", 5),
        ("log.retention.ms=5;log.retention.hours=0", "retention.ms", 5),
        ("log.retention.minutes=7;log.retention.hours=9", "retention.ms", 420_000),
        ("log.retention.hours=9", "retention.ms", 32_400_000),
        ("log.retention.hours=2147483647", "retention.ms", 7_730_941_129_200_000),
        ("log.retention.minutes=2147483647", "retention.ms", 128_849_018_820_000),
        ("log.roll.ms=5", "segment.ms", 5),
        ("log.roll.ms=5;log.roll.hours=2", "segment.ms", 5),
        ("log.roll.hours=2", "segment.ms", 7_200_000),
        ("log.roll.jitter.ms=0;log.roll.jitter.hours=4", "segment.jitter.ms", 0),
        ("log.roll.jitter.hours=4", "segment.jitter.ms", 14_400_000),
        ("log.flush.interval.ms=7", "flush.ms", 7),
        ("log.flush.scheduler.interval.ms=9", "flush.ms", 9),
        ("log.flush.interval.ms=7;log.flush.scheduler.interval.ms=9", "flush.ms", 7),
        ("log.flush.interval.ms=7;log.flush.scheduler.interval.ms=-9", "flush.ms", 7),
        ("log.cleanup.policy=", "cleanup.policy", ()),
        ("log.cleanup.policy=compact , delete", "cleanup.policy", ("compact", "delete")),
        ("log.cleanup.policy=delete,delete", "cleanup.policy", ("delete",)),
        ("log.segment.bytes= 2097152 ", "segment.bytes", 2 << 20),
        ("log.segment.bytes=+2097152", "segment.bytes", 2 << 20),
        ("log.local.retention.ms=9999999999", "local.retention.ms", 9_999_999_999),
        ("log.retention.bytes=-9", "retention.bytes", -9),
        ("log.preallocate=TRUE", "preallocate", True),
        ("compression.zstd.level=9", "compression.zstd.level", 9),
        ("unclean.leader.election.enable=true", "unclean.leader.election.enable", True),
    ],
)
def test_default_of_a_topic_is_what_kafka_makes_of_it(configs, topic, value):
    broker = BrokerConfig.of(dict(each.split("=") for each in configs.split(";")))
    config = broker.log_config()
    assert getattr(config, topic.replace(".", "_")) == value
    assert config.overrides() == {}


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ("log.retention.hours=0", "log.retention.hours: 0 is not -1"),
        ("log.retention.minutes=0", "log.retention.minutes: 0 is not -1"),
        ("log.retention.ms=0", "log.retention.ms: 0 is not -1"),
        ("log.retention.ms=", "log.retention.ms: '' is not a whole number"),
        ("log.roll.ms=0", "log.roll.ms: 0 is not"),
        ("log.roll.hours=0", "log.roll.hours: '0' is not"),
        ("log.roll.jitter.ms=-1", "log.roll.jitter.ms: -1 is not"),
        ("log.flush.interval.ms=-7", "log.flush.interval.ms: -7 is not"),
        ("log.flush.scheduler.interval.ms=-1", "log.flush.scheduler.interval.ms: -1 is not"),
        ("log.cleanup.policy=foo", "log.cleanup.policy: 'foo' is not a list of compact, delete"),
        ("log.cleaner.threads=0", "log.cleaner.threads: '0' is not"),
        ("log.cleaner.threads=200", "not above 1 MiB for each of the log.cleaner.threads"),
        ("log.cleaner.dedupe.buffer.size=1048576", "not above 1 MiB"),
        ("log.cleaner.dedupe.buffer.size=-3", "not above 1 MiB"),
        ("log.cleaner.io.buffer.load.factor=NaN", "is not a number"),
        (
            "log.cleaner.min.compaction.lag.ms=10;log.cleaner.max.compaction.lag.ms=5",
            r"min.compaction.lag.ms \(10\) is above",
        ),
        ("log.message.timestamp.type=createtime", "is not one of CreateTime"),
        ("log.segment.bytes=1000", "1048576 or more"),
        ("log.segment.bytes=1e7", "is not a whole number"),
        ("log.dirs=", "log.dirs: '' is not a list of folders"),
        ("log.dirs=/a, /b ,", "is not a list of folders"),
        ("log.preallocate=yes", "is not true or false"),
    ],
)
def test_what_kafka_refuses_is_refused(configs, said):
    with pytest.raises(UsageError, match=said):
        BrokerConfig.of(dict(each.split("=") for each in configs.split(";")))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("log.cleaner.io.buffer.load.factor", "0", r"\(0\) leaves no room for a single key"),
        ("log.cleaner.io.buffer.load.factor", "1e-9", "leaves no room for a single key"),
        ("log.cleaner.io.max.bytes.per.second", "0", "the cleaner would never finish"),
    ],
)
def test_configs_with_which_the_cleaner_of_kafka_fails_or_hangs_are_refused(name, value, said):
    with pytest.raises(UsageError, match=said):
        BrokerConfig.of({name: value})


@pytest.mark.parametrize(
    ("configs", "directories"),
    [
        ({}, ()),
        ({"log.dir": "/c"}, ("/c",)),
        ({"log.dir": "/c,/d"}, ("/c", "/d")),
        ({"log.dirs": "/a, /b", "log.dir": "/c"}, ("/a", "/b")),
        ({"log.dirs": "/a,/a"}, ("/a",)),
        ({"log.dirs": "a b"}, ("a b",)),
        ({"log.dirs": ["/a", Path("/b")]}, ("/a", "/b")),
        ({"log_dirs": Path("/a")}, ("/a",)),
    ],
)
def test_log_dirs_come_before_log_dir(configs, directories):
    assert BrokerConfig.of(configs).directories == directories


CARRIED = """\
listeners node.id process.roles controller.quorum.voters controller.listener.names advertised.listeners
listener.security.protocol.map listener.name.internal_ssl.ssl.keystore.location replica.fetch.max.bytes
ssl.keystore.password sasl.enabled.mechanisms zookeeper.connect zookeeper.connection.timeout.ms broker.id
port host.name num.network.threads num.io.threads socket.send.buffer.bytes num.recovery.threads.per.data.dir
offsets.topic.replication.factor transaction.state.log.min.isr group.initial.rebalance.delay.ms
log.message.format.version inter.broker.protocol.version auto.create.topics.enable metric.reporters
max.connections max.connections.per.ip remote.log.storage.system.enable delete.topic.enable"""


def test_names_without_effect_are_accepted_and_listed():
    names = CARRIED.split()
    broker = BrokerConfig.of({**dict.fromkeys(names, "secret"), "log.roll.hours": 1})
    assert broker.carried == tuple(names)
    assert broker.given == {"log.roll.hours": 1}
    assert "secret" not in repr(broker)
    assert broker.log_config() == BrokerConfig.of({"log.roll.hours": 1}).log_config()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("log.retention.hour", "did you mean log.retention.hours?"),
        ("log_retention_hour", "'log_retention_hour' is not a broker config; did you mean"),
        ("log.dirss", "did you mean log.dirs?"),
        ("num.partition", "did you mean num.partitions?"),
        ("node.idd", "did you mean node.id?"),
        ("proces.roles", "did you mean process.roles?"),
        ("contoller.quorum.voters", "did you mean controller.quorum.voters?"),
        ("zookeper.connect", "did you mean zookeeper.connect?"),
        ("log.cleaner.thread", "did you mean log.cleaner.threads?"),
        ("retention.ms", "is a config of a topic: log.retention.ms is the default for all topics"),
        ("segment_bytes", "is a config of a topic: log.segment.bytes is the default"),
        ("internal.segment.bytes", "without a default for all topics: set it on the topic"),
        ("remote.storage.enable", "without a default for all topics: set it on the topic"),
        ("xyzzy", "'xyzzy' is not a broker config$"),
    ],
)
def test_unknown_name_is_refused_with_the_nearest(name, said):
    with pytest.raises(UsageError, match=said.replace("?", r"\?")):
        BrokerConfig.of({name: "1"})


def test_name_with_dots_and_with_underscores_is_one_name():
    with pytest.raises(UsageError, match=r"log\.roll\.ms is given twice"):
        BrokerConfig.of({"log.roll.ms": 1, "log_roll_ms": 2})


def test_description_is_what_describe_configs_of_kafka_says():
    broker = BrokerConfig.of(
        {"log.retention.hours": 9, "log.retention.ms": 5, "log.roll.hours": 168}
    )
    said = describe_topic(broker, LogConfig.of(retention_ms=3, internal_segment_bytes=100))
    assert list(said) == [row.name for row in LogConfig.describe()]
    assert said["retention.ms"][:5] == (
        "retention.ms", "3", "topic", "retention.ms",
        (
            ConfigSynonym("retention.ms", "3", "topic"),
            ConfigSynonym("log.retention.ms", "5", "broker"),
            ConfigSynonym("log.retention.hours", "9", "broker"),
            ConfigSynonym("log.retention.hours", "168", "default"),
        ),
    )  # fmt: skip
    assert said["segment.ms"][1:4] == ("604800000", "broker", "log.roll.hours")
    assert said["flush.ms"][1:5] == (
        "9223372036854775807", "default", "flush.ms",
        (ConfigSynonym("log.flush.scheduler.interval.ms", "9223372036854775807", "default"),),
    )  # fmt: skip
    assert said["internal.segment.bytes"].source == "topic"
    assert said["remote.storage.enable"][1:5] == ("false", "default", "remote.storage.enable", ())
    for row in LogConfig.describe():
        assert said[row.name][5:] == (row.type, row.doc)


def test_config_can_be_sent_to_another_process():
    broker = BrokerConfig.of({"log.retention.hours": 9, "log.dirs": "/a", "listeners": "x"})
    assert pickle.loads(pickle.dumps(broker)) == broker


# Precedence, by chance: every place that may have a value has one or not.

LIMITS = {
    "flush.ms": (0, 2**40),
    "retention.ms": (1, 500),
    "segment.jitter.ms": (0, 500),
    "segment.ms": (1, 500),
}


@given(st.sampled_from(sorted(LIMITS)), st.data())
def test_first_place_that_has_a_value_counts(topic, data):
    smallest, largest = LIMITS[topic]
    value = st.none() | st.integers(smallest, largest)
    own = data.draw(value, label="topic")
    brokers = {each: data.draw(value, label=each.name) for each in SYNONYMS[topic]}
    given = {each.name: some for each, some in brokers.items() if some is not None}
    config = LogConfig.of({} if own is None else {topic: own})
    broker = BrokerConfig.of(given)
    candidates = [
        *([] if own is None else [(own, "topic", topic)]),
        *(
            (some * (each.unit_ms or 1), "broker", each.name)
            for each, some in brokers.items()
            if some is not None
        ),
        (getattr(LogConfig(), topic.replace(".", "_")), "default", topic),
    ]
    effective = broker.log_config(config)
    said = describe_topic(broker, config)[topic]
    assert (getattr(effective, topic.replace(".", "_")), said.source, said.set_by) == candidates[0]
    assert said.value == str(candidates[0][0])
    assert [each.source for each in said.synonyms if each.source != "default"] == [
        source for _, source, _ in candidates[:-1]
    ]
    # What is stored of the topic does not depend on the broker.
    assert effective.overrides() == config.overrides()
    assert broker.log_config(effective) == effective


@given(st.dictionaries(st.sampled_from(sorted(ROWS)), st.integers(-2, 2**21) | st.text(max_size=4)))
def test_any_values_are_taken_or_refused_with_one_error(configs):
    try:
        broker = BrokerConfig.of(configs)
    except UsageError:
        return
    assert set(broker.given) == set(configs)
    described = describe_topic(broker, LogConfig())
    for name, entry in described.items():
        LogConfig.of({name: entry.value} if entry.value else {})
