"""Kafka is killed in the middle of cleaning: we read its directory, finish its work, and it takes that back.

A real broker is filled by a real client, and stopped. For each stage of a cleaning, a copy of it is started,
and killed by SIGKILL when its folder shows that stage:

- ``cleaned``: the new segment is being written, as ``.cleaned``;
- ``swap``: the new segment is complete, as ``.swap``, and some of the old ones are ``.deleted``;
- ``deleted``: the new segment has its name, and the old ones wait for their removal as ``.deleted``.

Two stages last for microseconds, between two renames of files of one segment. They are made of the files of
the Kafka that was killed at stage ``swap``, by renaming them in Kafka's order, the data file first:

- ``half-staged``: the data file is ``.swap``, its indexes are still ``.cleaned``, and all old segments exist;
- ``half-final``: the data file has its name, its indexes are still ``.swap``.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

import stratalog
from stratalog.testing import ManualClock
from stratalog.types import TopicPartition
from tests.cli.runner import run
from tests.judges.interop.kafka_cleaning import (
    MAP_BYTES,
    alter,
    horizons,
    shown,
    wait_for_cleaning,
)
from tests.judges.interop.real_client import consume
from tests.judges.kafka import oracle
from tests.judges.peers.oracle_fixture import KafkaOracle, kafka_oracle

__all__ = ["kafka_oracle"]

pytestmark = pytest.mark.interop

TOPIC = "updates"
KEY = oracle.TopicPartition(TOPIC, 0)
DAY_MS = 86_400_000
#: Hundreds of segments become one: renaming the old ones takes Kafka long enough to be killed meanwhile.
FILLED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": 2000,
    "min.cleanable.dirty.ratio": 0.00001,
    "delete.retention.ms": DAY_MS,
}
#: While the topic is filled, the cleaner looks for it once, before there is anything to clean.
IDLE = {"log.cleaner.backoff.ms": 3_600_000, "log.cleaner.dedupe.buffer.size": MAP_BYTES}
BUSY = {"log.cleaner.backoff.ms": 50, "log.initial.task.delay.ms": 100}
BATCHES = 700
KEYS = 300
ATTEMPTS = 8

Newest = dict[bytes, bytes | None]


class Filled(NamedTuple):
    """A broker that was stopped in order, and the newest value of each key that it has acknowledged."""

    oracle: KafkaOracle
    directory: Path
    newest: Newest


@pytest.fixture(scope="module")
def filled(kafka_oracle: KafkaOracle, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    directory = tmp_path_factory.mktemp("cleaner") / "broker"
    broker = kafka_oracle.broker(directory, config=IDLE)
    broker.start()
    try:
        broker.create_topic(TOPIC, 1, FILLED)
        newest = produce(broker.bootstrap)
        alter(broker, [TOPIC], internal_segment_bytes=1 << 30)
        assert broker.stop()
        assert not has_signs(names_at(broker.log_dirs[0] / str(KEY)))
    finally:
        broker.kill()
    return Filled(kafka_oracle, directory, newest)


def produce(bootstrap: str) -> Newest:
    """Produce updates and deletions of some keys; return the newest of each that was acknowledged."""
    pick = random.Random(7)
    newest: Newest = {}
    acknowledged = 0

    def delivered(error: Any, message: Any) -> None:
        nonlocal acknowledged
        assert error is None, error
        newest[message.key()] = message.value()
        acknowledged += 1

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 1000,
            "batch.num.messages": 10,
            "log_level": 0,
        }
    )
    for _ in range(BATCHES):
        for _ in range(10):
            value = None if pick.random() < 0.1 else pick.randbytes(90)
            key = b"key-%d" % pick.randrange(KEYS)
            producer.produce(TOPIC, value, key, partition=0, on_delivery=delivered)
        assert producer.flush(60) == 0
    assert acknowledged == 10 * BATCHES
    return newest


# Killing.


def names_at(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries)


def has(names: Sequence[str], ending: str) -> bool:
    return any(name.endswith(ending) for name in names)


def is_cleaned(folder: Path, names: Sequence[str]) -> bool:
    """Whether a part of the new segment is written."""
    try:
        return any(
            name.endswith(".log.cleaned") and (folder / name).stat().st_size > 0 for name in names
        )
    except FileNotFoundError:
        return False  # it was renamed meanwhile


def is_swap(_: Path, names: Sequence[str]) -> bool:
    """Whether the new segment is decided on, and an old one is not deleted yet."""
    return has(names, ".log.swap") and has(names, ".deleted") and not has(names, ".cleaned")


def is_deleted(_: Path, names: Sequence[str]) -> bool:
    """Whether the old segments wait for their removal."""
    return has(names, ".deleted") and not has(names, ".swap") and not has(names, ".cleaned")


Stage = Callable[[Path, Sequence[str]], bool]
STAGES: dict[str, Stage] = {
    "cleaned": is_cleaned,
    "swap": is_swap,
    "deleted": is_deleted,
}


@pytest.fixture(scope="module")
def killed(filled: Filled, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns the directory of a broker that was killed at a stage; kills one at the first call for it."""
    found: dict[str, Path] = {}

    def killed_at(stage: str) -> Path:
        if stage not in found:
            found[stage] = kill_at(stage, filled, tmp_path_factory)
        return found[stage]

    return killed_at


def kill_at(stage: str, filled: Filled, factory: pytest.TempPathFactory) -> Path:
    seen: list[str] = []
    for _ in range(ATTEMPTS):
        directory = factory.mktemp(f"killed-{stage}") / "broker"
        shutil.copytree(filled.directory, directory)
        broker = filled.oracle.broker(directory, config=BUSY)
        folder = broker.log_dirs[0] / str(KEY)
        start_and_kill(broker, folder, STAGES[stage])
        seen = names_at(folder)
        if STAGES[stage](folder, seen):
            return directory
    raise AssertionError(f"Kafka was not caught at stage {stage}, and left {seen[:10]}")


def start_and_kill(broker: oracle.Kafka, folder: Path, is_due: Stage) -> None:
    """Start a broker, and kill it when its folder shows a stage, or when the cleaning is over.

    From the first sign of a cleaning on, it runs for about a millisecond at a time, and is stopped while we
    look: a stage is not over before it is seen.
    """
    deadline = time.monotonic() + 60

    def watch() -> None:
        while time.monotonic() < deadline:
            if not has_signs(names_at(folder)):
                continue
            os.kill(broker.pid, signal.SIGSTOP)
            names = names_at(folder)
            if is_due(folder, names) or is_deleted(folder, names):
                os.kill(broker.pid, signal.SIGKILL)
                return
            os.kill(broker.pid, signal.SIGCONT)
            time.sleep(0.001)
        broker.kill()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with suppress(oracle.OracleError):  # it may end while it is starting
            broker.start()
    finally:
        watcher.join()
        broker.kill()


def has_signs(names: Sequence[str]) -> bool:
    return any(has(names, ending) for ending in (".cleaned", ".swap", ".deleted"))


# Stages that are too short to be caught.


def half_staged(killed: Path, filled: Path) -> None:
    """Go back to before the old segments were renamed, and to the middle of staging the new one."""
    folder = killed / "data" / str(KEY)
    for name in names_at(folder):
        if name.endswith(".deleted"):
            (folder / name).rename(folder / name.removesuffix(".deleted"))
        elif name.endswith(".swap") and not name.endswith(".log.swap"):
            (folder / name).rename(folder / f"{name.removesuffix('.swap')}.cleaned")
    assert live(folder) == live(filled / "data" / str(KEY))


def half_final(killed: Path, _: Path) -> None:
    """Go on to after the old segments were renamed, and to the middle of giving the new one its name."""
    folder = killed / "data" / str(KEY)
    active = max(live(folder))
    for name in sorted(names_at(folder), key=lambda each: not each.endswith(".log")):
        is_segment = name.endswith((".log", ".index", ".timeindex", ".txnindex"))
        if is_segment and not name.startswith(active.partition(".")[0]):
            (folder / name).rename(folder / f"{name}.deleted")
    (new,) = [name for name in names_at(folder) if name.endswith(".log.swap")]
    (folder / new).rename(folder / new.removesuffix(".swap"))
    assert live(folder) == [new.removesuffix(".swap"), active]


def live(folder: Path) -> list[str]:
    return [name for name in names_at(folder) if name.endswith(".log")]


DERIVED = {"half-staged": half_staged, "half-final": half_final}


# What must hold.


@pytest.mark.parametrize("stage", [*STAGES, *DERIVED])
def test_we_finish_what_kafka_was_killed_over_and_kafka_takes_it_back(
    stage: str,
    filled: Filled,
    killed: Callable[[str], Path],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for directory in (ours, theirs):
        shutil.copytree(killed("swap" if stage in DERIVED else stage), directory)
        if stage in DERIVED:
            DERIVED[stage](directory, filled.directory)
    root = ours / "data"
    folder = root / str(KEY)
    assert not (root / ".kafka_cleanshutdown").exists()
    assert has(names_at(folder), (".swap" if stage in DERIVED else f".{stage}"))

    check_reading(root, filled.newest)

    finished, end = finish_by_kafka(filled, theirs)
    now_ms = min(horizons(finished) - horizons(folder), default=DAY_MS) - DAY_MS
    config = {"log.cleaner.dedupe.buffer.size": MAP_BYTES}
    with stratalog.open(root, config=config, clock=ManualClock(now_ms)) as logs:
        logs.recover()
        assert logs.damage == ()
        assert newest_of(logs.read(TOPIC).records()) == filled.newest
        logs.clean(TOPIC)
        assert newest_of(logs.read(TOPIC).records()) == filled.newest
        assert logs.cleaner_status(TOPIC)[TopicPartition(*KEY)].first_dirty == end
    assert shown(folder) == shown(finished), "the batches that Kafka makes of it"
    assert not has(names_at(folder), ".cleaned")
    assert not has(names_at(folder), ".swap")
    assert not has(names_at(folder), ".deleted")
    assert not_ok(root) == []

    check_taken_back(filled, ours)
    with stratalog.open(root, config=config) as logs:
        logs.clean(TOPIC, roll=True)
        records = list(logs.read(TOPIC).records())
        assert newest_of(records) == filled.newest
        assert len(records) == len(filled.newest), "one record of each key"
    check_taken_back(filled, ours)
    record_property(f"counted: cleanings of Kafka, killed at stage {stage}, that we finished", 1)


def check_reading(root: Path, newest: Newest) -> None:
    """The directory can be read as it is, and stays as it is."""
    before = content(root)
    with stratalog.open(root, read_only=True) as logs:
        assert newest_of(logs.read(TOPIC).records()) == newest
        assert logs.damage == ()
    rows = stratalog.scan(root, topics=[TOPIC]).to_table().to_pylist()
    assert {row["key"]: row["value"] for row in rows} == newest
    assert [row["offset"] for row in rows] == sorted({row["offset"] for row in rows})
    assert not_ok(root) == []
    assert content(root) == before


def finish_by_kafka(filled: Filled, directory: Path) -> tuple[Path, int]:
    """Have Kafka recover and finish the cleaning itself; return its folder, and where the cleaning ended."""
    broker = filled.oracle.broker(directory, config=BUSY)
    folder = broker.log_dirs[0] / str(KEY)
    active = int(max(live(folder)).removesuffix(".log"))
    broker.start()
    try:
        wait_for_cleaning(broker, {TOPIC: active})
        assert broker.stop()
    finally:
        broker.kill()
    return folder, active


def check_taken_back(filled: Filled, directory: Path) -> None:
    """Kafka starts on the directory without a complaint, and serves the newest value of every key."""
    broker = filled.oracle.broker(directory, config=IDLE)
    broker.start()
    try:
        assert broker.complaints(KEY) == []
        records = consume(broker.bootstrap, [(TOPIC, 0)])[TOPIC, 0]
        assert newest_of(records) == filled.newest
        assert broker.stop()
    finally:
        broker.kill()


def newest_of(records: Any) -> Newest:
    return {record.key: record.value for record in records}


def not_ok(root: Path) -> list[Any]:
    rows = run("verify", root, "-o", "ndjson").rows()
    assert rows
    return [row for row in rows if row["status"] != "ok"]


def content(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}
