"""``stratalog.open`` and a real Kafka on one log directory: never both writing, reading beside it, and each
going on where the other stopped.

One broker, filled by a real client (librdkafka): plain, idempotent, transactional, committed and aborted,
with every codec. The tests run in their order: each goes on where the one before has left the directory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

import stratalog
from stratalog.errors import LockedError
from stratalog.manager.write.partitioner import partition_of_key
from stratalog.records.model import Record
from tests.judges.interop.real_client import Place, consume
from tests.judges.kafka import oracle
from tests.judges.peers.oracle_fixture import KafkaOracle, kafka_oracle
from tests.manager.logdirs import tree

__all__ = ["kafka_oracle"]

pytestmark = pytest.mark.interop

CONFIGS = {"internal.segment.bytes": 20_000, "index.interval.bytes": 512, "retention.ms": -1}
PARTITIONS = 3
PLACES: list[Place] = [("orders", number) for number in range(PARTITIONS)]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def broker(
    kafka_oracle: KafkaOracle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[oracle.Kafka]:
    running = kafka_oracle.broker(tmp_path_factory.mktemp("beside") / "broker")
    running.start()
    try:
        running.create_topic("orders", PARTITIONS, CONFIGS)
        produce(running.bootstrap)
        wait_for_markers(log_dir(running))
        yield running
    finally:
        running.kill()


def produce(bootstrap: str) -> None:
    """Records of every kind; the keyed ones go where librdkafka's murmur2 sends them."""
    common = {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"}
    for codec in CODECS:
        plain = Producer({**common, "compression.type": codec, "linger.ms": 5})
        for n in range(60):
            plain.produce(
                "orders", key=f"{codec}-{n}", value=f"{n}" * (n + 1), headers={"codec": codec}
            )
        assert plain.flush(30) == 0
    safe = Producer({**common, "enable.idempotence": True})
    for n in range(50):
        safe.produce("orders", key=f"safe-{n}", value=None if n % 5 == 0 else str(n))
    assert safe.flush(30) == 0
    for name in ("commit", "abort", "commit", "abort"):
        producer = Producer({**common, "transactional.id": f"to-{name}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for n in range(30):
            producer.produce("orders", key=f"{name}-{n}", value=name)
        producer.flush(30)
        if name == "commit":
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


def wait_for_markers(path: Path) -> None:
    """A client is told of a transaction's end before the broker has written it everywhere."""
    before = None
    for _ in range(100):
        now = folders(path)
        if now == before:
            return
        before = now
        time.sleep(0.5)
    pytest.fail("the broker does not come to rest")


def log_dir(broker: oracle.Kafka) -> Path:
    (path,) = broker.log_dirs
    return path


def read(path: Path, *, committed: bool = False) -> dict[Place, list[Record]]:
    """The same as ``consume``, from the files."""
    found: dict[Place, list[Record]] = {place: [] for place in PLACES}
    isolation = "read_committed" if committed else "read_uncommitted"
    with stratalog.open(path, read_only=True) as logs:
        for each in logs.read("orders", isolation=isolation).records():
            found[each.topic, each.partition].append(
                Record(
                    each.value,
                    each.key,
                    each.timestamp,
                    each.headers,
                    each.offset,
                    each.timestamp_type,
                )
            )
    return found


def complaints(broker: oracle.Kafka) -> list[str]:
    """What Kafka says against the log, at whatever level. That it deletes the snapshot of the last stop
    when a later one is there it says of its own folders, too."""
    return [
        event.message
        for event in broker.log_events()
        if (event.is_warning or oracle.TELLING.search(event.message))
        and (event.logger in oracle.STORAGE_LOGGERS or "orders" in event.message)
        and not event.message.startswith("Deleted producer state snapshot")
    ]


def folders(path: Path) -> dict[str, tuple[bytes, int, int]]:
    """The partitions of the topic, byte by byte, with their times. The root is the broker's own: it
    writes high watermarks there every few seconds."""
    return {
        f"{folder.name}/{name}": entry
        for folder in sorted(path.glob("orders-*"))
        for name, entry in tree(folder).items()
    }


# --- while Kafka runs ------------------------------------------------------------------------------


def test_running_kafka_refuses_us(broker):
    before = folders(log_dir(broker))
    for _ in range(2):  # nor does our asking let go of its lock
        with pytest.raises(LockedError, match="locked by a broker or another writer"):
            stratalog.open(log_dir(broker))
    assert folders(log_dir(broker)) == before
    assert broker.is_running()


def test_reader_beside_it_reads_what_a_client_reads(broker):
    before = folders(log_dir(broker)), sorted(each.name for each in log_dir(broker).iterdir())
    for committed in (False, True):
        ours = read(log_dir(broker), committed=committed)
        assert ours == consume(broker.bootstrap, PLACES, committed=committed)
        assert sum(map(len, ours.values())) == 5 * 60 + 50 + (60 if committed else 120)
    after = (
        folders(log_dir(broker)),
        sorted(each.name for each in log_dir(broker).iterdir() if not each.name.endswith(".tmp")),
    )
    assert after[0] == before[0]
    assert set(after[1]) - {"__consumer_offsets-0"} == set(before[1]) - {"__consumer_offsets-0"}


def test_keys_are_where_we_would_have_put_them(broker):
    for (_, partition), records in read(log_dir(broker)).items():
        assert records
        for record in records:
            assert record.key is not None
            assert partition_of_key(record.key, PARTITIONS) == partition


def test_reader_beside_it_while_it_is_written_to(broker):
    """Every look is a whole run of each partition that only grows; a tail gets every record once."""
    ends = {place: len(records) for place, records in read(log_dir(broker)).items()}
    count = 6000
    done = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 2})
        for n in range(count):
            producer.produce("orders", value=f"live-{n}", partition=n % PARTITIONS)
            if n % 200 == 0:
                producer.flush(30)
        producer.flush(30)
        done.set()

    with stratalog.open(log_dir(broker), read_only=True) as logs:
        tail = logs.tail("orders", timeout_s=30)
        writer = threading.Thread(target=write)
        writer.start()
        looks, last = 0, dict(ends)
        while not done.is_set() or looks == 0:
            for place, records in read(log_dir(broker)).items():
                offsets = [record.offset for record in records]
                assert offsets == sorted(set(offsets))
                assert len(offsets) >= last[place]
                last[place] = len(offsets)
            looks += 1
        writer.join()
        seen = [next(tail) for _ in range(count)]
    for partition in range(PARTITIONS):
        own = [record.value for record in seen if record.partition == partition]
        assert own == [f"live-{n}".encode() for n in range(partition, count, PARTITIONS)]
    assert looks > 2
    assert read(log_dir(broker)) == consume(broker.bootstrap, PLACES)


# --- one after the other ---------------------------------------------------------------------------


def test_each_goes_on_where_the_other_stopped(broker):
    before = consume(broker.bootstrap, PLACES, committed=True)
    assert broker.stop()
    path = log_dir(broker)
    with stratalog.open(path) as logs:
        for number in range(PARTITIONS):
            assert logs.partition("orders", number).report.recovered_segments == []
        for codec in CODECS:
            logs.append(
                "orders", [(f"ours-{codec}-{n}", f"{codec}" * 20) for n in range(40)], codec=codec
            )
        with logs.transaction() as txn:
            txn.append("orders", [(f"ours-committed-{n}", "yes") for n in range(20)])
        doomed = logs.transaction()
        doomed.append("orders", [(f"ours-aborted-{n}", "no") for n in range(20)])
        doomed.abort()
    written = read(path, committed=True)
    broker.start()
    assert complaints(broker) == []
    after = consume(broker.bootstrap, PLACES, committed=True)
    assert after == written
    added = {place: after[place][len(before[place]) :] for place in PLACES}
    assert {place: after[place][: len(before[place])] for place in PLACES} == before
    assert sum(map(len, added.values())) == len(CODECS) * 40 + 20
    values = {record.value for records in added.values() for record in records}
    assert b"yes" in values
    assert b"no" not in values
    produce(
        broker.bootstrap
    )  # Kafka goes on with it: epochs, producers and indexes are as it wants
    assert complaints(broker) == []
    whole = consume(broker.bootstrap, PLACES, committed=True)
    assert broker.stop()
    with stratalog.open(path) as logs:
        found = dict.fromkeys(PLACES, 0)
        for record in logs.read("orders", isolation="read_committed").records():
            found[record.topic, record.partition] += 1
        assert found == {place: len(records) for place, records in whole.items()}
    broker.start()
    assert complaints(broker) == []
    assert consume(broker.bootstrap, PLACES, committed=True) == whole


def test_running_stratalog_refuses_kafka(broker):
    whole = consume(broker.bootstrap, PLACES)
    assert broker.stop()
    with stratalog.open(log_dir(broker)) as logs:
        logs.append("orders", [("key", "while Kafka waits")])
        with pytest.raises(oracle.OracleError, match="ended while starting"):
            broker.start()
        assert not broker.is_running()
        assert any("Failed to acquire lock" in event.message for event in broker.log_events())
        logs.append("orders", [("key", "and waits")])
    broker.start()
    assert complaints(broker) == []
    assert sum(map(len, consume(broker.bootstrap, PLACES).values())) == 2 + sum(
        map(len, whole.values())
    )


def test_directory_of_a_killed_kafka_is_recovered_and_given_back(broker):
    whole = consume(broker.bootstrap, PLACES, committed=True)
    broker.kill()
    path = log_dir(broker)
    assert (path / ".lock").exists()
    with stratalog.open(path) as logs:  # the lock of a dead one is no obstacle
        logs.append("orders", [("key", "after the crash")])
        for number in range(PARTITIONS):
            assert logs.partition("orders", number).report.recovered_segments
    broker.start()
    assert complaints(broker) == []
    after = consume(broker.bootstrap, PLACES, committed=True)
    assert sum(map(len, after.values())) == 1 + sum(map(len, whole.values()))
    assert all(after[place][: len(whole[place])] == whole[place] for place in PLACES)


def test_topic_that_we_make_is_set_aside_by_kafka_and_nothing_else_is(broker):
    """Kafka serves only topics that its metadata knows. What it does with ours is said in the guide."""
    assert broker.stop()
    with stratalog.open(log_dir(broker)) as logs:
        logs.create("ours", 2)
        logs.append("ours", ["kept"], partition=0)
    broker.start()
    names = {each.name for each in log_dir(broker).iterdir()}
    assert not {"ours-0", "ours-1"} & names
    stray = [name for name in names if name.startswith("ours-") and name.endswith("-stray")]
    assert len(stray) == 2
    assert broker.stop()
    with stratalog.open(log_dir(broker)) as logs:
        assert "ours" not in logs.topics()  # and we put no empty one in its place
        assert "orders" in logs.topics()
