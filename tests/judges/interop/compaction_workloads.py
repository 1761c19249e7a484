"""Random workloads for compacted topics, produced by a real client: keys that come again, tombstones, records
without a key, headers, idempotent producers, transactions that commit, abort or stay open, every codec."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass
class Workload:
    """One topic of one partition, and what is produced to it, by a seed."""

    topic: str
    seed: int
    #: Of the topic, apart from its cleanup policy.
    configs: dict[str, object] = field(default_factory=dict)
    transactional: Any = None

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.keys = self.random.choice([3, 20, 150])
        self.configs = {
            "internal.segment.bytes": self.random.choice([1500, 6000, 30_000]),
            "index.interval.bytes": self.random.choice([0, 400, 4096]),
            "delete.retention.ms": self.random.choice([0, 86_400_000]),
            "message.timestamp.type": self.random.choice(
                ["CreateTime", "CreateTime", "LogAppendTime"]
            ),
            "retention.ms": -1,
        }

    def produce(self, bootstrap: str, *, leaves_open: bool) -> None:
        """Produce another part of the workload; with ``leaves_open``, end with an open transaction."""
        for _ in range(self.random.randint(2, 5)):
            kind = self.random.choice(["plain", "idempotent", "transactional"])
            if kind == "transactional":
                self._produce_transactions(bootstrap)
            else:
                settings = {"enable.idempotence": kind == "idempotent"}
                producer = Producer(self._settings(bootstrap) | settings)
                self._produce(producer)
                producer.flush(60)
        if leaves_open:
            self.transactional.begin_transaction()
            self._produce(self.transactional, 3)
            self.transactional.flush(60)

    def _settings(self, bootstrap: str) -> dict[str, object]:
        return {
            "bootstrap.servers": bootstrap,
            "linger.ms": self.random.choice([0, 5, 50]),
            "batch.num.messages": self.random.choice([1, 3, 20, 200]),
            "compression.type": self.random.choice(CODECS),
            "log_level": 0,
        }

    def begin(self, bootstrap: str) -> None:
        """Connect the transactional producer, which stays the same: its open transaction must survive."""
        self.transactional = Producer(
            self._settings(bootstrap)
            | {"transactional.id": f"txn-{self.topic}", "transaction.timeout.ms": 600_000}
        )
        self.transactional.init_transactions(60)

    def _produce_transactions(self, bootstrap: str) -> None:
        producer = Producer(
            self._settings(bootstrap)
            | {
                "transactional.id": f"{self.topic}-{self.random.randrange(3)}",
                "transaction.timeout.ms": 600_000,
            }
        )
        producer.init_transactions(60)
        for _ in range(self.random.randint(1, 4)):
            producer.begin_transaction()
            self._produce(producer, 15)
            producer.flush(60)
            if self.random.random() < 0.6:
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)

    def _produce(self, producer: Any, count: int = 80) -> None:
        pick = self.random
        for number in range(pick.randint(1, count)):
            key = None if pick.random() < 0.05 else f"key-{pick.randrange(self.keys)}".encode()
            value = None if pick.random() < 0.15 else pick.randbytes(pick.choice([0, 10, 90]))
            headers = [("h", pick.randbytes(3)), ("n", None)] if pick.random() < 0.2 else []
            producer.produce(self.topic, value, key, partition=0, headers=headers)
            if number % 7 == 0:
                producer.poll(0)
