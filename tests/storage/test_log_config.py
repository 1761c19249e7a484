"""A topic's configs are Kafka 4.3.1's: its own listing stands below, and its own answers to odd values."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.errors import UsageError
from stratalog.storage.log_config import ConfigRow, LogConfig

# What LogConfig.configDefCopy() of Kafka 4.3.1's own jar says: name, type, default, valid values.
KAFKA_4_3_1 = """\
cleanup.policy | LIST | [delete] | [compact, delete]
compression.gzip.level | INT | -1 | [1,...,9] or -1
compression.lz4.level | INT | 9 | [1,...,17]
compression.type | STRING | producer | [uncompressed, zstd, lz4, snappy, gzip, producer]
compression.zstd.level | INT | 3 | [-131072,...,22]
delete.retention.ms | LONG | 86400000 | [0,...]
file.delete.delay.ms | LONG | 60000 | [0,...]
flush.messages | LONG | 9223372036854775807 | [1,...]
flush.ms | LONG | 9223372036854775807 | [0,...]
follower.replication.throttled.replicas | LIST | [] | [partitionId]:[brokerId],[partitionId]:[brokerId],...
index.interval.bytes | INT | 4096 | [0,...]
internal.segment.bytes | INT | null | null
leader.replication.throttled.replicas | LIST | [] | [partitionId]:[brokerId],[partitionId]:[brokerId],...
local.retention.bytes | LONG | -2 | [-2,...]
local.retention.ms | LONG | -2 | [-2,...]
max.compaction.lag.ms | LONG | 9223372036854775807 | [1,...]
max.message.bytes | INT | 1048588 | [0,...]
message.timestamp.after.max.ms | LONG | 3600000 | [0,...]
message.timestamp.before.max.ms | LONG | 9223372036854775807 | [0,...]
message.timestamp.type | STRING | CreateTime | [CreateTime, LogAppendTime]
min.cleanable.dirty.ratio | DOUBLE | 0.5 | [0,...,1]
min.compaction.lag.ms | LONG | 0 | [0,...]
min.insync.replicas | INT | 1 | [1,...]
preallocate | BOOLEAN | false | null
remote.log.copy.disable | BOOLEAN | false | null
remote.log.delete.on.disable | BOOLEAN | false | null
remote.storage.enable | BOOLEAN | false | null
retention.bytes | LONG | -1 | null
retention.ms | LONG | 604800000 | [-1,...]
segment.bytes | INT | 1073741824 | [1048576,...]
segment.index.bytes | INT | 10485760 | [4,...]
segment.jitter.ms | LONG | 0 | [0,...]
segment.ms | LONG | 604800000 | [1,...]
unclean.leader.election.enable | BOOLEAN | false | null
"""
LISTED = [tuple(line.split(" | ")) for line in KAFKA_4_3_1.splitlines()]
ROWS = {row.name: row for row in LogConfig.describe()}


def attribute(config: LogConfig, name: str) -> object:
    return getattr(config, name.replace(".", "_"))


def accepts(name: str, value: object) -> bool:
    try:
        LogConfig.of({name: value})
    except UsageError:
        return False
    return True


def test_names_types_and_defaults_are_kafkas():
    ours = {(row.name, row.type.upper(), row.default) for row in ROWS.values()}
    kafkas = {
        (name, kind, default.strip("[]").replace("null", "")) for name, kind, default, _ in LISTED
    }
    assert ours == kafkas
    assert list(ROWS) == sorted(ROWS)


@pytest.mark.parametrize(("name", "kind", "valid"), [(n, k, v) for n, k, _, v in LISTED])
def test_limits_are_kafkas(name, kind, valid):
    if kind not in ("INT", "LONG") or name == "internal.segment.bytes":
        return
    bits = 31 if kind == "INT" else 63
    limits = valid.split("]")[0].strip("[").split(",...") if valid != "null" else ["", ""]
    smallest = int(limits[0]) if limits[0] else -(2**bits)
    largest = int(limits[1].strip(",")) if limits[1] else 2**bits - 1
    extra = {-1} if valid.endswith("or -1") else set()
    for value in {smallest - 1, smallest, largest, largest + 1, -1, 0} | extra:
        expected = smallest <= value <= largest or value in extra
        assert accepts(name, value) is expected, (name, value)
        assert accepts(name, str(value)) is expected, (name, value)


def test_every_row_says_what_it_is():
    assert ROWS["retention.ms"][:4] == (
        "retention.ms", "long", "604800000", "a whole number of 64 bits, -1 or more",
    )  # fmt: skip
    for row in ROWS.values():
        assert isinstance(row, ConfigRow)
        assert row.doc
        assert row.allowed
        assert "\n" not in row.doc
        assert len(row.doc) < 80


def test_defaults_need_no_checking():
    assert LogConfig.of() == LogConfig.of({}) == LogConfig()
    assert LogConfig().overrides() == {}
    for name, row in ROWS.items():
        if row.default:
            assert attribute(LogConfig.of({name: row.default}), name) == attribute(
                LogConfig(), name
            )


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("segment.bytes", " 1048576 ", 1 << 20),
        ("segment.bytes", "+1048576", 1 << 20),
        ("cleanup.policy", "", ()),
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("cleanup.policy", "compact,compact", ("compact",)),
        ("cleanup.policy", "Compact,DELETE", ("compact", "delete")),
        ("cleanup.policy", ["delete", "compact"], ("delete", "compact")),
        ("cleanup.policy", (), ()),
        ("preallocate", "TRUE", True),
        ("preallocate", " true ", True),
        ("preallocate", False, False),
        ("compression.type", "gzip", "gzip"),
        ("compression.gzip.level", "-1", -1),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
        ("min.cleanable.dirty.ratio", "1", 1.0),
        ("min.cleanable.dirty.ratio", "1e-3", 0.001),
        ("min.cleanable.dirty.ratio", ".5", 0.5),
        ("min.cleanable.dirty.ratio", 0, 0.0),
        ("min.cleanable.dirty.ratio", 0.25, 0.25),
        ("retention.bytes", "-7", -7),
        ("internal.segment.bytes", "1", 1),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
        ("leader.replication.throttled.replicas", "", ()),
    ],
)
def test_value_is_read(name, text, value):
    config = LogConfig.of({name: text})
    assert attribute(config, name) == value
    assert type(attribute(config, name)) is type(value)
    assert LogConfig.of(**{name.replace(".", "_"): text}) == config
    assert LogConfig.of(config.overrides()) == config
    assert list(config.overrides()) == [name]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("segment.bytes", "1048575", "segment.bytes: '1048575' is not a whole number of 32 bits, 1048576 or"),
        ("segment.bytes", "0x100000", "segment.bytes"),
        ("segment.bytes", "1_048_576", "segment.bytes"),
        ("segment.bytes", "", "segment.bytes"),
        ("segment.bytes", 2**20 + 0.0, "segment.bytes"),
        ("segment.bytes", None, "segment.bytes"),
        ("flush.messages", True, "flush.messages: True is not"),
        ("internal.segment.bytes", "0", "internal.segment.bytes"),
        ("cleanup.policy", "compact,,delete", "a list of compact, delete, or an empty one"),
        ("cleanup.policy", ",", "cleanup.policy"),
        ("cleanup.policy", "none", "cleanup.policy"),
        ("cleanup.policy", b"delete", "cleanup.policy"),
        ("cleanup.policy", [1], "cleanup.policy"),
        ("cleanup.policy", 5, "cleanup.policy"),
        ("preallocate", "yes", "preallocate: 'yes' is not true or false"),
        ("preallocate", 1, "preallocate"),
        ("compression.type", "GZIP", "one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.type", "none", "compression.type"),
        ("compression.type", 4, "compression.type"),
        ("compression.gzip.level", "0", "from 1 to 9, or -1"),
        ("message.timestamp.type", "createtime", "one of CreateTime, LogAppendTime"),
        ("min.cleanable.dirty.ratio", "NaN", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", float("nan"), "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "1.1", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "-0.1", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", 10**400, "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "9" * 500, "a number from 0 to 1"),
        ("leader.replication.throttled.replicas", "x", "* or a list of partition:broker"),
        ("leader.replication.throttled.replicas", "*,0:1", "partition:broker"),
    ],
)  # fmt: skip
def test_wrong_value_is_refused_with_what_is_allowed(name, value, message):
    with pytest.raises(UsageError) as caught:
        LogConfig.of({name: value})
    assert str(caught.value).startswith(f"{name}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("retention.mss", "; did you mean retention.ms?"),
        ("retention_m", "; did you mean retention.ms?"),
        ("log.retention.bytes", "; did you mean retention.bytes?"),
        ("cleanup.polcy", "; did you mean cleanup.policy?"),
        ("Segment.Bytes", "; did you mean segment.bytes?"),
        ("zzz", ""),
        ("given", ""),
        (7, ""),
    ],
)
def test_unknown_name_is_refused_with_the_nearest_known(name, hint):
    with pytest.raises(UsageError) as caught:
        LogConfig.of({name: "1"})
    assert str(caught.value) == f"{name!r} is not a topic config{hint}"


@pytest.mark.parametrize(
    "name",
    ["message.format.version", "message_downconversion_enable", "message.timestamp.difference.max.ms"],
)  # fmt: skip
def test_name_that_kafka_4_dropped_is_refused_with_the_reason(name):
    with pytest.raises(UsageError, match=r"is gone: since Kafka 4\.0"):
        LogConfig.of({name: "1"})


def test_one_config_by_two_names_is_refused():
    with pytest.raises(UsageError, match=r"retention\.ms is given twice"):
        LogConfig.of({"retention.ms": 1}, retention_ms=1)
    with pytest.raises(UsageError, match=r"retention\.ms is given twice"):
        LogConfig.of({"retention.ms": 1, "retention_ms": 1})


@pytest.mark.parametrize(
    ("configs", "is_allowed"),
    [
        ({"min.compaction.lag.ms": 10, "max.compaction.lag.ms": 5}, False),
        ({"min.compaction.lag.ms": 5, "max.compaction.lag.ms": 5}, True),
        # Kafka looks at local retention only where there is remote storage.
        ({"retention.ms": 100, "local.retention.ms": 101}, True),
        ({"retention.ms": 100, "local.retention.ms": 101, "remote.storage.enable": True}, False),
        ({"retention.ms": 100, "local.retention.ms": 100, "remote.storage.enable": True}, True),
        ({"retention.ms": 100, "local.retention.ms": -1, "remote.storage.enable": True}, False),
        ({"retention.ms": 100, "local.retention.ms": -2, "remote.storage.enable": True}, True),
        ({"retention.ms": -1, "local.retention.ms": -1, "remote.storage.enable": True}, True),
        ({"retention.ms": -1, "local.retention.ms": 100, "remote.storage.enable": True}, True),
        ({"retention.bytes": 5, "local.retention.bytes": 6, "remote.storage.enable": True}, False),
        ({"retention.bytes": -1, "local.retention.bytes": 6, "remote.storage.enable": True}, True),
        ({"cleanup.policy": "compact", "remote.storage.enable": True}, False),
        ({"cleanup.policy": "", "remote.storage.enable": True}, True),
    ],
)
def test_configs_that_contradict_each_other_are_refused(configs, is_allowed):
    if is_allowed:
        LogConfig.of(configs)
    else:
        with pytest.raises(UsageError):
            LogConfig.of(configs)


def test_internal_segment_bytes_stands_for_segment_bytes():
    assert LogConfig().effective_segment_bytes == 1 << 30
    assert LogConfig.of(segment_bytes=1 << 20).effective_segment_bytes == 1 << 20
    assert LogConfig.of(internal_segment_bytes=5).effective_segment_bytes == 5
    both = LogConfig.of({"segment.bytes": 1 << 20, "internal.segment.bytes": "5"})
    assert both.effective_segment_bytes == 5


@pytest.mark.parametrize(
    ("policy", "compacts", "deletes"),
    [("delete", False, True), ("compact", True, False), ("Compact,delete", True, True), ("", False, False)],
)  # fmt: skip
def test_cleanup_policy_in_words(policy, compacts, deletes):
    config = LogConfig.of(cleanup_policy=policy)
    assert (config.compacts, config.deletes) == (compacts, deletes)


def test_overrides_are_what_was_given_in_kafkas_text():
    config = LogConfig.of(
        {"retention.ms": 604800000, "preallocate": True},
        cleanup_policy=["compact", "delete"],
        min_cleanable_dirty_ratio="0.001",
    )
    assert config.overrides() == {
        "cleanup.policy": "compact,delete",
        "min.cleanable.dirty.ratio": "0.001",
        "preallocate": "true",
        "retention.ms": "604800000",
    }
    assert repr(LogConfig.of(retention_ms=5)) == "LogConfig(retention.ms=5)"


def test_config_is_a_frozen_value():
    config = LogConfig.of(retention_ms=5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.retention_ms = 6  # type: ignore[misc]
    assert {config, LogConfig.of(retention_ms="5")} == {config}
    assert pickle.loads(pickle.dumps(config)).overrides() == config.overrides()


VALUES = st.one_of(
    st.text(max_size=12),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
    st.binary(max_size=4),
    st.lists(st.one_of(st.text(max_size=5), st.integers()), max_size=3),
    st.sampled_from(["compact", "true", "*", "0:0", "gzip", "1048576", "0.5", "CreateTime"]),
)


@given(
    st.dictionaries(
        st.one_of(st.sampled_from(sorted(ROWS)), st.text(max_size=9)), VALUES, max_size=3
    )
)
def test_anything_is_a_config_that_comes_back_or_a_usage_error(configs):
    try:
        config = LogConfig.of(configs)
    except UsageError:
        return
    again = LogConfig.of(config.overrides())
    assert again == config
    assert again.overrides() == config.overrides()
