"""A killed Kafka: its partitions are recovered here to where Kafka itself recovers them.

A real broker is filled by a real client, plain, idempotent and transactional, with every codec, and killed
while records are on their way. A copy of its folders is recovered here, the originals by Kafka: to the same
ends, records and files.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from stratalog.clock import SYSTEM_CLOCK
from stratalog.storage.formats.checkpoints import decode_offsets
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import PartitionLog, Watermark
from stratalog.storage.views.log_view import Isolation
from stratalog.types import TopicPartition
from tests.judges.interop.real_client import Place, consume
from tests.judges.kafka import oracle
from tests.judges.peers.oracle_fixture import KafkaOracle, kafka_oracle
from tests.storage.logs import records

__all__ = ["kafka_oracle"]

pytestmark = pytest.mark.interop

CONFIGS = {
    "internal.segment.bytes": 40_000,
    "index.interval.bytes": 512,
    "segment.index.bytes": 8192,
    "retention.ms": -1,
}
PARTITIONS = 3
PLACES: list[Place] = [
    *(("plain", number) for number in range(PARTITIONS)),
    *(("transactions", number) for number in range(PARTITIONS)),
]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def killed(
    kafka_oracle: KafkaOracle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[oracle.Kafka, Path]]:
    """The broker, dead, and a copy of its log directory."""
    root = tmp_path_factory.mktemp("killed")
    broker = kafka_oracle.broker(
        root / "broker",
        {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1},
    )
    broker.start()
    try:
        for topic in ("plain", "transactions"):
            broker.create_topic(topic, PARTITIONS, CONFIGS)
        produce_plain(broker.bootstrap)
        open_ones = produce_transactions(broker.bootstrap)
        stop = threading.Event()
        pressing = threading.Thread(target=press, args=(broker.bootstrap, stop))
        pressing.start()
        assert stop.wait(0.5) is False
        broker.kill()
        stop.set()
        pressing.join()
        for producer in open_ones:
            producer.purge()
        (log_dir,) = broker.log_dirs
        shutil.copytree(log_dir, root / "copy")
        yield broker, root / "copy"
    finally:
        broker.kill()


def produce_plain(bootstrap: str) -> None:
    for round_, codec in enumerate(CODECS):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": round_ % 2 == 0,
                "linger.ms": 5,
                "batch.num.messages": 40,
            }
        )
        for at in range(400):
            value = f"{codec} {at} ".encode() * (at % 30)
            producer.produce("plain", value, f"key {at % 7}", partition=at % PARTITIONS)
            if at % 50 == 0:
                producer.flush()
        producer.flush()


def produce_transactions(bootstrap: str) -> list[Producer]:
    """Commits and aborts, two producers in turn; one transaction stays open."""
    producers = [
        Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"judge-{number}",
                "transaction.timeout.ms": 600_000,  # Kafka must not end it by itself meanwhile
                "linger.ms": 0,
            }
        )
        for number in range(2)
    ]
    for producer in producers:
        producer.init_transactions()
    for turn in range(12):
        for number, producer in enumerate(producers):
            producer.begin_transaction()
            for at in range(15):
                value = f"{turn} {number} {at} ".encode() * (at + 1)
                producer.produce("transactions", value, partition=at % PARTITIONS)
            producer.flush()
        for number, producer in enumerate(producers):
            if (turn + number) % 3:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    producers[0].begin_transaction()
    producers[0].produce("transactions", b"undecided", partition=0)
    producers[0].flush()
    return producers


def press(bootstrap: str, stop: threading.Event) -> None:
    """Records without end, none of them waited for."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    at = 0
    while not stop.is_set():
        try:
            producer.produce("plain", b"pressing " * 20, partition=at % PARTITIONS)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
        at += 1
    producer.purge()
    producer.flush(1)


def recover(copy: Path, place: Place) -> PartitionLog:
    points = decode_offsets((copy / "recovery-point-offset-checkpoint").read_bytes())
    topic, number = place
    return PartitionLog.open(
        str(copy / f"{topic}-{number}"),
        LogConfig.of(CONFIGS),
        clock=SYSTEM_CLOCK,
        recovery_point=points.get(TopicPartition(*place), 0),
        watermark=Watermark.WRITTEN,
    )


def test_kafka_and_we_recover_the_same(killed: tuple[oracle.Kafka, Path]) -> None:
    broker, copy = killed
    logs = {place: recover(copy, place) for place in PLACES}
    ours = {
        committed: {
            place: records(log, None, Isolation.COMMITTED if committed else Isolation.UNCOMMITTED)
            for place, log in logs.items()
        }
        for committed in (False, True)
    }
    ends = {place: log.log_end for place, log in logs.items()}
    recovered = {place: log.report.recovered_segments for place, log in logs.items()}
    for log in logs.values():
        log.close()
    assert all(recovered.values())
    assert len(ours[True]["transactions", 0]) < len(ours[False]["transactions", 0])

    broker.start()
    loads = {
        Path(found["dir"]).name: int(found["end"])
        for event in broker.log_events()
        if (found := oracle.LOADED.search(event.message))
    }
    assert {place: loads[f"{place[0]}-{place[1]}"] for place in PLACES} == ends
    for committed, want in ours.items():
        assert consume(broker.bootstrap, PLACES, committed=committed) == want
    assert broker.stop()
    (log_dir,) = broker.log_dirs
    for topic, number in PLACES:
        name = f"{topic}-{number}"
        assert files_of(copy / name) == files_of(log_dir / name), name


def files_of(folder: Path) -> dict[str, bytes]:
    """All but what Kafka's next leader writes, and the topic's id."""
    kinds = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in kinds}
