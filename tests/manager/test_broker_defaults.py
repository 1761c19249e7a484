"""Broker configs are defaults for all topics: every user of a topic's configs goes by those in effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stratalog
from stratalog.errors import (
    BatchTooLargeError,
    InvalidRecordError,
    UnknownPartitionError,
    UsageError,
)
from stratalog.manager.commit_pieces import commit_pieces
from stratalog.manager.commits.commits import TopicPlan
from stratalog.storage.broker_config import BrokerConfig, ConfigSynonym
from stratalog.storage.commits.key import CommitKey
from stratalog.testing import ManualClock
from tests.manager.logdirs import ROOT, memory, open_memory
from tests.manager.staging import stage

WEEK_MS = 7 * 86_400_000


def test_topic_has_the_brokers_default_until_it_has_its_own(tmp_path: Path) -> None:
    config = {"log.retention.hours": "24", "log.segment.bytes": 2 << 20}
    with stratalog.open(tmp_path, config=config) as logs:
        topic = logs.create("t", segment_bytes=3 << 20)
        assert (topic.config.retention_ms, topic.config.segment_bytes) == (86_400_000, 3 << 20)
        assert topic.config.overrides() == {"segment.bytes": "3145728"}
        log = logs.partition("t")
        assert (log.config.retention_ms, log.config.segment_bytes) == (86_400_000, 3 << 20)
        assert logs.alter_configs("t", {"retention.ms": 5}).config.retention_ms == 5
        assert log.config.retention_ms == 5
        altered = logs.alter_configs("t", {"retention.ms": None, "segment.bytes": None})
        assert (altered.config.retention_ms, altered.config.segment_bytes) == (86_400_000, 2 << 20)
        assert (log.config.retention_ms, log.config.segment_bytes) == (86_400_000, 2 << 20)
        assert logs.broker_config == BrokerConfig.of(config)
    with stratalog.open(tmp_path) as logs:
        assert logs.topic("t").config.retention_ms == WEEK_MS


def test_own_config_that_equals_kafkas_default_comes_before_the_brokers(tmp_path: Path) -> None:
    with stratalog.open(tmp_path) as logs:
        logs.create("created", retention_ms=WEEK_MS)
        logs.create("altered")
        logs.alter_configs("altered", {"retention.ms": WEEK_MS})
    with stratalog.open(tmp_path, config={"log.retention.ms": 1}) as logs:
        for topic in ("created", "altered"):
            assert logs.topic(topic).config.retention_ms == WEEK_MS
            assert logs.describe_configs(topic)["retention.ms"].source == "topic"
        logs.alter_configs("altered", {"retention.ms": None})
        assert logs.topic("altered").config.retention_ms == 1


def test_brokers_defaults_are_not_stored(tmp_path: Path) -> None:
    stored = []
    for number, config in enumerate(({}, {"log.retention.ms": 5, "log.cleanup.policy": "compact"})):
        root = tmp_path / str(number)
        with stratalog.open(root, config=config) as logs:
            logs.create("t", 2, segment_ms=10)
            logs.alter_configs("t", {"segment.ms": None, "flush.ms": 7})
            logs.add_partitions("t", 3)
            logs.create("gone")
            logs.delete_topic("gone")
            stored.append({name: topic.config.overrides() for name, topic in logs.topics().items()})
        (file,) = root.glob("*topics*")
        assert b"cleanup" not in file.read_bytes()
        assert b"retention" not in file.read_bytes()
    assert stored[0] == stored[1] == {"t": {"flush.ms": "7"}}


def test_partition_without_a_topic_file_has_the_brokers_defaults(tmp_path: Path) -> None:
    (tmp_path / "kafkas-0").mkdir()
    with stratalog.open(tmp_path, config={"log.roll.hours": 1}) as logs:
        assert logs.partition("kafkas").config.segment_ms == 3_600_000
        assert logs.describe_configs("kafkas")["segment.ms"].set_by == "log.roll.hours"


def test_appends_go_by_the_brokers_defaults(tmp_path: Path) -> None:
    config = {
        "message.max.bytes": 500, "log.message.timestamp.type": "LogAppendTime", "compression.type": "lz4",
    }  # fmt: skip
    clock = ManualClock()
    with stratalog.open(tmp_path, config=config, clock=clock) as logs:
        logs.create("t")
        with pytest.raises(BatchTooLargeError):
            logs.append("t", [b"x" * 1000])
        logs.append("t", [{"value": b"y", "timestamp": 5}])
        (record,) = logs.read("t").records()
        assert record.timestamp == clock.now_ms()
        (row,) = logs.read("t", columns=["codec", "timestamp_type"]).to_table().to_pylist()
        assert row == {"codec": "lz4", "timestamp_type": 1}


def test_compacted_by_default_needs_keys(tmp_path: Path) -> None:
    with stratalog.open(tmp_path, config={"log.cleanup.policy": "compact"}) as logs:
        logs.create("t")
        with pytest.raises(InvalidRecordError, match="no key"):
            logs.append("t", [b"x"])
        logs.alter_configs("t", {"cleanup.policy": "delete"})
        logs.append("t", [b"x"])


def test_rolls_flushes_and_retention_go_by_the_brokers_defaults(tmp_path: Path) -> None:
    clock = ManualClock()
    config = {
        "log.roll.ms": 1000, "log.retention.minutes": 1, "log.segment.delete.delay.ms": 5,
        "log.flush.interval.messages": 2, "log.flush.scheduler.interval.ms": 50,
    }  # fmt: skip
    with stratalog.open(tmp_path, config=config, clock=clock, sync=False) as logs:
        logs.create("t")
        log = logs.partition("t")
        logs.append("t", [b"a"])
        assert log.recovery_point == 0
        logs.append("t", [b"b"])
        assert log.recovery_point == 2
        logs.append("t", [b"c"])
        clock.advance(50)
        assert logs.run_due_jobs() == ["flush"]
        assert log.recovery_point == 3
        clock.advance(1001)
        logs.append("t", [b"d"])
        assert len(log.segments) == 2
        clock.advance(59_000)
        assert logs.retain() == 1
        clock.advance(5)
        assert "delete-files" in logs.run_due_jobs()


def test_idle_producers_expire_by_the_brokers_time(tmp_path: Path) -> None:
    clock = ManualClock()
    with stratalog.open(tmp_path, config={"producer.id.expiration.ms": 60}, clock=clock) as logs:
        logs.create("t")
        with logs.transaction() as transaction:
            transaction.append("t", [b"a"])
        clock.advance(59)
        assert logs.partition("t").expire_producers() == 0
        clock.advance(1)
        assert logs.partition("t").expire_producers() == 1


def test_new_topic_gets_num_partitions(tmp_path: Path) -> None:
    with stratalog.open(tmp_path, config={"num.partitions": 3}) as logs:
        assert logs.create("t").partition_count == 3
        assert logs.create("u", 1).partition_count == 1
        assert logs.create("t", exist_ok=True).partition_count == 3


def test_existing_topic_is_compared_by_what_is_in_effect(tmp_path: Path) -> None:
    with stratalog.open(tmp_path, config={"log.retention.ms": 5}) as logs:
        logs.create("t")
        assert logs.create("t", exist_ok=True, retention_ms=5).config.overrides() == {}
        with pytest.raises(UsageError, match=r"retention\.ms is 5, not 6"):
            logs.create("t", exist_ok=True, retention_ms=6)


def test_topic_that_contradicts_the_broker_is_refused(tmp_path: Path) -> None:
    config = {"log.cleaner.max.compaction.lag.ms": 5}
    with stratalog.open(tmp_path, config=config) as logs:
        with pytest.raises(UsageError, match=r"min.compaction.lag.ms \(10\) is above"):
            logs.create("t", min_compaction_lag_ms=10)
        logs.create("t")
        with pytest.raises(UsageError, match=r"min.compaction.lag.ms \(10\) is above"):
            logs.alter_configs("t", {"min.compaction.lag.ms": 10})
        assert logs.topic("t").config.min_compaction_lag_ms == 0
    with stratalog.open(tmp_path) as logs:
        logs.alter_configs("t", {"min.compaction.lag.ms": 10})
    with stratalog.open(tmp_path, config=config) as logs:  # as Kafka: what is there is used
        assert logs.partition("t").config.min_compaction_lag_ms == 10


def test_directories_come_from_log_dirs(tmp_path: Path) -> None:
    config: dict[str, Any] = {"log.dirs": [tmp_path / "a", tmp_path / "b"], "log.dir": "unused"}
    with stratalog.open(config=config) as logs:
        logs.create("t", 2)
    assert (tmp_path / "a" / "t-0").is_dir()
    assert (tmp_path / "b" / "t-1").is_dir()
    with stratalog.open(tmp_path / "c", config=config) as logs:
        assert logs.topics() == {}
    with pytest.raises(UsageError, match=r"no log directory given: name one, or set log\.dirs"):
        stratalog.open(config={"log.roll.hours": 1})


def test_config_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        f"log.dirs={tmp_path / 'logs'}\nlog.roll.hours=2\nlisteners=PLAINTEXT://:9092\n"
    )
    for given in (path, str(path)):
        with stratalog.open(config=given) as logs:
            assert logs.create("t", exist_ok=True).config.segment_ms == 7_200_000
            assert logs.broker_config.carried == ("listeners",)


def test_wrong_config_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"did you mean log\.retention\.ms\?"):
        stratalog.open(tmp_path / "logs", config={"log.retention.mss": 5})
    assert not (tmp_path / "logs").exists()


def test_configs_are_described_with_their_source(tmp_path: Path) -> None:
    config = {"log.retention.hours": 9, "log.roll.ms": 77}
    with stratalog.open(tmp_path, config=config) as logs:
        logs.create("t", retention_ms=3)
        said = logs.describe_configs("t")
        assert said["retention.ms"].synonyms == (
            ConfigSynonym("retention.ms", "3", "topic"),
            ConfigSynonym("log.retention.hours", "9", "broker"),
            ConfigSynonym("log.retention.hours", "168", "default"),
        )
        assert said["segment.ms"][1:4] == ("77", "broker", "log.roll.ms")
        assert said["segment.bytes"][1:4] == ("1073741824", "default", "segment.bytes")
        with stratalog.open(tmp_path, read_only=True, config=config) as reader:
            assert reader.describe_configs("t") == said
            logs.alter_configs("t", {"retention.ms": None})
            assert reader.describe_configs("t")["retention.ms"][1:4] == (
                "32400000", "broker", "log.retention.hours",
            )  # fmt: skip
        with pytest.raises(UnknownPartitionError):
            logs.describe_configs("u")


def test_commit_goes_by_the_brokers_defaults() -> None:
    disk = memory()
    key = CommitKey("query", 1)
    pieces = stage(
        disk,
        ROOT,
        key,
        {("t", 0): ["x" * 300], ("new", 0): ["y"]},
        clock=disk.clock,
        batch_bytes=1000,
    )
    with open_memory(disk) as logs:
        logs.create("t")

    def commit(config: dict[str, object], **topic: object) -> None:
        plan = TopicPlan(1, {name.replace("_", "."): str(each) for name, each in topic.items()})
        commit_pieces(
            ROOT,
            key,
            pieces,
            topics={"new": plan},
            config=config,
            file_system=disk,
            clock=disk.clock,
        )

    with pytest.raises(BatchTooLargeError):
        commit({"message.max.bytes": 200})
    with pytest.raises(UsageError, match=r"min.compaction.lag.ms \(10\) is above"):
        commit({"log.cleaner.max.compaction.lag.ms": 5}, min_compaction_lag_ms=10)
    commit({"message.max.bytes": 1000})
    with open_memory(disk) as logs:
        assert logs.topic("new").config.overrides() == {}
        assert logs.latest("t") == 1
