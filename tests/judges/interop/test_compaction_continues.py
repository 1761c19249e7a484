"""Compaction goes on where another has stopped: Kafka continues what we compacted, and we what Kafka did.

A real client fills topics, Kafka is stopped, and we clean its directory, in place, with our checkpoint. Kafka
opens it, serves it, takes more records, and cleans on from our checkpoint. A copy of the same logs is cleaned
by us, to the same batches. Then we clean what Kafka made.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import stratalog
from tests.cli.runner import run
from tests.judges.interop.compaction_workloads import Workload
from tests.judges.interop.kafka_cleaning import (
    MAP_BYTES,
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
from tests.judges.interop.real_client import consume
from tests.judges.kafka import oracle
from tests.judges.peers.oracle_fixture import KafkaOracle, kafka_oracle

__all__ = ["kafka_oracle"]

pytestmark = pytest.mark.interop

SEEDS = range(8)
ROUND = re.compile(
    r"Building offset map for log (?P<log>\S+) .* range \[(?P<start>\d+), (?P<end>\d+)\)"
)
#: What Kafka's cleaner logs of every such workload: segments that it replaced, and records without a key.
USUAL = re.compile(r"INFO .* Delet|Found \d+ invalid messages during compaction")
CLEANER_LOGGERS = {"Cleaner", "LogCleaner", "LogCleanerManager", "LogCleaner$CleanerThread"}


class Row(NamedTuple):
    """A record, as our readers and a client of Kafka both show it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[Any, ...]

    @classmethod
    def of(cls, record: Any) -> Row:
        return cls(record.offset, record.key, record.value, record.timestamp, tuple(record.headers))


#: The records of topics, by whether only committed ones are read.
Content = dict[bool, dict[str, list[Row]]]


@pytest.fixture
def broker(kafka_oracle: KafkaOracle, tmp_path: Path) -> Iterator[oracle.Kafka]:
    running = kafka_oracle.broker(tmp_path / "broker", config=QUICK)
    running.start()
    try:
        yield running
    finally:
        running.kill()


def test_kafka_continues_what_we_compacted_and_we_what_kafka_did(
    broker: oracle.Kafka, tmp_path: Path, record_property: Any
) -> None:
    workloads = [Workload(f"topic-{seed}", seed) for seed in SEEDS]
    topics = [each.topic for each in workloads]
    (root,) = broker.log_dirs
    create(broker, workloads)
    produce(broker, workloads, leaves_open=False)
    assert broker.stop()

    # We clean what Kafka wrote.
    before = read(root, topics)
    first_ends = expected_ends(root, tmp_path / "first", workloads, {})
    clean_in_place(root, workloads)
    kept = read(root, topics)
    check_compacted(before, kept)
    assert offsets_cleaned(broker) == first_ends
    assert len(first_ends) > len(topics) // 2, "the others have one segment only"

    # Kafka opens that, and serves the same.
    broker.start()
    assert complaints(broker, topics) == []
    assert served(broker, topics) == kept
    produce(broker, workloads, leaves_open=False)
    assert broker.stop()
    assert offsets_cleaned(broker) == first_ends

    # Kafka cleans on, and we a copy.
    copy = tmp_path / "copy"
    ends = expected_ends(root, copy, workloads, first_ends)
    broker.start()
    alter(broker, topics, cleanup_policy="compact", min_cleanable_dirty_ratio=0.00001)
    wait_for_cleaning(broker, ends)
    alter(broker, topics, cleanup_policy="delete")
    begun = first_rounds(broker)
    warnings = [each for each in complaints(broker, topics) if not USUAL.search(each)]
    assert broker.stop()
    assert warnings == []
    for workload in workloads:
        topic = workload.topic
        if topic in ends:
            assert begun[f"{topic}-0"] == first_ends.get(topic, 0), "it goes on where we ended"
        theirs, ours = root / f"{topic}-0", copy / f"{topic}-0"
        clean(ours, workload, first_ends.get(topic), cleaned_at(theirs, ours, workload))
        assert shown(ours) == shown(theirs), topic
        assert aborted_entries(ours) == aborted_entries(theirs), topic
    assert len(first_ends.keys() & ends.keys()) > len(topics) // 2

    # A client reads from Kafka what we read from our copy, and from Kafka's own files.
    broker.start()
    assert complaints(broker, topics) == []
    by_client = served(broker, topics)
    assert broker.stop()
    assert read(copy, topics) == by_client
    assert read(root, topics) == by_client

    # We clean what Kafka made, to the end.
    with stratalog.open(root, config={"log.cleaner.dedupe.buffer.size": MAP_BYTES}) as logs:
        for topic in topics:
            (rounds,) = logs.clean(topic, roll=True).values()
            cleaned = {**first_ends, **ends}.get(topic, 0)
            assert rounds[0].start_offset == cleaned, "we go on where Kafka ended"
            assert rounds[-1].end_offset == logs.partition(topic).log_end
    again = read(root, topics)
    check_compacted(by_client, again)
    for topic in topics:
        keys = [row.key for row in again[True][topic]]
        assert len(set(keys)) == len(keys), "one record of each key is left"
        assert None not in keys
    assert [row["status"] for row in run("verify", root).rows() if row["status"] != "ok"] == []
    broker.start()
    assert complaints(broker, topics) == []
    assert served(broker, topics) == again
    record_property(
        "counted: batches that Kafka cleaned on from our checkpoint",
        sum(len(batches) for topic in topics for batches in shown(copy / f"{topic}-0").values()),
    )


def create(broker: oracle.Kafka, workloads: list[Workload]) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [
        NewTopic(
            each.topic, 1, 1,
            config={name: str(value) for name, value in each.configs.items()},
        )
        for each in workloads
    ]  # fmt: skip
    for future in client.create_topics(topics).values():
        future.result(30)


def expected_ends(
    root: Path, copy: Path, workloads: list[Workload], checkpoint: Mapping[str, int]
) -> dict[str, int]:
    """Copy a log directory; return where a cleaning of each topic will end, if there is anything to clean."""
    shutil.copytree(root, copy)
    ends = {each.topic: expected_end(copy, each, checkpoint.get(each.topic)) for each in workloads}
    return {topic: end for topic, end in ends.items() if end >= 0}


def clean_in_place(root: Path, workloads: list[Workload]) -> None:
    """Clean every other topic by the command line, with the configs of the topic; the others with a library
    call and default configs, which put all that is left into one segment."""
    for workload in workloads[::2]:
        configs = [f"{name}={value}" for name, value in workload.configs.items()]
        done = run(
            "compact", root, "-t", workload.topic, "--write",
            *(part for config in configs for part in ("--topic-config", config)),
        )  # fmt: skip
        assert done.code == 0, done.err
    with stratalog.open(root, config={"log.cleaner.dedupe.buffer.size": MAP_BYTES}) as logs:
        for workload in workloads[1::2]:
            logs.clean(workload.topic)


def read(root: Path, topics: Iterable[str]) -> Content:
    """Read topics without opening them for writing."""
    content: Content = {}
    with stratalog.open(root, read_only=True) as logs:
        for committed in (False, True):
            isolation = "read_committed" if committed else "read_uncommitted"
            content[committed] = {
                topic: [Row.of(each) for each in logs.read(topic, isolation=isolation).records()]
                for topic in topics
            }
    return content


def served(broker: oracle.Kafka, topics: list[str]) -> Content:
    """Consume topics with a real client."""
    places = [(topic, 0) for topic in topics]
    content: Content = {}
    for committed in (False, True):
        found = consume(broker.bootstrap, places, committed=committed)
        content[committed] = {topic: list(map(Row.of, found[topic, 0])) for topic in topics}
    return content


def check_compacted(before: Content, after: Content) -> None:
    """Every key has the same newest value, nothing is new, and something is gone."""
    for topic, rows in before[True].items():
        assert newest(after[True][topic]) == newest(rows), topic
        assert set(after[True][topic]) <= set(rows), topic
    assert sum(map(len, after[True].values())) < sum(map(len, before[True].values()))


def newest(rows: Iterable[Row]) -> Mapping[bytes | None, bytes]:
    """Return the newest value of each key that is not deleted."""
    found = {row.key: row.value for row in rows if row.key is not None}
    return {key: value for key, value in found.items() if value is not None}


def complaints(broker: oracle.Kafka, topics: list[str]) -> list[str]:
    """Return what Kafka says against the topics, or against anything in its log directory."""
    keys = [oracle.TopicPartition(topic, 0) for topic in topics]
    loggers = oracle.STORAGE_LOGGERS | CLEANER_LOGGERS
    events = [each for each in broker.log_events() if each.is_warning and each.logger in loggers]
    return [*broker.complaints(*keys), *(each.message for each in events)]


def first_rounds(broker: oracle.Kafka) -> dict[str, int]:
    """Return the offset from which Kafka first cleaned each log since its start."""
    rounds = [found for each in broker.log_events() if (found := ROUND.search(each.message))]
    return {found["log"]: int(found["start"]) for found in reversed(rounds)}
