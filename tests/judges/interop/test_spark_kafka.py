"""Spark, our source and sink, and a real Apache Kafka on one log directory.

Spark's own Kafka source reads a topic from the running broker, ours reads its files: the same DataFrame. What
our sink wrote, Kafka serves, also when it was started while a commit lay half done. A stream follows the
directory of a broker that writes, rolls, deletes and compacts. One broker and one session for all.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import stratalog
from stratalog.storage.commits.journal import read_journal
from stratalog.storage.files.filesystem import OsFileSystem
from tests.judges.interop.real_client import consume
from tests.judges.interop.spark_processes import own_session, wait_for
from tests.judges.kafka import oracle
from tests.judges.kafka.spark_connector import connector_jars
from tests.judges.peers.oracle_fixture import KafkaOracle, kafka_oracle

__all__ = ["kafka_oracle"]

pytest.importorskip("pyspark")
pytestmark = pytest.mark.interop

PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_MS = int(time.time() * 1000) - 3_600_000
TOPICS: dict[str, dict[str, object]] = {
    "orders": {"internal.segment.bytes": 20_000},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "compacted": {
        "cleanup.policy": "compact",
        "internal.segment.bytes": 4000,
        "min.cleanable.dirty.ratio": "0.01",
    },
    "empty": {},
}
#: Background work comes at once, and not after half a minute.
BROKER = {
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 200,
    "log.cleaner.backoff.ms": 100,
    "log.segment.delete.delay.ms": 100,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark-kafka")


@pytest.fixture(scope="module")
def spark(folder: Path) -> Iterator[Any]:
    from tests.spark_programs.killing_sink import VARIABLE, KillingSource

    try:
        jars = connector_jars()
    except oracle.OracleUnavailable as reason:
        pytest.skip(f"Spark's Kafka connector is not available: {reason}")
    configs = {"spark.jars": ",".join(map(str, jars))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(folder / "kill.json"))
        with own_session(folder, "local[2,3]", configs) as started:
            started.dataSource.register(KillingSource)
            yield started


@pytest.fixture(scope="module")
def broker(kafka_oracle: KafkaOracle, folder: Path) -> Iterator[oracle.Kafka]:
    running = kafka_oracle.broker(folder / "broker", BROKER)
    running.start()
    try:
        for topic, configs in TOPICS.items():
            running.create_topic(topic, PARTITIONS, {"retention.ms": -1, **configs})
        fill(running.bootstrap)
        yield running
    finally:
        running.kill()


def log_dir(broker: oracle.Kafka) -> str:
    (path,) = broker.log_dirs
    return str(path)


def fill(bootstrap: str) -> None:
    """Records of every kind, in every codec."""
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "batch.num.messages": 20}
        )
        for n in range(90):
            value = None if n % 7 == 0 else b"" if n % 7 == 1 else f"{codec} {n} ".encode() * n
            headers: list[tuple[str, str | bytes | None]] = []
            if n % 4 == 0:
                headers = [("codec", codec.encode()), ("日本", None), ("codec", b"\xff\x00")]
            for topic in ("orders", "stamped"):
                producer.produce(
                    topic,
                    value,
                    None if n % 5 == 0 else b"" if n % 5 == 1 else f"key {n}".encode(),
                    partition=n % PARTITIONS,
                    timestamp=FIRST_MS + 1000 * n,
                    headers=headers,
                )
        for n in range(400):
            producer.produce("compacted", f"{codec} {n}", f"key {n % 9}", partition=n % PARTITIONS)
            if n % 40 == 0:
                producer.flush(30)
        assert producer.flush(30) == 0
    for number, word in enumerate(("commit", "abort", "commit", "abort")):
        producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"{word} {number}"}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        for n in range(30):
            producer.produce("orders", word, f"{word} {n}", partition=n % PARTITIONS)
        producer.flush(30)
        (producer.commit_transaction if word == "commit" else producer.abort_transaction)(30)


# --- the two sources -------------------------------------------------------------------------------


def by_kafka(reader: Any, broker: oracle.Kafka, **options: object) -> Any:
    reader = reader.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    return with_options(reader, options).load()


def by_files(reader: Any, broker: oracle.Kafka, **options: object) -> Any:
    return with_options(reader.format("stratalog"), options).load(log_dir(broker))


def with_options(reader: Any, options: dict[str, object]) -> Any:
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader


def rows(frame: Any) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def at_rest(broker: oracle.Kafka) -> None:
    """Markers are written behind a client's back, and the cleaner works when it wants to."""
    before: object = None

    def is_same() -> bool:
        nonlocal before
        last, before = (
            before,
            sorted(
                (str(path), path.stat().st_size, path.stat().st_mtime_ns)
                for topic in TOPICS
                for path in Path(log_dir(broker)).glob(f"{topic}-*/*.log")
            ),
        )
        time.sleep(0.5)
        return last == before

    wait_for("the broker to come to rest", is_same)


SAME: dict[str, dict[str, object]] = {
    "plain": {"subscribe": "orders,stamped,empty"},
    "headers": {"subscribe": "orders,stamped,compacted", "includeHeaders": "true"},
    "committed": {
        "subscribePattern": "orders|comp.*",
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
    },
    "offsets": {
        "subscribe": "orders",
        "startingOffsets": '{"orders": {"0": 7, "1": -2, "2": 31}}',
        "endingOffsets": '{"orders": {"0": 60, "1": 33, "2": -1}}',
    },
    "times": {
        "subscribe": "orders",
        "startingTimestamp": str(FIRST_MS + 20_000),
        "endingTimestamp": str(FIRST_MS + 60_000),
    },
    "parts": {"assign": '{"orders": [1], "stamped": [0, 2]}', "minPartitions": 7},
}


@pytest.mark.parametrize("options", SAME.values(), ids=SAME)
def test_both_sources_give_the_same_rows(
    spark: Any, broker: oracle.Kafka, options: dict[str, object]
) -> None:
    at_rest(broker)
    theirs = by_kafka(spark.read, broker, **options)
    ours = by_files(spark.read, broker, **options)
    assert ours.schema == theirs.schema
    found = rows(ours)
    assert found == rows(theirs)
    assert len(found) > 30


def test_there_was_something_to_compare(spark: Any, broker: oracle.Kafka) -> None:
    """Nulls, empty bytes, gaps, both kinds of time, aborted records: all of them were there."""
    found = rows(
        by_files(spark.read, broker, subscribe="orders,stamped,compacted", includeHeaders="true")
    )
    for name in ("key", "value"):
        assert {None, b""} < {row[name] for row in found}
    assert {row.timestampType for row in found} == {0, 1}
    assert {row.headers is None for row in found} == {True, False}
    compacted = [row for row in found if row.topic == "compacted"]
    assert len(compacted) < 400 * len(CODECS) - 100
    codecs = by_files(spark.read, broker, columns="codec", subscribe="orders").distinct().collect()
    assert {row.codec for row in codecs} == set(CODECS)
    seen = by_files(spark.read, broker, subscribe="orders").count()
    committed = by_files(spark.read, broker, subscribe="orders", isolationLevel="read_committed")
    assert seen - committed.count() == 60


def test_both_streams_go_by_the_same_offsets(
    spark: Any, broker: oracle.Kafka, folder: Path
) -> None:
    at_rest(broker)
    options = {"subscribe": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 100}
    noted = []
    for load in (by_kafka, by_files):
        writer = load(spark.readStream, broker, **options).writeStream.format("noop")
        checkpoint = str(folder / f"checkpoint-{load.__name__}")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        progress = [each["sources"][0] for each in query.recentProgress if each["numInputRows"]]
        noted.append([as_offsets(each["endOffset"]) for each in progress])
    assert noted[0] == noted[1]
    assert len(noted[0]) > 4


def as_offsets(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


# --- a running broker ------------------------------------------------------------------------------


def write(frame: Any, path: object, **options: object) -> None:
    by = options.pop("by", "stratalog")
    with_options(frame.write.format(by).mode("append"), options).save(str(path))


def test_sink_refuses_a_directory_that_kafka_has_open(spark: Any, broker: oracle.Kafka) -> None:
    frame = spark.sql("SELECT 'key' AS key, 'value' AS value")
    with pytest.raises(Exception, match="has held the lock of this directory") as raised:
        write(frame, log_dir(broker), topic="orders", lockTimeout="200ms")
    assert "LockedError" in str(raised.value)
    assert "\tat " not in str(raised.value), "a Java stack trace"
    assert broker.is_running()


def test_stream_follows_a_broker_that_rolls_deletes_and_compacts(
    spark: Any, broker: oracle.Kafka, folder: Path
) -> None:
    """Each record once. All keys differ: what is compacted is written anew, and nothing is to be missed."""
    broker.create_topic(
        "deleted",
        2,
        {"internal.segment.bytes": 8000, "retention.bytes": 40_000, "retention.ms": -1},
    )
    broker.create_topic("rewritten", 2, {**TOPICS["compacted"], "internal.segment.bytes": 8000})
    target = folder / "followed"
    options = {"subscribe": "deleted,rewritten", "startingOffsets": "earliest"}
    frame = by_files(spark.readStream, broker, **options)
    frame = frame.selectExpr("topic", "key", "value", "partition")
    writer = frame.writeStream.format("stratalog").option("partitions", 2)
    query = writer.option("checkpointLocation", str(folder / "followed-checkpoint")).start(
        str(target)
    )
    count = 0

    def copied() -> int:
        if not (target / "deleted-0").exists():
            return 0
        with stratalog.open(str(target), read_only=True) as logs:
            return sum(logs.latest("deleted", number) for number in range(2))

    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 10})
    try:
        while count < 3000:
            for _ in range(100):
                for topic in ("deleted", "rewritten"):
                    producer.produce(topic, f"{count:0100}", f"{count}", partition=count % 2)
                count += 1
            assert producer.flush(30) == 0
            # No faster than it is read, or retention takes what nobody has seen.
            while query.exception() is None and copied() <= count - 200:
                time.sleep(0.05)
            assert query.exception() is None
        query.processAllAvailable()
    finally:
        query.stop()
    with stratalog.open(str(target), read_only=True) as logs:
        for topic in ("deleted", "rewritten"):
            found = sorted(int(record.key or b"-1") for record in logs.read(topic).records())
            assert found == list(range(count)), topic
    events = " ".join(event.message for event in broker.log_events())
    assert "Deleting segment" in events or "Deleted log" in events
    start = min(int(path.stem) for path in Path(log_dir(broker), "deleted-0").glob("*.log"))
    assert start > 0, "retention has deleted something meanwhile"
    cleaned = Path(log_dir(broker), "cleaner-offset-checkpoint").read_text()
    assert "rewritten 0" in cleaned, "the cleaner has been at it"


# --- one after the other ---------------------------------------------------------------------------


def complaints(broker: oracle.Kafka) -> list[str]:
    return [
        event.message
        for event in broker.log_events()
        if (event.is_warning or oracle.TELLING.search(event.message))
        and event.logger in oracle.STORAGE_LOGGERS
        and "orders" in event.message
        and not event.message.startswith("Deleted producer state snapshot")
    ]


def test_kafka_is_started_between_a_killed_commit_and_its_replay(
    spark: Any, broker: oracle.Kafka, folder: Path
) -> None:
    """The commit dies when one partition has its records and the others have none."""
    places = [("orders", number) for number in range(PARTITIONS)]
    before = consume(broker.bootstrap, places)
    frame = spark.range(0, 3000, 1, 3).selectExpr(
        "cast(id AS string) AS key", "repeat(concat('ours ', id, ' '), 5) AS value"
    )
    options = {"topic": "orders", "compression": "zstd", "txnAppId": "load", "txnVersion": 1}
    assert broker.stop()
    (folder / "kill.json").write_text(
        json.dumps({"who": "self", "before": "write_at", "path": "orders-1/"})
    )
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        write(frame, log_dir(broker), by="stratalog_killing", **options)
    assert (folder / "kill.json.done").exists()
    (open_one,) = read_journal(OsFileSystem(), log_dir(broker)).open
    assert open_one.intent.key.owner == "load > orders"
    seen = by_files(spark.read, broker, subscribe="orders")
    assert seen.filter("value like 'ours %'").count() == 0, "a reader of ours sees none of it"

    broker.start()
    assert complaints(broker) == []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(60):
        producer.produce("orders", f"theirs {n}", f"{n}", partition=n % PARTITIONS)
    assert producer.flush(30) == 0
    between = consume(broker.bootstrap, places)
    assert all(between[place][: len(before[place])] == before[place] for place in places)
    assert broker.stop()

    write(frame, log_dir(broker), **options)  # finds the promise, and keeps it
    write(frame, log_dir(broker), **options)
    broker.start()
    assert complaints(broker) == []
    after = consume(broker.bootstrap, places)
    for place in places:
        assert after[place][: len(between[place])] == between[place], "what Kafka wrote is kept"
    values = [record.value or b"" for place in places for record in after[place]]
    assert sum(value.startswith(b"theirs") for value in values) == 60
    ours = sorted(int(value.split()[1]) for value in values if value.startswith(b"ours"))
    assert ours == list(range(3000))
    at_rest(broker)
    options = {"subscribe": "orders", "includeHeaders": "true"}
    assert rows(by_files(spark.read, broker, **options)) == rows(
        by_kafka(spark.read, broker, **options)
    )


SUNK = {"internal.segment.bytes": 100_000, "index.interval.bytes": 512}


@pytest.fixture(scope="module")
def sunk(spark: Any, folder: Path) -> Path:
    """What the sink writes: in every codec, small batches, which are appended, and large ones, adopted."""
    target = folder / "sunk"
    frame = spark.range(0, 8000, 1, 4).selectExpr(
        "if(id % 10 = 0, null, cast(id AS string)) AS key",
        "if(id % 11 = 0, null, repeat(md5(cast(id AS string)), 3)) AS value",
        f"timestamp_millis({FIRST_MS} + id) AS timestamp",
        "if(id % 3 = 0, array(struct('h' AS key, cast('1' AS binary) AS value)), null) AS headers",
    )
    for codec in CODECS:
        for rows in (frame.limit(500), frame):
            write(rows, target, topic="sunk", partitions=2, compression=codec, **SUNK)
    return target


@pytest.mark.parametrize("mode", ["recover", "trust"])
def test_directory_of_the_sink_is_taken_over(
    sunk: Path, kafka_oracle: KafkaOracle, tmp_path: Path, mode: oracle.LoadMode
) -> None:
    broker = kafka_oracle.broker(tmp_path / "broker")
    try:
        adopted = broker.adopt(
            *(sunk / f"sunk-{number}" for number in range(2)), mode=mode, topic_config=SUNK
        )
        assert adopted.warnings == []
        assert adopted.intact
        if mode == "trust":  # the bytes since an entry are not counted across commits, nor by Kafka
            assert [partition.indexes_rebuilt for partition in adopted.partitions] == [[], []]
        theirs = consume(adopted.bootstrap, [("sunk", 0), ("sunk", 1)])
    finally:
        broker.kill()
    assert sum(map(len, theirs.values())) == len(CODECS) * 8500
    with stratalog.open(str(sunk), read_only=True) as logs:
        for (topic, number), found in theirs.items():
            ours = [
                (r.offset, r.key, r.value, r.timestamp, r.headers)
                for r in logs.read(topic, partitions=[number]).records()
            ]
            assert ours == [(r.offset, r.key, r.value, r.timestamp, r.headers) for r in found]
