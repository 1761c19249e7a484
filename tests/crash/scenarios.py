"""What is done to a log while the power may be cut at any step.

Each scenario runs on any file system. Segments hold a few batches and an index a few entries, so that a dozen
appends roll several times.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from stratalog.errors import OffsetOutOfRangeError
from stratalog.records.control import ControlType
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.log_config import LogConfig
from stratalog.storage.names import FileKind, Stage, segment_file_name
from stratalog.storage.partition_log import Watermark
from stratalog.testing import Facts, MemoryFileSystem
from stratalog.testing.log_model import LogModel
from tests.crash.driver import CONFIG, FOLDER, WIDE, Check, Driver, Sink
from tests.crash.keeper import Keeper
from tests.crash.promises import Promise

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT

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
