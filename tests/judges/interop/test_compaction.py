"""The same logs, compacted by Apache Kafka and by us, are the same: batch by batch, record by record.

Kafka produces with real clients and is stopped; a copy is taken. Kafka then cleans its directory, and we the
copy. This is repeated with more records, so that cleaned sections, delete horizons and old markers are met.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.judges.interop.compaction_workloads import Workload
from tests.judges.interop.kafka_cleaning import (
    QUICK,
    aborted_entries,
    alter,
    clean,
    cleaned_at,
    expected_end,
    offsets_cleaned,
    produce,
    shown,
    wait_for_cleaning,
)
from tests.judges.kafka import oracle
from tests.judges.peers.oracle_fixture import KafkaOracle, kafka_oracle

__all__ = ["kafka_oracle"]

pytestmark = pytest.mark.interop

SEEDS = range(24)
PASSES = 3


@pytest.fixture
def broker(kafka_oracle: KafkaOracle, tmp_path: Path) -> Iterator[oracle.Kafka]:
    running = kafka_oracle.broker(tmp_path / "broker", config=QUICK)
    running.start()
    try:
        yield running
    finally:
        running.kill()


def test_kafka_and_we_compact_the_same_logs_to_the_same_batches(
    broker: oracle.Kafka, tmp_path: Path, record_property: Any
) -> None:
    workloads = [Workload(f"topic-{seed}", seed) for seed in SEEDS]
    topics = [each.topic for each in workloads]
    for workload in workloads:
        broker.create_topic(workload.topic, 1, {**workload.configs, "cleanup.policy": "delete"})
    (root,) = broker.log_dirs
    compared = {"batches": 0, "identical_files": 0, "files": 0, "rounds": 0}
    for number in range(PASSES):
        produce(broker, workloads, leaves_open=number == PASSES - 1)
        broker.stop()
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(root, copy)
        before = offsets_cleaned(broker)
        plans = {each.topic: expected_end(copy, each, before.get(each.topic)) for each in workloads}
        broker.start()
        alter(broker, topics, cleanup_policy="compact", min_cleanable_dirty_ratio=0.00001)
        wait_for_cleaning(broker, plans)
        alter(broker, topics, cleanup_policy="delete")
        broker.stop()
        for workload in workloads:
            theirs = root / f"{workload.topic}-0"
            ours = copy / f"{workload.topic}-0"
            now_ms = cleaned_at(theirs, ours, workload)
            compared["rounds"] += clean(ours, workload, before.get(workload.topic), now_ms)
            assert shown(ours) == shown(theirs), (workload.topic, number)
            assert aborted_entries(ours) == aborted_entries(theirs), (workload.topic, number)
            for path in theirs.glob("*.log"):
                same = ours / path.name
                compared["files"] += 1
                compared["identical_files"] += (
                    same.exists() and path.read_bytes() == same.read_bytes()
                )
            compared["batches"] += sum(map(len, shown(theirs).values()))
        broker.start()
    for name, count in compared.items():
        record_property(f"counted: {name} compared with Kafka's cleaner", count)
    assert compared["batches"] > 1000
