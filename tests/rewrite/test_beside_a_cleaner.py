"""Records are appended and read, and topics are changed, while a cleaner runs in a loop over small segments.

Goal: readers see no gap, no duplicate and no error. What they find of each key is at least as new as what was
acknowledged before they began, and every record that they find was appended at its offset. A caller that
changes the topic gets typed errors at most, and so does the cleaner.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

import stratalog
from stratalog.errors import StorageError, UnknownPartitionError, UsageError
from stratalog.manager.logs import Logs
from stratalog.rewrite.limits import RewriteStoppedError
from tests.cli.runner import run
from tests.scale import SCALE, fresh, sized

pytestmark = [pytest.mark.scaled, pytest.mark.timeout(600)]

TOPIC = "t"
KEYS = 12
CONFIGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": 1500,
    "index.interval.bytes": 200,
    "segment.index.bytes": 1000,
    "file.delete.delay.ms": 0,
}
UPDATES = sized(40, 400 if SCALE == 1 else 4000)


class Truth:
    """What was appended, by the thread that appends: values by offset, and the newest of each key."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.values: dict[int, tuple[bytes, int]] = {}
        self.aborted: set[int] = set()
        self._newest: dict[bytes, int] = {}

    def note(self, first_offset: int, keys: Iterable[bytes], number: int, *, aborted: bool) -> None:
        with self.lock:
            for place, key in enumerate(keys):
                self.values[first_offset + place] = key, number
                if aborted:
                    self.aborted.add(first_offset + place)
                else:
                    self._newest[key] = first_offset + place

    def newest(self) -> dict[bytes, int]:
        """The offset of the newest record of each key that is acknowledged now."""
        with self.lock:
            return dict(self._newest)


class Writer:
    """Appends updates of a few keys, some of them in transactions that commit or abort."""

    def __init__(self, logs: Logs, truth: Truth) -> None:
        self.logs = logs
        self.truth = truth
        self.random = Random(1)
        self.is_done = threading.Event()

    def write(self) -> None:
        try:
            for number in range(UPDATES):
                keys = [b"key-%d" % self.random.randrange(KEYS) for _ in range(4)]
                self.append(keys, [(key, b"%d" % number) for key in keys], number)
        finally:
            self.is_done.set()

    def append(self, keys: list[bytes], records: list[tuple[bytes, bytes]], number: int) -> None:
        kind = self.random.choice(["plain", "plain", "commit", "abort"])
        if kind == "plain":
            (answer,) = self.logs.append(TOPIC, records, partition=0)
        else:
            transaction = self.logs.transaction()
            (answer,) = transaction.append(TOPIC, records, partition=0)
            if kind == "commit":
                transaction.commit()
            else:
                transaction.abort()
        self.truth.note(answer.first_offset, keys, number, aborted=kind == "abort")

    def loop(self, call: Callable[[], object]) -> int:
        """Call a function again and again until all is written, and once more after that."""
        rounds, is_last = 0, False
        while not is_last:
            is_last = self.is_done.is_set()
            call()
            rounds += 1
        return rounds


def check_read(records: Iterable[Any], truth: Truth, before: dict[bytes, int]) -> None:
    """What a reader found who began when ``before`` were the newest offsets."""
    last = -1
    found: dict[bytes, int] = {}
    seen = list(records)
    values = dict(truth.values)
    for offset, key, value in seen:
        assert offset > last, f"offset {offset} comes after {last}"
        last = offset
        found[key] = offset
        if offset in values:  # otherwise its writer has not come so far as to note it
            assert values[offset] == (key, int(value)), f"another record is at offset {offset}"
            assert offset not in truth.aborted, f"an aborted record is shown at offset {offset}"
    missing = {key: at for key, at in before.items() if found.get(key, -1) < at}
    assert not missing, f"missing, or older than what was acknowledged before: {missing}"


def write_beside(logs: Logs, *readers: Callable[[Truth], None]) -> Truth:
    """Append, clean and read at the same time; raise the first error of any thread."""
    truth = Truth()
    writer = Writer(logs, truth)
    calls: list[Callable[[], object]] = [lambda: logs.clean(TOPIC, roll=True)]
    calls += [partial(reader, truth) for reader in readers]
    with ThreadPoolExecutor(len(calls) + 1) as threads:
        loops = [threads.submit(writer.loop, call) for call in calls]
        writing = threads.submit(writer.write)
        rounds = [loop.result() for loop in loops]
        writing.result()
    assert min(rounds) > 1
    return truth


def rows_of(records: Iterable[Any]) -> list[tuple[int, bytes, bytes]]:
    return [(record.offset, record.key, record.value) for record in records]


def scanned(path: Path, isolation: str) -> list[tuple[int, bytes, bytes]]:
    rows: list[tuple[int, bytes, bytes]] = []
    columns = ("offset", "key", "value")
    for batch in stratalog.scan(path, columns=columns, isolation=isolation, batch_rows=50):
        rows += zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
    return rows


def test_readers_see_no_gap_and_no_duplicate(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with stratalog.open(tmp_path, sync=False) as logs:
        logs.create(TOPIC, 1, CONFIGS)
        committed = "read_committed"

        def read(truth: Truth) -> None:
            before = truth.newest()
            check_read(rows_of(logs.read(TOPIC, isolation=committed).records()), truth, before)

        def read_slowly(truth: Truth) -> None:
            """A view is held while its segments are replaced, and their files removed."""
            before = truth.newest()
            records = logs.read(TOPIC, isolation=committed).records()
            first = [next(records)] if before else []
            logs.partition(TOPIC).remove_due(all_of_them=True)
            check_read(rows_of([*first, *records]), truth, before)

        def open_read_only(truth: Truth) -> None:
            before = truth.newest()
            with stratalog.open(tmp_path, read_only=True) as other:
                check_read(rows_of(other.read(TOPIC, isolation=committed).records()), truth, before)

        truth = write_beside(logs, read, read_slowly, open_read_only)
        found = rows_of(logs.read(TOPIC, isolation=committed).records())
        check_read(found, truth, truth.newest())
        assert len(found) == len(truth.newest())
        record_property("counted: updates read beside a cleaner, no gap", len(truth.values))
    assert run("verify", tmp_path).code == 0


@pytest.mark.parametrize("is_own", [True, False], ids=["own-log", "read-only"])
def test_a_tail_sees_every_key_to_its_last_update(tmp_path: Path, is_own: bool) -> None:
    """What is superseded before the tail comes to it may be gone; nothing else."""
    with stratalog.open(tmp_path, sync=False) as logs:
        logs.create(TOPIC, 1, CONFIGS)
        reader = logs if is_own else stratalog.open(tmp_path, read_only=True)
        seen: list[tuple[int, bytes, bytes]] = []
        tail = reader.tail(TOPIC, start=0, isolation="read_committed")

        def follow() -> None:
            for record in tail:
                seen.append((record.offset, record.key, record.value))  # type: ignore[arg-type]
                if record.key == b"the end":
                    return

        with ThreadPoolExecutor(1) as threads:
            following = threads.submit(follow)
            truth = write_beside(logs)
            logs.append(TOPIC, [(b"the end", b"0")], partition=0)
            following.result(60)
        check_read(seen[:-1], truth, truth.newest())
        if not is_own:
            reader.close()


# Whatever is done to the topic meanwhile.


class Disturbed:
    """A log directory that is cleaned by one thread, and changed in every way by another."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.random = Random(seed)
        self.logs = self.opened()
        self.is_over = threading.Event()
        self.serial = 0

    def opened(self) -> Logs:
        logs = stratalog.open(self.root, sync=False)
        if TOPIC not in logs.topics():
            logs.create(TOPIC, 1, CONFIGS)
        return logs

    def clean(self) -> int:
        """Clean until it is over; return how often that worked. What is deleted or closed is said so."""
        cleanings = 0
        while not self.is_over.is_set():
            try:
                self.logs.clean(TOPIC, roll=cleanings % 2 == 0)
                self.logs.cleaner_status()
                cleanings += 1
            except (RewriteStoppedError, StorageError, UnknownPartitionError, UsageError):
                continue
        return cleanings

    def disturb(self) -> None:
        step = self.random.choice(
            [self.append, self.append, self.append, self.append, self.retain, self.delete_records,
             self.alter, self.truncate, self.delete_topic, self.reopen, self.read]
        )  # fmt: skip
        step()

    def append(self) -> None:
        for _ in range(20):
            self.serial += 1
            key = b"key-%d" % self.random.randrange(KEYS)
            self.logs.append(TOPIC, [(key, b"%d" % self.serial)], partition=0)

    def retain(self) -> None:
        self.logs.alter_configs(TOPIC, {"retention.bytes": self.random.choice([-1, 0, 3000])})
        self.logs.retain()

    def delete_records(self) -> None:
        start, end = self.logs.earliest(TOPIC), self.logs.latest(TOPIC)
        self.logs.delete_records(TOPIC, 0, self.random.randint(start, end))

    def alter(self) -> None:
        configs = {
            "cleanup.policy": self.random.choice(["compact", "delete", "compact,delete"]),
            "internal.segment.bytes": self.random.choice([600, 1500, 4000]),
            "delete.retention.ms": self.random.choice([0, 86_400_000]),
        }
        self.logs.alter_configs(TOPIC, configs)

    def truncate(self) -> None:
        log = self.logs.partition(TOPIC)
        log.truncate(self.random.randint(log.log_start, log.log_end))

    def delete_topic(self) -> None:
        self.logs.delete_topic(TOPIC)
        self.logs.create(TOPIC, 1, CONFIGS)

    def reopen(self) -> None:
        self.logs.close()
        self.logs = self.opened()

    def read(self) -> None:
        last = -1
        for record in self.logs.read(TOPIC).records():
            assert record.offset > last
            last = record.offset


def test_a_scan_sees_no_gap_and_no_duplicate(tmp_path: Path) -> None:
    with stratalog.open(tmp_path, sync=False) as logs:
        logs.create(TOPIC, 1, CONFIGS)

        def scan(truth: Truth) -> None:
            before = truth.newest()
            check_read(scanned(tmp_path, "read_committed"), truth, before)

        write_beside(logs, scan)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(sized(2, 6 * SCALE)))
def test_a_topic_may_be_changed_in_every_way_while_it_is_cleaned(tmp_path: Path, seed: int) -> None:
    disturbed = Disturbed(tmp_path, fresh(seed))
    with ThreadPoolExecutor(1) as threads:
        cleaning = threads.submit(disturbed.clean)
        try:
            for _ in range(sized(25, 100)):
                disturbed.disturb()
        finally:
            disturbed.is_over.set()
        assert cleaning.result() > 0
    disturbed.read()
    disturbed.logs.close()
    assert run("verify", tmp_path).code == 0
    with stratalog.open(tmp_path, sync=False) as disturbed.logs:
        disturbed.read()
