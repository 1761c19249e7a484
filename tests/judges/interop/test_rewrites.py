"""Kafka opens what each rewrite made without a warning, with the originals that are kept next to it, and its
clients read the same records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import stratalog
from stratalog.manager.logs import Logs
from stratalog.manager.rewrites import RewriteOptions
from tests.judges.interop.real_client import Place, consume
from tests.judges.kafka.oracle import Adoption
from tests.judges.peers.golden import golden_set
from tests.judges.peers.oracle_fixture import KafkaOracle, kafka_oracle
from tests.rewrite.directories import copy_of

__all__ = ["kafka_oracle"]

pytestmark = pytest.mark.interop

KEPT = RewriteOptions(roll=True, keep_undo=True)
MERGED = RewriteOptions(roll=True, keep_undo=True, configs={"internal.segment.bytes": 1 << 30})

#: Which golden set goes through which rewrite.
REWRITES: dict[str, tuple[str, Callable[[Logs, str], object]]] = {
    "merge": ("v2-transactions", lambda logs, topic: logs.merge(topic, options=MERGED)),
    "erase": (
        "v2-headers-and-nulls",
        lambda logs, topic: logs.erase(topic, ["key-0001"], options=KEPT),
    ),
    "recompress": (
        "v2-idempotent",
        lambda logs, topic: logs.recompress(topic, "zstd", options=KEPT),
    ),
    "upgrade": ("v1-gzip", lambda logs, topic: logs.upgrade(topic, options=KEPT)),
    "upgrade-old": ("v0-plain", lambda logs, topic: logs.upgrade(topic, options=KEPT)),
}

Row = tuple[int, bytes | None, bytes | None]


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory: pytest.TempPathFactory) -> dict[Place, tuple[Path, list[Row]]]:
    """Partitions that were rewritten: their folders, and the records that a reader must see."""
    made: dict[Place, tuple[Path, list[Row]]] = {}
    for verb, (name, rewrite) in REWRITES.items():
        (copy,) = copy_of(golden_set(name), tmp_path_factory.mktemp(verb))
        with stratalog.open(copy) as logs:
            for topic in logs.topics():
                rewrite(logs, topic)
            kept = {each.topic_partition for each in logs.kept_rewrites()}
            for each in kept:
                found = [
                    (record.offset, record.key, record.value)
                    for record in logs.read(*each).records()
                ]
                made[each.topic, each.partition] = Path(logs.folder(each)), found
    assert len(made) >= len(REWRITES)
    return made


@pytest.fixture(scope="module")
def adopted(
    kafka_oracle: KafkaOracle,
    rewritten: dict[Place, tuple[Path, list[Row]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Adoption]:
    broker = kafka_oracle.broker(
        tmp_path_factory.mktemp("kafka") / "broker",
        {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1},
    )
    try:
        folders = [folder for folder, _ in rewritten.values()]
        yield broker.adopt(*folders, mode="recover")
    finally:
        broker.kill()


def test_kafka_takes_what_was_rewritten_over_without_a_warning(adopted: Adoption) -> None:
    assert adopted.warnings == []
    assert adopted.intact


def test_a_real_client_reads_the_same_records(
    adopted: Adoption, rewritten: dict[Place, tuple[Path, list[Row]]]
) -> None:
    got = consume(adopted.bootstrap, rewritten, committed=True)
    for place, (_, expected) in rewritten.items():
        assert [(each.offset, each.key, each.value) for each in got[place]] == expected, place
