"""Readers beside a real Kafka whose cleaner never rests: it replaces segments under every look at them.

All keys differ, so that nothing may ever be missing: whoever finds a hole has looked between two steps of a
replacement and taken half of it for all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

import stratalog
from stratalog.inspect.range.plan import plan_range
from tests.inspect.ranges import read, source_of, whole
from tests.judges.kafka import oracle
from tests.judges.peers.oracle_fixture import KafkaOracle, kafka_oracle

__all__ = ["kafka_oracle"]

pytestmark = pytest.mark.interop

RESTLESS = {
    "log.initial.task.delay.ms": 100,
    "log.cleaner.backoff.ms": 20,
    "log.segment.delete.delay.ms": 100,
}
COMPACTED: dict[str, object] = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": 4000,
    "min.cleanable.dirty.ratio": "0.001",
}
COUNT = 6000


@pytest.fixture(scope="module")
def broker(
    kafka_oracle: KafkaOracle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[oracle.Kafka]:
    running = kafka_oracle.broker(tmp_path_factory.mktemp("cleaner") / "broker", config=RESTLESS)
    running.start()
    try:
        running.create_topic("rewritten", 1, COMPACTED)
        yield running
    finally:
        running.kill()


def by_view(root: Path) -> list[int]:
    with stratalog.open(str(root), read_only=True) as logs:
        return [record.offset for record in logs.read("rewritten").records()]


def by_range(root: Path) -> list[int]:
    return [offset for offset, _ in read(plan_range(source_of(root / "rewritten-0")))]


def by_scan(root: Path) -> list[int]:
    return [offset for offset, _ in whole(source_of(root / "rewritten-0"))]


def test_no_look_misses_a_record_while_segments_are_replaced(
    broker: oracle.Kafka, record_property: Callable[[str, object], None]
) -> None:
    (root,) = broker.log_dirs
    done = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1})
        for n in range(COUNT):
            producer.produce("rewritten", f"{n}", f"{n:050}", partition=0)
            if n % 20 == 0:
                producer.flush(30)
        producer.flush(30)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    looks = unfinished = end = 0
    try:
        while not done.is_set() or looks < 3:
            for look in (by_view, by_range, by_scan):
                found = look(Path(root))
                assert found == list(range(len(found))), look.__name__
                assert len(found) >= end
                end = len(found)
                looks += 1
            names = [path.name for path in Path(root, "rewritten-0").iterdir()]
            unfinished += any(name.endswith((".swap", ".cleaned", ".deleted")) for name in names)
    finally:
        writer.join()
    assert by_scan(Path(root)) == list(range(COUNT))
    cleaned = Path(root, "cleaner-offset-checkpoint").read_text()
    assert "rewritten 0" in cleaned, "the cleaner has been at it"
    assert unfinished > 0
    record_property("counted: looks at a partition beside Kafka's cleaner", looks)
