"""What salvage writes is Kafka's: real Kafka 4.3 takes over salvaged partitions, and a client consumes
exactly the records that were kept.

Logs of several formats and codecs, with transactions and after compaction, are damaged at random and salvaged
into one log directory. Kafka adopts it twice: in mode ``recover`` it checks every CRC and makes every index
anew, in mode ``trust`` it uses ours.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import stratalog
from stratalog.rewrite.salvage.directory import write_directory
from stratalog.rewrite.salvage.folders import find_folders
from stratalog.rewrite.salvage.plan import SalvagePlan, plan_salvage
from tests.judges.interop.real_client import consume
from tests.judges.kafka.oracle import Adoption
from tests.judges.peers.oracle_fixture import KafkaOracle, kafka_oracle
from tests.rewrite.salvage.worlds import FILES, damage_world, make_world, verify

__all__ = ["kafka_oracle"]

pytestmark = pytest.mark.interop

KINDS = ("v2-none", "v2-mixed", "v2-transactions", "v2-compacted", "v1-none", "v1-mixed", "v0-gzip")


@pytest.fixture(scope="module")
def salvaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[SalvagePlan]]:
    root = tmp_path_factory.mktemp("damaged")
    for number, kind in enumerate(KINDS):
        rng = random.Random(number)
        world = make_world(root / "made", kind, rng)
        damage_world(world, rng, 4)
        world.store()
        world.partition.rename(root / f"{kind}-0")
    (root / "made").rmdir()
    target = tmp_path_factory.mktemp("new") / "logs"
    plans = [plan_salvage(FILES, each.path) for each in find_folders(FILES, [str(root)])]
    write_directory(FILES, plans, str(target))
    assert verify(target) == []
    return target, plans


def test_what_is_salvaged_is_worth_adopting(salvaged: tuple[Path, list[SalvagePlan]]) -> None:
    _, plans = salvaged
    assert len(plans) == len(KINDS)
    assert sum(plan.has_losses for plan in plans) >= 4
    assert all(plan.kept_records for plan in plans)


@pytest.fixture(scope="module", params=["recover", "trust"])
def adopted(
    request: pytest.FixtureRequest,
    kafka_oracle: KafkaOracle,
    salvaged: tuple[Path, list[SalvagePlan]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Adoption]:
    target, plans = salvaged
    broker = kafka_oracle.broker(
        tmp_path_factory.mktemp("kafka") / "broker",
        {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1},
    )
    try:
        folders = [target / str(plan.topic_partition) for plan in plans]
        yield broker.adopt(*folders, mode=request.param)
    finally:
        broker.kill()


def test_kafka_takes_it_over_without_a_word(
    adopted: Adoption, salvaged: tuple[Path, list[SalvagePlan]]
) -> None:
    assert adopted.warnings == []
    assert adopted.intact
    ends = {plan.topic_partition.topic: (plan.log_start, plan.log_end) for plan in salvaged[1]}
    for partition in adopted.partitions:
        assert partition.indexes_rebuilt == [], partition.topic
        found = (partition.log_start_offset, partition.log_end_offset)
        assert found == ends[partition.topic], partition.topic


def test_a_client_consumes_exactly_what_was_kept(
    adopted: Adoption, salvaged: tuple[Path, list[SalvagePlan]]
) -> None:
    target, plans = salvaged
    got = consume(adopted.bootstrap, [(plan.topic_partition.topic, 0) for plan in plans])
    logs = stratalog.open(target, read_only=True)
    try:
        for plan in plans:
            topic = plan.topic_partition.topic
            rows = list(logs.read(topic, isolation="read_uncommitted").records())
            assert len(rows) == plan.kept_records
            expected = [(row.offset, row.key, row.value) for row in rows]
            seen = [(each.offset, each.key, each.value) for each in got[topic, 0]]
            assert seen == expected, topic
    finally:
        logs.close()
