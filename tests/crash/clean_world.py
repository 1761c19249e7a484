"""A log directory whose log is cleaned while the power may be cut, and what must hold whenever that happens.

A cleaning swaps in one group of segments after the other. So a log that is found after a power cut is one of
a few: as it was before the cleaning, after its first group, after its second, and so on. They are found by a
cleaning that is not interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

from stratalog.clock import Clock
from stratalog.manager.logs import Logs, open_logs
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.control import ControlType, build_marker
from stratalog.records.model import Record
from stratalog.rewrite.compact.clean import CleanerSettings
from stratalog.rewrite.limits import RewriteLimits
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.producers.states import Origin
from stratalog.storage.views.log_view import Isolation, LogView
from stratalog.storage.views.read_only import open_view
from stratalog.testing import Facts, ManualClock, MemoryFileSystem
from stratalog.testing.log_model import LogModel, ModelBatch
from stratalog.types import TopicPartition
from tests.crash.promises import contents, read_all, split

ROOT = "/data"
TOPIC = "t"
PARTITION = TopicPartition(TOPIC, 0)
FOLDER = f"{ROOT}/{TOPIC}-0"
RETENTION_MS = 1000
SLOT_BYTES = 24

CONFIGS: dict[str, object] = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": 350,
    "segment.index.bytes": 120,
    "index.interval.bytes": 100,
    "file.delete.delay.ms": 0,
    "delete.retention.ms": RETENTION_MS,
}


class Fact(NamedTuple):
    """What must hold from now on: the log is at least in this state, and so many later records are in it.
    ``sent`` of them may be."""

    state: int = 0
    acknowledged: int = 0
    sent: int = 0


class Sink(Protocol):
    def note(self, fact: Fact) -> None: ...


class Live(NamedTuple):
    """What readers find of each key, under both isolations: offsets and values, without tombstones."""

    committed: dict[bytes, tuple[int, bytes]]
    uncommitted: dict[bytes, tuple[int, bytes]]


@dataclass
class Case:
    """A log to clean, and how."""

    fill: Callable[[Filling], None]
    #: How many keys fit a map.
    keys_max: int = 1 << 20
    #: Configs that are changed before the cleaning.
    altered: dict[str, object] = field(default_factory=dict)
    #: Whether the recovery after a power cut has a recovery point, or looks at every segment.
    has_recovery_point: bool = True
    sync: bool = True

    def open(self, file_system: FileSystem, clock: Clock) -> Logs:
        logs = open_logs(
            ROOT, file_system=file_system, clock=clock, sync=self.sync, on_recovery=lambda *_: None
        )
        logs._cleaner._settings = CleanerSettings(SLOT_BYTES * self.keys_max, load_factor=1.0)
        return logs

    @cached_property
    def disk(self) -> MemoryFileSystem:
        made = MemoryFileSystem(folders=[ROOT])
        with self.open(made, made.clock) as logs:
            logs.create(TOPIC, 1, CONFIGS)
            self.fill(Filling(logs, made))
            logs.partition(TOPIC).roll()
            if self.altered:
                logs.alter_configs(TOPIC, self.altered)
        if not self.has_recovery_point:
            made.unlink(f"{ROOT}/recovery-point-offset-checkpoint")
            made.unlink(f"{ROOT}/.kafka_cleanshutdown")
        made.sync_all()
        return made

    def new_disk(self) -> MemoryFileSystem:
        return self.disk.fork()

    @cached_property
    def states(self) -> States:
        return States.of(self)

    # What is explored.

    def run(self, file_system: MemoryFileSystem, facts: Facts[Fact]) -> None:
        self.steps(file_system, file_system.clock, facts)

    def steps(self, file_system: FileSystem, clock: Clock, facts: Sink) -> None:
        """Append, clean, append, and stop in order."""
        final = len(self.states.contents) - 1
        with self.open(file_system, clock) as logs:
            log = logs.partition(TOPIC)
            facts.note(Fact(0, 0, 1))
            append_later(log, 0)
            facts.note(Fact(0, 1, 1))
            logs.clean(TOPIC)
            facts.note(Fact(final, 1, 2))
            append_later(log, 1)
            facts.note(Fact(final, 2, 2))

    def check(self, file_system: MemoryFileSystem, facts: Facts[Fact]) -> None:
        """Look as a reader, recover, and look again."""
        fact = facts[-1] if facts else Fact()
        view = open_view(FOLDER, file_system).view
        self.states.find(view_batches(view), fact)
        with self.open(file_system, file_system.clock) as logs:
            log = logs.partition(TOPIC)
            fact = self.check_log(logs, log, fact)
            facts.note(fact)
        left = [path for path in file_system.paths() if path.endswith((".cleaned", ".swap"))]
        assert not left, f"left behind: {left}"

    def check_log(self, logs: Logs, log: PartitionLog, fact: Fact) -> Fact:
        """Check an open log; return what must hold after it was seen."""
        end = self.states.log_end
        assert all(cut.from_offset >= end for cut in log.report.cuts), "records were cut off"
        batches = batches_of(log)
        found = self.states.find(batches, fact)
        checkpoint = checkpoint_of(logs)
        needed = self.states.checkpoints.get(checkpoint)
        assert needed is not None, f"the checkpoint {checkpoint} is of no round"
        assert found.state >= needed, f"the checkpoint {checkpoint} is ahead of the segments"
        assert log.last_stable_offset == log.log_end, "a transaction is open that has ended"
        check_live(live(log), self.states.live)
        check_readers(log, batches)
        self.states.check_producers(log)
        return found

    def check_finished(self, file_system: MemoryFileSystem) -> None:
        """Clean what is left to clean: the same records stay."""
        with self.open(file_system, file_system.clock) as logs:
            logs.clean(TOPIC)
            log = logs.partition(TOPIC)
            check_live(live(log), self.states.live)
            assert checkpoint_of(logs) == log.segments[-1].base_offset


@dataclass(frozen=True)
class States:
    """The states that a log goes through while it is cleaned, as the bytes of its batches."""

    log_end: int
    contents: tuple[bytes, ...]
    #: From which state on each checkpoint of the cleaner is right.
    checkpoints: dict[int | None, int]
    live: Live
    last_sent: tuple[ModelBatch, ...]

    @staticmethod
    def of(case: Case) -> States:
        disk = case.new_disk()
        found: list[bytes] = []
        checkpoints: dict[int | None, int] = {}
        with case.open(disk, disk.clock) as logs:
            log = logs.partition(TOPIC)
            log_end, before = log.log_end, live(log)
            history = batches_of(log)

            def look(_: int = 0) -> None:
                data = contents(log)
                if not found or found[-1] != data:
                    found.append(data)
                checkpoints.setdefault(checkpoint_of(logs), len(found) - 1)

            look()
            logs.clean(TOPIC, limits=RewriteLimits(progress=look))
            look()
            check_live(live(log), before)
        return States(log_end, tuple(found), checkpoints, before, _last_sent(history))

    def find(self, batches: Sequence[ModelBatch], fact: Fact) -> Fact:
        """Return the state that a log is in. AssertionError if it is in none that it may be in."""
        data = b"".join(batch.data for batch in batches if batch.base_offset < self.log_end)
        assert data in self.contents, "the log is neither as it was nor as it was to be"
        # States that look the same are the same.
        state = max(number for number, each in enumerate(self.contents) if each == data)
        assert state >= fact.state, f"the log is back in state {state}: {fact.state} was seen"
        later = [batch for batch in batches if batch.base_offset >= self.log_end]
        values = [record.value for batch in later for record in batch.records]
        assert values == [b"later %d" % number for number in range(len(values))]
        assert fact.acknowledged <= len(values) <= fact.sent, f"{len(values)} later records"
        return Fact(state, len(values), len(values))

    def check_producers(self, log: PartitionLog) -> None:
        """What a producer sent last is known when it comes again."""
        for batch in self.last_sent:
            again = log.append(batch.as_sent, leader_epoch=batch.leader_epoch)
            assert again.is_duplicate, f"producer {batch.producer_id} is forgotten"
            assert again.first_offset == batch.base_offset


def _last_sent(history: Sequence[ModelBatch]) -> tuple[ModelBatch, ...]:
    model = LogModel(list(history))
    producers = sorted({batch.producer_id for batch in history if batch.producer_id >= 0})
    last = [model.batches_of(producer)[-1] for producer in producers]
    return tuple(batch for batch in last if batch.records)


def checkpoint_of(logs: Logs) -> int | None:
    """Where the cleaner's checkpoint says that the next cleaning begins."""
    return logs._catalogue.directory(PARTITION).cleaned_offsets.offsets.get(PARTITION)


def append_later(log: PartitionLog, number: int) -> None:
    """Append a record that the cleaning does not touch, in the active segment."""
    record = Record(b"later %d" % number, b"later", log.clock.now_ms())
    log.append(build_batch([record]), sync=True)


def batches_of(log: PartitionLog) -> list[ModelBatch]:
    return [ModelBatch.of(part) for part in split(contents(log))]


def view_batches(view: LogView) -> list[ModelBatch]:
    """The batches that a reader finds who opens nothing for writing."""
    parts = []
    for number, segment in enumerate(view.segments.segments):
        size = view.limit(number)
        parts.append(segment.log.read(0, size) if size else b"")
    return [ModelBatch.of(part) for part in split(b"".join(parts))]


def live(log: PartitionLog) -> Live:
    committed = read_all(log, Isolation.COMMITTED)
    uncommitted = read_all(log, Isolation.UNCOMMITTED)
    return Live(_newest(committed, log), _newest(uncommitted, log, skips=True))


def _newest(
    batches: Sequence[ModelBatch], log: PartitionLog, *, skips: bool = False
) -> dict[bytes, tuple[int, bytes]]:
    """The newest record of each key. ``skips``: what is aborted does not count; compaction removes it."""
    aborted = {txn for txn in LogModel(batches_of(log)).transactions() if txn.is_aborted}
    found: dict[bytes, tuple[int, bytes | None]] = {}
    for batch in batches:
        if batch.is_control or (skips and any(txn.holds(batch) for txn in aborted)):
            continue
        for record in batch.records:
            assert record.key is not None
            if record.key != b"later":
                found[record.key] = record.offset, record.value
    return {key: (at, value) for key, (at, value) in found.items() if value is not None}


def check_live(found: Live, expected: Live) -> None:
    for seen, wanted in zip(found, expected, strict=True):
        lost = wanted.keys() - seen.keys()
        assert not lost, f"keys were lost: {lost}"
        back = seen.keys() - wanted.keys()
        assert not back, f"deleted keys are back: {back}"
        assert seen == wanted, "an older value is back"


def check_readers(log: PartitionLog, batches: Sequence[ModelBatch]) -> None:
    """Readers see all batches in order; those of committed data, no aborted records."""
    assert read_all(log, Isolation.UNCOMMITTED) == list(batches)
    seen = [r for batch in read_all(log, Isolation.COMMITTED) for r in batch.records]
    wanted = LogModel(list(batches)).committed(log.log_end)
    assert seen == wanted, "read_committed shows other records"
    offsets = [record.offset for record in seen]
    assert offsets == sorted(offsets)


# Filling a log.


class Filling:
    """Appends to the log of a case."""

    def __init__(self, logs: Logs, disk: MemoryFileSystem) -> None:
        self.logs = logs
        self.log = logs.partition(TOPIC)
        self.disk = disk
        self.serial = 0
        self.sequences: dict[int, int] = {}

    def put(self, *keys: str, producer: int = -1, txn: bool = False) -> None:
        """Append a batch with a record of each key; ``-key`` is a tombstone."""
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + len(keys)
        options = BatchOptions(
            producer_id=producer,
            producer_epoch=-1 if producer < 0 else 0,
            base_sequence=-1 if producer < 0 else sequence,
            is_transactional=txn,
        )
        self.log.append(build_batch([self.record(key) for key in keys], options), sync=True)

    def record(self, key: str) -> Record:
        self.serial += 1
        value = None if key.startswith("-") else b"%03d" % self.serial
        return Record(value, key.lstrip("-").encode(), self.log.clock.now_ms() + self.serial)

    def end(self, producer: int, kind: ControlType) -> None:
        marker = build_marker(
            kind, offset=0, timestamp=self.log.clock.now_ms(), producer_id=producer,
            producer_epoch=0, coordinator_epoch=0,
        )  # fmt: skip
        self.log.append(marker, origin=Origin.COORDINATOR, sync=True)

    def clean(self, *, then_ms: int = 0) -> None:
        """Clean everything so far, and let time pass."""
        self.logs.clean(TOPIC, roll=True)
        clock = self.disk.clock
        assert isinstance(clock, ManualClock)
        clock.advance(then_ms)


def few_keys(log: Filling) -> None:
    """Old values of three keys in several segments, each its own group; an idempotent producer among them."""
    for number in range(24):
        log.put("abc"[number % 3], producer=7 if number % 4 == 0 else -1)
    log.put("-b")


def many_keys(log: Filling) -> None:
    for number in range(24):
        log.put(f"k{number * 7 % 11}", f"k{number % 5}")


def transactions(log: Filling) -> None:
    """Committed and aborted transactions that overlap, of two producers, over several segments."""
    for number in range(6):
        log.put("a", f"p{number}")
        log.put("a", "b", producer=4, txn=True)
        log.put("c", producer=5, txn=True)
        log.put(f"only-{number % 2}", producer=4, txn=True)
        log.end(4, ControlType.ABORT if number % 2 else ControlType.COMMIT)
        log.put("c", f"q{number % 3}")
        log.end(5, ControlType.COMMIT if number % 3 else ControlType.ABORT)


def cleaned_before(log: Filling) -> None:
    """A log with horizons that have passed and markers without data, and more records."""
    transactions(log)
    log.put("-a", "-p0")
    log.clean(then_ms=RETENTION_MS)
    log.clean(then_ms=RETENTION_MS)
    for number in range(8):
        log.put(f"p{number % 4}", "c")
    log.put("b", producer=4, txn=True)
    log.end(4, ControlType.ABORT)


def only_one_key(log: Filling) -> None:
    """Whole segments become empty."""
    for _ in range(30):
        log.put("a")


MERGED: dict[str, object] = {"internal.segment.bytes": 1200, "segment.index.bytes": 1 << 20}

CASES = {
    "few-keys": Case(few_keys),
    "merged": Case(many_keys, altered=MERGED),
    "rounds": Case(many_keys, keys_max=6),
    "transactions": Case(transactions),
    "transactions-merged": Case(transactions, altered=MERGED),
    "transactions-in-rounds": Case(transactions, keys_max=5, altered=MERGED),
    "cleaned-before": Case(cleaned_before, altered=MERGED),
    "emptied": Case(only_one_key),
    "no-recovery-point": Case(transactions, has_recovery_point=False),
    "not-synced": Case(few_keys, sync=False),
}
