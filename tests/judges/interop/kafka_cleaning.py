"""What tests of Kafka's cleaner share: a real broker cleans topics, we clean a copy of the same logs by the
same clock, and what both made of them is compared."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from stratalog.records.columns import decode_records
from stratalog.records.layout import DELETE_HORIZON_MASK, Check
from stratalog.records.scan import scan_batches
from stratalog.rewrite.compact.clean import CleanerSettings, UnstoredCheckpoint, clean_to_end
from stratalog.rewrite.limits import RewriteLimits
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import PartitionLog
from stratalog.testing import ManualClock
from tests.judges.interop.compaction_workloads import Workload
from tests.judges.kafka import oracle

__all__ = [
    "MAP_BYTES",
    "QUICK",
    "aborted_entries",
    "alter",
    "clean",
    "cleaned_at",
    "expected_end",
    "horizons",
    "offsets_cleaned",
    "produce",
    "shown",
    "wait_for_cleaning",
]

#: Small enough that some workloads need several rounds: 24 bytes a key.
MAP_BYTES = 1 << 21
QUICK = {
    "log.initial.task.delay.ms": 100,
    "log.cleaner.backoff.ms": 100,
    "log.segment.delete.delay.ms": 100,
    "log.cleaner.dedupe.buffer.size": MAP_BYTES,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.replication.factor": 1,
    "group.coordinator.append.linger.ms": 0,
}


def alter(broker: oracle.Kafka, topics: list[str], **configs: object) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry(
                    name.replace("_", "."),
                    str(value),
                    incremental_operation=AlterConfigOpType.SET,
                )
                for name, value in configs.items()
            ],
        )
        for topic in topics
    ]
    for future in client.incremental_alter_configs(resources).values():
        future.result(30)


def offsets_cleaned(broker: oracle.Kafka) -> dict[str, int]:
    path = broker.log_dirs[0] / "cleaner-offset-checkpoint"
    if not path.exists():
        return {}
    return {key.topic: offset for key, offset in oracle.read_checkpoint(path).items()}


def wait_for_cleaning(broker: oracle.Kafka, expected: dict[str, int]) -> None:
    deadline = time.monotonic() + 120
    while any(offsets_cleaned(broker).get(topic, -1) < at for topic, at in expected.items()):
        assert time.monotonic() < deadline, (expected, offsets_cleaned(broker))
        time.sleep(0.1)


def open_copy(folder: Path, workload: Workload, now_ms: int) -> PartitionLog:
    config = LogConfig.of({**workload.configs, "cleanup.policy": "compact"})
    return PartitionLog.open(
        str(folder), config, is_clean=True, watermark="written", clock=ManualClock(now_ms)
    )


def shown(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that a log says, apart from how it is compressed. Empty segments are left out: we swap one
    in where the new segments would not reach an old one, which a crash could bring back."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        batches = []
        for header in scan_batches(data):
            one = data[header.position : header.end_position]
            records = tuple(decode_records(one, check=Check.CRC | Check.INCLUDE_CONTROL))
            batches.append(
                (
                    header.base_offset, header.last_offset, header.record_count, header.attributes,
                    header.base_timestamp, header.max_timestamp, header.producer_id,
                    header.producer_epoch, header.base_sequence, header.leader_epoch, records,
                )
            )  # fmt: skip
        if batches:
            found[path.name] = batches
    return found


def aborted_entries(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in folder.glob("*.txnindex") if path.stat().st_size
    }


def horizons(folder: Path) -> set[int]:
    return {
        header.base_timestamp
        for path in folder.glob("*.log")
        for header in scan_batches(path.read_bytes())
        if header.attributes & DELETE_HORIZON_MASK
    }


def produce(broker: oracle.Kafka, workloads: list[Workload], *, leaves_open: bool) -> None:
    for workload in workloads:
        if leaves_open and workload.seed % 3 == 0:
            workload.begin(broker.bootstrap)
            workload.produce(broker.bootstrap, leaves_open=True)
        else:
            workload.produce(broker.bootstrap, leaves_open=False)
        # Rolls, so that what was produced is not all in the active segment.
        last = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 1})
        for _ in range(2):
            last.produce(workload.topic, bytes(1400), b"last", partition=0)
            last.flush(60)


def expected_end(copy: Path, workload: Workload, checkpoint: int | None) -> int:
    """Where Kafka's cleaning will come to; -1 if there is nothing to clean."""
    log = open_copy(copy / f"{workload.topic}-0", workload, 0)
    try:
        found = UnstoredCheckpoint(log, checkpoint, now_ms=0).find()
    finally:
        log.abandon()
    return found.first_uncleanable if found.cleanable_bytes else -1


def cleaned_at(theirs: Path, ours: Path, workload: Workload) -> int:
    """When Kafka cleaned: its new delete horizons tell."""
    new = horizons(theirs) - horizons(ours)
    retention = int(str(workload.configs["delete.retention.ms"]))
    return min(new) - retention if new else int(time.time() * 1000)


def clean(folder: Path, workload: Workload, checkpoint: int | None, now_ms: int) -> int:
    log = open_copy(folder, workload, now_ms)
    settings = CleanerSettings(dedupe_bytes=MAP_BYTES)
    try:
        stored = UnstoredCheckpoint(log, checkpoint, now_ms=now_ms)
        return len(list(clean_to_end(log, stored, settings, RewriteLimits(), now_ms=now_ms)))
    finally:
        log.close()
