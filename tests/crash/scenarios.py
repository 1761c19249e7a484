"""What is done to a log while the power may be cut at any step: small scenarios, in a small language.

Each runs on any file system. Before a change begins, what may come of it is noted; when it is acknowledged,
what must be there from now on. Segments hold a few batches and an index a few entries, so that a dozen
appends roll several times.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple, Protocol

from stratalog.clock import Clock
from stratalog.errors import OffsetOutOfRangeError
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.control import ControlType, build_marker
from stratalog.records.model import Record
from stratalog.storage.filesystem import FileSystem
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import FileKind, Stage, segment_file_name
from stratalog.storage.partition_log import PartitionLog, Watermark
from stratalog.storage.producers import Origin
from stratalog.storage.retention import SizeLimit
from stratalog.testing import Facts, ManualClock, MemoryFileSystem
from stratalog.testing.log_model import LogModel, ModelBatch, stamped
from tests.crash.keeper import Keeper
from tests.crash.promises import (
    Promise,
    check_committed,
    check_epochs,
    check_files,
    check_invariants,
    check_lookups,
    check_retries,
    check_run,
)

FOLDER = "/data/t-0"
ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT

CONFIG = LogConfig.of(
    internal_segment_bytes=400,
    segment_index_bytes=120,
    index_interval_bytes=100,
    file_delete_delay_ms=1000,
)
#: Segments of more than one sector of a disk.
WIDE = LogConfig.of(
    internal_segment_bytes=1500,
    segment_index_bytes=240,
    index_interval_bytes=150,
    file_delete_delay_ms=1000,
)


class Sink(Protocol):
    def note(self, fact: Promise) -> None: ...


def new_disk() -> MemoryFileSystem:
    return MemoryFileSystem(folders=[FOLDER])


class Driver:
    """A log in the hands of a scenario."""

    keeper: Keeper

    def __init__(
        self,
        file_system: FileSystem,
        facts: Sink,
        *,
        clock: Clock | None = None,
        promise: Promise | None = None,
        config: LogConfig = CONFIG,
        watermark: Watermark = Watermark.SYNCED,
        serial: int = 0,
        keeper: type[Keeper] = Keeper,
    ) -> None:
        self.file_system = file_system
        self.facts = facts
        self.clock = clock or getattr(file_system, "clock", None) or ManualClock()
        self.promise = promise or Promise()
        self.config = config
        self.watermark = watermark
        self.serial = serial
        self.leader_epoch = 0
        self.is_closed = True
        self.is_cutting = False
        self._keeper = keeper
        self.open()

    @property
    def log(self) -> PartitionLog:
        return self.keeper.log

    def note(self, promise: Promise) -> None:
        if promise is not self.promise:
            self.promise = promise
            self.facts.note(promise)

    def settle(self) -> None:
        """What the log says of itself now is a promise, too."""
        log = self.log
        shown = log.high_watermark if self.watermark is Watermark.SYNCED else 0
        self.note(self.promise.durable(max(log.synced_offset, log.recovery_point, shown)))

    def open(self) -> None:
        self.keeper = self._keeper(
            self.file_system, self.clock, self.config, watermark=self.watermark
        )
        self.is_closed = False
        self.leader_epoch = max([self.leader_epoch, *(each.epoch for each in self.log.epochs)])
        self.settle()

    def close(self) -> None:
        end = self.log.log_end
        self.is_closed = True
        self.keeper.close()
        if self.log.failure is None:
            self.note(self.promise.durable(end))

    def reopen(self) -> None:
        self.close()
        self.open()

    def die(self) -> None:
        """Killed and started again, on a machine that runs on."""
        self.keeper.abandon()
        self.is_closed = True
        self.open()

    # Appending.

    def append(
        self,
        count: int = 1,
        *,
        size: int = 6,
        sync: bool = True,
        producer: int = -1,
        txn: bool = False,
        bump: bool = False,
    ) -> ModelBatch:
        """A batch of ``count`` records; of an idempotent producer, the next in its order."""
        epoch = sequence = -1
        if producer >= 0:
            model = LogModel(list(self.promise.history))
            before = model.batches_of(producer)
            epoch = max(0, model.epoch_of(producer)) + bump
            sequence = before[-1].last_sequence + 1 if before and not bump else 0
        data = build_batch(
            self.records(count, size),
            BatchOptions(
                producer_id=producer,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=txn,
            ),
        )
        return self.send(data, sync=sync)

    def records(self, count: int, size: int) -> list[Record]:
        records = []
        for _ in range(count):
            self.serial += 1
            value = b"%d" % self.serial
            # Times that mostly rise, and sometimes fall.
            late = self.serial * 10 - (25 if self.serial % 4 == 0 else 0)
            records.append(Record(value.ljust(size, b"."), timestamp=self.clock.now_ms() + late))
        return records

    def send(self, data: bytes, *, sync: bool = True, origin: Origin = Origin.CLIENT) -> ModelBatch:
        batch = ModelBatch.of(stamped(data, self.log.log_end, self.leader_epoch))
        self.note(self.promise.appended(batch))
        answer = self.log.append(data, leader_epoch=self.leader_epoch, origin=origin, sync=sync)
        assert (answer.first_offset, answer.last_offset) == (batch.base_offset, batch.last_offset)
        assert not answer.is_duplicate
        if sync:
            self.note(self.promise.durable(batch.next_offset))
        self.settle()
        return batch

    def end(
        self, producer: int, kind: ControlType, *, sync: bool = True, bump: bool = False
    ) -> None:
        """The marker that ends a transaction."""
        epoch = LogModel(list(self.promise.history)).epoch_of(producer) + bump
        data = build_marker(
            kind,
            offset=0,
            timestamp=self.clock.now_ms(),
            producer_id=producer,
            producer_epoch=max(0, epoch),
            coordinator_epoch=0,
        )
        self.send(data, sync=sync, origin=Origin.COORDINATOR)

    def follow(self, count: int = 1, *, gap: int = 0, sync: bool = False) -> None:
        """A batch from a leader, that brings its offset."""
        data = build_batch(self.records(count, 6))
        batch = ModelBatch.of(stamped(data, self.log.log_end + gap, self.leader_epoch))
        self.note(self.promise.appended(batch))
        self.log.append_as_follower(batch.data, sync=sync)
        self.settle()

    def retry(self, producer: int) -> None:
        """The last batch of a producer once more."""
        last = LogModel(list(self.promise.history)).batches_of(producer)[-1]
        answer = self.log.append(last.as_sent, leader_epoch=self.leader_epoch, sync=True)
        assert answer.is_duplicate
        assert answer.first_offset == last.base_offset
        self.note(self.promise.durable(answer.next_offset))

    # Everything else.

    def sync(self) -> None:
        self.log.sync()
        self.settle()

    def flush(self) -> None:
        self.log.flush()
        self.settle()

    def roll(self) -> None:
        self.log.roll()
        self.settle()

    def checkpoint(self) -> None:
        start, high_watermark = self.log.log_start, self.log.high_watermark
        self.keeper.checkpoint()
        self.note(self.promise._replace(start=start, high_watermark=high_watermark))

    def lead(self, epoch: int) -> None:
        self.leader_epoch = epoch
        self.log.assign_epoch(epoch)

    def truncate(self, offset: int) -> None:
        """Cut, and have the checkpoints follow at once, as Kafka's manager does."""
        self.note(
            self.promise.up_to(offset)._replace(
                start=min(self.promise.start, offset),
                end_max=max(self.promise.end_max, offset),
            )
        )
        self.is_cutting = True
        self.log.truncate(offset)
        self.is_cutting = False
        self.note(self.promise.cut(offset))
        self.checkpoint()

    def restart(self, offset: int) -> None:
        self.note(
            self.promise._replace(
                durable_end=0,
                start=0,
                start_max=1 << 40,
                end_max=max(offset, self.promise.end_max),
                high_watermark=0,
            )
        )
        self.is_cutting = True
        self.log.restart(offset)
        self.is_cutting = False
        self.note(Promise(durable_end=offset, start=offset, start_max=offset, end_max=offset))
        self.checkpoint()

    def advance_start(self, offset: int) -> None:
        self.note(self.promise._replace(start_max=max(self.promise.start_max, offset)))
        self.log.advance_start(offset)
        self.settle()

    def retain(self, limit: int = 0) -> None:
        """Delete what is above ``limit`` bytes, and no more."""
        end, size = self.log.high_watermark, self.log.size_bytes
        self.note(
            self.promise._replace(
                start_max=max(self.promise.start_max, end), end_max=max(self.promise.end_max, end)
            )
        )
        self.log.retain((SizeLimit(limit),))
        assert self.log.size_bytes >= min(size, limit), "more was deleted than was to be"
        self.settle()

    def remove_due(self) -> None:
        self.log.remove_due(all_of_them=True)


# The check after a crash.


class Check:
    """Recover and look: everything that was promised is there, and the log works."""

    def __init__(
        self,
        *,
        config: LogConfig = CONFIG,
        watermark: Watermark = Watermark.SYNCED,
        keeper: type[Keeper] = Keeper,
    ) -> None:
        self.config = config
        self.watermark = watermark
        self.keeper = keeper

    def __call__(self, file_system: MemoryFileSystem, facts: Facts[Promise]) -> None:
        promise = facts[-1] if facts else Promise()
        keeper = self.keeper(file_system, file_system.clock, self.config, watermark=self.watermark)
        log = keeper.log
        history = check_run(log, promise)
        check_invariants(log, promise)
        check_epochs(log, history, promise)
        # What came through and is shown is on the disk now; what did not is gone for good.
        is_shown = self.watermark is Watermark.SYNCED
        promise = promise._replace(
            history=history,
            durable_end=log.log_end if is_shown else log.synced_offset,
            end_max=log.log_end,
        )
        facts.note(promise)
        check_lookups(log, history)
        check_committed(log, history)
        check_retries(log, history)
        check_files([entry.name for entry in file_system.list_dir(FOLDER)])
        self.go_on(keeper, facts, promise)

    def go_on(self, keeper: Keeper, facts: Facts[Promise], promise: Promise) -> None:
        """The log takes records again, and what it acknowledges stays."""
        log = keeper.log
        data = build_batch([Record(b"after %d" % len(facts), timestamp=log.log_end)])
        epoch = log.epochs[-1].epoch if log.epochs else 0
        batch = ModelBatch.of(stamped(data, log.log_end, epoch))
        promise = promise.appended(batch)
        facts.note(promise)
        log.append(data, leader_epoch=epoch, sync=True)
        facts.note(promise.durable(batch.next_offset))


# The scenarios.

Steps = Callable[[Driver], None]


class Scenario(NamedTuple):
    """What is done, and to what kind of log."""

    steps: Steps
    config: LogConfig = CONFIG
    watermark: Watermark = Watermark.SYNCED

    def runs(
        self, keeper: type[Keeper] = Keeper
    ) -> Callable[[MemoryFileSystem, Facts[Promise]], None]:
        """As the explorer takes it."""

        def run(file_system: MemoryFileSystem, facts: Facts[Promise]) -> None:
            self.steps(self.driver(file_system, facts, keeper))

        return run

    def driver(
        self,
        file_system: FileSystem,
        facts: Sink,
        keeper: type[Keeper] = Keeper,
        promise: Promise | None = None,
    ) -> Driver:
        return Driver(
            file_system,
            facts,
            promise=promise,
            config=self.config,
            watermark=self.watermark,
            keeper=keeper,
        )

    def check(self, keeper: type[Keeper] = Keeper) -> Check:
        return Check(config=self.config, watermark=self.watermark, keeper=keeper)


def synced_appends(do: Driver) -> None:
    """Every append is on the disk when it is answered; several rolls."""
    for number in range(9):
        do.append(1 + number % 3, size=6 + 5 * (number % 2))


def unsynced_appends(do: Driver) -> None:
    """Nothing is synced but by a roll, a sync and a flush now and then."""
    for number in range(12):
        do.append(1 + number % 2, sync=False)
        if number == 4:
            do.sync()
        if number == 8:
            do.flush()
            do.checkpoint()


def over_sectors(do: Driver) -> None:
    """Batches that lie over the ends of sectors, each of which may be written or not."""
    for number, size in enumerate((70, 12, 85, 33, 60, 4, 90, 21, 47, 8)):
        do.append(1, size=size, sync=number == 5)


def rolls_of_unsynced(do: Driver) -> None:
    """A segment that nobody ever synced is sealed by hand, and then relied upon."""
    do.append(sync=False)
    do.roll()
    do.sync()
    do.checkpoint()
    do.append(2, sync=False)
    do.roll()
    do.append(sync=False)
    do.sync()


def truncation(do: Driver) -> None:
    """Cut inside the active segment, over a roll, in the middle of a batch, and to nothing."""
    for _ in range(7):
        do.append(2)
    do.flush()
    do.checkpoint()
    do.truncate(10)
    do.append(3, size=20)
    do.truncate(4)
    do.append(1, sync=False)
    do.append(2, sync=False)
    do.truncate(5)
    do.append(2)
    do.truncate(0)
    do.append(1)


def restarts(do: Driver) -> None:
    """A follower that is too far behind throws everything away."""
    for _ in range(6):
        do.append(1)
    do.checkpoint()
    do.restart(40)
    do.append(2)
    do.append(1, sync=False)


def retention(do: Driver) -> None:
    """Old segments go, one by one and then all of them; the start is advanced into a batch."""
    for _ in range(9):
        do.append(2)
    do.retain(700)
    do.checkpoint()
    do.append(2)
    do.advance_start(do.log.log_start + 1)
    do.checkpoint()
    do.append(1, sync=False)
    do.retain(0)
    do.remove_due()
    do.sync()
    do.retain(0)
    do.checkpoint()
    do.append(2)


def advanced_starts(do: Driver) -> None:
    """The start is advanced to where nothing is synced yet, and that is checkpointed."""
    do.append(2)
    for _ in range(3):
        do.append(2, sync=False)
    do.advance_start(7)
    do.checkpoint()
    do.append(1, sync=False)
    do.checkpoint()


def transactions(do: Driver) -> None:
    """Commits and aborts that overlap, over several segments."""
    do.append(1, producer=1, txn=True)
    do.append(2, producer=2, txn=True, sync=False)
    do.append(1)
    do.end(1, ABORT)
    do.append(1, producer=3, txn=True)
    do.end(2, COMMIT, sync=False)
    do.append(1, producer=1, txn=True)
    do.end(3, ABORT, bump=True)
    do.flush()
    do.checkpoint()
    do.end(1, ABORT)
    do.append(1, producer=2, txn=True)
    do.append(1, producer=2, txn=True)


def producers(do: Driver) -> None:
    """Idempotent producers over rolls, with retries and a new epoch."""
    for number in range(5):
        do.append(1 + number % 2, producer=number % 2)
        do.append(1, producer=2, sync=number % 2 == 0)
    do.retry(2)
    do.retry(0)
    do.flush()
    do.checkpoint()
    do.append(1, producer=1, bump=True)
    do.append(1, producer=1)
    do.append(2, producer=0, sync=False)


def orderly_stops(do: Driver) -> None:
    """Closed and opened again, clean each time; with producers and an open transaction."""
    do.append(2, producer=1)
    do.append(1, sync=False)
    do.reopen()
    do.append(1, producer=1, sync=False)
    do.append(1, producer=2, txn=True, sync=False)
    do.append(2, sync=False)
    do.append(1, sync=False)
    do.reopen()
    do.reopen()
    do.end(2, ABORT, sync=False)
    do.append(1, producer=1)
    do.close()
    do.open()


def deaths(do: Driver) -> None:
    """Killed and started again, while nothing but what was synced is safe from the next power cut."""
    do.append(1)
    do.die()
    for number in range(4):
        do.append(2, producer=1, sync=number % 2 == 0)
    do.die()
    do.append(1, producer=1)
    do.roll()
    do.die()
    do.append(1, sync=False)
    do.append(1, producer=2, txn=True)
    do.roll()
    do.die()
    do.die()
    do.append(1)


def high_watermarks(do: Driver) -> None:
    """The caller moves the high watermark, and checkpoints it."""
    for number in range(6):
        do.append(2)
        do.log.advance_high_watermark(2 * number + 1)
        if number % 2:
            do.checkpoint()
    do.truncate(8)
    do.die()
    do.append(1)
    do.reopen()


def leader_epochs(do: Driver) -> None:
    """Leaders come and go, and a follower cuts what the new one does not have."""
    do.lead(1)
    do.append(1)
    do.append(1, sync=False)
    do.lead(3)
    do.append(2)
    do.append(1)
    do.truncate(2)
    do.lead(4)
    do.append(1)
    do.append(1, sync=False)
    do.flush()
    do.checkpoint()
    do.lead(7)
    do.append(1)


def followers(do: Driver) -> None:
    """Batches that bring their offsets, with gaps between them."""
    do.follow(2, sync=True)
    do.follow(1, gap=3)
    do.follow(2, sync=True)
    do.leader_epoch = 2
    do.follow(1, gap=1)
    do.follow(1)
    do.flush()
    do.checkpoint()
    do.follow(3, gap=10, sync=True)


def replacement(do: Driver) -> None:
    """Segments are rewritten and swapped in, in the order in which a cleaner does it. The bytes are the
    same: so whatever was interrupted, the same log comes back."""
    for _ in range(8):
        do.append(1)
    do.flush()
    do.checkpoint()
    do.close()
    files = do.file_system
    bases = [segment.base_offset for segment in do.log.segments][:2]
    kinds = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)

    def path(base: int, kind: FileKind, stage: Stage = Stage.LIVE) -> str:
        return f"{FOLDER}/{segment_file_name(base, kind, stage)}"

    for base in bases:
        for kind in kinds:
            source = files.open_readable(path(base, kind))
            data = bytearray(source.size())
            source.read_into(0, memoryview(data))
            copy = files.open_writable(path(base, kind, Stage.CLEANED), create=True)
            copy.write_at(0, data)
            copy.sync()
            source.close()
            copy.close()
    files.sync_dir(FOLDER)
    for base in reversed(bases):
        for kind in kinds:
            files.rename(path(base, kind, Stage.CLEANED), path(base, kind, Stage.SWAP))
    files.sync_dir(FOLDER)
    for base in bases:
        for kind in kinds:
            files.rename(path(base, kind), path(base, kind, Stage.DELETED))
    files.sync_dir(FOLDER)
    for base in bases:
        for kind in kinds:
            files.rename(path(base, kind, Stage.SWAP), path(base, kind))
    files.sync_dir(FOLDER)
    do.open()
    do.append(1)


SCENARIOS: dict[str, Scenario] = {
    steps.__name__: Scenario(steps)
    for steps in (
        synced_appends,
        unsynced_appends,
        rolls_of_unsynced,
        truncation,
        restarts,
        retention,
        transactions,
        producers,
        orderly_stops,
        deaths,
        leader_epochs,
        followers,
        replacement,
    )
} | {
    "advanced_starts": Scenario(advanced_starts, watermark=Watermark.WRITTEN),
    "high_watermarks": Scenario(high_watermarks, watermark=Watermark.CALLER),
    "over_sectors": Scenario(over_sectors, config=WIDE),
    "wide_segments": Scenario(unsynced_appends, config=WIDE),
    "shown_when_written": Scenario(transactions, watermark=Watermark.WRITTEN),
}


def random_scenario(seed: int) -> Scenario:
    """A scenario that chance writes."""

    def scenario(do: Driver) -> None:
        random = Random(seed)
        open_txns: set[int] = set()
        epoch = 0
        for _ in range(random.randint(5, 16)):
            sync = random.random() < 0.5
            match random.choices(
                ("plain", "idempotent", "txn", "marker", "sync", "flush", "roll", "truncate",
                 "retain", "start", "reopen", "die", "lead", "checkpoint", "follow"),
                (8, 5, 5, 4, 1, 2, 2, 2, 1, 1, 2, 1, 1, 1, 1),
            )[0]:  # fmt: skip
                case "plain":
                    do.append(random.randint(1, 3), size=random.choice((4, 10, 40, 90)), sync=sync)
                case "idempotent":
                    producer = random.randint(1, 3)
                    do.append(1, producer=producer, sync=sync, bump=random.random() < 0.1)
                case "txn":
                    producer = random.randint(4, 6)
                    do.append(random.randint(1, 2), producer=producer, txn=True, sync=sync)
                    open_txns.add(producer)
                case "marker" if open_txns:
                    producer = random.choice(sorted(open_txns))
                    open_txns.discard(producer)
                    do.end(producer, random.choice((ABORT, COMMIT)), sync=sync)
                case "sync":
                    do.sync()
                case "flush":
                    do.flush()
                case "roll":
                    do.roll()
                case "truncate":
                    # At the end of a batch: what is between would be a hole that is meant.
                    ends = [b.next_offset for b in do.promise.history] or [0]
                    offset = random.choice(ends[-6:])
                    if offset >= do.log.log_start:
                        do.truncate(offset)
                        model = LogModel(list(do.promise.history))
                        open_txns = {
                            each for each in range(4, 7) if model.open_since(each) is not None
                        }
                case "retain":
                    do.retain(random.choice((0, 300, 600)))
                case "start":
                    try:
                        do.advance_start(random.randint(do.log.log_start, do.log.high_watermark))
                    except OffsetOutOfRangeError:
                        raise AssertionError from None
                case "reopen":
                    do.reopen()
                case "die":
                    do.die()
                case "lead":
                    epoch += random.randint(1, 2)
                    do.lead(epoch)
                case "checkpoint":
                    do.checkpoint()
                case "follow":
                    do.follow(random.randint(1, 2), gap=random.choice((0, 0, 2)), sync=sync)

    return Scenario(
        scenario,
        config=(CONFIG, WIDE)[seed % 2],
        watermark=(Watermark.SYNCED, Watermark.SYNCED, Watermark.WRITTEN)[seed % 3],
    )
