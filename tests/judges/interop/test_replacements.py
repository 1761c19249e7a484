"""A real Kafka is started between the death of a replacement of segments and its replay: it finds a sound
log, with old or new segments, appends to it, and the replay finishes what was decided."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

import stratalog
from stratalog.clock import SYSTEM_CLOCK
from stratalog.records.model import BatchHeader
from stratalog.storage.commits.journal import read_journal
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.segment_groups import PartitionGroups
from stratalog.storage.files.filesystem import OsFileSystem
from tests.judges.interop.real_client import Place, consume
from tests.judges.interop.test_commits import QUIET, Dying
from tests.judges.kafka import oracle
from tests.judges.peers.oracle_fixture import KafkaOracle, kafka_oracle
from tests.manager.rewriting import Replacing

__all__ = ["kafka_oracle"]

pytestmark = pytest.mark.interop

ORDERS: Place = ("orders", 0)
CONFIGS = {"internal.segment.bytes": 2000, "retention.ms": -1}


class DroppingEvery:
    """Keeps all batches but every so-many-th."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, header: BatchHeader) -> bool:
        return header.base_offset % self.number != 0


@pytest.fixture(scope="module")
def broker(
    kafka_oracle: KafkaOracle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[oracle.Kafka]:
    running = kafka_oracle.broker(tmp_path_factory.mktemp("replaced") / "broker", QUIET)
    running.start()
    try:
        running.create_topic("orders", 1, CONFIGS)
        produce(running, 150)
        assert running.stop()
        yield running
    finally:
        running.kill()


def produce(broker: oracle.Kafka, count: int) -> None:
    """One record for each batch."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 1})
    for number in range(count):
        producer.produce("orders", f"value {number}", f"key {number}", partition=0)
    assert producer.flush(30) == 0


def offsets(root: Path) -> list[int]:
    with stratalog.open(root, read_only=True) as logs:
        return [record.offset for record in logs.read("orders").records()]


def replace_and_die(root: str, key: CommitKey, plan: PartitionGroups, die_at: int) -> None:
    Replacing(Dying(die_at), root, SYSTEM_CLOCK).commit(key, plan)


def died(root: Path, key: CommitKey, plan: PartitionGroups, die_at: int) -> bool:
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=replace_and_die, args=(str(root), key, plan, die_at))
    process.start()
    process.join()
    assert process.exitcode in (0, 9)
    return process.exitcode == 9


def test_kafka_is_started_between_a_death_and_the_replay(broker: oracle.Kafka) -> None:
    (root,) = broker.log_dirs
    here = Replacing(OsFileSystem(), str(root), SYSTEM_CLOCK)
    deaths = 0
    for version, die_at in enumerate((12, 17, 23, 29, 38)):
        key = CommitKey("rewrite", version)
        before = offsets(root)
        keep = DroppingEvery(version + 3)
        plan = here.plan(key, ORDERS, keep, size=2)
        end = plan.groups[-1].end
        new = [offset for offset in before if offset >= end or offset % keep.number != 0]
        is_dead = died(root, key, plan, die_at)
        state = read_journal(OsFileSystem(), str(root))
        is_decided = bool(state.open)
        deaths += is_dead and is_decided
        broker.start()
        produce(broker, 80)
        got = [record.offset for record in consume(broker.bootstrap, [ORDERS])[ORDERS]]
        check_groups(got, before, new, plan)
        assert [e for e in broker.log_events() if e.is_warning and "orders-" in e.message] == []
        assert broker.stop()
        appended = got[-80:]
        result = here.commit(key, plan)
        assert result.was_done_before == (is_decided or state.is_done(key))
        assert result.is_complete
        assert offsets(root) == [*new, *appended]
        left = [path.name for path in root.iterdir() if path.name.startswith("stratalog-piece")]
        assert left == []
    broker.start()
    got = [record.offset for record in consume(broker.bootstrap, [ORDERS])[ORDERS]]
    assert got == offsets(root)
    assert broker.stop()
    assert deaths >= 3


def check_groups(got: list[int], before: list[int], new: list[int], plan: PartitionGroups) -> None:
    """Each group is there as it was or as it is to be, never a mixture."""
    for group in plan.groups:
        span = range(group.start, group.end)
        found = [offset for offset in got if offset in span]
        assert found in (
            [offset for offset in before if offset in span],
            [offset for offset in new if offset in span],
        )
