"""Commits and a real Kafka on one log directory: it takes over what was adopted, is started between the death
of a commit and its replay, and reads everything once afterwards."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import KafkaError, Message, Producer

import stratalog
from stratalog.clock import SYSTEM_CLOCK
from stratalog.manager.commits.commits import TopicPlan
from stratalog.storage.commits.journal import CommitJournal, read_journal
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.piece import Piece
from stratalog.storage.commits.records import CommitRecord, Done
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.log_config import LogConfig
from stratalog.testing import Call, FaultyFileSystem
from stratalog.testing.faulty_files import Fault
from tests.judges.interop.real_client import Place, consume
from tests.judges.kafka import oracle
from tests.judges.peers.oracle_fixture import KafkaOracle, kafka_oracle
from tests.manager.staging import Committing

__all__ = ["kafka_oracle"]

pytestmark = pytest.mark.interop

T = TypeVar("T")

CONFIGS = {"internal.segment.bytes": 8192, "index.interval.bytes": 512, "segment.index.bytes": 4096}
PLACES: list[Place] = [("orders", 0), ("orders", 1)]
QUIET = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}


# --- Kafka takes over what was committed -----------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pieces that were appended, that became segments, and that made the log roll."""
    root = tmp_path_factory.mktemp("ours")
    here = Committing(OsFileSystem(), str(root), SYSTEM_CLOCK)
    plan = {"orders": TopicPlan(2, CONFIGS)}
    configs = {"orders": LogConfig.of(CONFIGS)}
    for version in range(12):
        key = CommitKey("query", version)
        pieces: list[Piece] = []
        for task in range(3):
            count = (3, 200, 40)[(version + task) % 3]
            values = [f"{version} {task} {number} ".rjust(30, ".") for number in range(count)]
            pieces += here.stage(
                key, {PLACES[0]: values, PLACES[1]: values[:7]}, task=task,
                configs=configs, batch_bytes=900,
            )  # fmt: skip
        here.commit(key, pieces, plan)
    return root


@pytest.mark.parametrize("mode", ["recover", "trust"])
def test_kafka_takes_over_what_was_committed(
    kafka_oracle: KafkaOracle, written: Path, tmp_path: Path, mode: oracle.LoadMode
) -> None:
    broker = kafka_oracle.broker(tmp_path / "broker", QUIET)
    try:
        adopted = broker.adopt(
            *(written / f"orders-{number}" for number in (0, 1)), mode=mode, topic_config=CONFIGS
        )
        assert adopted.warnings == []
        assert adopted.intact
        assert max(partition.segments or 0 for partition in adopted.partitions) > 10
        got = consume(adopted.bootstrap, PLACES)
    finally:
        broker.kill()
    assert {place: [r.value for r in got[place]] for place in PLACES} == ours(written)


def ours(root: Path) -> dict[Place, list[bytes | None]]:
    found: dict[Place, list[bytes | None]] = {place: [] for place in PLACES}
    with stratalog.open(root, read_only=True) as logs:
        for record in logs.read("orders").records():
            found[record.topic, record.partition].append(record.value)
    return found


# --- Kafka between a death and the replay ----------------------------------------------------------


class Dying(FaultyFileSystem):
    """A file system under which the process dies in place of the n-th call that changes something."""

    def __init__(self, die_at: int) -> None:
        super().__init__(OsFileSystem())
        self._left = die_at

    def call(
        self,
        call: Call,
        path: str,
        perform: Callable[[], T],
        *,
        fail: Callable[[Fault], None] | None = None,
    ) -> T:
        if call in (Call.WRITE, Call.SYNC, Call.LINK, Call.RENAME, Call.CREATE):
            self._left -= 1
            if self._left == 0:
                os._exit(9)
        return super().call(call, path, perform, fail=fail)


def values_of(version: int) -> dict[Place, list[str]]:
    """Something small behind what is there, and something large for an empty partition."""
    small = [f"c{version}.{number}" for number in range(5)]
    large = [f"c{version}.{number}.".ljust(500, "x") for number in range(2500)]
    return {PLACES[0]: small, PLACES[1]: large if version == 0 else small}


def commit_and_die(root: str, version: int, die_at: int) -> None:
    staging = Committing(OsFileSystem(), root, SYSTEM_CLOCK)
    key = CommitKey("query", version)
    pieces = staging.stage(key, values_of(version), batch_bytes=16384)
    Committing(Dying(die_at), root, SYSTEM_CLOCK).commit(key, pieces)


def died(root: Path, version: int, die_at: int) -> bool:
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=commit_and_die, args=(str(root), version, die_at))
    process.start()
    process.join()
    assert process.exitcode in (0, 9)
    return process.exitcode == 9


@pytest.fixture(scope="module")
def broker(
    kafka_oracle: KafkaOracle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[oracle.Kafka]:
    running = kafka_oracle.broker(tmp_path_factory.mktemp("between") / "broker", QUIET)
    running.start()
    try:
        running.create_topic("orders", 2, {"retention.ms": -1})
        produce(running, "first", PLACES[:1])
        assert running.stop()
        yield running
    finally:
        running.kill()


def produce(broker: oracle.Kafka, name: str, places: list[Place] = PLACES) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for topic, number in places:
        for at in range(3):
            producer.produce(topic, f"{name}.{number}.{at}", partition=number)
    assert producer.flush(30) == 0


def test_kafka_is_started_between_a_death_and_the_replay(broker: oracle.Kafka) -> None:
    """Again and again: a commit dies at some step with its promise given, Kafka is started and written to,
    the commit is replayed and tried again. Nothing is lost, nothing is there twice, and Kafka does not
    complain."""
    (root,) = broker.log_dirs
    wanted: dict[Place, set[str]] = {
        PLACES[0]: {f"first.0.{at}" for at in range(3)},
        PLACES[1]: set(),
    }
    version, deaths = 0, 0
    for die_at in (4, 9, 6, 12):
        while not (died(root, version, die_at) and read_journal(OsFileSystem(), str(root)).open):
            # It died before the promise, or not at all: what comes next is another commit.
            stratalog.open(root).close()
            again(root, version)
            expect(wanted, version)
            version, die_at = version + 1, die_at + 1
        deaths += 1
        hidden = {place: values_of(version)[place] for place in PLACES}
        seen = ours(root)
        for place in PLACES:
            assert not {v.encode() for v in hidden[place]} & set(seen[place])
        broker.start()
        produce(broker, f"kafka{deaths}")
        for place in PLACES:
            wanted[place] |= {f"kafka{deaths}.{place[1]}.{at}" for at in range(3)}
        assert [e for e in broker.log_events() if e.is_warning and "orders-" in e.message] == []
        assert broker.stop()
        again(root, version)
        expect(wanted, version)
        version += 1
        check(ours(root), wanted)
    broker.start()
    got = consume(broker.bootstrap, PLACES)
    assert {place: [r.value for r in got[place]] for place in PLACES} == ours(root)
    assert broker.stop()
    assert deaths == 4


def again(root: Path, version: int) -> None:
    """What Spark does: the same batch once more."""
    here = Committing(OsFileSystem(), str(root), SYSTEM_CLOCK)
    key = CommitKey("query", version)
    here.commit(key, here.stage(key, values_of(version), attempt=1, batch_bytes=16384))


def expect(wanted: dict[Place, set[str]], version: int) -> None:
    for place, values in values_of(version).items():
        wanted[place] |= set(values)


def check(seen: dict[Place, list[bytes | None]], wanted: dict[Place, set[str]]) -> None:
    for place in PLACES:
        values = [(value or b"").decode() for value in seen[place]]
        assert len(values) == len(set(values)), "something is there twice"
        assert set(values) == wanted[place]


# --- Kafka compacts and deletes between a death and the replay --------------------------------------

#: The cleaner and retention come at once, and whatever lies before the active segment is theirs.
RESTLESS = {
    **QUIET,
    "log.cleaner.backoff.ms": 200,
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 200,
    "log.segment.delete.delay.ms": 0,
}
ITEMS = 200


def commit_and_die_at_its_end(root: str) -> None:
    """All is in the log, and the journal does not say so yet."""
    staging = Committing(OsFileSystem(), root, SYSTEM_CLOCK)
    key = CommitKey("query", 0)
    values: dict[Place, list[str]] = {(topic, 0): [] for topic in ("state", "events")}
    for number in range(ITEMS):
        values["state", 0].append(f"item {number}")
        values["events", 0].append(f"item {number}")
    pieces = staging.stage(key, values, batch_bytes=600)
    journal = CommitJournal.append

    def dying(self: CommitJournal, record: CommitRecord) -> None:
        if isinstance(record, Done):
            os._exit(9)
        journal(self, record)

    CommitJournal.append = dying  # type: ignore[method-assign]
    staging.commit(key, pieces)


def test_what_kafka_compacted_or_deleted_before_the_replay_does_not_come_back(
    kafka_oracle: KafkaOracle, tmp_path: Path
) -> None:
    """A commit died when all of it was written. Kafka is started: newer records take the place of most of it
    in one topic, and the other deletes its beginning. The replay must take what is gone for done: appended
    again, old values would be the newest ones."""
    small = {"internal.segment.bytes": 2048, "retention.ms": -1}
    state = {**small, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.001}
    broker = kafka_oracle.broker(tmp_path / "broker", RESTLESS)
    broker.start()
    try:
        broker.create_topic("state", 1, state)
        broker.create_topic("events", 1, small)
        assert broker.stop()
        (root,) = broker.log_dirs
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=commit_and_die_at_its_end, args=(str(root),))
        process.start()
        process.join()
        assert process.exitcode == 9
        assert read_journal(OsFileSystem(), str(root)).open
        broker.start()
        producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 10})
        for number in range(ITEMS - 20):  # the last of the commit stay
            producer.produce("state", f"newer {number}", f"item {number}", 0, on_delivery=delivered)
        assert producer.flush(30) == 0
        file = offsets_file(tmp_path, "events", 150)
        broker.tool(
            "delete-records", "--bootstrap-server", broker.bootstrap, "--offset-json-file", file
        )
        wait_until(lambda: len(consume(broker.bootstrap, [("state", 0)])["state", 0]) < ITEMS + 60)
        before = {
            place: [(r.offset, r.key, r.value) for r in records]
            for place, records in consume(broker.bootstrap, [("state", 0), ("events", 0)]).items()
        }
        assert broker.stop()
        stratalog.open(root).close()
        assert not read_journal(OsFileSystem(), str(root)).open
        with stratalog.open(root, read_only=True) as logs:
            for place, listed in before.items():
                kept = [(r.offset, r.key, r.value) for r in logs.read(place[0]).records()]
                assert kept == listed
        latest = {key: value for _, key, value in before["state", 0]}
        assert latest[b"item 7"] == b"newer 7"
        assert latest[b"item 199"] == b"item 199"
        assert [offset for offset, _, _ in before["events", 0]] == list(range(150, ITEMS))
    finally:
        broker.kill()


def delivered(error: KafkaError | None, message: Message) -> None:
    assert error is None, error


def offsets_file(folder: Path, topic: str, offset: int) -> Path:
    path = folder / "offsets.json"
    entry = {"topic": topic, "partition": 0, "offset": offset}
    path.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    return path


def wait_until(is_so: Callable[[], bool], timeout_s: float = 60) -> None:
    until = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < until, "the cleaner did not come"
        time.sleep(0.3)
